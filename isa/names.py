"""Names of a program: parameters, constants and colours; what blocks make of a section."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from .diagnostics import Diagnostics, Problem, Span, did_you_mean
from .errors import Usage
from .expressions import Scope, evaluate, integer
from .loops import DESCRIPTOR, REGISTER
from .program import COLOURS
from .reader import Unit
from .syntax import Definition, If, Name, Node, Repeat

MOST_ROUNDS = 1 << 20  # rounds of one `repeat`


class Globals(Scope):
    """Parameters, constants and colours: evaluated when asked for, so that their order does not matter."""

    def __init__(self, unit: Unit, parameters: dict[str, int], diagnostics: Diagnostics) -> None:
        super().__init__()
        self.diagnostics = diagnostics
        self.pending: dict[str, Definition] = {}
        self.evaluating: list[str] = []
        self.colours: dict[str, int] = {}
        self._declare(unit)
        known = {d.name.text for d in unit.params}
        for name, value in parameters.items():
            if name not in known:
                raise Usage(f"the program has no parameter `{name}`", help=did_you_mean(name, known))
            if not isinstance(value, (int, np.integer)):
                raise Usage(f"parameter `{name}` must be an integer, not {value!r}")
            self.values[name] = int(value)
            self.pending.pop(name, None)
        for name in list(self.pending):
            self.get(name)
        for definition in unit.params:
            if not isinstance(self.values.get(definition.name.text, 0), int):
                text = f"parameter `{definition.name.text}` must be an integer"
                self.diagnostics.add(Problem("type", text, definition.span, help="real numbers: `.const`"))
        self._number_colours(unit.colours)

    def _declare(self, unit: Unit) -> None:
        seen: dict[str, Name] = {}
        for definition in (*unit.params, *unit.consts, *unit.colours):
            name = definition.name
            if problem := reserved(name):
                self.diagnostics.add(problem)
            elif name.text in seen:
                self.diagnostics.add(declared_twice(name, seen[name.text].span))
            else:
                seen[name.text] = name
        for definition in (*unit.params, *unit.consts):
            self.pending.setdefault(definition.name.text, definition)

    def get(self, name: str) -> Any:
        if name in self.values:
            return self.values[name]
        definition = self.pending.get(name)
        if definition is None:
            return super().get(name)
        if name in self.evaluating:
            self.values[name] = 0
            chain = " -> ".join([*self.evaluating, name])
            self.diagnostics.add(Problem("name", f"`{name}` is defined by itself: {chain}", definition.span))
            return 0
        self.evaluating.append(name)
        try:
            assert definition.value is not None
            self.values[name] = evaluate(definition.value, self)
        except Problem as problem:
            self.diagnostics.add(problem)
            self.values[name] = 0
        finally:
            self.evaluating.pop()
        return self.values[name]

    def value(self, name: str) -> int:
        return self.values.get(name, 0)

    def names(self) -> set[str]:
        return set(self.values) | set(self.pending)

    def _number_colours(self, definitions: list[Definition]) -> None:
        taken: dict[int, Name] = {}
        for definition in definitions:
            name = definition.name
            if definition.value is None:
                continue
            try:
                number = integer(definition.value, self)
                if not 0 <= number < COLOURS:
                    raise Problem(
                        "range", f"no colour {number}; colours are 0..{COLOURS - 1}", definition.value.span
                    )
                if number in taken:
                    raise Problem(
                        "resource",
                        f"colour {number} has a name already: `{taken[number].text}`",
                        definition.span,
                        notes=[("first named here", taken[number].span)],
                    )
                taken[number] = name
                self.colours[name.text] = number
            except Problem as problem:
                self.diagnostics.add(problem)
                self.colours[name.text] = 0
        for definition in definitions:
            if definition.name.text in self.colours:
                continue
            free = next((number for number in range(COLOURS) if number not in taken), None)
            if free is None:
                self.diagnostics.add(
                    Problem(
                        "resource",
                        f"more than {COLOURS} colours",
                        definition.span,
                        help="colours can be shared by routes that never meet",
                    )
                )
                free = 0
            taken[free] = definition.name
            self.colours[definition.name.text] = free
        self.values.update(self.colours)


def reserved(name: Name) -> Problem | None:
    """A problem if a name cannot be declared because the machine has it."""
    if REGISTER.fullmatch(name.text) or DESCRIPTOR.fullmatch(name.text):
        return Problem("name", f"`{name.text}` is a register and cannot be declared", name.span)
    return None


def declared_twice(name: Name, first: Span) -> Problem:
    """The problem of a name that has a declaration already."""
    return Problem(
        "name", f"`{name.text}` is declared twice", name.span, notes=[("first declared here", first)]
    )


def expand(nodes: Iterable[Node], scope: Scope, diagnostics: Diagnostics) -> Iterator[tuple[Node, Scope]]:
    """The statements of a section with blocks carried out, each with the names it sees."""
    for node in nodes:
        try:
            if isinstance(node, Repeat):
                start = integer(node.start, scope, "the start")
                stop = integer(node.stop, scope, "the end")
                step = integer(node.step, scope, "the step", 1) if node.step else 1
                if scope.get(node.variable.text) is not None or reserved(node.variable):
                    raise Problem("name", f"`{node.variable.text}` has a meaning already", node.variable.span)
                if (stop - start) // step >= MOST_ROUNDS:
                    raise Problem(
                        "range", f"{(stop - start) // step + 1} rounds; at most {MOST_ROUNDS}", node.span
                    )
                for value in range(start, stop + 1, step):
                    yield from expand(node.body, Scope({node.variable.text: value}, scope), diagnostics)
            elif isinstance(node, If):
                for condition, body in node.branches:
                    if condition is None or integer(condition, scope, "a condition"):
                        yield from expand(body, scope, diagnostics)
                        break
            else:
                yield node, scope
        except Problem as problem:
            diagnostics.add(problem)
