"""Figures of the benchmarks beside their aims: collected as they run, printed when the session ends."""

from __future__ import annotations

import resource
import sys
from dataclasses import dataclass

FIGURES: list[Figure] = []


@dataclass(frozen=True)
class Figure:
    """One measured figure; without an aim it is only shown. `at_most`: smaller is better."""

    bench: str
    what: str
    value: float
    unit: str
    aim: float | None = None
    at_most: bool = True

    @property
    def line(self) -> str:
        """`bench: what 12.3 unit (aim: at most 20 unit) met`."""
        text = f"{self.bench}: {self.what} {_number(self.value)} {self.unit}"
        if self.aim is None:
            return text
        met = self.value <= self.aim if self.at_most else self.value >= self.aim
        bound = "at most" if self.at_most else "at least"
        return f"{text} (aim: {bound} {_number(self.aim)}) {'met' if met else 'MISSED'}"


def figure(
    bench: str, what: str, value: float, unit: str, aim: float | None = None, *, at_most: bool = True
) -> None:
    """Note a figure; it is printed when the session ends."""
    FIGURES.append(Figure(bench, what, value, unit, aim, at_most))


def peak_memory_gib() -> float:
    """Most memory this process ever held."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 30 if sys.platform == "darwin" else 1 << 20)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
