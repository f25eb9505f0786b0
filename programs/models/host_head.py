"""Both ends of a model on the host: embedding rows in f16, and the head, hidden vectors into logits.

This is the host's work, not the wafers': it costs no cycles, and its logits are plain float32 sums of the
host's library. The hidden vectors on both sides are the machine's f16.
"""

from __future__ import annotations

import numpy as np

from ...isa.float16 import f16_from_f32, f32_from_f16
from ...isa.float32 import mul32
from ...isa.special import rsqrt32
from ..kernels.dequantise import weights_of
from ..weights.groups import groups_of
from ..weights.weight_file import WeightFile
from .description import ModelConfig

__all__ = ["HostHead"]


class HostHead:
    """Embedding and head of one model."""

    def __init__(self, file: WeightFile, config: ModelConfig) -> None:
        self.config = config
        self._embedding = _f16_matrix(file, "token_embd.weight")  # (vocabulary, hidden) float16
        head = self._embedding if config.tied else _f16_matrix(file, "output.weight")
        self._head = head.astype(np.float32)
        self._norm = file.tensor("output_norm.weight").to_float32()  # (hidden,)

    def embed(self, token: int) -> np.ndarray:
        """The hidden vector (hidden,) float16 that stands for a token."""
        return self._embedding[token]

    def logits(self, hidden: np.ndarray) -> np.ndarray:
        """(vocabulary,) float32 from the last layer's (hidden,) float16: RMSNorm, to f16, times the head."""
        wide = f32_from_f16(hidden)
        mean = np.square(wide, dtype=np.float64).mean(keepdims=True).astype(np.float32)
        scale = rsqrt32(mean + np.float32(self.config.eps))
        normal = f16_from_f32(mul32(mul32(wide, scale), self._norm))
        return self._head @ f32_from_f16(normal)


def _f16_matrix(file: WeightFile, name: str) -> np.ndarray:
    """A matrix as float16: a quantised one as the machine's dequantise rounds it."""
    tensor = file.tensor(name)
    if tensor.kind in ("F32", "F16", "BF16"):
        return tensor.to_float32().astype(np.float16)
    groups = groups_of(tensor)
    return weights_of(groups.kind, groups.data)[:, : groups.inputs]
