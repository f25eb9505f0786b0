"""`waferloom run`: a program with its inputs, its outputs, and where the cycles went."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...isa.errors import ENDS, Mismatch, Usage
from ..terminal import Terminal, say

if TYPE_CHECKING:
    from ...fabric.result import Result
    from ...fabric.wafer import Wafer

FIRST_RUN = "starting (the first run after an installation compiles the engine)"


@click.command("run")
@click.argument("file", metavar="FILE.loom|IMAGE|-")
@click.option("-D", "--define", "define", multiple=True, metavar="NAME=VALUE", help="Set a parameter.")
@click.option("-I", "--include", multiple=True, metavar="DIR", help="Look for included files here too.")
@click.option(
    "--machine", metavar="M", help="tiny, wse2, wse3 or a TOML file [default: the program's, else wse3]."
)
@click.option("--engine", type=click.Choice(["fast", "reference"]), default="fast", show_default=True)
@click.option(
    "--max-cycles", type=click.IntRange(min=1), metavar="N", help="Stop after N cycles (exit code 5)."
)
@click.option("--strict", is_flag=True, help="A read of never-written SRAM is a fault; warnings are errors.")
@click.option("--input", "inputs", multiple=True, metavar="NAME=FILE", help="Array of an input edge port.")
@click.option(
    "--write", "writes", multiple=True, metavar="SYMBOL=FILE", help="Array of a symbol, before the run."
)
@click.option("--read", "reads", multiple=True, metavar="SYMBOL", help="Keep a symbol after the run.")
@click.option("--output", metavar="FILE", help="Outputs and --read symbols: .npz, .safetensors or a folder/.")
@click.option("--result", "result_file", metavar="FILE.json", help="Write the result file.")
@click.option("--json", "as_json", is_flag=True, help="Print the result file instead of the summary.")
@click.option(
    "--expect", metavar="FILE", help="Compare with .npz, .safetensors, .json, or `;=` comments of a .loom."
)
@click.option(
    "--map", "maps", multiple=True, metavar="METRIC", help="Print a heat map: busy, receive, links, ..."
)
@click.pass_obj
def command(terminal: Terminal, **options: Any) -> None:
    """Run a program once.

    Arrays come from .npy, .npz and .safetensors files (FILE:KEY picks one) and must have the declared type.
    """
    from ..expectations import Expectations, differences, feed
    from ..program_file import defines, load

    expect = options["expect"]
    written: Expectations | None = _in_source(expect)
    if written is None and expect:
        from ..expected_files import check_readable

        check_readable(expect)
    parameters = {**(written.parameters if written else {}), **defines(options["define"])}
    program = load(
        options["file"], parameters, options["include"], strict=options["strict"], warn=terminal.note
    )
    wafer = _wafer(options, program, written)
    inputs = feed(written, wafer) if written else {}
    inputs |= _given(options["inputs"], "--input")
    for name, array in _given(options["writes"], "--write").items():
        wafer.write(name, array)
    for name in options["reads"]:
        wafer.symbol(name)  # a misspelt name costs no run
    _check_results(options)
    limit = options["max_cycles"] or (written.max_cycles if written else None)
    result = _run(terminal, wafer, inputs, limit)

    if written:
        failed = differences(written, wafer, result)
        result.checks += [{"name": expect, "ok": not failed, "differences": failed}]
    elif expect:
        from ..expected_files import differences_from_file

        failed = differences_from_file(expect, wafer, result)
        result.checks += [{"name": expect, "ok": not failed, "differences": failed}]
    _write_files(options, wafer, result)
    _print(terminal, options, result)
    _finish(result, bool(written and any(d.name == "end" for d in written.expects)))


def _in_source(path: str | None) -> Any:
    if not path or not path.endswith(".loom"):
        return None
    from ..expectations import parse
    from ..program_file import read_text

    return parse(read_text(path), path)


def _wafer(options: dict[str, Any], program: Any, written: Any) -> Wafer:
    from ...fabric.spec import machine
    from ...fabric.wafer import Wafer
    from ..program_file import DEFAULT_MACHINE

    asked = (written.machine if written else None) or program.machine or DEFAULT_MACHINE
    return Wafer(
        machine(options["machine"] or asked),
        program,
        engine=options["engine"],
        strict=options["strict"] or bool(written and written.strict),
    )


def _given(pairs: tuple[str, ...], option: str) -> dict[str, Any]:
    """`NAME=FILE` options as arrays."""
    from ..array_files import load_one

    arrays = {}
    for pair in pairs:
        name, equals, path = pair.partition("=")
        if not equals or not name or not path:
            raise Usage(f"{option} {pair}: NAME=FILE is wanted, for example {option} x=x.npy")
        arrays[name] = load_one(path, name)
    return arrays


def _run(terminal: Terminal, wafer: Wafer, inputs: dict[str, Any], max_cycles: int | None) -> Result:
    """Run; Ctrl-C stops the engine at its next look, so that results so far exist. A second one kills."""
    from ..interrupt import Stop
    from ..terminal import Progress

    with Progress(terminal, wafer.program.name, FIRST_RUN) as progress, Stop() as stop:

        def interrupted() -> bool:
            progress.tick("running")
            return stop.asked

        return wafer.run(inputs, max_cycles, interrupted=interrupted)


def _check_results(options: dict[str, Any]) -> None:
    """Refuse before the run what could not be drawn or written after it."""
    if options["maps"]:
        from ...fabric.heatmap import check_metric

        for name in options["maps"]:
            check_metric(name)
    if options["output"]:
        from ..array_files import check_writable

        check_writable(options["output"])
    if options["result_file"] and not Path(options["result_file"]).parent.is_dir():
        folder = Path(options["result_file"]).parent
        raise Usage(f"--result {options['result_file']}: cannot be written: there is no folder {folder}")


def _write_files(options: dict[str, Any], wafer: Wafer, result: Result) -> None:
    if options["output"]:
        from ..array_files import save_all

        arrays = {name: wafer.read(name) for name in options["reads"]}
        problems = []
        for name in result.outputs:
            try:
                arrays[name] = result[name]
            except Mismatch as error:
                problems.append(error)
        save_all(options["output"], arrays)
        for problem in problems:
            say(f"error[mismatch]: {problem}")
        if problems and result.end == "finished":
            result.checks.append(
                {"name": "outputs", "ok": False, "differences": [e.message for e in problems]}
            )
    if options["result_file"]:
        try:
            Path(options["result_file"]).write_text(result.dumps() + "\n", encoding="utf-8")
        except OSError as error:
            raise Usage(f"--result {options['result_file']}: cannot be written: {error.strerror}") from None


def _print(terminal: Terminal, options: dict[str, Any], result: Result) -> None:
    import sys

    from ..summary import summary

    if options["as_json"]:
        click.echo(result.dumps())
    elif not terminal.quiet:
        click.echo(summary(result))
    for name in options["maps"]:
        from ...fabric.heatmap import metric

        drawn = metric(result, name).text(
            ascii=terminal.ascii_only(sys.stdout), colour=terminal.colour_for(sys.stdout)
        )
        click.echo(drawn, err=options["as_json"], color=terminal.colour_for(sys.stdout))
    if options["reads"] and not options["output"] and not options["as_json"]:
        click.echo("--read without --output: nothing was kept", err=True)


def _finish(result: Result, end_expected: bool) -> None:
    """The exit code: a failed check, else the way the run ended, unless exactly that end was expected."""
    failed = [line for check in result.checks for line in check["differences"] if not check["ok"]]
    error = result.error()
    if error is not None and not (end_expected and result.checks_hold):
        for line in failed:
            say(f"mismatch: {line}")
        raise error
    if failed:
        raise Mismatch(
            failed[0],
            notes=failed[1:20] + ([f"{len(failed) - 20} more"] if len(failed) > 20 else []),
            help="`--output` keeps what came out",
        )
    if not result.checks_hold:
        click.get_current_context().exit(ENDS["mismatch"].exit_code)
