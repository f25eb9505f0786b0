"""Grouped-query attention for one new token as a fragment: scores, softmax in f32, weighted values.

Token t lies in row t mod rows, so the KV cache grows evenly; a column holds `dims` dimensions of its KV head.
Scores are summed over the columns that share the head, softmax and values over the rows. r11: tokens here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...isa.float16 import f16_from_f32, f32_from_f16
from ...isa.float32 import mul32, sub32
from ...isa.special import exp32, reciprocal32
from .all_reduce import (
    BETWEEN,
    BOTH,
    END,
    ONE,
    OTHER,
    OUTSIDE,
    ROW,
    Axis,
    Vector,
    all_reduce,
    sum_in_chains,
    sum_in_order,
)

__all__ = [
    "GROUP", "append", "attended", "attention", "group_bindings", "group_role", "group_routes",
    "meeting_roles", "meets_at",
]  # fmt: skip

LOWEST = -3.0e38  # where a maximum of scores starts

# Columns that share a KV head use the queues of their row, and the row's roles as far as the head reaches.
GROUP = replace(ROW, name="group", back="group_back", copies="group_copies", role="r10")


def meets_at(first: int, sharing: int, row: Axis) -> int:
    """The column where the scores of columns first .. first + sharing - 1 meet: as near to where the
    sums of the row meet as they come, since these run towards it."""
    return max(first, min(row.meet, first + sharing - 1))


def group_role(x: int, sharing: int, used: int, row: Axis) -> int:
    """Role of column x among those that share its head; the first `used` columns have one."""
    if x >= used:
        return OUTSIDE
    first = x - x % sharing
    last, meet = first + sharing - 1, meets_at(first, sharing, row)
    if x != meet:
        return END if x in (first, last) else BETWEEN
    if x != row.meet or meet == last:
        return ONE
    return BOTH if meet > first else OTHER


def meeting_roles(sharing: int, used: int, row: Axis) -> list[int]:
    """Roles of the columns where scores meet."""
    return sorted({group_role(x, sharing, used, row) for x in range(used)} & {BOTH, ONE, OTHER})


def group_bindings(sharing: int, used: int, row: Axis, x: str = "x") -> list[str]:
    """Bindings of a placement over the whole grid: what `meets_at` and `group_role` say, as expressions.
    `x`: the column's number, as an expression."""
    first, last = f"({x} - {x} % {sharing})", f"({x} - {x} % {sharing} + {sharing - 1})"
    meet = f"max({first}, min({row.meet}, {last}))"
    of_meeting = f"{x} != {row.meet} || {x} == {last} ? {ONE} : {x} > {first} ? {BOTH} : {OTHER}"
    role = f"{x} == {meet} ? ({of_meeting}) : {x} == {first} || {x} == {last} ? {END} : {BETWEEN}"
    shared = sharing > 1
    return [
        f"{GROUP.back} = " + (f"{x} < {used} && {x} != {meet} ? group_all : none" if shared else "none"),
        f"{GROUP.copies} = " + (f"{x} < {used} && {x} == {meet} ? group_all : none" if shared else "none"),
        f"group_role = {x} >= {used} ? {OUTSIDE} : {role}",
    ]


def group_routes(sharing: int, used: int, row: Axis, origin: int = 0) -> list[str]:
    """Routes of the copies of scores, the first column at `origin`."""
    lines = []
    for x in range(used if sharing > 1 else 0):
        first = x - x % sharing
        last, meet = first + sharing - 1, meets_at(first, sharing, row)
        west, east = ["W"] * (x > first), ["E"] * (x < last)
        if x == meet:
            ways = f"RAMP -> {', '.join(west + east)}"
        elif x < meet:
            ways = f"E -> {', '.join([*west, 'RAMP'])}"
        else:
            ways = f"W -> {', '.join([*east, 'RAMP'])}"
        lines.append(f"route group_all at ({origin + x}, *): {ways}")
    return lines


