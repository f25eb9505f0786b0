"""Where in the source the entries of a program's grid tables come from, for findings about PEs."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from .diagnostics import Span
from .program import QUEUES, Location


@dataclass
class Origins:
    """Arrays are indexed [y, x] and index `spans`; -1 means nowhere."""

    spans: list[Span] = field(default_factory=list)
    place: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.int32))
    routes: dict[int, np.ndarray] = field(default_factory=dict)  # colour -> (H, W) int32
    # (H, W, 2, 8): queues bound to `none` on purpose; input, output
    unbound: np.ndarray = field(default_factory=lambda: np.zeros((0, 0, 2, QUEUES), bool))

    def number(self, span: Span) -> int:
        """Index of a new span."""
        self.spans.append(span)
        return len(self.spans) - 1


def by_statement(
    ys: np.ndarray, xs: np.ndarray, table: np.ndarray | None, origins: Origins | None
) -> list[tuple[np.ndarray, np.ndarray, Location | None]]:
    """Split PEs by the statement that their entry of `table` comes from: (ys, xs, place in source) each."""
    if len(ys) == 0:
        return []
    if table is None or origins is None:
        return [(ys, xs, None)]
    numbers = table[ys, xs]
    groups = []
    for number in np.unique(numbers):
        mask = numbers == number
        place = origins.spans[number].location if number >= 0 else None
        groups.append((ys[mask], xs[mask], place))
    return groups


def pes(ys: np.ndarray, xs: np.ndarray, what: str = "PE") -> str:
    """PEs in words: one, a rectangle, or how many and the first in row-major order."""
    x0, x1, y0, y1 = int(xs.min()), int(xs.max()), int(ys.min()), int(ys.max())
    if len(xs) == 1:
        return f"{what} ({x0}, {y0})"
    if len(xs) == (x1 - x0 + 1) * (y1 - y0 + 1):
        return f"{what}s ({_side(x0, x1)}, {_side(y0, y1)})"
    first = int(np.lexsort((xs, ys))[0])
    return f"{len(xs)} {what}s, the first ({int(xs[first])}, {int(ys[first])})"


def _side(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}..{high}"
