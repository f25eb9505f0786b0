"""Grids of labels as few rectangles: how a placement or a route table is written down again.

A rectangle may have a step, as regions in source may: a checkerboard is four rectangles, not a million.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

_STRIDES = ((1, 1), (2, 1), (1, 2), (2, 2))
_ENOUGH = 16  # rectangles; more than these make it worth trying strides
_TOO_MANY = 4096  # at which a stride is given up


class Rectangle(NamedTuple):
    """x0..x1 and y0..y1, inclusive, every `step_x`-th column and `step_y`-th row."""

    x0: int
    x1: int
    y0: int
    y1: int
    step_x: int = 1
    step_y: int = 1

    def __str__(self) -> str:
        """As a region of a layout: `(0..3, 2)`, `(0..6 step 2, 1)`."""
        return f"({span(self.x0, self.x1, self.step_x)}, {span(self.y0, self.y1, self.step_y)})"

    @property
    def slices(self) -> tuple[slice, slice]:
        """Index of the rectangle in an array [y, x]."""
        return slice(self.y0, self.y1 + 1, self.step_y), slice(self.x0, self.x1 + 1, self.step_x)


def span(first: int, last: int, step: int = 1) -> str:
    """`3`, `0..3` or `0..6 step 2`."""
    if first == last:
        return f"{first}"
    return f"{first}..{last}" + (f" step {step}" if step > 1 else "")


def rectangles(labels: np.ndarray, background: int) -> list[tuple[Rectangle, int]]:
    """Disjoint rectangles with their label that cover everything but `background`, in reading order.

    `labels`: (H, W) integers.
    """
    best: list[tuple[Rectangle, int]] = []
    for step_x, step_y in _STRIDES:
        cover: list[tuple[Rectangle, int]] = []
        most = len(best) - 1 if best else _TOO_MANY
        for y in range(step_y):
            for x in range(step_x):
                if len(cover) <= most:
                    cover += _plain(labels[y::step_y, x::step_x], background, x, y, step_x, step_y, most)
        if len(cover) <= most:
            best = cover
        if len(cover) <= _ENOUGH:
            break
    if not best:
        best = _plain(labels, background, 0, 0, 1, 1, labels.size)
    return sorted(best, key=lambda item: (item[0].y0, item[0].x0))


def _plain(
    labels: np.ndarray, background: int, x: int, y: int, step_x: int, step_y: int, most: int
) -> list[tuple[Rectangle, int]]:
    """Runs of a row, joined with equal runs of the rows above; more than `most` of them end it early.

    Rows equal to the one above are not looked at.
    """
    height, width = labels.shape
    if not width:
        return []
    cover: list[tuple[Rectangle, int]] = []
    open_runs: dict[tuple[int, int, int], int] = {}  # (first, last, label) -> first row
    row = 0

    def close(keep: set[tuple[int, int, int]]) -> None:
        for run in [run for run in open_runs if run not in keep]:
            first, last, label = run
            top = open_runs.pop(run)
            cover.append(
                (
                    Rectangle(
                        x + first * step_x, x + last * step_x, y + top * step_y, y + (row - 1) * step_y,
                        step_x if last > first else 1, step_y if row - 1 > top else 1,
                    ),
                    label,
                )
            )  # fmt: skip

    changed = np.ones(height, bool)
    changed[1:] = np.any(labels[1:] != labels[:-1], axis=1)
    for row in np.flatnonzero(changed).tolist():
        line = labels[row]
        starts = np.flatnonzero(np.concatenate(([True], line[1:] != line[:-1])))
        ends = np.append(starts[1:], width) - 1
        runs = {
            (first, last, label)
            for first, last, label in zip(starts.tolist(), ends.tolist(), line[starts].tolist(), strict=True)
            if label != background
        }
        close(runs)
        if len(cover) > most:
            return cover
        for run in runs:
            open_runs.setdefault(run, row)
    row = height
    close(set())
    return cover
