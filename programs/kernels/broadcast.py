"""Row and column broadcast: the routers copy one PE's vector to all others of its row or column."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...fabric.result import Result
from ...fabric.spec import MachineSpec
from ...fabric.wafer import Wafer
from .cycles import Bound, distance, length
from .job import Data, Job, at_least_one

__all__ = ["ColumnBroadcast", "RowBroadcast"]


@dataclass(frozen=True)
class _Broadcast(Job):
    cols: int
    rows: int
    values: int  # f16 values that every PE gets

    def __post_init__(self) -> None:
        at_least_one(cols=self.cols, rows=self.rows, values=self.values)

    @property
    def wavelets(self) -> int:
        """Two values each; an odd one is filled up with a zero."""
        return (self.values + 1) // 2

    @property
    def parameters(self) -> dict[str, int]:
        return {"cols": self.cols, "rows": self.rows, "n": 2 * self.wavelets}

    @property
    def pes(self) -> int:
        """PEs along the broadcast."""
        raise NotImplementedError

    @property
    def lines(self) -> int:
        """Rows or columns, each with a root of its own."""
        raise NotImplementedError

    def example(self, seed: int = 0) -> Data:
        """`v`: float16 (rows or columns, values), one vector per root."""
        shape = (self.lines, self.values)
        return {"v": np.random.default_rng(seed).standard_normal(shape).astype(np.float16)}

    def _padded(self, data: Data) -> np.ndarray:
        return np.pad(data["v"], ((0, 0), (0, 2 * self.wavelets - self.values)))

    def cycles(self, spec: MachineSpec) -> int:
        """The root issues after two `ldd`; the last PE is `pes` - 1 hops away."""
        if self.pes == 1:
            return 2
        first = 2 + spec.lead("copy") + distance(spec, self.pes - 1)
        return length(spec, first + self.wavelets - 1, leaves=False)

    def bound(self, spec: MachineSpec) -> Bound:
        """Every PE takes one wavelet per cycle."""
        moved = self.wavelets if self.pes > 1 else 0
        return Bound(moved, moved, distance(spec, self.pes - 1) if self.pes > 1 else 0)


class RowBroadcast(_Broadcast):
    """From the west-most PE of each row. Operand `v` (rows, values), output `v` (rows, cols, values)."""

    @property
    def source(self) -> str:
        return "row_broadcast"

    @property
    def pes(self) -> int:
        return self.cols

    @property
    def lines(self) -> int:
        return self.rows

    def load(self, wafer: Wafer, data: Data) -> None:
        wafer.write("v", self._padded(data)[:, None], at=(0, 0, 0, self.rows - 1))

    def gather(self, wafer: Wafer, result: Result) -> dict[str, np.ndarray]:
        return {"v": wafer.read("v")[..., : self.values]}

    def golden(self, data: Data) -> dict[str, np.ndarray]:
        return {"v": np.repeat(data["v"][:, None], self.cols, axis=1)}


class ColumnBroadcast(_Broadcast):
    """From the north-most PE of each column. Operand `v` (cols, values), output `v` (rows, cols, values)."""

    @property
    def source(self) -> str:
        return "column_broadcast"

    @property
    def pes(self) -> int:
        return self.rows

    @property
    def lines(self) -> int:
        return self.cols

    def load(self, wafer: Wafer, data: Data) -> None:
        wafer.write("v", self._padded(data)[None], at=(0, 0, self.cols - 1, 0))

    def gather(self, wafer: Wafer, result: Result) -> dict[str, np.ndarray]:
        return {"v": wafer.read("v")[..., : self.values]}

    def golden(self, data: Data) -> dict[str, np.ndarray]:
        return {"v": np.repeat(data["v"][None], self.rows, axis=0)}
