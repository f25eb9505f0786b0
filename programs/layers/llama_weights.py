"""The tensors of a llama layer as tiles: which outputs and inputs every PE holds, and loading them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...fabric.wafer import Wafer
from ...isa.errors import Usage
from ..kernels.dequantise import weights_of
from ..weights.groups import Groups, groups_of
from ..weights.weight_file import WeightFile
from .llama_memory import SCALARS, STATE_SCALARS
from .llama_plan import LayerPlan, Matrix

__all__ = [
    "MATRICES",
    "NORMS",
    "Weights",
    "layer_weights",
    "load_layer",
    "reset_layer",
    "rotation_step",
    "tiles",
]

MATRICES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
NORMS = ("attn_norm", "ffn_norm")
Weights = Mapping[str, Any]  # name of a tensor -> Groups, or a float16 or float32 array (outputs, inputs)


def layer_weights(file: WeightFile, layer: int) -> dict[str, Any]:
    """The tensors of layer `layer` of a GGUF file of the llama architecture, by their names above."""
    found: dict[str, Any] = {}
    for name in MATRICES:
        tensor = file.tensor(f"blk.{layer}.{name}.weight")
        plain = tensor.kind in ("F32", "F16", "BF16")
        found[name] = tensor.to_float32().astype(np.float16) if plain else groups_of(tensor)
    for name in NORMS:
        found[name] = file.tensor(f"blk.{layer}.{name}.weight").to_float32()
    return found


def load_layer(wafer: Wafer, plan: LayerPlan, weights: Weights, region: int = 0) -> None:
    """Write the weights of a layer and set it to position 0 with an empty KV cache. `region`: which of the
    layers side by side, from the west."""
    at = _box(plan, region)
    for name, tile in tiles(plan, weights).items():
        matrix = plan.matrices[name]
        if plan.kind == "f16":
            tile = np.pad(tile, ((0, 0), (0, 0), (0, 0), (0, matrix.pitch - matrix.inputs)))
        wafer.write(f"w_{name}", tile, at=at)
    for name in NORMS:
        given = np.zeros(plan.rows * plan.tile, np.float32)
        given[: plan.config.hidden] = weights[name]
        per_row = given.reshape(plan.rows, 1, plan.tile)
        whole = np.broadcast_to(per_row, (plan.rows, plan.cols, plan.tile))
        wafer.write(name, np.ascontiguousarray(whole), at=at)
    wafer.write("step", rotation_step(plan), at=at)
    reset_layer(wafer, plan, region=region)


def _box(plan: LayerPlan, region: int) -> tuple[int, int, int, int]:
    """(x0, y0, x1, y1) of a region, corners included."""
    return region * plan.cols, 0, (region + 1) * plan.cols - 1, plan.rows - 1


def reset_layer(wafer: Wafer, plan: LayerPlan, request: int | None = None, region: int = 0) -> None:
    """Position 0 and an empty KV cache, of one request or of all: the next token is the first."""
    at = _box(plan, region)
    half = plan.dims // 2
    state = np.zeros((plan.rows, plan.cols, STATE_SCALARS + 3 * half), np.int32)
    state[..., SCALARS.index("turn")] = np.arange(plan.rows)[:, None]
    state[..., STATE_SCALARS:] = first_rotation(plan).view(np.int32).ravel()
    if plan.requests == 1:
        wafer.write("state", state, at=at)
        wafer.write("keys", np.zeros((plan.dims, plan.capacity), np.float16), at=at)
        wafer.write("values", np.zeros((plan.capacity, plan.dims), np.float16), at=at)
        return
    chosen = slice(None) if request is None else slice(request, request + 1)
    for name, value in (("states", state[:, :, None]), ("keys_of_all", 0), ("values_of_all", 0)):
        whole = wafer.read(name, at=at)
        whole[:, :, chosen] = value
        wafer.write(name, whole, at=at)


# --- rotary position ---


def rotation_step(plan: LayerPlan) -> np.ndarray:
    """cos and sin of the angle base^(-2i / head_dim) of every pair, float32 (rows, cols, 2, dims / 2)."""
    config = plan.config
    pairs = np.arange(config.head_dim // 2)
    angles = config.rope_base ** (-2.0 * pairs / config.head_dim)
    both = np.stack([np.cos(angles), np.sin(angles)]).astype(np.float32)
    half = plan.dims // 2
    out = np.zeros((plan.rows, plan.cols, 2, half), np.float32)
    for x in range(plan.attention_cols):
        first = x % plan.sharing * half
        out[:, x] = both[:, first : first + half]
    return out


def first_rotation(plan: LayerPlan) -> np.ndarray:
    """-sin, cos, sin at position 0: float32 (3, dims / 2)."""
    rotation = np.zeros((3, plan.dims // 2), np.float32)
    rotation[1] = 1.0
    return rotation


# --- tiles ---


def tiles(plan: LayerPlan, weights: Weights) -> dict[str, np.ndarray]:
    """Tiles of the four GEMVs: groups uint8 (rows, cols, outputs, groups, bytes), or float16 (rows, cols,
    outputs, inputs). Outputs of `qkv`: a column's query heads, key, value; of `gate_up`: gate, up in turn."""
    _check(plan, weights)
    config, gap = plan.config, np.full(1, -1)
    by_col = [_head_rows(plan, x) for x in range(plan.cols)]
    hidden = _split(config.hidden, plan.rows, plan.tile)
    neurons = _split(config.ffn, plan.cols, plan.ffn)
    sizes = np.array([config.heads, config.kv_heads]) * config.head_dim
    qkv = [
        np.concatenate([q, np.where(kv < 0, gap, kv + sizes[0]), np.where(kv < 0, gap, kv + sizes.sum())])
        for q, kv in by_col
    ]
    gate_up = [np.stack([n, np.where(n < 0, gap, n + config.ffn)], axis=1).ravel() for n in neurons]
    made = {
        "qkv": (("attn_q", "attn_k", "attn_v"), qkv, hidden, False),
        "output": (("attn_output",), hidden, [q for q, _ in by_col], True),
        "gate_up": (("ffn_gate", "ffn_up"), gate_up, hidden, False),
        "down": (("ffn_down",), hidden, neurons, True),
    }
    return {
        name: _tiles(
            plan, plan.matrices[name], [weights[n] for n in names], np.array(outs), np.array(ins), turned
        )
        for name, (names, outs, ins, turned) in made.items()
    }


