"""A program from a file that a user names: source text (assembled), an image (loaded), `-` for stdin."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ..isa.errors import Rejected, Usage
from ..isa.program import Program

__all__ = ["DEFAULT_MACHINE", "defines", "is_image", "load", "read_text"]


DEFAULT_MACHINE = "wse3"  # where neither the user nor the program names one


def defines(options: Sequence[str]) -> dict[str, int]:
    """`NAME=VALUE` options as numbers; 0x, 0b, 0o and _ as in source."""
    found = {}
    for option in options:
        name, equals, value = option.partition("=")
        try:
            if not equals or not name.isidentifier():
                raise ValueError
            found[name] = int(value, 0)
        except ValueError:
            raise Usage(f"-D {option}: NAME=NUMBER is wanted, for example -D rows=8") from None
    return found


def load(
    path: str,
    parameters: dict[str, int],
    include: Sequence[str] = (),
    *,
    strict: bool = False,
    warn: Callable[[str], None] | None = None,
) -> Program:
    """Assemble a source file or load an image (it takes no parameters). Warnings go to `warn`."""
    if is_image(path):
        if parameters:
            raise Usage(
                f"{path} is an image: its parameters are fixed, -D {next(iter(parameters))} is not possible",
                help="assemble the source again with other values",
            )
        from ..isa.image import load_image

        return load_image(path)
    from ..isa.assembler import assemble_file

    assembly = assemble_file(path, include_dirs=include, strict=strict, parameters=parameters)
    if warn is not None:
        for finding in assembly.diagnostics.warnings:
            warn(finding.render(assembly.program.sources))
    return assembly.program


def is_image(path: str) -> bool:
    """Whether a file is named .wafer, or begins like safetensors: eight bytes of length, then an object."""
    if path == "-":
        return False
    try:
        with open(path, "rb") as file:
            head = file.read(9)
    except OSError as error:
        raise _unreadable(path, error) from None
    return (len(head) == 9 and head[8:] == b"{" and b"\0" in head[:8]) or path.endswith(".wafer")


def read_text(path: str) -> str:
    """The text of a source file, or of standard input for `-`."""
    try:
        raw = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Rejected(
            f"{path}: error[format]: not UTF-8 text: byte {error.start} is {raw[error.start]:#04x}",
            category="format",
            help="save the source as UTF-8",
        ) from None


def _unreadable(path: str, error: OSError) -> Usage:
    return Usage(f"{path}: cannot be read: {error.strerror}", help="name a source file (.loom) or an image")
