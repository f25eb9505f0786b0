"""Row and column reduction: f32 vectors added up along a chain of PEs; the sums leave over the edge."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...fabric.result import Result
from ...fabric.spec import MachineSpec
from ...fabric.wafer import Wafer
from ...isa.float32 import add32
from .cycles import Bound, distance, hop, length
from .job import Data, Job, at_least_one

__all__ = ["ColumnReduction", "RowReduction", "chain_starts"]


def chain_starts(spec: MachineSpec, head: int, link: int, pes: int) -> int:
    """First issue of the last of `pes` PEs that each add what the one before sends.

    `head`: first issue of the first PE; `link`: earliest first issue of the others.
    """
    if pes == 1:
        return head
    return max(head + hop(spec) * (pes - 1), link + hop(spec) * (pes - 2))


@dataclass(frozen=True)
class _Reduction(Job):
    cols: int
    rows: int
    words: int  # f32 values of each PE

    def __post_init__(self) -> None:
        at_least_one(cols=self.cols, rows=self.rows, words=self.words)

    @property
    def parameters(self) -> dict[str, int]:
        return {"cols": self.cols, "rows": self.rows, "n": self.words}

    @property
    def pes(self) -> int:
        """PEs along a chain."""
        raise NotImplementedError

    def example(self, seed: int = 0) -> Data:
        """`v`: float32 (rows, cols, words)."""
        shape = (self.rows, self.cols, self.words)
        return {"v": np.random.default_rng(seed).standard_normal(shape, np.float32)}

    def load(self, wafer: Wafer, data: Data) -> None:
        wafer.write("v", data["v"])

    def gather(self, wafer: Wafer, result: Result) -> dict[str, np.ndarray]:
        return {"sums": result["sums"]}

    def cycles(self, spec: MachineSpec) -> int:
        """The head issues after two `ldd`, a link after three or when sums arrive."""
        first = chain_starts(spec, 2 + spec.lead("copy"), 3 + spec.lead("elementwise"), self.pes)
        return length(spec, first + self.words - 1, leaves=True)

    def bound(self, spec: MachineSpec) -> Bound:
        """One sum per cycle over the last link; from the first PE past the edge."""
        way = distance(spec, self.pes) - spec.fabric.ramp_down
        return Bound(self.words if self.pes > 1 else 0, self.words, way)


class ColumnReduction(_Reduction):
    """North to south. Operand `v` (rows, cols, words), output `sums` (cols, words)."""

    @property
    def source(self) -> str:
        return "column_reduction"

    @property
    def pes(self) -> int:
        return self.rows

    def golden(self, data: Data) -> dict[str, np.ndarray]:
        sums = data["v"][0]
        for row in data["v"][1:]:
            sums = add32(sums, row)
        return {"sums": sums}


class RowReduction(_Reduction):
    """West to east. Operand `v` (rows, cols, words), output `sums` (rows, words)."""

    @property
    def source(self) -> str:
        return "row_reduction"

    @property
    def pes(self) -> int:
        return self.cols

    def golden(self, data: Data) -> dict[str, np.ndarray]:
        sums = data["v"][:, 0]
        for x in range(1, self.cols):
            sums = add32(sums, data["v"][:, x])
        return {"sums": sums}
