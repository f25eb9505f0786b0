"""All-reduce along a row or a column: sums or maxima pass from PE to PE; the last one sends copies back.

A fragment is the lines of a kernel's code for one step, as text of the language; layers are made of them.
Register contract of all fragments: r1 = 0 and r2 = 2 throughout, an axis has a role register.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "COLUMN",
    "FIRST_LINES",
    "ROW",
    "Axis",
    "Vector",
    "all_reduce",
    "axis_bindings",
    "axis_routes",
    "chain",
]

FIRST_LINES = ["  li r1, 0", "  li r2, 2"]  # what every fragment relies on


@dataclass(frozen=True)
class Axis:
    """Queues of a line of PEs. `role`: register, 0 at the first PE, 1 between, 2 at the last, 3 outside."""

    name: str
    before: str  # input queue: from the PE before
    after: str  # output queue: to the PE after
    back: str  # input queue: copies from the last PE
    copies: str  # output queue of the last PE
    role: str


COLUMN = Axis("column", "north", "south", "up", "up_copies", "r8")
ROW = Axis("row", "west", "east", "left", "left_copies", "r9")


@dataclass(frozen=True)
class Vector:
    """A vector of f32 in SRAM: an operand, and the loops it runs over (none for a descriptor register)."""

    operand: str
    over: str = ""

    def text(self, *operands: str) -> str:
        """Operands and loops of an instruction."""
        return ", ".join(operands) + (f" over {self.over}" if self.over else "")


def chain(
    axis: Axis, v: Vector, tag: str, op: str = "vadd.f32", before: str = "", after: str = ""
) -> list[str]:
    """The way there: the last PE ends with the result in `v` at label `{tag}_last`, all others jump to
    `{tag}_sent`, which the caller places. `before`, `after`: descriptor registers instead of the queues."""
    before, after = before or axis.before, after or axis.after
    return [
        f"  beq {axis.role}, r2, {tag}_end",
        f"  beq {axis.role}, r1, {tag}_begin",
        f"  {op} {v.text(after, before, v.operand)}",
        f"  jmp {tag}_sent",
        f"{tag}_begin:",
        f"  vmov.f32 {v.text(after, v.operand)}",
        f"  jmp {tag}_sent",
        f"{tag}_end:",
        f"  {op} {v.text(v.operand, before, v.operand)}",
    ]


def all_reduce(
    axis: Axis, pes: int, v: Vector, tag: str, op: str = "vadd.f32", registers: tuple[str, ...] = ()
) -> list[str]:
    """Every PE ends with the result in `v`. Order: the first PE's values, then each PE's in turn.

    `registers`: descriptor registers of the queues before, after, back, copies: a length of run time.
    """
    if pes == 1:
        return []
    before, after, back, copies = registers or (axis.before, axis.after, axis.back, axis.copies)
    return [
        *chain(axis, v, tag, op, before, after),
        f"  vmov.f32 {v.text(copies, v.operand)}",
        f"  jmp {tag}_done",
        f"{tag}_sent:",
        f"  vmov.f32 {v.text(v.operand, back)}",
        f"{tag}_done:",
    ]


def axis_bindings(axis: Axis, place: str, pes: int) -> list[str]:
    """Bindings of a placement over the whole grid: colours of the queues. `place`: `x` or `y`."""
    if pes == 1:
        return [f"{queue} = none" for queue in (axis.before, axis.after, axis.back, axis.copies)]
    even, odd, copies = f"{axis.name}_even", f"{axis.name}_odd", f"{axis.name}_all"
    return [
        f"{axis.before} = {place} == 0 ? none : {place} % 2 ? {even} : {odd}",
        f"{axis.after} = {place} == {pes - 1} ? none : {place} % 2 ? {odd} : {even}",
        f"{axis.back} = {place} == {pes - 1} ? none : {copies}",
        f"{axis.copies} = {place} == {pes - 1} ? {copies} : none",
    ]


def axis_routes(axis: Axis, pes: int) -> list[str]:
    """Routes of an axis over the whole grid."""
    if pes == 1:
        return []
    vertical = axis is COLUMN
    there, back = ("S", "N") if vertical else ("E", "W")
    place = "y" if vertical else "x"
    even, odd, copies = f"{axis.name}_even", f"{axis.name}_odd", f"{axis.name}_all"

    def at(span: str) -> str:
        return f"(*, {span})" if vertical else f"({span}, *)"

    return [
        f"route ({place} % 2 ? {odd} : {even}) at {at(f'0..{pes - 2}')}: RAMP -> {there}",
        f"route ({place} % 2 ? {even} : {odd}) at {at(f'1..{pes - 1}')}: {back} -> RAMP",
        f"route {copies} at {at(str(pes - 1))}: RAMP -> {back}",
        f"route {copies} at {at(f'1..{pes - 2}')}: {there} -> {back}, RAMP",
        f"route {copies} at {at('0')}: {there} -> RAMP",
    ]
