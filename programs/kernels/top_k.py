"""Top k of a long vector spread over the grid: the largest values and their indices, arg-max for k = 1.

Each PE picks its own k; rows merge sorted pairs of key and index from west to east, the east-most column
from north to south.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...fabric.result import Result
from ...fabric.spec import MachineSpec
from ...fabric.wafer import Wafer
from ...isa.errors import Usage
from ..weights.groups import ceil_div
from .cycles import Bound, hop, length, memory_groups
from .job import Data, Job, at_least_one

__all__ = ["MOST", "TopK", "keys_of", "values_of"]

MOST = 16  # the largest k
WORD = 4  # bytes


def keys_of(values: np.ndarray) -> np.ndarray:
    """float32 to int32 keys that compare as the values do; -0 is less than 0.

    NaNs lie outside the infinities, by their sign; of all patterns only 0xFFFFFFFF has no key of its own: it
    is what a PE strikes out with.
    """
    bits = np.ascontiguousarray(values, np.float32).view(np.int32)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


def values_of(keys: np.ndarray) -> np.ndarray:
    """The reverse of `keys_of`."""
    keys = np.ascontiguousarray(keys, np.int32)
    return (keys ^ ((keys >> 31) & 0x7FFFFFFF)).view(np.float32)


@dataclass(frozen=True)
class TopK(Job):
    """The `k` largest of `values` numbers on `cols` x `rows` PEs, largest first; equal ones by lower index.

    Operand `v` float32 (values,); outputs `values` float32 (k,) and `indices` int32 (k,).
    """

    values: int
    cols: int
    rows: int
    k: int = 1

    def __post_init__(self) -> None:
        at_least_one(values=self.values, cols=self.cols, rows=self.rows, k=self.k)
        if self.k > min(MOST, self.values):
            raise Usage(
                f"k is {self.k}: at most {MOST} and at most the {self.values} values are legal",
                category="range",
            )

    @property
    def share(self) -> int:
        """Values of a PE, what is past the end included."""
        return ceil_div(self.values, self.cols * self.rows)

    @property
    def source(self) -> str:
        return "top_k"

    @property
    def parameters(self) -> dict[str, int]:
        return {"cols": self.cols, "rows": self.rows, "n": self.share, "k": self.k}

    def example(self, seed: int = 0) -> Data:
        """`v`: float32 (values,), a tenth of them alike."""
        rng = np.random.default_rng(seed)
        v = rng.standard_normal(self.values, np.float32)
        v[rng.random(self.values) < 0.1] = np.float32(1.5)
        return {"v": v}

    def load(self, wafer: Wafer, data: Data) -> None:
        if data["v"].shape != (self.values,) or data["v"].dtype != np.float32:
            raise Usage(f"v is {data['v'].dtype} {data['v'].shape}, float32 ({self.values},) is needed")
        shape = (self.rows, self.cols, self.share)
        padded = np.full(math.prod(shape), 0xFFFFFFFF, np.uint32)  # the lowest key
        padded[: self.values] = data["v"].view(np.uint32)
        wafer.write("v", padded.view(np.float32).reshape(shape))
        places = np.arange(self.share, 0, -1, dtype=np.int32)
        wafer.write("places", np.ascontiguousarray(np.broadcast_to(places, shape)))

    def gather(self, wafer: Wafer, result: Result) -> dict[str, np.ndarray]:
        pairs = result["top"].reshape(self.k, 2)
        return {"values": values_of(pairs[:, 0]), "indices": pairs[:, 1].copy()}

    def golden(self, data: Data) -> dict[str, np.ndarray]:
        keys = keys_of(data["v"]).astype(np.int64)
        indices = np.argsort(-keys, kind="stable")[: self.k].astype(np.int32)
        return {"values": data["v"][indices], "indices": indices}

    # --- cycles ---

    def cycles(self, spec: MachineSpec) -> int:
        """All PEs pick; then the rows, then the east-most column."""
        taken, passed = spec.engine.branch_taken, spec.engine.branch_not_taken
        t = self._picked(spec) + 3
        pairs = self._head(spec, t + 2 * taken) if self.cols > 1 else []
        for _ in range(1, self.cols - 1):
            pairs = self._merged(spec, t + taken + passed + 3, pairs)
        if self.cols > 1:
            t = self._joined(spec, t + passed + 4, pairs) + 1
        else:
            t += taken
        pairs = self._head(spec, t + taken)
        if self.rows == 1:
            return length(spec, pairs[-1], leaves=True)
        for _ in range(1, self.rows):
            pairs = self._merged(spec, t + passed + 3, pairs)
        return max(length(spec, pairs[-1], leaves=True), pairs[-1] + 3 + passed + 1)

    def _picked(self, spec: MachineSpec) -> int:
        """The cycle after the last pick. Two `li`, four operations for the keys; then five for each pick."""
        lead, wait = spec.lead("elementwise"), spec.engine.writeback - 1
        one, two = self._groups(spec, "i32_add", 2), self._groups(spec, "i32_add", 3)
        shift = self._groups(spec, "shift", 2)
        t = 2 + (2 + lead + shift) + (1 + lead + one) + 1 + (1 + lead + shift) + (3 + lead + two) + 5
        maximum = 2 + spec.lead("reduce") + memory_groups(self.share, spec.rate["reduce"])
        marked = max(2, wait) + lead + one + (2 + lead + one) + 2 * (2 + lead + two)
        pick = maximum + marked + maximum + wait + 9
        turns = spec.engine.branch_taken * (self.k - 1) + spec.engine.branch_not_taken - self.k
        return t + self.k * pick + turns

    def _groups(self, spec: MachineSpec, rate: str, operands: int) -> int:
        """Cycles of the groups of an operation on all values; `operands` of them lie in memory."""
        size = max(1, int(spec.rate[rate]))
        whole, rest = divmod(self.share, size)

        def cost(n: int) -> int:
            moved = ceil_div(WORD * operands * n, spec.sram.bytes_per_cycle)
            return max(1, memory_groups(n, spec.rate[rate]), moved)

        return whole * cost(size) + (cost(rest) if rest else 0)

    def _head(self, spec: MachineSpec, t: int) -> list[int]:
        """Issues of the words of a PE that nothing comes to, from `head` in cycle t on."""
        first = t + 3 + spec.lead("copy")
        return list(range(first, first + 2 * self.k))

    def _steps(self, spec: MachineSpec, t: int, sent: list[int], after: int) -> list[int]:
        """Cycles at `take` of each step of a merge that starts in t; `after`: from there to the branch."""
        takes = []
        for key, index in zip(sent[::2], sent[1::2], strict=True):
            t = max(t, key + hop(spec)) + 2
            t = max(t, index + hop(spec)) + 5
            takes.append(t + spec.engine.branch_not_taken + 2 + spec.engine.branch_taken)
            t = takes[-1] + after + spec.engine.branch_taken
        return takes

    def _joined(self, spec: MachineSpec, t: int, sent: list[int]) -> int:
        """The cycle after a row's pairs were merged into memory."""
        return self._steps(spec, t, sent, 6)[-1] + 6 + spec.engine.branch_not_taken

    def _merged(self, spec: MachineSpec, t: int, sent: list[int]) -> list[int]:
        """Issues of the words that a PE sends while it merges."""
        return [take + more for take in self._steps(spec, t, sent, 5) for more in (1, 3)]

    def bound(self, spec: MachineSpec) -> Bound:
        """Every value compared once, k pairs over the edge, the way from the north-west."""
        compute = memory_groups(self.share, spec.rate["f32_max"]) if self.values > 1 else 0
        way = spec.fabric.ramp_up + spec.fabric.hop * (self.cols + self.rows - 1)
        return Bound(compute, 2 * self.k, way)