def append(heads: int, dims: int, capacity: int, rows: int, region: str = "") -> list[str]:
    """Lines that keep key and value in the row whose turn it is; trap 1 if its cache is full.

    The key is `rotated` behind `heads` queries, the value follows the key in `sums`. `region`: a register
    with the offset in bytes of this sequence's keys, and of its values. Uses d0, d1, r4, r5.
    """
    moved = [f"  addd {d}, {region}, base" if region else "" for d in ("d0", "d1")]
    return [
        "  ld.i32 r4, turn",
        "  ld.i32 r11, tokens",
        "  bne r4, r1, append_other",
        f"  li r5, {capacity}",
        "  blt r11, r5, append_room",
        "  trap 1",
        "append_room:",
        f"  ldd d0, keys[d, 0] over d:{dims}",
        "  shli r5, r11, 1",
        "  addd d0, r5, base",
        *filter(None, moved[:1]),
        f"  vcvt.f16.f32 d0, rotated[{heads * dims} + d] over d:{dims}",
        f"  ldd d1, values[0, d] over d:{dims}",
        f"  muli r5, r11, {2 * dims}",
        "  addd d1, r5, base",
        *filter(None, moved[1:]),
        f"  vcvt.f16.f32 d1, sums[{(heads + 1) * dims} + d] over d:{dims}",
        "  addi r11, r11, 1",
        "  st.i32 r11, tokens",
        f"  li r4, {rows}",
        "append_other:",
        "  addi r4, r4, -1",
        "  st.i32 r4, turn",
    ]


def attention(
    heads: int,
    dims: int,
    capacity: int,
    sharing: int,
    roles: Sequence[int],
    outside: bool,
    column: Axis,
    region: str = "",
) -> list[str]:
    """Lines that turn `query` f16[heads * dims] into `context` f16[heads * dims].

    `sharing`: columns that share the head; `roles`: of those where scores meet; `outside`: there are columns
    without a head; `region`: as of `append`. Symbols: `keys` f16[dims, capacity], `values` f16[capacity,
    dims], `scores` f32 and `weights` f16[heads, capacity], `largest` f32[heads], `mixed` f32[heads * dims
    + heads]. Uses d0..d9, r5..r7.
    """
    moved = [f"  addd d1, {region}, base"] if region else []
    loops = f"over h:{heads}, b:1, d:{dims}, r:8"
    lines = [
        "  addi r5, r11, 7",
        "  shri r5, r5, 3",  # eights of tokens
        "  shli r6, r5, 3",
        f"  ldd d0, scores[h, j] over h:{heads}, j:1",
        "  setd d0, r6, extent1",
        "  vmov.f32 d0, r1",
        f"  ldd d0, scores[h, 8*b + r] {loops}",
        f"  ldd d1, keys[d, 8*b + r] {loops}",
        *moved,
        f"  ldd d2, query[{dims}*h + d] {loops}",
        "  setd d0, r5, extent1",
        "  setd d1, r5, extent1",
        "  setd d2, r5, extent1",
        "  vmac.f32.f16 d0, d1, d2",
        f"  ldd d4, scores[h, j] over h:{heads}, j:1",
        "  setd d4, r11, extent1",
    ]
    if sharing > 1:
        queues = (GROUP.before, GROUP.other, GROUP.after, GROUP.back, GROUP.copies)
        registers = ("d0", "d1", "d2", "d3", "d9")
        lines.append(f"  muli r5, r11, {heads}")
        if outside:
            lines += [f"  li r6, {OUTSIDE}", f"  beq {GROUP.role}, r6, scores_done"]
        # A queue that no colour is bound to is never named: the roles decide which instruction runs.
        for register, queue in zip(registers, queues, strict=True):
            lines += [f"  ldd {register}, {queue}.single[1]", f"  setd {register}, r5, extent0"]
        group = GROUP.of(sharing, 0)
        lines += all_reduce(group, Vector("d4"), "scores", roles=roles, registers=registers)
    lines += _softmax(heads, dims, capacity, column)
    block, at = 8 if dims % 8 == 0 else 4, f"{dims}*h + d"
    loops = f"over h:{heads}, b:{dims // block}, j:1, r:{block}"
    lines += [
        f"  vmov.f32 mixed[i], r1 over i:{heads * dims}",
        f"  ldd d0, mixed[{dims}*h + {block}*b + r] {loops}",
        f"  ldd d1, values[j, {block}*b + r] {loops}",
        *moved,
        f"  ldd d2, weights[h, j] {loops}",
        "  setd d0, r11, extent2",
        "  setd d1, r11, extent2",
        "  setd d2, r11, extent2",
        "  vmac.f32.f16 d0, d1, d2",
        *all_reduce(column, Vector("mixed[i]", f"i:{heads * dims + heads}"), "mixed_sum"),
        f"  vrcp.f32 mixed[{heads * dims} + h], mixed[{heads * dims} + h] over h:{heads}",
        f"  vmul.f32 mixed[{at}], mixed[{at}], mixed[{heads * dims} + h] over h:{heads}, d:{dims}",
        f"  vcvt.f16.f32 context[i], mixed[i] over i:{heads * dims}",
    ]
    return lines


