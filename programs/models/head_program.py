"""The program of a head's wafer, made of kernels' fragments: norm, product, column sums, arg-max in a row.

The sums of all columns meet in one row of PEs. There the largest logit is found by an all-reduce, then the
lowest token that has it by a chain; both leave at the east edge as f32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...fabric.wafer import Wafer
from ...isa.assembler import assemble_text
from ...isa.program import Program
from ..kernels.all_reduce import (
    BETWEEN,
    END,
    FIRST_LINES,
    OUTSIDE,
    Axis,
    Vector,
    all_reduce,
    axis_bindings,
    axis_colours,
    axis_routes,
    chain,
)
from ..kernels.rms_norm import rms_norm
from ..kernels.tile_product import tile_product
from ..weights.groups import Groups
from .head_plan import HeadPlan

__all__ = ["LOWEST", "NOBODY", "build_head", "head_source", "head_tiles", "load_head"]

LOWEST = -3.0e38  # where a largest logit starts
NOBODY = 1.0e9  # the token of a column that has not the largest logit; tokens are exact in f32


def build_head(plan: HeadPlan) -> Program:
    """Input port `hidden` as of a layer; output port `token`: f32[2], token and logit."""
    return assemble_text(head_source(plan), name="head")


def head_source(plan: HeadPlan) -> str:
    """The program as text of the language."""
    axes = [*axis_colours(plan.column), *axis_colours(plan.row)]
    lines = [
        f"; A head of {plan.vocabulary} tokens on {plan.cols} x {plan.rows} PEs, made by",
        "; programs/models/head_program.py: RMSNorm, product, sums of columns, arg-max of the last row",
        f".colour {', '.join(['arrive', 'leave', *axes])}",
        ".kernel head",
        ".queues",
        f"  in  {', '.join([*plan.column.inputs, *plan.row.inputs, 'arriving'])}",
        f"  out {', '.join([*plan.column.outputs, *plan.row.outputs, 'leaving'])}",
        ".data",
        *(f"  {name}: {declaration}" for name, declaration, _ in plan.declarations),
        ".code",
        "task start entry",
        *FIRST_LINES,
        f"  ld.i32 {plan.column.role}, column_role",
        f"  ld.i32 {plan.row.role}, row_role",
        *_code(plan),
        "head_sent:",
        "  done",
        "  end",
        ".layout",
        *(f"  {line}" for line in _layout(plan)),
    ]
    return "\n".join(lines) + "\n"


def _code(plan: HeadPlan) -> list[str]:
    m = plan.matrix
    column = chain(plan.column, Vector("sums[i]", f"i:{m.rows}"), "head")
    row = chain(plan.row, Vector("index[i]", "i:1"), "index", "vmin.f32")
    return [
        "  vmov.f16 message, arriving",
        *rms_norm("output_norm", plan.tile, plan.hidden, plan.eps, plan.column),
        *tile_product("head", "x", m.rows, m.inputs, m.slice, plan.kind, m.group),
        *(column if plan.rows > 1 else []),
        f"  ldd d5, sums[i] over i:{plan.share}",
        "  ld.i32 r4, valid",
        "  setd d5, r4, extent0",
        f"  li r6, f32({LOWEST!r})",
        "  vredmax.f32 r6, d5",
        "  st.f32 r6, best",
        *all_reduce(plan.row, Vector("best[i]", "i:1"), "best", "vmax.f32"),
        "  ld.f32 r7, best",
        f"  li r5, f32({NOBODY!r})",
        "  flt.f32 r3, r6, r7",
        "  bne r3, r1, announce",
        "  li r4, sums",
        "search:",
        "  ld.f32 r3, [r4]",
        "  flt.f32 r3, r3, r7",
        "  beq r3, r1, found",
        "  addi r4, r4, 4",
        "  jmp search",
        "found:",
        "  li r3, sums",
        "  sub r4, r4, r3",
        "  shr r4, r4, 2",
        "  ld.i32 r3, first",
        "  add r4, r4, r3",
        "  cvt.f32.i32 r5, r4",
        "announce:",
        "  st.f32 r5, index",
        *(row if plan.cols > 1 else []),
        "  vmov.f32 leaving, index",
        "  vmov.f32 leaving, best",
        *(["index_sent:"] if plan.cols > 1 else []),
    ]


def _layout(plan: HeadPlan) -> list[str]:
    cols, rows = plan.cols, plan.rows
    x, y = plan.row.meet, plan.column.meet
    routes = [f"route arrive at ({cols - 1}, *): W -> RAMP", f"route leave at ({x}, {y}): RAMP -> E"]
    if cols > 1:
        routes.append(f"route arrive at (0..{cols - 2}, *): W -> E, RAMP")
    if x < cols - 1:
        routes.append(f"route leave at ({x + 1}..{cols - 1}, {y}): W -> E")
    return [
        f"grid {cols}, {rows}",
        "place head at (*, *) {",
        "  arriving = arrive",
        f"  leaving = x == {x} && y == {y} ? leave : none",
        *(f"  {line}" for line in (*axis_bindings(plan.column, "y"), *axis_bindings(plan.row, "x"))),
        f"  column_role = {_roles(plan.column, 'y')}",
        f"  row_role = {_roles(plan.row, 'x')}",
        f"  first = x * {plan.share}",
        f"  valid = max(0, min({plan.share}, {plan.vocabulary} - x * {plan.share}))",
        "}",
        *routes,
        *axis_routes(plan.column, "y"),
        *axis_routes(plan.row, "x"),
        f"input hidden on west lanes * colour arrive : f16[{plan.lane}]",
        f"output token on east lanes {y} colour leave : f32[2]",
    ]


def _roles(axis: Axis, place: str) -> str:
    """Role of a PE on an axis as an expression."""
    if axis.pes == 1:
        return str(OUTSIDE)
    ends = f"{place} == 0 || {place} == {axis.last} ? {END} : {BETWEEN}"
    return f"{place} == {axis.meet} ? {axis.meeting_role} : {ends}"


# --- weights ---


def head_tiles(plan: HeadPlan, weights: Any) -> np.ndarray:
    """Tiles of a head's weights, Groups or float16 (vocabulary, hidden).

    Groups: uint8 (rows, cols, outputs, groups, bytes); else float16 (rows, cols, outputs, inputs).
    """
    m = plan.matrix
    if isinstance(weights, Groups):
        data = weights.regroup(m.group).data
        per_row = plan.tile // m.group
    else:
        data, per_row = np.asarray(weights, np.float16)[..., None], plan.tile
    padded = np.zeros((plan.cols * plan.share, plan.rows * per_row, data.shape[2]), data.dtype)
    padded[: data.shape[0], : data.shape[1]] = data
    tile = padded.reshape(plan.cols, plan.share, plan.rows, per_row, -1).transpose(2, 0, 1, 3, 4)
    tile = np.pad(tile, ((0, 0), (0, 0), (0, m.rows - plan.share), (0, 0), (0, 0)))
    return tile if isinstance(weights, Groups) else tile[..., 0]


def load_head(wafer: Wafer, plan: HeadPlan, weights: Any, norm: np.ndarray) -> None:
    """Write the weights of a head and of its norm, float32 (hidden,)."""
    tile = head_tiles(plan, weights)
    if plan.kind == "f16":
        tile = np.pad(tile, ((0, 0), (0, 0), (0, 0), (0, plan.matrix.pitch - plan.tile)))
    wafer.write("w_head", np.ascontiguousarray(tile))
    lanes = plan.split(np.asarray(norm, np.float32))[:, None]
    wafer.write(
        "output_norm", np.ascontiguousarray(np.broadcast_to(lanes, (plan.rows, plan.cols, plan.tile)))
    )
