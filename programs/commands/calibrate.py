"""`waferloom calibrate`: published measurements beside the emulated ones."""

from __future__ import annotations

import click

from ..terminal import Terminal


@click.command("calibrate")
@click.option("--engine", type=click.Choice(["fast", "reference"]), default="fast", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print the rows as JSON.")
@click.pass_obj
def command(terminal: Terminal, engine: str, as_json: bool) -> None:
    """Print a table of published values, emulated values and tolerances; exit 1 if a row is outside."""
    from ..calibration import run_calibration

    run_calibration(engine=engine, as_json=as_json, terminal=terminal)
