"""Expected cycles of fragments: set-up and rate of each vector instruction, and the way between PEs.

Estimates along the critical path: one `ldd` per operand, no bank clashes, queues never full. Exact formulas
stand with the kernels.
"""

from __future__ import annotations

import math

from ...fabric.spec import MachineSpec
from .all_reduce import Axis
from .attention import GROUP
from .cycles import distance, hop

__all__ = ["Clock"]


class Clock:
    """Cycles of single instructions on a machine."""

    def __init__(self, spec: MachineSpec) -> None:
        self.spec = spec

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

    def product(self, outputs: int, inputs: int, slice: int, quantised: bool) -> int:
        """A tile's product: the fill, then per slice dequantise and multiply, two cycles per input."""
        engine, slices = self.spec.engine, outputs // slice
        groups = slice // 8 * max(2 * inputs, 8 * inputs / self.spec.rate["mixed_mac"])
        once = self.spec.lead("mac") + groups + 2 * (slice // 8)
        total = self.vector("fill", outputs, "f32_add", 1)
        if not quantised:
            return int(total + 3 + once)
        once += self.spec.lead("dequantise") + slice * inputs / self.spec.rate["dequantise"]
        turns = slices * (1 + engine.branch_taken) if slices > 1 else 0
        return int(total + 5 + slices * once + turns)

    def attention(self, heads: int, dims: int, sharing: int, here: int, column: Axis) -> int:
        """Scores, softmax and weighted values of `here` tokens on a PE."""
        eights, all_scores = 8 * math.ceil(here / 8), heads * here
        per_head = self.vector("reduce", here, "reduce", 1) + self.spec.engine.writeback + 3
        block = 8 if dims % 8 == 0 else 4
        per_value = max(dims / self.spec.rate["mixed_mac"], dims / block * 2)
        scores = (
            self.vector("fill", heads * eights, "f32_add", 1)
            + self.vector("mac", heads * eights * dims, "mixed_mac", 6)
            + self.all_reduce(GROUP.of(sharing, sharing - 1), all_scores)
        )
        softmax = (
            2 * heads * per_head + self.all_reduce(column, heads)
            + self.vector("elementwise", all_scores, "f32_add", 4)
            + self.vector("special", all_scores, "special", 0)
            + self.vector("copy", all_scores, "convert", 3)
        )  # fmt: skip
        values = (
            self.vector("fill", heads * dims, "f32_add", 1)
            + 6 + self.spec.lead("mac") + heads * here * per_value
            + self.all_reduce(column, heads * dims + heads)
            + self.vector("special", heads, "special")
            + self.vector("elementwise", heads * dims, "f32_mul", 3)
            + self.vector("copy", heads * dims, "convert")
        )  # fmt: skip
        return int(scores + softmax + values)
