"""Loop nests of vector operands: which loops an instruction has, and how an index depends on them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .diagnostics import Problem, Span
from .expressions import Scope, integer, unknown
from .program import Symbol
from .syntax import Binary, Call, Choose, Index, Name, Node, Over, Unary

LONGEST = 65_535  # of an extent
_LOOP_NAME = re.compile(r"[A-Za-z]\d*")
REGISTER = re.compile(r"r(?:1[0-5]|[0-9])")
DESCRIPTOR = re.compile(r"d(?:1[0-5]|[0-9])")


@dataclass
class Loop:
    name: str
    extent: int
    span: Span


class Loops:
    """Finds loops among the index expressions of a kernel's operands."""

    def __init__(self, symbols: dict[str, Symbol], scope: Scope) -> None:
        self.symbols, self.scope = symbols, scope

    def nest(self, nodes: list[Node], over: Over | None) -> list[Loop]:
        """The loop nest of an instruction: from `over`, else the index variables in order of appearance."""
        if over is not None:
            loops: list[Loop] = []
            for name, length in over.loops:
                if any(loop.name == name.text for loop in loops):
                    raise Problem("name", f"loop variable `{name.text}` stands twice in `over`", name.span)
                if self.scope.get(name.text) is not None or REGISTER.fullmatch(name.text):
                    raise Problem(
                        "name", f"`{name.text}` has a meaning already; name the loop otherwise", name.span
                    )
                loops.append(
                    Loop(name.text, integer(length, self.scope, "an extent", 0, LONGEST), length.span)
                )
            return loops
        found: dict[str, Loop] = {}
        pending: dict[str, Name] = {}
        for node in nodes:
            if isinstance(node, Index) and (symbol := self.symbols.get(node.base.text)):
                self.check_dimensions(node, symbol)
                for position, index in enumerate(node.indices):
                    extent = symbol.shape[position] if position < len(symbol.shape) else None
                    for name in _names(index):
                        if self.scope.get(name.text) is not None:
                            continue
                        self._may_be_loop(name)
                        found.setdefault(name.text, Loop(name.text, -1, name.span))
                        pending.setdefault(name.text, name)
                    if isinstance(index, Name) and index.text in found and extent is not None:
                        self._extent(found[index.text], extent, index)
        for name_, loop in found.items():
            if loop.extent < 0:
                raise Problem(
                    "range",
                    f"the extent of loop `{name_}` is not known",
                    pending[name_].span,
                    help=f"name it: `over {name_}:N`",
                )
        return list(found.values())

    @staticmethod
    def check_dimensions(node: Index, symbol: Symbol) -> None:
        """Raise Problem unless a data symbol has as many indices as dimensions."""
        given, wanted = len(node.indices), len(symbol.shape)
        if symbol.role == "data" and given != wanted:
            plural = "s" * (wanted != 1)
            raise Problem(
                "type",
                f"`{symbol.name}` has {wanted} dimension{plural}, not {given}",
                node.span,
                help="a whole symbol stands without brackets",
            )

    def _may_be_loop(self, name: Name) -> None:
        if name.text in self.symbols and not REGISTER.fullmatch(name.text):
            raise Problem(
                "type",
                f"`{name.text}` is a data symbol; its value is not known before the run",
                name.span,
                help="name the loop variable otherwise, or move a descriptor at run time with `setd` "
                "and `addd`",
            )
        if REGISTER.fullmatch(name.text) or DESCRIPTOR.fullmatch(name.text):
            raise Problem(
                "type",
                f"register `{name.text}` cannot be an index",
                name.span,
                help="move a descriptor at run time: `ldd d0, ...` once, then `setd` or `addd`",
            )
        if not _LOOP_NAME.fullmatch(name.text):
            problem = unknown(name, self.scope)
            if problem.diagnostic.help is None:
                problem.diagnostic.help = "without `over`, loop variables are single letters, such as `i`"
            raise problem

    def _extent(self, loop: Loop, extent: int, index: Name) -> None:
        if loop.extent < 0:
            loop.extent, loop.span = extent, index.span
        elif loop.extent != extent:
            raise Problem(
                "range",
                f"loop `{loop.name}` has extent {extent} here and {loop.extent} before",
                index.span,
                notes=[(f"extent {loop.extent} comes from here", loop.span)],
                help=f"name the extent: `over {loop.name}:N`",
            )

    def affine(self, node: Node, loops: list[Loop]) -> tuple[int, dict[str, int]]:
        """Constant and factor of each loop variable. Raises Problem for anything else."""
        names = {loop.name for loop in loops}
        if isinstance(node, Name) and node.text in names:
            return 0, {node.text: 1}
        if not any(name.text in names for name in _names(node)):
            if not loops:
                for name in _names(node):
                    if self.scope.get(name.text) is None:
                        self._may_be_loop(name)
            return integer(node, self.scope, "an index"), {}
        if isinstance(node, Unary) and node.operator in "+-":
            constant, factors = self.affine(node.operand, loops)
            sign = -1 if node.operator == "-" else 1
            return sign * constant, {name: sign * f for name, f in factors.items()}
        if isinstance(node, Binary) and node.operator in ("+", "-"):
            (c, f), (d, g) = self.affine(node.left, loops), self.affine(node.right, loops)
            sign = -1 if node.operator == "-" else 1
            return c + sign * d, {name: f.get(name, 0) + sign * g.get(name, 0) for name in {*f, *g}}
        if isinstance(node, Binary) and node.operator == "*":
            (c, f), (d, g) = self.affine(node.left, loops), self.affine(node.right, loops)
            if not f or not g:
                constant, factors = (c, g) if not f else (d, f)
                return c * d, {name: constant * factor for name, factor in factors.items()}
        raise Problem(
            "type",
            f"`{node.span.text}` is not a sum of loop variables times constants",
            node.span,
            help="a descriptor steps by a constant stride in each loop; split the loop or the symbol",
        )


def _names(node: Node) -> Iterator[Name]:
    """Every name in an expression, from left to right."""
    if isinstance(node, Name):
        yield node
    elif isinstance(node, Unary):
        yield from _names(node.operand)
    elif isinstance(node, Binary):
        yield from _names(node.left)
        yield from _names(node.right)
    elif isinstance(node, Choose):
        for part in (node.condition, node.yes, node.no):
            yield from _names(part)
    elif isinstance(node, Call):
        for part in node.arguments:
            yield from _names(part)
