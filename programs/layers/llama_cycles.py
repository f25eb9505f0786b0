"""Expected cycles of a llama layer: the critical path of one token, step by step, from the machine's timings.

The path runs through the last row and then the last column, where sums end. Terms are docs/machine.md §7's
set-up and rate of each vector instruction, one `ldd` per operand, and the way of wavelets between PEs. Bank
clashes in attention and the queues' filling are left out: the tests hold the result within a few per cent.
"""

from __future__ import annotations

import math

from ..kernels.all_reduce import Axis
from ..kernels.attention import GROUP
from ..kernels.cycles import distance, hop
from .llama_plan import LayerPlan, Matrix

__all__ = ["cycles", "steps_cycles"]


class _Clock:
    """Cycles of single instructions on a machine."""

    def __init__(self, plan: LayerPlan) -> None:
        self.plan, self.spec = plan, plan.spec

    def vector(self, setup: str, count: float, rate: str, operands: int = 2) -> int:
        """A vector instruction from its first `ldd` to the next instruction."""
        if count <= 0:
            return operands + 1
        return operands + self.spec.lead(setup) + math.ceil(count / self.spec.rate[rate])

    def all_reduce(self, axis: Axis, count: int) -> int:
        """There and back, one f32 per wavelet."""
        return self.chain(axis, count) + self.back(axis, count) if axis.pes > 1 else 0

    def chain(self, axis: Axis, count: int) -> int:
        """Until the PE where sums meet holds them: two streams share its ramp unless it is at an end."""
        if axis.pes == 1:
            return 0
        branches = self.spec.engine.branch_taken + self.spec.engine.branch_not_taken
        both = count + 2 + self.spec.lead("elementwise") if 0 < axis.meet < axis.last else 0
        return branches + 2 + self.spec.lead("copy") + hop(self.spec) * self._far(axis) + count + both

    def back(self, axis: Axis, wavelets: int) -> int:
        """Copies from there to the PE furthest away."""
        return 2 + self.spec.lead("copy") + distance(self.spec, self._far(axis)) + wavelets

    @staticmethod
    def _far(axis: Axis) -> int:
        return max(axis.meet, axis.last - axis.meet)

    def product(self, m: Matrix) -> int:
        """A tile's product: the fill, then per slice dequantise and multiply, two cycles per input."""
        engine = self.spec.engine
        groups = m.slice // 8 * max(2 * m.inputs, 8 * m.inputs / self.spec.rate["mixed_mac"])
        once = self.spec.lead("mac") + groups + 2 * (m.slice // 8)
        total = self.vector("fill", m.rows, "f32_add", 1)
        if self.plan.kind == "f16":
            return int(total + 3 + once)
        once += self.spec.lead("dequantise") + m.slice * m.inputs / self.spec.rate["dequantise"]
        turns = m.slices * (1 + engine.branch_taken) if m.slices > 1 else 0
        return int(total + 5 + m.slices * once + turns)


def steps_cycles(plan: LayerPlan, context: int) -> dict[str, int]:
    """Cycles of each step for a token that sees `context` tokens, itself included."""
    clock, spec, config = _Clock(plan), plan.spec, plan.config
    rows, cols, heads, dims, tile = plan.rows, plan.cols, config.queries, plan.dims, plan.tile
    here = math.ceil(context / rows)  # tokens of the fullest row
    special = spec.special["rsqrt"]
    norm = (
        clock.vector("fill", 8, "f32_add", 1) + clock.vector("mac", tile, "mixed_mac", 3)
        + clock.vector("reduce", 8, "reduce", 1) + spec.engine.writeback
        + clock.vector("copy", tile, "convert") * 2
        + clock.all_reduce(plan.column, 1) + special + 4 * spec.engine.fp_latency
        + clock.vector("elementwise", tile, "f32_mul", 1) + clock.vector("elementwise", tile, "f32_mul", 2)
    )  # fmt: skip
    residual = (
        2 * clock.vector("copy", tile, "convert") + clock.vector("elementwise", tile, "f32_add", 3)
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
    m = plan.matrices
    return {
        "arrival": 2 + spec.lead("copy") + distance(spec, cols) - spec.fabric.ramp_up + tile // 2,
        "norms": 2 * norm,
        "qkv": clock.product(m["qkv"]) + clock.all_reduce(plan.column, m["qkv"].outputs),
        "rope": rotate,
        "cache": append,
        "attention": _attention(plan, clock, here),
        "output": clock.product(m["output"]) + clock.all_reduce(plan.row, tile) + residual,
        "gate_up": clock.product(m["gate_up"]) + clock.all_reduce(plan.column, m["gate_up"].outputs),
        "silu": gate,
        "down": clock.product(m["down"]) + clock.chain(plan.row, tile) + residual,
        "departure": 2 + spec.lead("copy") + tile // 2 + spec.fabric.hop * (cols - plan.row.meet),
        "position": turn,
    }


def _attention(plan: LayerPlan, clock: _Clock, here: int) -> int:
    """Scores, softmax and weighted values of `here` tokens on a PE."""
    heads, dims, spec = plan.config.queries, plan.dims, plan.spec
    eights, all_scores = 8 * math.ceil(here / 8), heads * here
    per_head = clock.vector("reduce", here, "reduce", 1) + spec.engine.writeback + 3
    block = 8 if dims % 8 == 0 else 4
    per_value = max(dims / spec.rate["mixed_mac"], dims / block * 2)
    scores = (
        clock.vector("fill", heads * eights, "f32_add", 1)
        + clock.vector("mac", heads * eights * dims, "mixed_mac", 6)
        + clock.all_reduce(GROUP.of(plan.sharing, plan.sharing - 1), all_scores)
    )
    softmax = (
        2 * heads * per_head + clock.all_reduce(plan.column, heads)
        + clock.vector("elementwise", all_scores, "f32_add", 4)
        + clock.vector("special", all_scores, "special", 0)
        + clock.vector("copy", all_scores, "convert", 3)
    )  # fmt: skip
    values = (
        clock.vector("fill", heads * dims, "f32_add", 1) + 6 + spec.lead("mac") + heads * here * per_value
        + clock.all_reduce(plan.column, heads * dims + heads)
        + clock.vector("special", heads, "special") + clock.vector("elementwise", heads * dims, "f32_mul", 3)
        + clock.vector("copy", heads * dims, "convert")
    )  # fmt: skip
    return int(scores + softmax + values)


def cycles(plan: LayerPlan, context: int) -> int:
    """Expected cycles of a token that sees `context` tokens, itself included."""
    return sum(steps_cycles(plan, context).values())
