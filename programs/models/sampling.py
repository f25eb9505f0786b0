"""Which token comes next: the most probable one, or a draw that a seed repeats."""

from __future__ import annotations

import math

import numpy as np

from ...isa.errors import Usage

__all__ = ["Sampler"]


class Sampler:
    """Picks tokens from logits. Temperature 0 is greedy; the same seed gives the same tokens."""

    def __init__(self, temperature: float = 0.0, seed: int = 0) -> None:
        if not (math.isfinite(temperature) and temperature >= 0):
            raise Usage(
                f"temperature {temperature}: 0 (greedy) or a positive number is wanted", category="range"
            )
        if seed < 0:
            raise Usage(f"seed {seed}: 0 or more is wanted", category="range")
        self.temperature = temperature
        self._random = np.random.Generator(np.random.PCG64(seed))

    def pick(self, logits: np.ndarray) -> int:
        """The next token from (vocabulary,) logits; among equal ones the lowest. Logits must be finite."""
        if not np.isfinite(logits).all():
            raise Usage("a logit is not finite: the model's numbers leave the range of f16", category="range")
        if self.temperature == 0:
            return int(np.argmax(logits))
        scaled = (logits.astype(np.float64) - logits.max()) / self.temperature
        chances = np.cumsum(np.exp(scaled))
        return int(np.searchsorted(chances, self._random.random() * chances[-1], side="right"))
