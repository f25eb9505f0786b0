"""Relay chain: the first PE's words travel through the memory of every PE of a row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...fabric.result import Result
from ...fabric.spec import MachineSpec
from ...fabric.wafer import Wafer
from .cycles import Bound, distance, hop, length
from .job import Data, Job, at_least_one

__all__ = ["Relay"]


@dataclass(frozen=True)
class Relay(Job):
    """`words` f32 values from the first of `pes` PEs to all others. Operand and output: `v`."""

    pes: int
    words: int

    def __post_init__(self) -> None:
        at_least_one(pes=self.pes, words=self.words)

    @property
    def source(self) -> str:
        return "relay"

    @property
    def parameters(self) -> dict[str, int]:
        return {"pes": self.pes, "n": self.words}

    def example(self, seed: int = 0) -> Data:
        """`v`: float32 (words,)."""
        return {"v": np.random.default_rng(seed).standard_normal(self.words).astype(np.float32)}

    def load(self, wafer: Wafer, data: Data) -> None:
        wafer.write("v", data["v"], at=(0, 0))

    def gather(self, wafer: Wafer, result: Result) -> dict[str, np.ndarray]:
        return {"v": wafer.read("v")[0]}

    def golden(self, data: Data) -> dict[str, np.ndarray]:
        """`v`: float32 (pes, words), every row the same."""
        return {"v": np.repeat(data["v"][None], self.pes, axis=0)}

    def cycles(self, spec: MachineSpec) -> int:
        """Each relay: its last word in, two `ldd`, its first word out; `hop` to the next PE."""
        if self.pes == 1:
            return 2  # `done`, `end`
        lead = spec.lead("copy")
        first = 2 + lead  # issue of the first word by PE 0, after two `ldd`
        for _ in range(self.pes - 2):
            received = max(2 + lead, first + hop(spec)) + self.words  # the cycle after the last word
            first = received + 2 + lead
        first = max(2 + lead, first + hop(spec))
        return length(spec, first + self.words - 1, leaves=False)

    def bound(self, spec: MachineSpec) -> Bound:
        """Storing everything before sending it on: `words` cycles at each PE but the last."""
        stages = self.pes - 1
        return Bound(self.words * stages, self.words * min(stages, 1), stages * distance(spec, 1))
