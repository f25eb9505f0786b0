"""The assembler: a `.loom` source becomes a `Program`, or one AssemblyError with everything that is wrong.

This file drives the stages: read, name, lay out data, lower code, lay out the grid, check. Each statement
that fails costs one diagnostic; the rest goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .checks import check
from .code_section import CodeSection
from .diagnostics import Diagnostics, Problem, Source, Span
from .errors import Rejected
from .expressions import Scope
from .kernel_section import KernelSection
from .layout import Layout
from .memory import DataSection
from .names import Globals, expand
from .operands import QueueName
from .parser import parse
from .program import QUEUES, TASKS, Program, TaskKind
from .program import Task as MachineTask
from .reader import Reader, load


@dataclass
class Assembly:
    """What an assembly gave: the program and the findings (warnings only, else AssemblyError was raised)."""

    program: Program
    diagnostics: Diagnostics


def assemble(
    path_or_source: str | Path,
    *,
    name: str | None = None,
    include_dirs: Sequence[str | Path] = (),
    strict: bool = False,
    **parameters: int,
) -> Program:
    """The program of a file (`-`: standard input) or, if the string has several lines, of a text.

    Keyword arguments set `.param`s. Raises AssemblyError with all diagnostics, Rejected for a file that
    cannot be read.
    """
    if isinstance(path_or_source, str) and ("\n" in path_or_source or not path_or_source):
        return assemble_text(
            path_or_source, name=name, include_dirs=include_dirs, strict=strict, **parameters
        )
    return assemble_file(
        path_or_source, name=name, include_dirs=include_dirs, strict=strict, parameters=parameters
    ).program


def assemble_text(
    text: str,
    *,
    name: str | None = None,
    include_dirs: Sequence[str | Path] = (),
    strict: bool = False,
    **parameters: int,
) -> Program:
    """The program of a source text; diagnostics call it `<name>`."""
    source = Source(f"<{name or 'text'}>", text)
    return _assemble(source, name or "text", include_dirs, strict, parameters).program


def assemble_file(
    path: str | Path,
    *,
    name: str | None = None,
    include_dirs: Sequence[str | Path] = (),
    strict: bool = False,
    parameters: dict[str, int] | None = None,
) -> Assembly:
    """As `assemble`, for tools: the program together with its warnings."""
    source = load(path)
    stem = "stdin" if str(path) == "-" else Path(path).stem
    return _assemble(source, name or stem, include_dirs, strict, parameters or {})


def encode_line(text: str, pc: int = 0) -> list[int]:
    """The words of one instruction without symbols, as if it stood at word `pc`. Raises AssemblyError."""
    source, diagnostics = Source("<line>", text), Diagnostics()
    words: list[int] = []
    try:
        tree = parse("code_line", Span(source, 0, len(source.text)))
        code = CodeSection(DataSection(Scope()), {}, Scope(), diagnostics)
        code.tasks = {f"_{n}": MachineTask(n, f"_{n}", TaskKind.LOCAL, 0) for n in range(TASKS)}
        code.queue_names.update({f"q{n}": QueueName(f"q{n}", True, n, tree.span) for n in range(QUEUES)})
        code.lower([(tree, Scope())], first=pc)
        words = code.encoded
    except Problem as problem:
        diagnostics.add(problem)
    diagnostics.raise_if_rejected({source.name: source.text}, "line")
    return words


def _assemble(
    source: Source,
    name: str,
    include_dirs: Sequence[str | Path],
    strict: bool,
    parameters: dict[str, int],
    values: Mapping[str, Any] | None = None,
) -> Assembly:
    """Assemble one source. `values`: names known beforehand, such as the builder's arrays."""
    try:
        return _assembled(source, name, include_dirs, strict, parameters, values)
    except RecursionError:
        raise Rejected(
            f"{source.name}: error[range]: an expression is nested too deeply, or has too many terms",
            category="range",
            help="name parts of it with `.const`",
        ) from None


def _assembled(
    source: Source,
    name: str,
    include_dirs: Sequence[str | Path],
    strict: bool,
    parameters: dict[str, int],
    values: Mapping[str, Any] | None,
) -> Assembly:
    diagnostics = Diagnostics()
    unit = Reader(diagnostics, include_dirs).read(source)
    scope = Globals(unit, parameters, diagnostics)
    scope.values.update(values or {})
    plans = [KernelSection(tree, scope, diagnostics).plan() for tree in unit.kernels.values()]
    layout = Layout(plans, scope, scope.colours, diagnostics)
    start = None if unit.unparsed else Span(source, 0, 0)
    layout.run(expand(unit.layout, scope, diagnostics), start)
    program = layout.program(name)
    program.machine = unit.machine.text if unit.machine else None
    program.parameters = {d.name.text: scope.value(d.name.text) for d in unit.params}
    program.colour_names = dict(scope.colours)
    program.sources = dict(unit.sources)
    if not diagnostics.errors:
        for finding in check(program, origins=layout.origins):
            diagnostics.add(finding)
    diagnostics.raise_if_rejected(unit.sources, name, strict)
    return Assembly(program, diagnostics)
