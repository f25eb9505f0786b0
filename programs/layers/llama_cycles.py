"""Expected cycles of a llama layer: the critical path of one token, step by step, from the machine's timings.

The path runs through the last row and then the last column, where sums end. Terms are docs/machine.md §7's
set-up and rate of each vector instruction, one `ldd` per operand, and the way of wavelets between PEs. Bank
clashes in attention and the queues' filling are left out: the tests hold the result within a few per cent.
"""

from __future__ import annotations

import math

from ..kernels.clock import Clock
from ..kernels.cycles import distance, hop
from .llama_plan import LayerPlan

__all__ = ["cycles", "cycles_of_regions", "steps_cycles"]


def steps_cycles(plan: LayerPlan, context: int) -> dict[str, int]:
    """Cycles of each step for a token that sees `context` tokens, itself included."""
    clock, spec, config = Clock(plan.spec), plan.spec, plan.config
    rows, cols, heads, dims, tile = plan.rows, plan.cols, config.queries, plan.dims, plan.tile
    here = math.ceil(context / rows)  # tokens of the fullest row
    special = spec.special["rsqrt"]
    norm = (
        clock.vector("fill", 8, "f32_add", 1) + clock.vector("mac", tile, "mixed_mac", 3)
        + clock.vector("reduce", 8, "reduce", 1) + spec.engine.writeback
        + clock.vector("copy", tile, "convert")
        + clock.all_reduce(plan.column, 1) + special + 4 * spec.engine.fp_latency
        + clock.vector("elementwise", tile, "f32_mul", 1) + clock.vector("elementwise", tile, "f32_mul", 2)
    )  # fmt: skip
    residual = (
        clock.vector("copy", tile, "convert") + clock.vector("elementwise", tile, "f32_add", 2)
    )  # fmt: skip
    query = heads * dims
    rotate = (
        clock.vector("elementwise", query + dims, "f32_mul", 3)
        + clock.vector("mac_f32", query + dims, "f32_mac", 3)
        + clock.vector("elementwise", query, "f32_mul", 1) + clock.vector("copy", query, "convert")
    )  # fmt: skip
    append = 2 * clock.vector("copy", dims, "convert") + 20
    half = dims // 2
    turn = (
        clock.vector("elementwise", 2 * half, "f32_mul", 3) + clock.vector("mac_f32", 2 * half, "f32_mac", 3)
        + clock.vector("copy", 2 * half, "f32_add") + clock.vector("elementwise", half, "f32_add") + 4
    )  # fmt: skip
    share = plan.share
    gate = (
        2 * clock.vector("elementwise", share, "f32_add", 1)
        + 2 * clock.vector("special", share, "special", 1)
        + 2 * clock.vector("elementwise", share, "f32_mul", 1) + clock.vector("copy", share, "convert") + 6
    )  # fmt: skip
    gathered = plan.ffn // 2
    if rows > 1:
        gate += (
            clock.vector("copy", 0, "f16_add") + gathered + 2 * hop(spec) + clock.back(plan.column, gathered)
        )
    m, quantised = plan.matrices, plan.kind != "f16"
    products = {name: clock.product(t.rows, t.inputs, t.slice, quantised) for name, t in m.items()}
    arrival = 2 + spec.lead("copy") + distance(spec, cols) - spec.fabric.ramp_up + tile // 2
    arrival += clock.vector("copy", tile, "convert")
    return {
        "arrival": arrival,
        "norms": 2 * norm,
        "qkv": products["qkv"] + clock.all_reduce(plan.column, m["qkv"].outputs),
        "rope": rotate,
        "cache": append,
        "attention": clock.attention(heads, dims, plan.sharing, here, plan.column),
        "output": products["output"] + clock.all_reduce(plan.row, tile) + residual,
        "gate_up": products["gate_up"] + clock.all_reduce(plan.column, m["gate_up"].outputs),
        "silu": gate,
        "down": products["down"] + clock.chain(plan.row, tile) + residual,
        "departure": 2 + spec.lead("copy") + tile // 2 + spec.fabric.hop * (cols - plan.row.meet),
        "position": turn,
    }


def cycles(plan: LayerPlan, context: int) -> int:
    """Expected cycles of a token that sees `context` tokens, itself included."""
    return sum(steps_cycles(plan, context).values())


def cycles_of_regions(plan: LayerPlan, regions: int, context: int = 1) -> int:
    """The same for layers side by side on one wafer: what arrives in a region has just left the one before,
    which prepares its next position meanwhile."""
    steps = steps_cycles(plan, context)
    together = steps["departure"] + steps["position"] - plan.spec.fabric.hop * (plan.cols - plan.row.meet)
    return regions * sum(steps.values()) - (regions - 1) * together
