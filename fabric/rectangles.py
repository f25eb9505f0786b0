"""Sets of PEs said briefly: a mask of the grid as a few rectangles, always the same for the same mask."""

from __future__ import annotations

import numpy as np

from ..isa.regions import Rectangle, rectangles

__all__ = ["corners", "cover", "spell"]

SCATTERED = 5_000  # runs of a row; a mask of more is told by its bounds, for nobody reads so many rectangles


def cover(mask: np.ndarray) -> list[Rectangle]:
    """Disjoint rectangles, perhaps with steps, that make up `mask` (H, W), in reading order.

    A mask of more than `SCATTERED` runs gives one rectangle that bounds it.
    """
    if is_scattered(mask):
        ys, xs = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
        return [Rectangle(int(xs[0]), int(xs[-1]), int(ys[0]), int(ys[-1]))]
    return [rectangle for rectangle, _ in rectangles(mask.astype(np.int8), 0)]


def is_scattered(mask: np.ndarray) -> bool:
    """Whether a mask is too torn to be told as rectangles."""
    starts = mask[:, 1:] & ~mask[:, :-1]
    distinct = np.any(mask[1:] != mask[:-1], axis=1)  # equal rows join
    return int(np.count_nonzero(starts[1:][distinct])) > SCATTERED


def corners(r: Rectangle) -> list[int]:
    """x0, y0, x1, y1, corners included; with steps also step_x, step_y."""
    return [r.x0, r.y0, r.x1, r.y1] + ([r.step_x, r.step_y] if (r.step_x, r.step_y) != (1, 1) else [])


def spell(mask: np.ndarray, shown: int = 3) -> str:
    """`PE (1,0)` or `1,024 PEs, rectangle (0,0)-(31,31)`, with at most `shown` rectangles."""
    count = int(np.count_nonzero(mask))
    if count == 1:
        y, x = np.argwhere(mask)[0].tolist()
        return f"PE ({x},{y})"
    found = cover(mask)
    if is_scattered(mask):
        return f"{count:,} PEs scattered over {_name(found[0])}"
    names = [_name(r) for r in found[:shown]]
    more = f" and {len(found) - len(names):,} more" if len(found) > len(names) else ""
    kind = "rectangle" if len(found) == 1 else "rectangles"
    return f"{count:,} PEs, {kind} {', '.join(names)}{more}"


def _name(r: Rectangle) -> str:
    if (r.x0, r.y0) == (r.x1, r.y1):
        return f"({r.x0},{r.y0})"
    steps = f" step ({r.step_x},{r.step_y})" if (r.step_x, r.step_y) != (1, 1) else ""
    return f"({r.x0},{r.y0})-({r.x1},{r.y1}){steps}"
