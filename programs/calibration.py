"""`waferloom calibrate`: the published measurements beside the emulated ones, printed and judged."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click

from ..fabric.calibration import ROWS, Bench, Measured
from ..isa.errors import Mismatch
from .terminal import Progress, Terminal

__all__ = ["measure", "run_calibration", "text_table"]


def run_calibration(*, engine: str, as_json: bool, terminal: Terminal) -> None:
    """Measure every row on an engine and print the table; Mismatch names the rows outside their tolerance."""
    with Progress(terminal, "calibration") as progress:
        measured = measure(engine, progress.tick)
    if as_json:
        click.echo(json.dumps(_document(measured, engine), indent=1, sort_keys=True))
    elif not terminal.quiet:
        click.echo(text_table(measured))
    outside = [m for m in measured if not m.within]
    if outside:
        raise Mismatch(
            f"{len(outside)} of {len(measured)} rows are outside their tolerance",
            notes=[
                f"{m.row.what}: published {m.row.published:.6g}, emulated {m.emulated:.6g} {m.row.unit}"
                for m in outside
            ],
        )


def measure(engine: str, tick: Callable[[str], None] = lambda what: None) -> list[Measured]:
    """Every row on an engine (`fast` or `reference`); `tick` is told what is being measured."""
    bench = Bench(engine)
    found = []
    for number, row in enumerate(ROWS, 1):
        tick(f"{number} of {len(ROWS)}, {row.what}")
        found.append(Measured(row, row.measure(bench)))
    return found


def text_table(measured: list[Measured]) -> str:
    """The rows in columns, a count of those within their tolerance below."""
    header = ("what", "published", "emulated", "unit", "tolerance", "")
    cells = [
        (
            m.row.what,
            _short(m.row.published),
            _short(m.emulated),
            m.row.unit,
            m.row.limit,
            "ok" if m.within else "OUTSIDE",
        )
        for m in measured
    ]
    wide = [max(len(row[i]) for row in (header, *cells)) for i in range(len(header))]
    lines = [
        "  ".join(
            text.rjust(w) if i in (1, 2) else text.ljust(w)
            for i, (text, w) in enumerate(zip(row, wide, strict=True))
        ).rstrip()
        for row in (header, *cells)
    ]
    good = sum(m.within for m in measured)
    return "\n".join([*lines, f"{good} of {len(measured)} rows within their tolerance"])


def _document(measured: list[Measured], engine: str) -> dict[str, Any]:
    return {
        "schema": 1,
        "end": "finished" if all(m.within for m in measured) else "mismatch",
        "engine": engine,
        "rows": [
            {
                "what": m.row.what,
                "unit": m.row.unit,
                "published": m.row.published,
                "emulated": m.emulated,
                "tolerance": m.row.tolerance,
                "relative": m.row.relative,
                "within": m.within,
                "note": m.row.note,
            }
            for m in measured
        ],
    }


def _short(value: float) -> str:
    return f"{value:.0f}" if abs(value - round(value)) < 1e-9 else f"{value:.2f}"
