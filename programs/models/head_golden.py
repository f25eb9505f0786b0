"""The golden twin of a head's wafer: the same operations in the same order in NumPy, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...isa.float16 import f16_from_f32, f32_from_f16
from ...isa.float32 import add32, mul32
from ...isa.special import rsqrt32
from ..kernels.all_reduce import sum_in_chains
from ..kernels.dequantise import weights_of
from ..kernels.rms_norm import squares_at_once
from .head_plan import HeadPlan
from .head_program import head_tiles

__all__ = ["HeadGolden"]


class HeadGolden:
    """A head in the machine's arithmetic."""

    def __init__(self, plan: HeadPlan, weights: Any, norm: np.ndarray) -> None:
        self.plan = plan
        tile = head_tiles(plan, weights)
        values = tile if plan.kind == "f16" else weights_of(plan.kind, tile)[..., : plan.tile]
        # (inputs, rows, cols, outputs) float32, exact values of f16 weights
        self._weights = np.ascontiguousarray(np.moveaxis(values[:, :, : plan.share], 3, 0)).astype(np.float32)
        self._norm = plan.split(np.asarray(norm, np.float32))

    def logits(self, hidden: np.ndarray) -> np.ndarray:
        """float32 (vocabulary,) from (hidden,) float16."""
        x = f32_from_f16(self._normalised(hidden))
        sums = np.zeros(self._weights.shape[1:], np.float32)
        for j, column in enumerate(self._weights):
            sums += column * x[:, j, None, None]  # products of f16 are exact in f32
        return sum_in_chains(sums, self.plan.column.meet).reshape(-1)[: self.plan.vocabulary]

    def step(self, hidden: np.ndarray) -> np.ndarray:
        """float32 (2,): the lowest token with the largest logit, and that logit."""
        logits = self.logits(hidden)
        token = int(np.argmax(logits))
        return np.array([token, logits[token]], np.float32)

    def _normalised(self, hidden: np.ndarray) -> np.ndarray:
        plan = self.plan
        wide = f32_from_f16(plan.split(hidden))
        squares = (wide * wide).reshape(plan.rows, -1, squares_at_once(plan.tile))
        total = sum_in_chains(_in_order(_in_order(squares)), plan.column.meet)
        scale = rsqrt32(add32(mul32(total, np.float32(1.0 / plan.hidden)), np.float32(plan.eps)))
        return f16_from_f32(mul32(mul32(wide, self._norm), scale))


def _in_order(values: np.ndarray) -> np.ndarray:
    """Sums along the second axis, one rounding per element."""
    total = np.zeros((values.shape[0], *values.shape[2:]), np.float32)
    for k in range(values.shape[1]):
        total = total + values[:, k]
    return total
