"""Text heat maps of a grid for terminals: one cell per PE, or per block of PEs where the grid is bigger.

The legend names the unit, the range of each shade, and how a block became one number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..isa.errors import Usage
from .outcome import Cycle

if TYPE_CHECKING:
    from .result import Result

__all__ = ["METRICS", "HeatMap", "check_metric", "metric"]

BLOCKS = " ░▒▓█"
ASCII = " .:*#"
COLOURS = ("#30123b", "#4662d7", "#1ae4b6", "#faba39", "#e02f12")  # low to high, readable on black and white
NOTHING = "·"  # a cell without a kernel
NOTHING_ASCII = "-"
LEVELS = len(BLOCKS)
COLUMNS = 100  # characters of a row, at most
ROWS = 40  # lines of a map, at most
AGGREGATES: dict[str, Callable[..., np.ndarray]] = {"max": np.nanmax, "mean": np.nanmean, "sum": np.nansum}


@dataclass(frozen=True)
class HeatMap:
    """An (H, W) array ready to be printed. `mask` (H, W) bool leaves out cells, as routers without a PE."""

    title: str
    values: np.ndarray
    unit: str
    mask: np.ndarray | None = None
    aggregate: str = "max"
    columns: int = COLUMNS
    rows: int = ROWS

    @property
    def block(self) -> tuple[int, int]:
        """PEs per cell: (height, width)."""
        height, width = self.values.shape
        return -(-height // self.rows), -(-width // (self.columns // 2))

    def cells(self) -> np.ndarray:
        """The numbers that are drawn: one per block, NaN where no PE is."""
        if self.aggregate not in AGGREGATES:
            raise Usage(f"no aggregate {self.aggregate!r}; legal: {', '.join(AGGREGATES)}", category="name")
        values = np.asarray(self.values, np.float64)
        if self.mask is not None:
            values = np.where(self.mask, values, np.nan)
        down, across = self.block
        height, width = values.shape
        rows, columns = -(-height // down), -(-width // across)
        padded = np.full((rows * down, columns * across), np.nan)
        padded[:height, :width] = values
        blocks = padded.reshape(rows, down, columns, across).transpose(0, 2, 1, 3).reshape(rows, columns, -1)
        empty = np.isnan(blocks).all(axis=2)
        blocks[empty] = 0
        return np.where(empty, np.nan, AGGREGATES[self.aggregate](blocks, axis=2))

    def _levels(self, cells: np.ndarray) -> tuple[np.ndarray, float]:
        """Shade of each cell (-1: no PE) and the value at which the darkest one ends."""
        top = float(np.nanmax(cells)) if not np.isnan(cells).all() else 0.0
        scaled = np.nan_to_num(cells, nan=0.0) / (top or 1.0) * LEVELS
        levels = np.clip(scaled.astype(int), 0, LEVELS - 1)
        return np.where(np.isnan(cells), -1, levels), top

    def text(self, *, ascii: bool = False, colour: bool = False) -> str:
        """The map with its title and legend; `colour` uses terminal colours instead of shades."""
        cells = self.cells()
        levels, top = self._levels(cells)
        shades, nothing = (ASCII, NOTHING_ASCII) if ascii else (BLOCKS, NOTHING)

        def cell(level: int) -> str:
            if level < 0:
                return nothing * 2
            return _painted("  ", level) if colour else shades[level] * 2

        width = 2 * cells.shape[1]
        bar, top_edge, low_edge = "│", f"┌{'─' * width}┐", f"└{'─' * width}┘"
        if ascii:
            bar, top_edge = "|", f"+{'-' * width}+"
            low_edge = top_edge
        body = [f"{bar}{''.join(cell(level) for level in row)}{bar}" for row in levels.tolist()]
        return "\n".join([self._heading(), top_edge, *body, low_edge, self._legend(cell, top, levels)])

    def _heading(self) -> str:
        height, width = self.values.shape
        down, across = self.block
        if (down, across) == (1, 1):
            return f"{self.title}: {width} x {height} PEs, {self.unit}"
        return (
            f"{self.title}: {width} x {height} PEs, {self.unit}, each cell the {self.aggregate} "
            f"of {across} x {down} PEs"
        )

    def _legend(self, cell: Callable[[int], str], top: float, levels: np.ndarray) -> str:
        steps = [top * i / LEVELS for i in range(LEVELS + 1)]
        parts = [f"{cell(i)} {_short(steps[i])}-{_short(steps[i + 1])}" for i in range(LEVELS)]
        if (levels < 0).any():
            parts.append(f"{cell(-1)} no PE")
        return f"{'  '.join(parts)}  {self.unit}"


def _painted(text: str, level: int) -> str:
    red, green, blue = (int(COLOURS[level][i : i + 2], 16) for i in (1, 3, 5))
    return f"\x1b[48;2;{red};{green};{blue}m{text}\x1b[0m"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def _link(port: int) -> Callable[[Result], np.ndarray]:
    return lambda result: result.link_words[..., port]


# Name -> (title, unit, (H, W) array of a result, whether only PEs with a kernel have one).
METRICS: dict[str, tuple[str, str, Callable[[Result], np.ndarray], bool]] = {
    "busy": ("engine busy", "cycles", lambda r: r.counters["compute"] + r.counters["bank"], True),
    **{
        reason.name.lower(): (
            reason.name.lower(),
            "cycles",
            lambda r, reason=reason: r.counters.array[..., reason],  # type: ignore[misc]
            True,
        )
        for reason in Cycle
    },
    "instructions": ("instructions issued", "instructions", lambda r: r.outcome.instructions, True),
    "last": ("last issue", "cycle", lambda r: r.outcome.last_issue, True),
    "links": ("busiest link of each router", "wavelets", lambda r: r.link_words[..., :4].max(axis=2), False),
    "north": ("links to the north", "wavelets", _link(0), False),
    "east": ("links to the east", "wavelets", _link(1), False),
    "south": ("links to the south", "wavelets", _link(2), False),
    "west": ("links to the west", "wavelets", _link(3), False),
    "ramp": ("ramps into the PEs", "wavelets", _link(4), False),
}


def check_metric(name: str) -> None:
    """Raise Usage unless `name` is one of METRICS."""
    if name not in METRICS:
        raise Usage(f"no metric {name!r}; legal: {', '.join(METRICS)}", category="name")


def metric(result: Result, name: str, aggregate: str = "max") -> HeatMap:
    """The map of one metric of a run."""
    check_metric(name)
    title, unit, array, only_pes = METRICS[name]
    return HeatMap(title, array(result), unit, result.placed if only_pes else None, aggregate)
