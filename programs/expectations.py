"""Expectations written in a program file as comments: what to feed it, and what must come out.

    ;= machine tiny                      ;= param rows = 2            ;= strict      ;= max_cycles 1000
    ;= input x = [[1, 2], [3, 4]]        ;= write w(1,0) = [0.5] * 8
    ;= expect end = finished             ;= expect cycles = 37
    ;= expect y = [[...]]                ;= expect acc(1,0) = bits([0x3c00, 0])
    ;= expect fault = bounds             ;= expect fault_pe = (1,0)   ;= expect report = "cycle of 2"
    ;= expect receive(1,0) = 12          (a counter, unless an output or a symbol has that name)

A value whose brackets are still open goes on in the next `;=` line. Values: programs/values.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..isa.errors import Mismatch, Rejected
from . import values

if TYPE_CHECKING:
    from ..fabric.result import Result
    from ..fabric.wafer import Wafer

__all__ = ["Directive", "ExpectationError", "Expectations", "differences", "feed", "parse", "rewritten"]

MARK = re.compile(r"^\s*;=\s?(.*)$")
NAMED = re.compile(r"(?P<name>[A-Za-z_][\w.]*)\s*(?:\((?P<at>[^)]*)\))?\s*=\s*(?P<value>.+)$", re.S)
RUN_FACTS = ("end", "cycles", "fault", "fault_pe", "report")
KINDS = ("machine", "param", "strict", "max_cycles", "input", "write", "expect")


class ExpectationError(Rejected):
    """A `;=` comment that cannot be understood: names file and line."""

    def __init__(self, file: str, line: int, text: str, category: str = "syntax") -> None:
        super().__init__(
            f"{file}:{line}:1: error[{category}]: {text}",
            category=category,
            help=f"a line `;=` starts with one of: {', '.join(KINDS)}; see programs/expectations.py",
        )


@dataclass
class Directive:
    """One `input`, `write` or `expect`: a name, perhaps a place, a value, its lines (1-based)."""

    name: str
    at: tuple[int, ...] | None
    value: Any
    first: int
    last: int

    @property
    def label(self) -> str:
        """`acc(1,0)`."""
        return self.name + (f"({','.join(map(str, self.at))})" if self.at else "")


@dataclass
class Expectations:
    """Everything the `;=` comments of one file say."""

    file: str
    machine: str | None = None
    parameters: dict[str, int] = field(default_factory=dict)
    strict: bool = False
    max_cycles: int | None = None
    inputs: list[Directive] = field(default_factory=list)
    writes: list[Directive] = field(default_factory=list)
    expects: list[Directive] = field(default_factory=list)

    def error(self, directive: Directive, text: str) -> ExpectationError:
        """The error that says a directive does not fit the program."""
        return ExpectationError(self.file, directive.first, f"`{directive.label}`: {text}", "range")


def parse(text: str, file: str) -> Expectations:
    """Read the `;=` comments of a source text. Raises ExpectationError for the first that is wrong."""
    found = Expectations(file)
    for first, last, body in _statements(text, file):
        kind, _, rest = body.partition(" ")
        rest = rest.strip()
        try:
            match kind:
                case "machine" if rest:
                    found.machine = rest
                case "strict" if not rest:
                    found.strict = True
                case "max_cycles" if rest:
                    found.max_cycles = _whole(values.read(rest.lstrip("= ")))
                case "param":
                    name, _, value = _named(rest)
                    found.parameters[name] = _whole(value)
                case "input":
                    found.inputs.append(Directive(*_named(rest), first, last))
                case "write":
                    found.writes.append(Directive(*_named(rest), first, last))
                case "expect":
                    found.expects.append(Directive(*_named(rest), first, last))
                case _:
                    raise values.ValueTextError(f"`{body}` is no directive")
        except values.ValueTextError as error:
            raise ExpectationError(file, first, str(error)) from None
    return found


def _statements(text: str, file: str) -> list[tuple[int, int, str]]:
    """(first line, last line, text) of each directive, continued while a bracket is open."""
    out: list[tuple[int, int, str]] = []
    first, body = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        marked = MARK.match(line)
        if not marked:
            if body:
                raise ExpectationError(file, first, "a bracket is never closed")
            continue
        first = first if body else number
        body = f"{body} {marked[1].strip()}".strip()
        if body and _depth(body) <= 0:
            out.append((first, number, body))
            body = ""
    if body:
        raise ExpectationError(file, first, "a bracket is never closed")
    return out


def _depth(text: str) -> int:
    outside = re.sub(r'"[^"]*"', "", text)
    return sum(outside.count(c) for c in "([") - sum(outside.count(c) for c in ")]")


def _named(text: str) -> tuple[str, tuple[int, ...] | None, Any]:
    match = NAMED.match(text)
    if not match:
        raise values.ValueTextError(f"`{text}`: name = value is wanted")
    at = None
    if match["at"] is not None:
        try:
            at = tuple(int(part) for part in match["at"].split(","))
        except ValueError:
            raise values.ValueTextError(f"`({match['at']})`: (x, y) or (x0, y0, x1, y1) is wanted") from None
        if len(at) not in (2, 4):
            raise values.ValueTextError(f"`({match['at']})`: (x, y) or (x0, y0, x1, y1) is wanted")
    return match["name"], at, values.read(match["value"])


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise values.ValueTextError(f"{value!r}: a whole number is wanted")
    return value


# --- with a program at hand ---


def feed(found: Expectations, wafer: Wafer) -> dict[str, np.ndarray]:
    """Write the `write` directives into a wafer; return the arrays of its inputs."""
    from ..fabric.wavelets import array_shape

    for directive in found.writes:
        symbol = wafer.symbol(directive.name)
        shape = array_shape(symbol)
        shapes = [shape, (*_extent(directive, wafer), *shape)]
        wafer.write(directive.name, _typed(found, directive, symbol.element, shapes), at=directive.at)
    inputs = {}
    for directive in found.inputs:
        port = wafer.program.edge_ports.get(directive.name)
        if port is None or port.output:
            raise found.error(directive, "the program has no such input")
        shapes = [(len(port.lanes), *port.shape), port.shape]
        inputs[directive.name] = _typed(found, directive, port.element, shapes)
    return inputs


def _extent(directive: Directive, wafer: Wafer) -> tuple[int, ...]:
    """Rows and columns of PEs that a directive speaks of; () for one PE."""
    if directive.at is None:
        return wafer.program.height, wafer.program.width
    if len(directive.at) == 2:
        return ()
    x0, y0, x1, y1 = directive.at
    return y1 - y0 + 1, x1 - x0 + 1


def _typed(found: Expectations, directive: Directive, element: Any, shapes: list) -> np.ndarray:
    try:
        return values.typed(directive.value, element, shapes)
    except values.ValueTextError as error:
        raise found.error(directive, str(error)) from None


def differences(found: Expectations, wafer: Wafer, result: Result) -> list[str]:
    """One line per expectation that does not hold; [] if all do."""
    lines = []
    for directive in found.expects:
        try:
            text = _difference(found, directive, wafer, result)
        except Mismatch as error:  # an output that is not whole
            text = f": {error.message}"
        if text is not None:
            lines.append(f"{found.file}:{directive.first}: {directive.label}{text}")
    return lines


def _difference(found: Expectations, directive: Directive, wafer: Wafer, result: Result) -> str | None:
    name, wanted = directive.name, directive.value
    if name in RUN_FACTS:
        return _fact_difference(name, wanted, result)
    got, element = _actual(found, directive, wafer, result)
    if element is None:  # a counter
        return None if got.tolist() == wanted else f" is {got.tolist()} cycles, expected {wanted}"
    shapes = [got.shape]
    if name in result.outputs:
        shapes += [got.shape[1:]] if got.shape[0] == 1 else []
    else:
        from ..fabric.wavelets import array_shape

        shapes.append(array_shape(wafer.symbol(name)))
    typed = _typed(found, directive, element, shapes)
    if name in result.outputs:
        typed = typed.reshape(got.shape)
    text = values.first_difference(got, np.broadcast_to(typed, got.shape))
    return None if text is None else text if text.startswith("[") else f" {text}"


def _actual(
    found: Expectations, directive: Directive, wafer: Wafer, result: Result
) -> tuple[np.ndarray, Any]:
    """The values that an expectation speaks of, and their element type (None: a counter)."""
    name = directive.name
    if name in result.outputs:
        return result[name], result.program.edge_ports[name].element
    if any(name in kernel.symbols for kernel in result.program.kernels):
        return wafer.read(name, at=directive.at), wafer.symbol(name).element
    if name in result.counters.names:
        array = result.counters[name]
        if directive.at is not None:
            x0, y0, x1, y1 = directive.at if len(directive.at) == 4 else (*directive.at, *directive.at)
            array = array[y0 : y1 + 1, x0 : x1 + 1]
        return (array[0, 0] if directive.at and len(directive.at) == 2 else array), None
    raise found.error(directive, "no output, symbol or counter has this name")


def _fact_difference(name: str, wanted: Any, result: Result) -> str | None:
    got = _fact(name, result)
    if name == "report":
        return None if str(wanted) in got else f" does not contain {wanted!r}; it is:\n{got}"
    return None if got == wanted else f" = {got}, expected {wanted}"


def _fact(name: str, result: Result) -> Any:
    fault = result.outcome.fault
    match name:
        case "end":
            return result.end
        case "cycles":
            return int(result.cycles)
        case "fault":
            return result.report.name if fault else "none"
        case "fault_pe":
            return [fault.x, fault.y] if fault else []
        case _:
            return result.report.text() if result.report else ""


def rewritten(text: str, found: Expectations, wafer: Wafer, result: Result) -> str:
    """The source text with every expected value replaced by what came out (`report` and `;= input` stay)."""
    lines = text.splitlines(keepends=True)
    for directive in reversed(found.expects):
        if directive.name == "report" or _difference(found, directive, wafer, result) is None:
            continue
        if directive.name in RUN_FACTS:
            new = str(_fact(directive.name, result))
        else:
            got, element = _actual(found, directive, wafer, result)
            new = values.spell(got, element)
        indent = re.match(r"\s*", lines[directive.first - 1])
        lines[directive.first - 1 : directive.last] = [
            f"{indent[0] if indent else ''};= expect {directive.label} = {new}\n"
        ]
    return "".join(lines)
