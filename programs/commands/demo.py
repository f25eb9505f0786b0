"""`waferloom demo`: real weights on an emulated wafer, in one command."""

from __future__ import annotations

import click

from ..terminal import Terminal


@click.command("demo")
@click.option("--machine", default="wse3", show_default=True, help="Preset or TOML file.")
@click.option("--engine", type=click.Choice(["fast", "reference"]), default="fast", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.pass_obj
def command(terminal: Terminal, machine: str, engine: str, as_json: bool) -> None:
    """Multiply SmolLM2's 4-bit matrices on an emulated wafer and check every bit."""
    from ..demo import run_demo

    run_demo(machine=machine, engine=engine, as_json=as_json, terminal=terminal)
