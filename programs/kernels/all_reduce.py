"""All-reduce along a row or a column: sums or maxima meet in one PE, which sends copies back.

From both ends each PE adds its values to what comes from outside and passes the result on inwards, one hop at
a time. Where sums meet is free: at the last PE one stream comes in; in the middle the way is half as long,
but two streams share the ramp. For n values and P PEs the middle is better below about n = (4 + 2 hop) P / 2.

A fragment is the lines of a kernel's code for one step, as text of the language; layers are made of them.
Register contract of all fragments: `FIRST_LINES` hold throughout, and an axis has a role register.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...isa.float32 import add32, canonical32

__all__ = [
    "COLUMN", "FIRST_LINES", "ROW", "Axis", "Vector", "all_reduce", "axis_bindings", "axis_colours",
    "axis_role", "axis_routes", "chain", "sum_in_chains", "sum_in_order",
]  # fmt: skip

# Roles of a PE on an axis. BOTH, ONE, OTHER: the PE where sums meet, with neighbours on both sides, on the
# side its `before` queue looks to, or on the `other` side only.
END, BETWEEN, BOTH, OUTSIDE, ONE, OTHER = range(6)
FIRST_LINES = ["  li r1, 0", f"  li r2, {BOTH}", f"  li r12, {ONE}", f"  li r13, {OTHER}"]
_REGISTER = {BOTH: "r2", ONE: "r12", OTHER: "r13"}


@dataclass(frozen=True)
class Axis:
    """Queues of a line of PEs, and the register that holds a PE's role on it."""

    name: str
    before: str  # input queue: from the neighbour outwards
    other: str  # input queue of the middle PE: from its other side
    after: str  # output queue: to the neighbour inwards
    back: str  # input queue: copies from the middle PE
    copies: str  # output queue of the middle PE
    role: str
    pes: int = 1
    meet: int = 0  # the PE where sums meet, in its middle or at its end

    def of(self, pes: int, meet: int) -> Axis:
        """This axis on a line of `pes` PEs."""
        return replace(self, pes=pes, meet=meet)

    @property
    def last(self) -> int:
        """The PE at the far end."""
        return self.pes - 1

    @property
    def meeting_role(self) -> int:
        """Role of the PE where sums meet on a line of at least two."""
        return BOTH if 0 < self.meet < self.last else ONE if self.meet else OTHER

    @property
    def inputs(self) -> tuple[str, ...]:
        """Input queues."""
        return self.before, self.other, self.back

    @property
    def outputs(self) -> tuple[str, ...]:
        """Output queues."""
        return self.after, self.copies


COLUMN = Axis("column", "column_in", "column_other", "column_out", "column_back", "column_copies", "r8")
ROW = Axis("row", "row_in", "row_other", "row_out", "row_back", "row_copies", "r9")


@dataclass(frozen=True)
class Vector:
    """A vector of f32 in SRAM: an operand, and the loops it runs over (none for a descriptor register)."""

    operand: str
    over: str = ""

    def text(self, *operands: str) -> str:
        """Operands and loops of an instruction."""
        return ", ".join(operands) + (f" over {self.over}" if self.over else "")


def chain(
    axis: Axis,
    v: Vector,
    tag: str,
    op: str = "vadd.f32",
    *,
    roles: Sequence[int] = (),
    registers: Sequence[str] = (),
) -> list[str]:
    """The way there. The PE where sums meet goes on behind these lines with the result in `v`; all others
    jump to `{tag}_sent`, which the caller places.

    `roles`: those of PEs where sums meet, if several occur. `registers`: descriptor registers of the queues
    before, other, after, for a length of run time.
    """
    before, other, after = registers or (axis.before, axis.other, axis.after)
    roles = roles or (axis.meeting_role,)
    lines = [f"  beq {axis.role}, {_REGISTER[role]}, {tag}_{role}" for role in roles]
    lines += [
        f"  beq {axis.role}, r1, {tag}_begin",
        f"  {op} {v.text(after, before, v.operand)}",
        f"  jmp {tag}_sent",
        f"{tag}_begin:",
        f"  vmov.f32 {v.text(after, v.operand)}",
        f"  jmp {tag}_sent",
    ]
    from_before = f"  {op} {v.text(v.operand, before, v.operand)}"
    from_other = f"  {op} {v.text(v.operand, other, v.operand)}"
    meeting = {ONE: [from_before], OTHER: [from_other], BOTH: [from_before, from_other]}
    for role in roles:
        lines += [f"{tag}_{role}:", *meeting[role]]
        lines += [f"  jmp {tag}_met"] * (role != roles[-1])
    return [*lines, f"{tag}_met:"]


def all_reduce(
    axis: Axis,
    v: Vector,
    tag: str,
    op: str = "vadd.f32",
    *,
    meanwhile: Sequence[str] = (),
    roles: Sequence[int] = (),
    registers: Sequence[str] = (),
) -> list[str]:
    """Every PE ends with the result in `v`; `meanwhile`: lines that do not touch it, while copies travel.

    `registers`: descriptor registers of the queues before, other, after, back, copies.
    """
    if axis.pes == 1:
        return list(meanwhile)
    back, copies = registers[3:] or (axis.back, axis.copies)
    return [
        *chain(axis, v, tag, op, roles=roles, registers=registers[:3]),
        f"  vmov.f32 {v.text(copies, v.operand)}",
        f"{tag}_sent:",
        *meanwhile,
        f"  bge {axis.role}, r2, {tag}_done",
        f"  vmov.f32 {v.text(v.operand, back)}",
        f"{tag}_done:",
    ]


