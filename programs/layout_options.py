"""The options that say how a model lies on wafers, shared by the commands that lay one out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

_OPTIONS = (
    click.option("--machine", default="wse3", show_default=True, metavar="M", help="Preset or TOML file."),
    click.option("--grid", metavar="CxR", help="Columns x rows of PEs per layer [default: planned]."),
    click.option(
        "--wafers",
        type=click.IntRange(min=1),
        metavar="N",
        help="Wafers for the layers, side by side if fewer than layers [default: one per layer].",
    ),
    click.option(
        "--kv", type=click.IntRange(min=1), default=512, show_default=True, help="Tokens the KV cache holds."
    ),
    click.option(
        "--link",
        "link_file",
        metavar="FILE.toml",
        help="Links between the wafers [default: 2 us, 1.2 Tbit/s].",
    ),
)


def layout_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--machine`, `--grid`, `--wafers`, `--kv` and `--link`, in this order, to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
