"""The golden twin of a llama layer: the same operations in the same order in NumPy, bit for bit.

Where the wafer stores f16 (the hidden vector at the edges, normalised inputs, queries, keys, values, softmax
weights, attention outputs, gated values) the twin rounds; everything between is f32. Sums run in the order of
the inputs within a PE, then from PE to PE along columns or rows, from the ends to where they meet.
"""

from __future__ import annotations

import numpy as np

from ...isa.float16 import f16_from_f32, f32_from_f16
from ...isa.float32 import add32, mul32
from ..kernels.all_reduce import sum_in_chains
from ..kernels.attention import attended
from ..kernels.rms_norm import normalised
from ..kernels.rope import rotated, turned
from ..kernels.silu_gate import silu_gated
from .llama_plan import LayerPlan
from .llama_weights import Weights, dequantised, first_rotation, rotation_step, tiles

__all__ = ["LayerGolden"]


class _Sequence:
    """What a request is to a layer: its position, angles, keys and values (exact f16 as float32)."""

    def __init__(self, plan: LayerPlan) -> None:
        self.position = 0
        self.rotation = np.tile(first_rotation(plan), (plan.cols, 1, 1))  # (cols, 3, dims / 2)
        self.keys = np.zeros((plan.rows * plan.capacity, plan.cols, plan.dims), np.float32)
        self.values = np.zeros_like(self.keys)


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
            name: self.plan.split(np.asarray(weights[name], np.float32)) for name in ("attn_norm", "ffn_norm")
        }
        self._step = rotation_step(plan)[0]  # (cols, 2, dims / 2)
        self.stages: dict[str, np.ndarray] = {}
        self.reset()

    def reset(self, request: int | None = None) -> None:
        """An empty KV cache, position 0: of one request or of all."""
        if request is None:
            self._sequences = [_Sequence(self.plan) for _ in range(self.plan.requests)]
        else:
            self._sequences[request] = _Sequence(self.plan)

    @property
    def position(self) -> int:
        """Tokens so far of request 0."""
        return self._sequences[0].position

    def step(self, hidden: np.ndarray, request: int = 0) -> np.ndarray:
        """The layer's output for one token of a request, float16 (hidden,) to float16 (hidden,)."""
        plan, config, sequence = self.plan, self.plan.config, self._sequences[request]
        if sequence.position >= plan.rows * plan.capacity:
            raise IndexError(f"the KV cache holds {plan.rows * plan.capacity} tokens")
        self.stages = stages = {"x_in": hidden}
        x = f32_from_f16(plan.split(np.asarray(hidden, np.float16)))  # the residual stream
        normal = self._normalised(x, "attn_norm")
        context = self._attention(self._columns_of("qkv", normal), sequence)
        sums = self._rows_of("output", context)
        x = add32(sums, x)
        between = {"attn_norm": normal, "attn_out": sums, "x_mid": x}
        normal = self._normalised(x, "ffn_norm")
        sums = self._columns_of("gate_up", normal)
        gated = silu_gated(sums)
        for name, values in (("gate", sums[:, 0::2]), ("up", sums[:, 1::2]), ("gated", gated)):
            stages[name] = values.reshape(-1)[: config.ffn]
        sums = self._rows_of("down", gated)
        x = f16_from_f32(add32(sums, x))
        between |= {"ffn_norm": normal, "down": sums, "x_out": x}
        stages |= {name: plan.from_lanes(values) for name, values in between.items()}
        sequence.position += 1
        return stages["x_out"]

    # --- parts of a step ---

    def _normalised(self, x: np.ndarray, norm: str) -> np.ndarray:
        """RMSNorm, float32 (rows, tile) to float16; the squares are those of x rounded to f16."""
        plan, config, weight = self.plan, self.plan.config, self._norms[norm]
        return normalised(f16_from_f32(x), weight, config.hidden, config.eps, plan.column.meet, x)

    def _attention(self, sums: np.ndarray, sequence: _Sequence) -> np.ndarray:
        """Attention outputs float16 (cols, context) from the sums (cols, queries, key, value)."""
        plan, config, stages = self.plan, self.plan.config, self.stages
        n, dims, cols = config.queries, plan.dims, plan.attention_cols
        turns = rotated(sums[:, : (n + 1) * dims].reshape(plan.cols, n + 1, dims), sequence.rotation)
        sequence.rotation = turned(sequence.rotation, self._step)
        query = f16_from_f32(mul32(turns[:, :n], np.float32(config.head_dim**-0.5)))
        key, value = f16_from_f32(turns[:, n]), f16_from_f32(sums[:, (n + 1) * dims : (n + 2) * dims])
        sequence.keys[sequence.position], sequence.values[sequence.position] = key, value
        for name, part in (("k_rope", key), ("v", value)):
            stages[name] = part[:cols].reshape(config.kv_heads, config.head_dim)
        stages["q_rope"] = self._heads(query) * np.float16(config.head_dim**0.5)
        cache = slice(sequence.position + 1)
        context = attended(
            f32_from_f16(query), sequence.keys[cache], sequence.values[cache],
            plan.sharing, cols, plan.row, plan.column,
        )  # fmt: skip
        stages["attn_ctx"] = self._heads(context).reshape(-1)
        return context.reshape(plan.cols, -1)

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