def _head_rows(plan: LayerPlan, x: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of attn_q and of attn_k that column x computes; -1: none."""
    config = plan.config
    if x >= plan.attention_cols:
        return np.full(plan.context, -1), np.full(plan.dims, -1)
    head, part = divmod(x, plan.sharing)
    dims = part * plan.dims + np.arange(plan.dims)
    queries = head * config.queries + np.arange(config.queries)
    return (queries[:, None] * config.head_dim + dims).ravel(), head * config.head_dim + dims


def _split(count: int, parts: int, tile: int) -> list[np.ndarray]:
    """Indices 0..count-1 in order, `tile` for each part, -1 past the end."""
    index = np.arange(parts * tile)
    return list(np.where(index < count, index, -1).reshape(parts, tile))


def _tiles(
    plan: LayerPlan, matrix: Matrix, tensors: list[Any], outputs: np.ndarray, inputs: np.ndarray, turned: bool
) -> np.ndarray:
    """Tiles of stacked tensors. `outputs`, `inputs`: indices per part, -1 is padding; `turned`: rows of PEs
    split the outputs, else columns of PEs do."""
    if plan.kind == "f16":
        whole = np.concatenate([_as_f16(t) for t in tensors])[..., None]
        step = 1
    else:
        whole = np.concatenate([t.regroup(matrix.group).data for t in tensors])
        step = matrix.group
    outputs = np.pad(outputs, ((0, 0), (0, matrix.rows - outputs.shape[1])), constant_values=-1)
    chosen = np.where(inputs[:, ::step] < 0, -1, inputs[:, ::step] // step)
    y, x = (outputs, chosen) if turned else (chosen, outputs)
    out, into = (
        (y[:, None, :, None], x[None, :, None, :]) if turned else (x[None, :, :, None], y[:, None, None, :])
    )
    out, into = np.broadcast_arrays(out, into)
    tile = whole[out, into]
    tile[(out < 0) | (into < 0)] = 0
    return tile[..., 0] if plan.kind == "f16" else tile


def _as_f16(tensor: Any) -> np.ndarray:
    if isinstance(tensor, Groups):
        return weights_of(tensor.kind, tensor.data)[:, : tensor.inputs]
    return np.asarray(tensor).astype(np.float16)


def dequantised(plan: LayerPlan, tile: np.ndarray) -> np.ndarray:
    """A tile as float16 (rows, cols, outputs, inputs), the machine's rounding."""
    return tile if plan.kind == "f16" else weights_of(plan.kind, tile)


def _check(plan: LayerPlan, weights: Weights) -> None:
    """Names, shapes and kinds, all at once."""
    config = plan.config
    q, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
    wanted = {
        "attn_q": (q, config.hidden), "attn_k": (kv, config.hidden), "attn_v": (kv, config.hidden),
        "attn_output": (config.hidden, q), "ffn_gate": (config.ffn, config.hidden),
        "ffn_up": (config.ffn, config.hidden), "ffn_down": (config.hidden, config.ffn),
        "attn_norm": (config.hidden,), "ffn_norm": (config.hidden,),
    }  # fmt: skip
    bad = []
    for name, shape in wanted.items():
        if name not in weights:
            bad.append(f"`{name}` is missing")
            continue
        given = weights[name]
        if tuple(given.shape) != shape:
            bad.append(f"`{name}` has shape {tuple(given.shape)}, {shape} is needed")
        elif name in NORMS or plan.kind == "f16":
            continue
        elif not isinstance(given, Groups) or given.kind != plan.kind:
            kind = given.kind if isinstance(given, Groups) else str(given.dtype)
            bad.append(f"`{name}` is {kind}, the plan is for {plan.kind}")
        elif given.size < max(m.group for m in plan.matrices.values()):
            bad.append(f"`{name}` is in groups of {given.size}, give the groups of the file")
    if bad:
        raise Usage(f"these weights are not this layer's: {'; '.join(bad)}", category="type")