def _softmax(heads: int, dims: int, capacity: int, column: Axis) -> list[str]:
    """d4 holds the scores: their maximum over the rows, f16 weights exp(score - maximum), sums of these."""
    lines = [f"  ldd d5, scores[0, j] over j:{1}", "  setd d5, r11, extent0", f"  li r7, {4 * capacity}"]
    for head in range(heads):
        lines += [f"  li r6, f32({LOWEST!r})", "  vredmax.f32 r6, d5", f"  st.f32 r6, largest[{head}]"]
        lines += ["  addd d5, r7, base"] * (head + 1 < heads)
    lines += [
        *all_reduce(column, Vector("largest[i]", f"i:{heads}"), "largest_all", "vmax.f32"),
        f"  ldd d6, largest[h] over h:{heads}, j:1",
        "  setd d6, r11, extent1",
        "  vsub.f32 d4, d4, d6",
        "  vexp.f32 d4, d4",
        f"  ldd d7, weights[h, j] over h:{heads}, j:1",
        "  setd d7, r11, extent1",
        "  vcvt.f16.f32 d7, d4",
        "  ldd d8, weights[0, j] over j:1",
        "  setd d8, r11, extent0",
        f"  li r7, {2 * capacity}",
    ]
    for head in range(heads):
        lines += ["  li r6, 0", "  vred.f32.f16 r6, d8", f"  st.f32 r6, mixed[{heads * dims + head}]"]
        lines += ["  addd d8, r7, base"] * (head + 1 < heads)
    return lines


def attended(
    query: np.ndarray, keys: np.ndarray, values: np.ndarray, sharing: int, used: int, row: Axis, column: Axis
) -> np.ndarray:
    """Golden: attention outputs float16 (columns, heads, dims), exact values of f16 as float32 otherwise.

    `query` (columns, heads, dims); `keys`, `values` (tokens, columns, dims), token t in row t mod rows.
    """
    scores = np.zeros((len(keys), *query.shape[:2]), np.float32)
    for d in range(query.shape[2]):
        scores += keys[:, :, None, d] * query[None, :, :, d]
    for first in range(0, used, sharing):
        group = slice(first, first + sharing)
        parts = scores[:, group].swapaxes(0, 1).copy()
        scores[:, group] = sum_in_chains(parts, meets_at(first, sharing, row) - first)[:, None]
    largest = np.maximum(scores.max(axis=0), np.float32(LOWEST))
    weights = _by_row(f32_from_f16(f16_from_f32(exp32(sub32(scores, largest)))), column.pes)
    # tokens of a row in order, then from row to row
    totals = sum_in_chains(sum_in_order(weights), column.meet)
    mixed = sum_in_order(weights[..., None] * _by_row(values, column.pes)[:, :, :, None])
    return f16_from_f32(mul32(sum_in_chains(mixed, column.meet), reciprocal32(totals)[..., None]))


def _by_row(tokens: np.ndarray, rows: int) -> np.ndarray:
    """(tokens, ...) as (rows, tokens of a row, ...), filled up with zeros."""
    slots = -(-len(tokens) // rows)
    padded = np.zeros((slots * rows, *tokens.shape[1:]), np.float32)
    padded[: len(tokens)] = tokens
    return padded.reshape(slots, rows, *tokens.shape[1:]).swapaxes(0, 1)
