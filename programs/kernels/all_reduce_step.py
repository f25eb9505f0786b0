"""All-reduce as a kernel of its own, with the exact cycles that show where sums should meet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...fabric.result import Result
from ...fabric.spec import MachineSpec
from ...fabric.wafer import Wafer
from ...isa.errors import Usage
from ...isa.float32 import max32
from .all_reduce import COLUMN, ROW, Axis, Vector, all_reduce, sum_in_chains
from .cycles import Bound, distance, hop, queue
from .job import Data, at_least_one
from .step import Step, began

__all__ = ["AllReduce"]


@dataclass(frozen=True)
class AllReduce(Step):
    """Sums, or maxima, of `words` f32 of every PE of a line, on all of them. Operand and output `v`.

    `along` is `row` or `column`; sums meet at the PE `meet`, 0 .. pes - 1.
    """

    pes: int
    words: int
    meet: int = 0
    along: str = "column"
    lines_of_pes: int = 1
    largest: bool = False

    def __post_init__(self) -> None:
        at_least_one(pes=self.pes, words=self.words, lines_of_pes=self.lines_of_pes)
        if self.along not in ("row", "column") or not 0 <= self.meet < self.pes:
            raise Usage(f"along {self.along}, meeting at PE {self.meet} of {self.pes}", category="range")

    @property
    def cols(self) -> int:  # type: ignore[override]
        """Columns of the grid."""
        return self.pes if self.along == "row" else self.lines_of_pes

    @property
    def rows(self) -> int:  # type: ignore[override]
        """Rows of the grid."""
        return self.lines_of_pes if self.along == "row" else self.pes

    @property
    def axis(self) -> Axis:
        """The line."""
        return (ROW if self.along == "row" else COLUMN).of(self.pes, self.meet)

    @property
    def row(self) -> Axis:
        return self.axis if self.along == "row" else ROW.of(1, 0)

    @property
    def column(self) -> Axis:
        return self.axis if self.along == "column" else COLUMN.of(1, 0)

    @property
    def symbols(self) -> Mapping[str, str]:
        return {"v": f"f32[{self.words}] export"}

    @property
    def lines(self) -> list[str]:
        v = Vector("v[i]", f"i:{self.words}")
        # Without a chain there is a queue that no instruction uses; the roles decide as in a layer.
        return all_reduce(self.axis, v, "all", "vmax.f32" if self.largest else "vadd.f32")

    def example(self, seed: int = 0) -> Data:
        shape = (self.rows, self.cols, self.words)
        return {"v": np.random.default_rng(seed).standard_normal(shape, np.float32)}

    def gather(self, wafer: Wafer, result: Result) -> dict[str, np.ndarray]:
        return {"v": wafer.read("v")}

    def golden(self, data: Data) -> dict[str, np.ndarray]:
        v = np.asarray(data["v"])
        parts = v.swapaxes(0, 1) if self.along == "row" else v
        if self.largest:
            total = parts[0]
            for part in parts[1:]:
                total = max32(total, part)
        else:
            total = sum_in_chains(parts, self.meet)
        out = np.broadcast_to(total, parts.shape)
        return {"v": np.ascontiguousarray(out.swapaxes(0, 1) if self.along == "row" else out)}

    def cycles(self, spec: MachineSpec) -> int:
        """PE by PE along both sides: each adds as its wavelets come in; then the copies."""
        if self.pes == 1:
            return began(spec) + 2
        taken, missed, n = spec.engine.branch_taken, spec.engine.branch_not_taken, self.words
        add, copy = spec.lead("elementwise"), spec.lead("copy")
        start = began(spec)
        first: list[int] = []  # first issue of the PE next to the meeting one, per side
        for inner in (self.meet, self.pes - 1 - self.meet):
            if inner:
                begin = start + missed + taken + 2 + copy  # the PE at the end
                link = start + 2 * missed + 3 + add
                for _ in range(inner - 1):
                    begin = max(begin + hop(spec), link)
                first.append(begin)
        t = start + taken
        for side, begin in enumerate(first):  # `before`, then `other`
            t = max(t + 2 + add, begin + hop(spec)) + n
            if side == 0 and len(first) == 2:
                t += self._taken_by_other(spec, begin - first[1])
        out = t + 2 + copy  # first copy
        ends = [out + n - 1 + taken + 1]  # the meeting PE's `done`, one cycle after the branch
        for inner in (self.meet, self.pes - 1 - self.meet):
            for k in range(1, inner + 1):
                ends.append(out + distance(spec, k) + n)
        return max(ends) + 2

    def _taken_by_other(self, spec: MachineSpec, later: int) -> int:
        """Cycles of the ramp that the other side's wavelets take while the first stream, `later` by so much,
        comes in: until their queue is full. At the same time the lower port is first: north, or east."""
        number = [*COLUMN.inputs, *ROW.inputs].index(self.axis.other)
        if later < 0:
            return max(0, min(self.words + later, queue(spec, number)))
        behind = later == 0 and self.along == "column"
        return max(0, min(self.words - behind, queue(spec, number)) - later)

    def bound(self, spec: MachineSpec) -> Bound:
        """Every PE takes in the result once and gives its values once; half the line there and back."""
        if self.pes == 1:
            return Bound(0, 0, 0)
        way = 2 * distance(spec, 1) + 2 * spec.fabric.hop * (self.pes // 2 - 1)
        return Bound(self.words, self.words, way)