def sum_in_chains(parts: np.ndarray, meet: int) -> np.ndarray:
    """Golden: sums along the first axis as the PEs add them, meeting at `meet`."""
    total = parts[meet]
    for side in (parts[:meet], parts[:meet:-1]):
        if len(side):
            outer = side[0]
            for part in side[1:]:
                outer = add32(outer, part)
            total = add32(outer, total)
    return canonical32(total)


def sum_in_order(values: np.ndarray) -> np.ndarray:
    """Golden: sums along the second axis as one PE adds them: from zero, one rounding per element."""
    total = np.zeros((values.shape[0], *values.shape[2:]), np.float32)
    with np.errstate(all="ignore"):
        for k in range(values.shape[1]):
            total = total + values[:, k]
    return total


# --- layout ---


def axis_role(axis: Axis, place: str) -> str:
    """Role of a PE on an axis as an expression. `place`: `x` or `y`."""
    if axis.pes == 1:
        return str(OUTSIDE)
    ends = f"{place} == 0 || {place} == {axis.last} ? {END} : {BETWEEN}"
    return f"{place} == {axis.meet} ? {axis.meeting_role} : {ends}"


def axis_colours(axis: Axis) -> list[str]:
    """Names of the colours of an axis."""
    if axis.pes == 1:
        return []
    near = ["even", "odd"] if axis.meet > 0 else []
    far = ["far_even", "far_odd"] if axis.meet < axis.last else []
    return [f"{axis.name}_{part}" for part in (*near, *far, "all")]


def axis_bindings(axis: Axis, place: str) -> list[str]:
    """Bindings of a placement over the whole grid: colours of the queues. `place`: `x` or `y`."""
    if axis.pes == 1:
        return [f"{queue} = none" for queue in (*axis.inputs, *axis.outputs)]
    meet, last, name = axis.meet, axis.last, axis.name

    def colour(side: str, of_odd: str, of_even: str) -> str:
        return f"({place} % 2 ? {name}_{side}{of_odd} : {name}_{side}{of_even})"

    near, far = meet > 0, meet < last
    near_got, far_got = colour("", "even", "odd"), colour("far_", "even", "odd")
    near_sent, far_sent = colour("", "odd", "even"), colour("far_", "odd", "even")
    inwards = f"{place} > 0 && {place} <= {meet} ? {near_got} : " if near else ""
    outer = f"{place} > {meet} && {place} < {last} ? {far_got} : " if far else ""
    sent = f"{place} < {meet} ? {near_sent} : " if near else ""
    far_out = f"{place} > {meet} ? {far_sent} : " if far else ""
    return [
        f"{axis.before} = {inwards}{outer}none",
        f"{axis.other} = " + (f"{place} == {meet} ? {far_got} : none" if far else "none"),
        f"{axis.after} = {sent}{far_out}none",
        f"{axis.back} = {place} == {meet} ? none : {name}_all",
        f"{axis.copies} = {place} == {meet} ? {name}_all : none",
    ]


def axis_routes(axis: Axis, place: str, origin: int = 0) -> list[str]:
    """Routes of an axis over the whole grid, the line's first PE at `origin`; empty ranges where a side has
    no PEs."""
    if axis.pes == 1:
        return []
    meet, last, name = axis.meet, axis.last, axis.name
    inwards, outwards = ("S", "N") if place == "y" else ("E", "W")

    def at(first: int, to: int) -> str:
        first, to = first + origin, to + origin
        return f"(*, {first}..{to})" if place == "y" else f"({first}..{to}, *)"

    def colour(side: str, of_odd: str, of_even: str) -> str:
        if origin % 2:
            of_odd, of_even = of_even, of_odd
        return f"({place} % 2 ? {name}_{side}{of_odd} : {name}_{side}{of_even})"

    ways = ", ".join([outwards] * (meet > 0) + [inwards] * (meet < last))
    lines = [f"route {name}_all at {at(meet, meet)}: RAMP -> {ways}"]
    for side, first, to, back in (("", 0, meet - 1, outwards), ("far_", meet + 1, last, inwards)):
        if first > to:
            continue
        there, step, end = (inwards, 1, first) if side == "" else (outwards, -1, to)
        inner = (first + 1, to) if side == "" else (first, to - 1)
        lines += [
            f"route {colour(side, 'odd', 'even')} at {at(first, to)}: RAMP -> {there}",
            f"route {colour(side, 'even', 'odd')} at {at(first + step, to + step)}: {back} -> RAMP",
            f"route {name}_all at {at(end, end)}: {there} -> RAMP",
            f"route {name}_all at {at(*inner)}: {there} -> {back}, RAMP",
        ]
    return lines
