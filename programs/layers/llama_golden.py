"""The golden twin of a llama layer: the same operations in the same order in NumPy, bit for bit.

Where the wafer stores f16 (hidden, normalised inputs, queries, keys, values, softmax weights, attention
outputs, gated values) the twin rounds; everything between is f32. Sums run in the order of the inputs within
a PE, then from PE to PE along columns or rows, from the ends to where they meet.
"""

from __future__ import annotations

import numpy as np

from ...isa.float16 import f16_from_f32, f32_from_f16
from ...isa.float32 import add32, fma32, mul32, sub32
from ...isa.special import exp32, reciprocal32, rsqrt32
from ..kernels.all_reduce import sum_in_chains
from ..kernels.attention import meets_at
from ..kernels.rms_norm import squares_at_once
from .llama_plan import LayerPlan
from .llama_weights import Weights, dequantised, first_rotation, rotation_step, tiles

__all__ = ["LOWEST", "LayerGolden"]

LOWEST = np.float32(-3.0e38)  # where a maximum of scores starts


class LayerGolden:
    """One layer with its KV cache. `step` is one token; `stages` holds its tensors by name, per token."""

    def __init__(self, plan: LayerPlan, weights: Weights) -> None:
        self.plan = plan
        # (inputs, rows, cols, outputs) float32, exact values of f16 weights
        self._weights = {
            name: np.ascontiguousarray(np.moveaxis(dequantised(plan, tile), 3, 0)[..., : self._outputs(name)])
            .astype(np.float32)
            for name, tile in tiles(plan, weights).items()
        }  # fmt: skip
        self._norms = {
            name: self.plan.to_lanes(np.asarray(weights[name], np.float32))
            for name in ("attn_norm", "ffn_norm")
        }
        self._step = rotation_step(plan)[0]  # (cols, 2, dims / 2)
        self.stages: dict[str, np.ndarray] = {}
        self.reset()

    def reset(self) -> None:
        """An empty KV cache, position 0."""
        plan = self.plan
        self.position = 0
        self._rotation = np.tile(first_rotation(plan), (plan.cols, 1, 1))  # (cols, 3, dims / 2)
        slots = plan.rows * plan.capacity
        self._keys = np.zeros((slots, plan.cols, plan.dims), np.float32)  # exact values of f16
        self._values = np.zeros_like(self._keys)

    def step(self, hidden: np.ndarray) -> np.ndarray:
        """The layer's output for one token, float16 (hidden,) to float16 (hidden,)."""
        plan, config = self.plan, self.plan.config
        if self.position >= plan.rows * plan.capacity:
            raise IndexError(f"the KV cache holds {plan.rows * plan.capacity} tokens")
        self.stages = stages = {"x_in": hidden}
        x = self.plan.to_lanes(np.asarray(hidden, np.float16))
        normal = self._normalised(x, "attn_norm")
        stages["attn_norm"] = self.plan.from_lanes(normal)
        x = self._residual(
            x, self._rows_of("output", self._attention(self._columns_of("qkv", normal))), "attn_out"
        )
        stages["x_mid"] = self.plan.from_lanes(x)
        normal = self._normalised(x, "ffn_norm")
        stages["ffn_norm"] = self.plan.from_lanes(normal)
        sums = self._columns_of("gate_up", normal)
        gate, up = sums[:, 0::2], sums[:, 1::2]
        with np.errstate(all="ignore"):
            sigmoid = reciprocal32(add32(exp32(-gate), np.float32(1)))
            gated = f16_from_f32(mul32(mul32(sigmoid, gate), up))
        for name, values in (("gate", gate), ("up", up), ("gated", gated)):
            stages[name] = values.reshape(-1)[: config.ffn]
        x = self._residual(x, self._rows_of("down", gated), "down")
        self.position += 1
        stages["x_out"] = self.plan.from_lanes(x)
        return stages["x_out"]

    # --- parts of a step ---

    def _normalised(self, x: np.ndarray, norm: str) -> np.ndarray:
        """RMSNorm, float16 (rows, tile) both: squares in order in a row, then rows from north to south."""
        plan, wide = self.plan, f32_from_f16(x)
        squares = (wide * wide).reshape(plan.rows, -1, squares_at_once(plan.tile))
        total = sum_in_chains(_in_order(_in_order(squares)), plan.column.meet)
        mean = mul32(total, np.float32(1.0 / plan.config.hidden))
        scale = rsqrt32(add32(mean, np.float32(plan.config.eps)))
        return f16_from_f32(mul32(mul32(wide, self._norms[norm]), scale))

    def _attention(self, sums: np.ndarray) -> np.ndarray:
        """Attention outputs float16 (cols, context) from the sums (cols, queries, key, value)."""
        plan, config, stages = self.plan, self.plan.config, self.stages
        n, dims, cols = config.queries, plan.dims, plan.attention_cols
        with_key = sums[:, : (n + 1) * dims].reshape(plan.cols, n + 1, dims)
        rotated = self._rotated(with_key)
        query = f16_from_f32(mul32(rotated[:, :n], np.float32(config.head_dim**-0.5)))
        key, value = f16_from_f32(rotated[:, n]), f16_from_f32(sums[:, (n + 1) * dims : (n + 2) * dims])
        self._keys[self.position], self._values[self.position] = key, value
        for name, part in (("k_rope", key), ("v", value)):
            stages[name] = part[:cols].reshape(config.kv_heads, config.head_dim)
        stages["q_rope"] = self._heads(query) * np.float16(config.head_dim**0.5)
        weights = self._softmax(f32_from_f16(query))
        # tokens of a row in order, then rows from north to south
        totals = sum_in_chains(_in_order(self._by_row(weights)), plan.column.meet)
        values = self._by_row(self._values[: self.position + 1])
        mixed = np.zeros((plan.rows, plan.cols, n, dims), np.float32)
        for slot in range(values.shape[1]):
            mixed += self._by_row(weights)[:, slot, :, :, None] * values[:, slot, :, None, :]
        context = f16_from_f32(mul32(sum_in_chains(mixed, plan.column.meet), reciprocal32(totals)[..., None]))
        stages["attn_ctx"] = self._heads(context).reshape(-1)
        return context.reshape(plan.cols, -1)

    def _softmax(self, query: np.ndarray) -> np.ndarray:
        """Weights of every token, not divided by their sum: exact f16 as float32 (tokens, cols, heads)."""
        plan = self.plan
        keys = self._keys[: self.position + 1]
        partial = np.zeros((len(keys), *query.shape[:2]), np.float32)
        for d in range(plan.dims):
            partial += keys[:, :, None, d] * query[None, :, :, d]
        scores = partial  # columns outside attention keep their own
        if plan.attention_cols:
            groups = partial[:, : plan.attention_cols].reshape(len(keys), -1, plan.sharing, query.shape[1])
            for head in range(plan.config.kv_heads):
                first = head * plan.sharing
                meet = meets_at(first, plan.sharing, plan.row) - first
                total = sum_in_chains(groups[:, head].swapaxes(0, 1), meet)
                scores[:, first : first + plan.sharing] = total[:, None]
        largest = np.maximum(scores.max(axis=0), LOWEST)
        return f32_from_f16(f16_from_f32(exp32(sub32(scores, largest))))

    def _rotated(self, vectors: np.ndarray) -> np.ndarray:
        """RoPE on pairs (2 i, 2 i + 1) of float32 (cols, vectors, dims), then the next position's angles."""
        rotation, step = self._rotation, self._step
        minus_sin, cos, sin = (rotation[:, None, k] for k in range(3))
        even, odd = vectors[..., 0::2], vectors[..., 1::2]
        out = np.empty_like(vectors)
        out[..., 0::2] = fma32(odd, minus_sin, mul32(even, cos))
        out[..., 1::2] = fma32(even, sin, mul32(odd, cos))
        turned = fma32(rotation[:, :2], step[:, 1:], mul32(rotation[:, 1:], step[:, :1]))
        self._rotation = np.concatenate([-turned[:, 1:], turned], axis=1)
        return out

    def _columns_of(self, name: str, x: np.ndarray) -> np.ndarray:
        """GEMV whose inputs (rows, tile) lie in the rows: sums float32 (cols, outputs)."""
        return sum_in_chains(self._products(name, f32_from_f16(x)[:, None]), self.plan.column.meet)

    def _rows_of(self, name: str, x: np.ndarray) -> np.ndarray:
        """GEMV whose inputs (cols, tile) lie in the columns: sums float32 (rows, outputs)."""
        return sum_in_chains(self._products(name, f32_from_f16(x)[None]).swapaxes(0, 1), self.plan.row.meet)

    def _products(self, name: str, x: np.ndarray) -> np.ndarray:
        """Sums of every PE (rows, cols, outputs): its inputs in order; products of f16 are exact in f32."""
        weights = self._weights[name]
        sums = np.zeros(weights.shape[1:], np.float32)
        product = np.empty_like(sums)
        with np.errstate(all="ignore"):
            for j, column in enumerate(weights):
                np.multiply(column, x[..., j, None], out=product)
                np.add(sums, product, out=sums)
        return sums

    def _residual(self, x: np.ndarray, sums: np.ndarray, stage: str) -> np.ndarray:
        """x plus a GEMV's sums, both (rows, tile), rounded once to float16."""
        self.stages[stage] = self.plan.from_lanes(sums)
        return f16_from_f32(add32(sums, f32_from_f16(x)))

    # --- shapes ---

    def _outputs(self, name: str) -> int:
        return self.plan.matrices[name].outputs

    def _heads(self, values: np.ndarray) -> np.ndarray:
        """(cols, queries, dims) of a column's part of its heads as (heads, head_dim)."""
        plan, config = self.plan, self.plan.config
        parts = values[: plan.attention_cols].reshape(
            config.kv_heads, plan.sharing, config.queries, plan.dims
        )
        return parts.swapaxes(1, 2).reshape(config.heads, config.head_dim)

    def _by_row(self, tokens: np.ndarray) -> np.ndarray:
        """(tokens, ...) as (rows, tokens of a row, ...), filled up with zeros."""
        slots = -(-len(tokens) // self.plan.rows)
        padded = np.zeros((slots * self.plan.rows, *tokens.shape[1:]), np.float32)
        padded[: len(tokens)] = tokens
        return padded.reshape(slots, self.plan.rows, *tokens.shape[1:]).swapaxes(0, 1)


def _in_order(values: np.ndarray) -> np.ndarray:
    """Sums along the second axis, one rounding per element, starting at zero."""
    total = np.zeros((values.shape[0], *values.shape[2:]), np.float32)
    with np.errstate(all="ignore"):
        for k in range(values.shape[1]):
            total = total + values[:, k]
    return total
