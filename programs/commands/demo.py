"""`waferloom demo`: a model writes with real 4-bit weights on emulated wafers, in one command."""

from __future__ import annotations

import click

from ..terminal import Terminal
from . import generate

PROMPT = "The capital of France is"


@click.command("demo")
@click.option("--machine", default="wse3", show_default=True, help="Preset or TOML file.")
@click.option(
    "--engine",
    type=click.Choice(["fast", "reference"]),
    default="fast",
    show_default=True,
    help="Of the matrices; text is always written by the fast one.",
)
@click.option(
    "--tokens",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    metavar="N",
    help="Tokens to write; 0: only the matrices.",
)
@click.option("--json", "as_json", is_flag=True, help="Only the matrices, as JSON.")
@click.pass_context
def command(context: click.Context, machine: str, engine: str, tokens: int, as_json: bool) -> None:
    """Let SmolLM2 write a few tokens on a chain of wafers, then look at three of its matrices, bit by bit."""
    from ..demo import run_demo

    terminal: Terminal = context.obj
    if tokens and not as_json:
        context.invoke(generate.command, text=PROMPT, count=tokens, machine=machine)
        click.echo()
    run_demo(machine=machine, engine=engine, as_json=as_json, terminal=terminal)
