"""`waferloom asm`: source text into an image, raw bytes, hex words, a listing, JSON or the symbol table."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from ...isa.errors import Usage
from ..terminal import Terminal

FORMATS = ("image", "bin", "hex", "listing", "json", "symbols")


@click.command("asm")
@click.argument("file", metavar="FILE.loom|-")
@click.option(
    "-o", "output", metavar="FILE", help="Where to write; - is stdout [default: FILE.wafer, or stdout]."
)
@click.option("-f", "--format", "form", type=click.Choice(FORMATS), default="image", show_default=True)
@click.option("-I", "include", multiple=True, metavar="DIR", help="Look for included files here too.")
@click.option("-D", "define", multiple=True, metavar="NAME=VALUE", help="Set a parameter.")
@click.option("-l", "listing", metavar="LISTING", help="Write a listing, with costs, here as well.")
@click.option("--kernel", metavar="NAME", help="Whose bytes `-f bin` means, if there are several kernels.")
@click.option("--machine", metavar="M", help="Machine whose cycles the listing shows.")
@click.option("-W", "warnings", type=click.Choice(["error"]), help="`-W error`: warnings are errors.")
@click.option("--strict", is_flag=True, help="The same as -W error.")
@click.pass_obj
def command(
    terminal: Terminal,
    file: str,
    output: str | None,
    form: str,
    include: tuple[str, ...],
    define: tuple[str, ...],
    listing: str | None,
    kernel: str | None,
    machine: str | None,
    warnings: str | None,
    strict: bool,
) -> None:
    """Assemble FILE. All independent errors are reported at once (exit code 3)."""
    from ...isa.listing import emit
    from ..program_file import defines, load

    program = load(file, defines(define), include, strict=strict or warnings == "error", warn=terminal.note)
    timing = None
    if machine:
        import dataclasses

        from ...fabric.spec import machine as read_machine

        timing = dataclasses.asdict(read_machine(machine))
    if listing:
        _write(listing, emit(program, "listing", machine=timing))
    if form == "image":
        from ...isa.image import save_image

        target = output or ("a.wafer" if file == "-" else str(Path(file).with_suffix(".wafer")))
        if target == "-":
            raise Usage("an image cannot go to stdout", help="name a file with -o")
        try:
            save_image(program, target)
        except OSError as error:
            raise Usage(f"{target}: cannot be written: {error.strerror}") from None
        terminal.note(f"{target}: {os.path.getsize(target):,} bytes")
    else:
        _write(output or "-", emit(program, form, kernel=kernel, machine=timing))


def _write(target: str, content: bytes) -> None:
    if target == "-":
        sys.stdout.buffer.write(content)
        sys.stdout.flush()
        return
    try:
        Path(target).write_bytes(content)
    except OSError as error:
        raise Usage(f"{target}: cannot be written: {error.strerror}") from None
