"""Dequantise: 4-bit and 8-bit tiles become f16 where they lie, each PE its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...fabric.result import Result
from ...fabric.spec import MachineSpec
from ...fabric.wafer import Wafer
from ...isa.dequantise import dequantise_q4, dequantise_q8, pack_q4, pack_q8
from ...isa.errors import Usage
from ..weights.groups import Kind
from .cycles import Bound, length, memory_groups
from .job import Data, Job, at_least_one

__all__ = ["Dequantise", "random_groups", "weights_of"]

CHUNK = 1 << 22  # weights that the golden twin turns at a time


@dataclass(frozen=True)
class Dequantise(Job):
    """`outputs` x `inputs` weights on each PE.

    Operand `wq` in groups; output `w` float16 (rows, cols, outputs, inputs).
    """

    cols: int
    rows: int
    outputs: int
    inputs: int
    kind: Kind = "q4"
    group: int = 32

    def __post_init__(self) -> None:
        at_least_one(cols=self.cols, rows=self.rows, outputs=self.outputs, inputs=self.inputs)
        if self.inputs % self.group:
            raise Usage(f"{self.inputs} inputs are not whole groups of {self.group}", category="range")

    @property
    def source(self) -> str:
        return "dequantise"

    @property
    def parameters(self) -> dict[str, int]:
        return {
            "cols": self.cols, "rows": self.rows, "m": self.outputs, "k": self.inputs,
            "bits": int(self.kind[1:]), "group_size": self.group,
        }  # fmt: skip

    def example(self, seed: int = 0) -> Data:
        """`wq`: uint8 (rows, cols, outputs, groups, bytes of a group)."""
        shape = (self.rows, self.cols, self.outputs, self.inputs // self.group)
        return {"wq": random_groups(np.random.default_rng(seed), self.kind, self.group, shape)}

    def load(self, wafer: Wafer, data: Data) -> None:
        wafer.write("wq", data["wq"])

    def gather(self, wafer: Wafer, result: Result) -> dict[str, np.ndarray]:
        return {"w": wafer.read("w")}

    def golden(self, data: Data) -> dict[str, np.ndarray]:
        return {"w": weights_of(self.kind, data["wq"])}

    def cycles(self, spec: MachineSpec) -> int:
        """Two `ldd`, the set-up, then groups of 4 consecutive weights, which never clash."""
        groups = memory_groups(self.outputs * self.inputs, spec.rate["dequantise"])
        return length(spec, 2 + spec.lead("dequantise") + groups - 1, leaves=False)

    def bound(self, spec: MachineSpec) -> Bound:
        """The dequantise rate."""
        return Bound(memory_groups(self.outputs * self.inputs, spec.rate["dequantise"]), 0, 0)


def weights_of(kind: Kind, groups: np.ndarray) -> np.ndarray:
    """Groups uint8 (..., groups, bytes) as float16 (..., weights), the machine's rounding; in chunks."""
    size = (groups.shape[-1] - 4) * 2 if kind == "q4" else groups.shape[-1] - 2
    flat = groups.reshape(-1, groups.shape[-1])
    out = np.empty((len(flat), size), np.float16)
    step = max(1, CHUNK // size)
    turn = dequantise_q4 if kind == "q4" else dequantise_q8
    for start in range(0, len(flat), step):
        out[start : start + step] = turn(flat[start : start + step])
    return out.reshape(*groups.shape[:-2], groups.shape[-2] * size)


def random_groups(rng: np.random.Generator, kind: Kind, group: int, shape: tuple[int, ...]) -> np.ndarray:
    """Groups of weights of about -1 to 1, uint8 (*shape, bytes of a group)."""
    if kind == "q4":
        scale = rng.uniform(0.01, 0.12, shape).astype(np.float16)
        codes = rng.integers(0, 16, (*shape, group), np.uint8)
        return pack_q4(scale, (scale * np.float16(-8)).astype(np.float16), codes)
    scale = rng.uniform(0.001, 0.008, shape).astype(np.float16)
    return pack_q8(scale, rng.integers(-128, 128, (*shape, group), np.int8))
