"""Random llama layers of any size, for tests, benchmarks and examples."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..kernels.dequantise import random_groups
from ..weights.groups import Groups, ceil_div
from .llama_plan import LayerConfig, WeightKind

__all__ = ["random_layer"]

BLOCK = 32  # weights of a group, as files have them


def random_layer(config: LayerConfig, seed: int = 0, kind: WeightKind = "q4") -> dict[str, Any]:
    """Tensors by name as `load_layer` takes them; outputs of about the size of the inputs."""
    rng = np.random.default_rng(seed)
    q, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
    shapes = {
        "attn_q": (q, config.hidden), "attn_k": (kv, config.hidden), "attn_v": (kv, config.hidden),
        "attn_output": (config.hidden, q), "ffn_gate": (config.ffn, config.hidden),
        "ffn_up": (config.ffn, config.hidden), "ffn_down": (config.hidden, config.ffn),
    }  # fmt: skip
    made: dict[str, Any] = {}
    for name, (outputs, inputs) in shapes.items():
        if kind == "f16":
            made[name] = (rng.standard_normal((outputs, inputs)) / np.sqrt(inputs)).astype(np.float16)
        else:
            groups = random_groups(rng, kind, BLOCK, (outputs, ceil_div(inputs, BLOCK)))
            made[name] = Groups(name, kind, BLOCK, inputs, groups)
    for name in ("attn_norm", "ffn_norm"):
        made[name] = rng.uniform(0.5, 1.5, config.hidden).astype(np.float32)
    return made
