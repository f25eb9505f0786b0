"""What kernels' cycle formulas are made of: docs/machine.md §2, §3 and §7 as small functions of a machine.

Exact for programs in which no PE waits for another one in a circle and no two streams share a link: then
every wavelet moves as soon as it can, and one pass over the stages gives every cycle.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...fabric.spec import MachineSpec

__all__ = ["Bound", "Walk", "distance", "hop", "length", "memory_groups", "multiply_add_groups", "queue"]


class Bound(NamedTuple):
    """Cycles below which no program for the same task and grid can stay, by what sets the limit."""

    compute: int  # operations of the fullest PE at its rates
    link: int  # wavelets over the fullest link, one per cycle
    latency: int  # the way from the first wavelet in to the last one out

    @property
    def cycles(self) -> int:
        """The highest of the three."""
        return max(self)

    @property
    def by(self) -> str:
        """What sets it: `compute`, `link` or `latency`."""
        return self._fields[self.index(self.cycles)]


def hop(spec: MachineSpec) -> int:
    """From a group's issue at one PE to the cycle in which the next PE can issue with its wavelet."""
    return spec.fabric.ramp_up + spec.fabric.hop + spec.fabric.ramp_down


def distance(spec: MachineSpec, hops: int) -> int:
    """From a group's issue at one PE to its wavelet's use at a PE `hops` routers away."""
    return spec.fabric.ramp_up + spec.fabric.hop * hops + spec.fabric.ramp_down


def queue(spec: MachineSpec, number: int) -> int:
    """Wavelets that the way from a router into a PE holds: K of the stage `ramp down`."""
    return spec.queues.in_depth[number] + spec.fabric.ramp_down - 1


def length(spec: MachineSpec, last_issue: int, *, leaves: bool) -> int:
    """Cycles of a run: `last_issue` of the last vector, then `done` and `end`, or the way over the edge."""
    after = 2
    if leaves:
        after = max(after, spec.fabric.ramp_up + spec.fabric.hop)
    return last_issue + after + 1


def memory_groups(count: int, rate: float) -> int:
    """Cycles of the groups of `count` elements at `rate`, where no banks clash."""
    return math.ceil(count / rate)


@dataclass(frozen=True)
class Walk:
    """A memory operand: first byte, then extents and strides (bytes), outermost first."""

    base: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]

    def addresses(self) -> np.ndarray:
        """Byte address of every element in order, (n,) int64."""
        at = np.full(1, self.base, np.int64)
        for extent, stride in zip(self.extents, self.strides, strict=True):
            at = (at[:, None] + np.arange(extent) * stride).ravel()
        return at


def multiply_add_groups(
    spec: MachineSpec, rate: str, sums: Walk, sources: tuple[Walk, Walk], *, sum_bytes: int, bytes: int
) -> int:
    """Cycles of all groups of a `vmac` whose operands lie in memory: the rules of docs/machine.md §2.

    `rate` is its key in the machine's table; `sums` is the destination, elements of `sum_bytes`; the
    sources have elements of `bytes`.
    """
    per_cycle = spec.rate[rate]
    size = max(1, int(per_cycle))
    first, last = _passes(spec, sums)
    places = sums.addresses()
    n = len(places)
    reads = [(walk.addresses(), bytes, np.ones(n, bool)) for walk in sources]
    everything = [*reads, (places, sum_bytes, first)]
    groups = -(-n // size)
    moved = np.zeros(groups, np.int64)
    for at, width, taken in [*everything, (places, sum_bytes, last)]:
        moved += width * _distinct(at, taken, size).sum(axis=1)
    read = sum(_banks(spec, at >> 2, taken, size) for at, _, taken in everything)
    written = _banks(spec, places >> 2, last, size)
    counts = np.full(groups, size, np.int64)
    counts[-1] = n - size * (groups - 1)
    by_rate = -(-counts // int(per_cycle)) if per_cycle >= 1 else counts * round(1 / per_cycle)
    cost = np.maximum(by_rate, -(-moved // spec.sram.bytes_per_cycle))
    cost = np.maximum(cost, np.maximum(np.asarray(read).max(axis=1), written.max(axis=1)))
    kept = _kept(spec, sums)
    if kept:
        cost = np.maximum(cost, -(-spec.engine.fp_latency * counts // kept[0]))
    return int(cost.sum())


def _kept(spec: MachineSpec, sums: Walk) -> tuple[int, int] | None:
    """(sums kept in the engine, their dimension of stride 0), None if they go through memory."""
    still = [d for d, stride in enumerate(sums.strides) if stride == 0]
    if not still:
        return None
    inside = math.prod(sums.extents[still[-1] + 1 :])
    return (inside, still[-1]) if inside <= spec.engine.accumulators else None


def _passes(spec: MachineSpec, sums: Walk) -> tuple[np.ndarray, np.ndarray]:
    """Elements whose sum is read from memory, and those whose sum is written to it, (n,) bool each."""
    n = math.prod(sums.extents)
    kept = _kept(spec, sums)
    if kept is None:
        return np.ones(n, bool), np.ones(n, bool)
    inside, dimension = kept
    passes = np.arange(n) // inside % sums.extents[dimension]
    return passes == 0, passes == sums.extents[dimension] - 1


def _grouped(values: np.ndarray, size: int, fill: int) -> np.ndarray:
    """(n,) as (groups, size), the last group filled up."""
    padded = np.full(-(-len(values) // size) * size, fill, values.dtype)
    padded[: len(values)] = values
    return padded.reshape(-1, size)


def _distinct(values: np.ndarray, taken: np.ndarray, size: int) -> np.ndarray:
    """(groups, size) bool: elements that are taken and equal to none before them in their group."""
    grouped = _grouped(np.where(taken, values, -1), size, -1)
    new = grouped >= 0
    for k in range(1, size):
        new[:, k] &= ~(grouped[:, :k] == grouped[:, k : k + 1]).any(axis=1)
    return new


def _banks(spec: MachineSpec, words: np.ndarray, taken: np.ndarray, size: int) -> np.ndarray:
    """(groups, banks): distinct words of one operand in each bank."""
    new = _distinct(words, taken, size)
    bank = _grouped(words % spec.sram.banks, size, 0)
    return np.stack([(new & (bank == b)).sum(axis=1) for b in range(spec.sram.banks)], axis=1)
