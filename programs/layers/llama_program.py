"""The program of a llama layer: fragments of kernels put in order, queues, colours and routes of one grid.

Every PE runs the same kernel; roles at the ends of rows and columns are scalars. The source can be saved and
read: `layer_source`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...isa.assembler import assemble_text
from ...isa.program import Program
from ..kernels.all_reduce import (
    COLUMN,
    FIRST_LINES,
    ROW,
    Vector,
    all_reduce,
    axis_bindings,
    axis_colours,
    axis_role,
    axis_routes,
    chain,
)
from ..kernels.attention import GROUP, append, attention, group_bindings, group_routes, meeting_roles
from ..kernels.rms_norm import rms_norm
from ..kernels.rope import next_rotation, rope
from ..kernels.silu_gate import silu_gate
from ..kernels.tile_product import tile_product
from .llama_memory import STATE_SCALARS
from .llama_plan import LayerPlan, PlanError

__all__ = ["build_layer", "layer_source", "steps"]


def build_layer(plan: LayerPlan, regions: int = 1) -> Program:
    """The layer's program: input port `hidden` in the west, output port `hidden_out` in the east.

    `regions`: consecutive layers side by side, west to east, each on a grid of the plan; a hidden vector
    passes from one to the next over the fabric, in its lanes. One run is one token through all of them.
    Raises PlanError if the wafer is too narrow.
    """
    most = plan.spec.grid.width // plan.cols
    if not 1 <= regions <= most:
        raise PlanError(
            f"{regions} layers of {plan.cols} columns each need {regions * plan.cols} columns; "
            f"{plan.spec.name} has {plan.spec.grid.width}",
            category="resource",
            help=f"one wafer holds {most} on this grid: fewer columns per layer, or more wafers",
        )
    return assemble_text(layer_source(plan, regions), name="llama_layer")


def steps(plan: LayerPlan) -> list[tuple[str, list[str]]]:
    """What a PE does for a token, in order: a title and its lines."""
    config, rows, cols, column, row = plan.config, plan.rows, plan.cols, plan.column, plan.row
    heads, dims, tile = config.queries, plan.dims, plan.tile
    scale = f"f32({config.head_dim**-0.5!r})"
    residual = [
        f"  vadd.f32 residual[i], sums[i], residual[i] over i:{tile}",
        "  vcvt.f16.f32 hidden, residual",
    ]

    def column_sums(name: str) -> list[str]:
        return all_reduce(column, Vector("sums[i]", f"i:{plan.matrices[name].outputs}"), name)

    def product(name: str, x: str) -> list[str]:
        m = plan.matrices[name]
        return tile_product(name, x, m.rows, m.inputs, m.slice, plan.kind, m.group)

    leave = Vector("sums[i]", f"i:{tile}")
    region = "r15" if plan.requests > 1 else ""
    return [
        ("the activation arrives and starts the layer", [
            "  vmov.f16 message, arriving", "  vcvt.f32.f16 residual, hidden", *_chosen(plan)]),
        ("RMSNorm", rms_norm("attn_norm", tile, config.hidden, config.eps, column, "residual")),
        ("queries, keys, values", [*product("qkv", "x"), *column_sums("qkv")]),
        ("rotary position; queries carry the scale of the scores", [
            *rope(heads + 1, dims),
            f"  li r6, {scale}",
            f"  vmul.f32 rotated[i], rotated[i], r6 over i:{heads * dims}",
            f"  vcvt.f16.f32 query[i], rotated[i] over i:{heads * dims}",
        ]),
        ("the KV cache grows by one token", append(heads, dims, plan.capacity, rows, region)),
        ("attention", attention(
            heads, dims, plan.capacity, plan.sharing,
            meeting_roles(plan.sharing, plan.attention_cols, row), plan.attention_cols < cols,
            column, region)),
        ("output projection and residual", [
            *product("output", "context"), *all_reduce(row, leave, "output"), *residual]),
        ("RMSNorm", rms_norm("ffn_norm", tile, config.hidden, config.eps, column, "residual")),
        ("gate and up", [*product("gate_up", "x"), *column_sums("gate_up")]),
        ("SiLU gate", silu_gate(plan.ffn, plan.share, column)),
        ("down projection, residual, departure", [
            *product("down", "neurons"),
            *(chain(row, leave, "down") if cols > 1 else []),
            *residual,
            "  vmov.f16 leaving, message",
            *(["down_sent:"] if cols > 1 else []),
        ]),
        ("the next position", [
            *next_rotation(dims), "  ld.i32 r4, position", "  addi r4, r4, 1", "  st.i32 r4, position",
            *(["  vmov.i32 d10, state"] if plan.requests > 1 else [])]),
    ]  # fmt: skip


def _chosen(plan: LayerPlan) -> list[str]:
    """Bring the state of the request that a token belongs to; r15: its caches' offset, d10: its state.

    Trap 2 for a request that the layer does not keep.
    """
    if plan.requests == 1:
        return []
    words = STATE_SCALARS + 3 * (plan.dims // 2)
    return [
        "  ld.i16 r14, request",
        f"  li r4, {plan.requests}",
        "  bltu r14, r4, request_kept",
        "  trap 2",
        "request_kept:",
        f"  muli r15, r14, {2 * plan.dims * plan.capacity}",
        f"  muli r4, r14, {4 * words}",
        f"  ldd d10, states[0, i] over i:{words}",
        "  addd d10, r4, base",
        "  vmov.i32 state, d10",
    ]


def layer_source(plan: LayerPlan, regions: int = 1) -> str:
    """The program as text of the language."""
    what = "A llama layer" if regions == 1 else f"{regions} llama layers side by side, each"
    lines = [
        f"; {what} on {plan.cols} x {plan.rows} PEs, made by programs/layers/llama_program.py.",
        ";   hidden   f16, split over the rows: in at the west edge, out at the east edge, in the same lanes",
        f";   tile     {plan.tile} of {plan.config.hidden} elements per row",
        f";   heads    {plan.config.queries} query heads per KV head, {plan.dims} dimensions per column",
        f";   neurons  {plan.ffn} of {plan.config.ffn} per column",
        f".colour {', '.join(_colours(plan))}",
        "",
        ".kernel layer",
        ".queues",
        f"  in  {', '.join([*COLUMN.inputs, *ROW.inputs, GROUP.back, 'arriving'])}",
        f"  out {', '.join([*COLUMN.outputs, *ROW.outputs, GROUP.copies, 'leaving'])}",
        ".data",
        *(f"  {s.name}: {s.declaration}" + f"  ; {s.purpose}" * bool(s.purpose) for s in plan.stores),
        ".code",
        "task start entry",
        *FIRST_LINES,
        f"  ld.i32 {COLUMN.role}, column_role",
        f"  ld.i32 {ROW.role}, row_role",
        f"  ld.i32 {GROUP.role}, group_role",
    ]
    for title, code in steps(plan):
        lines += [f"; --- {title} ---", *code]
    lines += ["  done", "  end", "", ".layout", *(f"  {line}" for line in _layout(plan, regions))]
    return "\n".join(lines) + "\n"


def _colours(plan: LayerPlan) -> list[str]:
    """Names of the colours that a grid of this size needs."""
    group = ["group_all"] if plan.sharing > 1 else []
    return ["arrive", "leave", *axis_colours(plan.column), *axis_colours(plan.row), *group]


def _layout(plan: LayerPlan, regions: int) -> Sequence[str]:
    """Colours `arrive` and `leave` change places from region to region: what leaves one enters the next."""
    cols, rows, n, used = plan.cols, plan.rows, plan.sharing, plan.attention_cols
    x, come, go = "x", "arrive", "leave"
    if regions > 1:
        x = f"(x % {cols})"  # the column's number in its region
        come, go = (f"(x / {cols} % 2 ? {pair})" for pair in ("leave : arrive", "arrive : leave"))
    centre, middle = plan.row.meet, plan.column.meet
    bindings = [
        f"arriving = {come}",
        f"leaving = {x} == {centre} ? {go} : none",
        *axis_bindings(plan.column, "y"),
        *axis_bindings(plan.row, x),
        *group_bindings(n, used, plan.row, x),
        f"column_role = {axis_role(plan.column, 'y')}",
        f"row_role = {axis_role(plan.row, x)}",
        f"gate_at = {8 * plan.share} * y",
        f"behind = {plan.share} * (y < {middle} ? y : {rows - 1} - y)",
    ]
    return [
        f"grid {regions * cols}, {rows}",
        "place layer at (*, *) {",
        *(f"  {binding}" for binding in bindings),
        "}",
        *axis_routes(plan.column, "y"),
        *(line for region in range(regions) for line in _region_routes(plan, region)),
        f"input hidden on west lanes * colour arrive : f16[{plan.lane}]",
        f"output hidden_out on east lanes * colour {_ends(regions - 1)[1]} : f16[{plan.lane}]",
    ]


def _ends(region: int) -> tuple[str, str]:
    """The colours on which a region's hidden vector comes and goes."""
    return ("leave", "arrive") if region % 2 else ("arrive", "leave")


def _region_routes(plan: LayerPlan, region: int) -> list[str]:
    """Routes along the rows of one region."""
    first = region * plan.cols
    last, centre = first + plan.cols - 1, first + plan.row.meet
    come, go = _ends(region)
    return [
        f"route {come} at ({first}..{last - 1}, *): W -> E, RAMP",
        f"route {come} at ({last}, *): W -> RAMP",
        f"route {go} at ({centre}, *): RAMP -> E",
        f"route {go} at ({centre + 1}..{last}, *): W -> E",
        *axis_routes(plan.row, "x", first),
        *group_routes(plan.sharing, plan.attention_cols, plan.row, first),
    ]
