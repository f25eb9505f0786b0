"""`waferloom check`: everything that can be known about a program before it runs."""

from __future__ import annotations

import click

from ..terminal import Terminal


@click.command("check")
@click.argument("file", metavar="FILE.loom|IMAGE|-")
@click.option("-I", "include", multiple=True, metavar="DIR", help="Look for included files here too.")
@click.option("-D", "define", multiple=True, metavar="NAME=VALUE", help="Set a parameter.")
@click.option(
    "--machine", metavar="M", help="tiny, wse2, wse3 or a TOML file [default: the program's, else wse3]."
)
@click.option("--strict", is_flag=True, help="Warnings are errors.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.pass_obj
def command(
    terminal: Terminal,
    file: str,
    include: tuple[str, ...],
    define: tuple[str, ...],
    machine: str | None,
    strict: bool,
    as_json: bool,
) -> None:
    """Assemble FILE, check routes, queues, tasks and memory, and check that it fits the machine."""
    import json

    from ...fabric.fit import check_fit
    from ...fabric.spec import machine as read_machine
    from ...isa.diagnostics import AssemblyError
    from ...isa.errors import Rejected
    from ..program_file import DEFAULT_MACHINE, defines, load

    try:
        program = load(file, defines(define), include, strict=strict, warn=terminal.note)
        spec = read_machine(machine or program.machine or DEFAULT_MACHINE)
        check_fit(spec, program)
    except Rejected as error:
        if not as_json:
            raise
        if isinstance(error, AssemblyError):
            findings = [item.as_json() for item in error.diagnostics]
        else:
            findings = [{"severity": "error", "category": error.category, "text": error.message}]
        click.echo(
            json.dumps({"schema": 1, "end": error.end, "findings": findings}, indent=1, sort_keys=True)
        )
        click.get_current_context().exit(error.exit_code)
    facts = [
        {
            "kernel": kernel.name,
            "pes": int((program.placement == index).sum()),
            "data_bytes": len(kernel.data),
            "code_bytes": 4 * len(kernel.code),
            "free_bytes": spec.sram.bytes - kernel.sram_bytes,
        }
        for index, kernel in enumerate(program.kernels)
    ]
    if as_json:
        document = {"schema": 1, "end": "finished", "machine": spec.name, "findings": [], "kernels": facts}
        click.echo(json.dumps(document, indent=1, sort_keys=True))
    elif not terminal.quiet:
        click.echo(f"{program.name}: {program.width} x {program.height} PEs, fits {spec.name}")
        for fact in facts:
            click.echo(
                f"  kernel {fact['kernel']}: {fact['pes']:,} PEs, data {fact['data_bytes']:,} + code "
                f"{fact['code_bytes']:,} bytes, {fact['free_bytes']:,} free"
            )
