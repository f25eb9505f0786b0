"""Both ends of a model on the host: embedding rows in f16, and the head, hidden vectors into logits.

This is the host's work, not the wafers': it costs no cycles, and its logits are plain float32 sums of the
host's library. The hidden vectors on both sides are the machine's f16.
"""

from __future__ import annotations

import numpy as np

from ...isa.errors import Usage
from ...isa.float16 import f16_from_f32, f32_from_f16
from ...isa.float32 import mul32
from ...isa.special import rsqrt32
from ..kernels.dequantise import weights_of
from ..weights.groups import groups_of
from ..weights.weight_file import WeightFile
from .description import ModelConfig
from .sampling import Sampler

__all__ = ["HostHead", "WaferHead"]


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

    def choose(self, hidden: np.ndarray, sampler: Sampler) -> int:
        """The next token after the last layer's (hidden,) float16."""
        return sampler.pick(self.logits(hidden))

    def logits(self, hidden: np.ndarray) -> np.ndarray:
        """(vocabulary,) float32 from the last layer's (hidden,) float16: RMSNorm, to f16, times the head."""
        wide = f32_from_f16(hidden)
        mean = np.square(wide, dtype=np.float64).mean(keepdims=True).astype(np.float32)
        scale = rsqrt32(mean + np.float32(self.config.eps))
        normal = f16_from_f32(mul32(mul32(wide, scale), self._norm))
        return self._head @ f32_from_f16(normal)


class WaferHead:
    """Embedding on the host; the last wafer is the head and answers with float32 (2,): token and logit."""

    def __init__(self, file: WeightFile, config: ModelConfig) -> None:
        self._vocabulary = config.vocabulary
        self._embedding = _f16_matrix(file, "token_embd.weight")

    def embed(self, token: int) -> np.ndarray:
        """The hidden vector (hidden,) float16 that stands for a token."""
        return self._embedding[token]

    def choose(self, answer: np.ndarray, sampler: Sampler) -> int:
        """The token that the wafer found most probable; raises Usage if a draw is wanted or there is none."""
        if sampler.temperature > 0:
            raise Usage(
                "a head on a wafer finds the most probable token only", help="draw with a head on the host"
            )
        if not 0 <= answer[0] < self._vocabulary:
            raise Usage("no logit is finite: the model's numbers leave the range of f16", category="range")
        return int(answer[0])


def _f16_matrix(file: WeightFile, name: str) -> np.ndarray:
    """A matrix as float16: a quantised one as the machine's dequantise rounds it."""
    tensor = file.tensor(name)
    if tensor.kind in ("F32", "F16", "BF16"):
        return tensor.to_float32().astype(np.float16)
    groups = groups_of(tensor)
    return weights_of(groups.kind, groups.data)[:, : groups.inputs]
