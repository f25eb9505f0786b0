"""Reductions with fewer PEs one after the other than in a chain: in two phases and as a tree; the best one.

A chain of P PEs takes about n + (hop + 4) (P - 1) cycles for n words. Two phases add every word twice one
after the other, but pass only about 2 sqrt(P) PEs on the way; a tree log2(P) times, and log2(P) PEs.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from ...fabric.result import Result
from ...fabric.spec import MachineSpec
from ...fabric.wafer import Wafer
from ...isa.errors import Usage
from ...isa.float32 import add32
from .cycles import Bound, distance, length
from .job import Data, Job, at_least_one
from .reduction import ColumnReduction, RowReduction, chain_starts

__all__ = ["ReductionKind", "TreeReduction", "TwoPhaseReduction", "best_reduction", "crossover"]

ReductionKind = Literal["chain", "two_phase", "tree"]
MOST_ROUNDS = 8  # of a tree: each has an input queue


@dataclass(frozen=True)
class _LineReduction(Job):
    """Sums along the rows, or the columns, of `cols` x `rows` PEs with `words` f32 values each.

    Operand `v` float32 (rows, cols, words), output `sums` float32 (lines, words).
    """

    cols: int
    rows: int
    words: int
    column: bool = False

    def __post_init__(self) -> None:
        at_least_one(cols=self.cols, rows=self.rows, words=self.words)

    @property
    def pes(self) -> int:
        """PEs of a line."""
        return self.rows if self.column else self.cols

    @property
    def parameters(self) -> dict[str, int]:
        return {"cols": self.cols, "rows": self.rows, "n": self.words, "column": int(self.column)}

    def example(self, seed: int = 0) -> Data:
        """`v`: float32 (rows, cols, words)."""
        shape = (self.rows, self.cols, self.words)
        return {"v": np.random.default_rng(seed).standard_normal(shape, np.float32)}

    def load(self, wafer: Wafer, data: Data) -> None:
        wafer.write("v", data["v"])

    def gather(self, wafer: Wafer, result: Result) -> dict[str, np.ndarray]:
        return {"sums": result["sums"]}

    def _lines(self, data: Data) -> list[np.ndarray]:
        """Vectors of the PEs along the lines: of each PE (lines, words)."""
        return list(data["v"] if self.column else np.moveaxis(data["v"], 1, 0))

    def bound(self, spec: MachineSpec) -> Bound:
        """One sum per cycle over the last link; from the first PE past the edge."""
        way = distance(spec, self.pes) - spec.fabric.ramp_down
        return Bound(self.words if self.pes > 1 else 0, self.words, way)


@dataclass(frozen=True)
class TwoPhaseReduction(_LineReduction):
    """Chains over segments of `segment` PEs (0: about the root of a line's), then over their last PEs."""

    segment: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.segment < 0 or self.segment == 1:
            raise Usage(f"segment is {self.segment}: 0 or at least 2 is needed", category="range")

    @property
    def source(self) -> str:
        return "two_phase_reduction"

    @property
    def parameters(self) -> dict[str, int]:
        return super().parameters | {"segment": self.size}

    @property
    def size(self) -> int:
        """PEs of all segments but the last."""
        return self.segment or max(2, math.isqrt(self.pes - 1) + 1)

    def _segments(self) -> list[range]:
        """PEs of each segment along a line."""
        return [range(p, min(self.pes, p + self.size)) for p in range(0, self.pes, self.size)]

    def golden(self, data: Data) -> dict[str, np.ndarray]:
        lines = self._lines(data)
        return {"sums": _in_order([_in_order([lines[p] for p in segment]) for segment in self._segments()])}

    def cycles(self, spec: MachineSpec) -> int:
        """Heads issue after two `ldd`, links after three; segments' last PEs store sums first."""
        head, link = 2 + spec.lead("copy"), 3 + spec.lead("elementwise")
        sizes = [len(segment) for segment in self._segments()]
        first = chain_starts(spec, head, link, sizes[0])
        if len(sizes) > 1:
            first += self.words + head
            for size in sizes[1:]:
                stored = chain_starts(spec, head, link, size) + self.words if size > 1 else 0
                first = max(first + distance(spec, size), stored + link)
        return length(spec, first + self.words - 1, leaves=True)


@dataclass(frozen=True)
class TreeReduction(_LineReduction):
    """Rounds over 1, 2, 4 .. hops: the last PE of every second block sends its sum to the next one's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rounds > MOST_ROUNDS:
            raise Usage(
                f"a line has {self.pes} PEs: a tree has an input queue for each round, which is enough for "
                f"{1 << MOST_ROUNDS}",
                category="resource",
                help="take a reduction in two phases",
            )

    @property
    def source(self) -> str:
        return "tree_reduction"

    @property
    def rounds(self) -> int:
        """Rounds of the last PE."""
        return (self.pes - 1).bit_length()

    @property
    def parameters(self) -> dict[str, int]:
        return super().parameters | {"rounds": self.rounds}

    def golden(self, data: Data) -> dict[str, np.ndarray]:
        return {"sums": _in_tree(self._lines(data))}

    def cycles(self, spec: MachineSpec) -> int:
        """All senders of a round start in the same cycle; the last PE adds the last round while it sends."""
        copy, add = spec.lead("copy"), spec.lead("elementwise")
        far, begun = self.pes - 1, 7 + spec.engine.branch_taken  # seven instructions, then a jump
        sends = [begun + copy]  # first issue of the senders of each round
        ready = begun + 1 + add
        for d in range(self.rounds - 1):
            t = max(ready, sends[d] + distance(spec, 1 << d)) + self.words + 1
            sends.append(t + copy)
            ready = t + 1 + add
        rounds = [d for d in range(self.rounds) if far >> d & 1]
        t = 0 if rounds else 2 + copy
        for d in rounds:
            t += 2 + (d in (rounds[0], rounds[-1])) + add
            t = max(t, sends[d] + distance(spec, far % (1 << d) + 1))
            t += self.words if d != rounds[-1] else 0
        return length(spec, t + self.words - 1, leaves=True)


def _in_tree(parts: list[np.ndarray]) -> np.ndarray:
    """The parts added up in blocks of powers of two."""
    if len(parts) == 1:
        return parts[0]
    half = 1 << (len(parts) - 1).bit_length() - 1
    return add32(_in_tree(parts[:half]), _in_tree(parts[half:]))


def _in_order(parts: list[np.ndarray]) -> np.ndarray:
    """The parts added up one after the other."""
    return functools.reduce(add32, parts)


class Choice(NamedTuple):
    """The quickest reduction of a size, and the cycles of the quickest of each kind."""

    kind: ReductionKind
    job: Job
    cycles: dict[ReductionKind, int]


def crossover(pes: int, words: int, spec: MachineSpec, *, lines: int = 1, column: bool = False) -> Choice:
    """The quickest reduction along a line of `pes` PEs by the exact formulas, and what the others take."""
    cols, rows = (lines, pes) if column else (pes, lines)
    jobs: dict[ReductionKind, Job] = {
        "chain": (ColumnReduction if column else RowReduction)(cols, rows, words)
    }
    if pes > 2:
        sizes = range(2, pes)
        jobs["two_phase"] = min(
            (TwoPhaseReduction(cols, rows, words, column, size) for size in sizes),
            key=lambda job: job.cycles(spec),
        )
        if (pes - 1).bit_length() <= MOST_ROUNDS:
            jobs["tree"] = TreeReduction(cols, rows, words, column)
    cycles = {kind: job.cycles(spec) for kind, job in jobs.items()}
    kind = min(cycles, key=lambda name: cycles[name])
    return Choice(kind, jobs[kind], cycles)


def best_reduction(pes: int, words: int, spec: MachineSpec, *, lines: int = 1, column: bool = False) -> Job:
    """The quickest reduction of `words` f32 values along each of `lines` rows (columns) of `pes` PEs."""
    return crossover(pes, words, spec, lines=lines, column=column).job
