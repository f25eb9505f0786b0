"""Redistribution between two GEMVs: a vector split over rows of PEs becomes one split over columns.

Each row sends its piece west from the east edge. PEs where row and column have values in common, around the
diagonal, keep it; the north-most of them in each column collects the column's values and sends copies north
and south.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...fabric.result import Result
from ...fabric.spec import MachineSpec
from ...fabric.wafer import Wafer
from ...isa.float16 import f16_from_f32
from ..weights.groups import ceil_div
from .cycles import Bound, distance, length, memory_groups, queue
from .job import Data, Job, at_least_one

__all__ = ["Transpose"]


@dataclass(frozen=True)
class Transpose(Job):
    """`values` numbers, from pieces of rows at the east edge to pieces of columns on every PE.

    Operand `y` float32 (values,), output `x` float16 (rows, cols, column_piece): the same for all rows, and
    0 past the end.
    """

    values: int
    cols: int
    rows: int

    def __post_init__(self) -> None:
        at_least_one(values=self.values, cols=self.cols, rows=self.rows)

    @property
    def row_piece(self) -> int:
        """Values of a row, an even number: two share a wavelet."""
        return 2 * ceil_div(self.values, 2 * self.rows)

    @property
    def column_piece(self) -> int:
        """Values of a column, an even number."""
        return 2 * ceil_div(self.values, 2 * self.cols)

    @property
    def source(self) -> str:
        return "transpose"

    @property
    def parameters(self) -> dict[str, int]:
        return {"cols": self.cols, "rows": self.rows, "m": self.row_piece, "k": self.column_piece}

    def example(self, seed: int = 0) -> Data:
        """`y`: float32 (values,)."""
        return {"y": np.random.default_rng(seed).standard_normal(self.values, np.float32)}

    def load(self, wafer: Wafer, data: Data) -> None:
        padded = np.zeros(self.rows * self.row_piece, np.float32)
        padded[: self.values] = data["y"]
        east = self.cols - 1
        wafer.write("y", padded.reshape(self.rows, 1, self.row_piece), at=(east, 0, east, self.rows - 1))

    def gather(self, wafer: Wafer, result: Result) -> dict[str, np.ndarray]:
        return {"x": wafer.read("x")}

    def golden(self, data: Data) -> dict[str, np.ndarray]:
        x = np.zeros(self.cols * self.column_piece, np.float16)
        x[: self.values] = f16_from_f32(data["y"])
        return {"x": np.repeat(x.reshape(1, self.cols, -1), self.rows, axis=0)}

    # --- cycles ---

    def _rows_of(self, x: int) -> range:
        """Rows that have values for column x, from north to south."""
        return range(
            min(self.rows, x * self.column_piece // self.row_piece),
            min(self.rows, ceil_div((x + 1) * self.column_piece, self.row_piece)),
        )

    def _common(self, x: int, y: int, rows: int = 1) -> int:
        """Values that column x shares with `rows` rows from y on."""
        k, m = self.column_piece, self.row_piece
        return max(0, min((x + 1) * k, (y + rows) * m) - max(x * k, y * m))

    def cycles(self, spec: MachineSpec) -> int:
        """The last PE of all columns.

        Exact, except that it can be a few cycles short where a hop and both ramps take one cycle each (no
        preset is such a machine).
        """
        return max(self._column(spec, x) for x in range(self.cols))

    def _sent(self, spec: MachineSpec, y: int) -> tuple[np.ndarray, np.ndarray, int]:
        """Row y's wavelets: their issues at the east edge, when they leave the router of the first PE that
        takes them, and how far that is. Seven loads, a branch and two `ldd` come before."""
        passed, taken, lead = spec.engine.branch_not_taken, spec.engine.branch_taken, spec.lead("copy")
        hops = max(1, self.cols - 1 - ((y + 1) * self.row_piece - 1) // self.column_piece)
        ready = 9 + taken + 2 * passed + lead
        cost = max(1, memory_groups(2, spec.rate["convert"]))
        stages = [(spec.fabric.ramp_up, spec.queues.out_depth[0])]
        stages += [(spec.fabric.hop, spec.fabric.buffer_depth)] * hops
        entered: list[list[int]] = [[] for _ in range(hops + 2)]  # of each stage, by wavelet
        room = [depth + wait - 1 for wait, depth in stages] + [queue(spec, 0)]
        drained: list[int] = []
        for i in range(self.row_piece // 2):
            t = entered[0][-1] + cost if i else 9 + passed + lead
            for s in range(hops + 2):
                if i:
                    t = max(t, entered[s][-1] + 1)
                if i >= room[s]:
                    t = max(t, (entered[s + 1] if s <= hops else drained)[i - room[s]] + 1)
                entered[s].append(t)
                t += stages[s][0] if s <= hops else spec.fabric.ramp_down
            drained.append(max(t, ready, drained[-1] + 1 if i else 0))
        return np.array(entered[0]), np.array(entered[-1]), hops

    def _stay(self, spec: MachineSpec, x: int, y: int) -> int:
        """Cycle of PE (x, y) at `stay`: at the east edge, the row's values have been sent."""
        if x == self.cols - 1 and y * self.row_piece // self.column_piece < x:
            return int(self._sent(spec, y)[0][-1]) + max(1, memory_groups(2, spec.rate["convert"]))
        return 7 + spec.engine.branch_taken

    def _collect(self, spec: MachineSpec, x: int, y: int) -> int:
        """Cycle at `collect`: the row's values lie in `piece`."""
        taken, passed = spec.engine.branch_taken, spec.engine.branch_not_taken
        t = self._stay(spec, x, y) + passed
        if x == self.cols - 1:
            return t + taken + 2 + spec.lead("copy") + memory_groups(self.row_piece, spec.rate["convert"])
        _, leave, hops = self._sent(spec, y)
        came = leave + spec.fabric.hop * (self.cols - 1 - x - hops) + spec.fabric.ramp_down
        return int(_issued(came, t + passed + 2 + spec.lead("copy"))[-1]) + 1 + taken

    def _column(self, spec: MachineSpec, x: int) -> int:
        """Cycles of the last PE of column x."""
        taken, passed, lead = spec.engine.branch_taken, spec.engine.branch_not_taken, spec.lead("copy")
        rows = self._rows_of(x)
        width = self._common(x, 0, self.rows)
        if not width:
            return max(self._stay(spec, x, y) for y in range(self.rows)) + 2 * taken + 2
        at = [self._collect(spec, x, y) + 8 for y in rows]
        own = [self._common(x, y) // 2 for y in rows]
        t = at[0] + taken + 2 + lead + memory_groups(2 * own[0], spec.rate["f16_add"])
        if len(rows) > 1:
            starts = [when + passed + 2 + lead for when in at[1:]]
            t = _handed_on(spec, t + passed + 1 + lead, starts, own[1:]) + 1
        else:
            t += taken
        if self.rows == 1:
            return t + 2
        first = t + 4 + lead
        way = distance(spec, max(rows[0], self.rows - 1 - rows[0]))
        return length(spec, first + way + width // 2 - 1, leaves=False)

    def bound(self, spec: MachineSpec) -> Bound:
        """Wavelets of the fullest row and column, a copy into every PE, the way from corner to corner."""
        moved = ceil_div(min(self.values, self.column_piece), 2) if self.rows > 1 else 0
        link = max(moved, ceil_div(min(self.values, self.row_piece), 2) if self.cols > 1 else 0)
        hops = self.cols - 1 + self.rows - 1
        return Bound(moved, link, distance(spec, hops) if hops else 0)


def _handed_on(spec: MachineSpec, ready: int, starts: list[int], own: list[int]) -> int:
    """Cycle in which the first PE of a column stores the last wavelet that the others hand north.

    `ready`: it can store from then on; `starts` and `own` of the others, from north to south: first issue and
    number of their own wavelets. What comes from the south follows them. Every time is the earliest that the
    stages between the PEs allow; they are raised until all agree.
    """
    fabric, lead = spec.fabric, spec.engine.branch_not_taken + 1 + spec.lead("copy")
    waits = (fabric.ramp_up, fabric.hop, fabric.ramp_down)
    room = (spec.queues.out_depth[1] + waits[0] - 1, fabric.buffer_depth + waits[1] - 1, queue(spec, 1))
    count = [sum(own[p:]) for p in range(len(own))]
    # of each PE's wavelets: issued, left its router, left the next router, used
    times = [[[0] * n for _ in range(4)] for n in count]
    while True:
        before = [[list(stage) for stage in pe] for pe in times]
        for p in reversed(range(len(own))):
            for i in range(count[p]):
                pe = times[p]
                if i < own[p]:
                    t = starts[p] + i
                else:
                    t = max(times[p + 1][2][i - own[p]] + waits[2], pe[0][own[p] - 1] + 1 + lead)
                for s in range(4):
                    t = max(t, pe[s][i - 1] + 1 if i else 0, pe[s][i])
                    if s < 3 and i >= room[s]:
                        t = max(t, pe[s + 1][i - room[s]] + 1)
                    if s == 3:
                        t = max(t, ready if p == 0 else times[p - 1][0][own[p - 1] + i])
                    pe[s][i] = t
                    t += waits[s] if s < 3 else 0
                if i >= own[p]:
                    times[p + 1][3][i - own[p]] = pe[0][i]
        if times == before:
            return times[0][3][-1]


def _issued(came: np.ndarray, ready: int) -> np.ndarray:
    """Issues of a vector's wavelets, one per cycle, that can be issued from `came` and from `ready` on."""
    order = np.arange(len(came))
    return np.maximum(np.maximum.accumulate(came - order), ready) + order
