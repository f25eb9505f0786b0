"""`waferloom dis`: the words of a program back as text."""

from __future__ import annotations

import click

from ..terminal import Terminal


@click.command("dis")
@click.argument("file", metavar="IMAGE|FILE.loom|-")
@click.option("--asm", "source", is_flag=True, help="Print source text that assembles to the same program.")
@click.option("--kernel", metavar="NAME", help="This kernel only.")
@click.option("-I", "include", multiple=True, metavar="DIR", help="Look for included files here too.")
@click.option("-D", "define", multiple=True, metavar="NAME=VALUE", help="Set a parameter.")
@click.pass_obj
def command(
    terminal: Terminal,
    file: str,
    source: bool,
    kernel: str | None,
    include: tuple[str, ...],
    define: tuple[str, ...],
) -> None:
    """Disassemble FILE: address, words, instruction, and what they refer to."""
    from ...isa.diagnostics import did_you_mean
    from ...isa.errors import Usage
    from ..program_file import defines, load

    program = load(file, defines(define), include, warn=terminal.note)
    if source:
        from ...isa.source_writer import disassemble

        click.echo(disassemble(program), nl=False)
        return
    from ...isa.disassembler import disassemble_kernel

    names = [k.name for k in program.kernels]
    if kernel is not None and kernel not in names:
        raise Usage(f"no kernel is called `{kernel}`", category="name", help=did_you_mean(kernel, names))
    for found in program.kernels:
        if kernel in (None, found.name):
            click.echo(f"kernel {found.name}: {len(found.code)} words")
            for line in disassemble_kernel(found):
                click.echo(f"  {line}")
