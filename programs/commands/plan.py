"""`waferloom plan`: how a model would lie on wafers, and what to expect, without running anything."""

from __future__ import annotations

from typing import Any

import click

from ..terminal import Terminal


@click.command("plan")
@click.argument("model", default="smollm2", metavar="[FILE.gguf]")
@click.option("--machine", default="wse3", show_default=True, metavar="M", help="Preset or TOML file.")
@click.option("--grid", metavar="CxR", help="Columns x rows of PEs per layer [default: planned].")
@click.option(
    "--wafers",
    type=click.IntRange(min=1),
    metavar="N",
    help="Wafers for the layers, side by side if fewer than layers [default: one per layer].",
)
@click.option(
    "--kv", type=click.IntRange(min=1), default=512, show_default=True, help="Tokens the KV cache holds."
)
@click.option(
    "--link", "link_file", metavar="FILE.toml", help="Links between the wafers [default: 2 us, 1.2 Tbit/s]."
)
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
@click.pass_obj
def command(terminal: Terminal, model: str, **options: Any) -> None:
    """Print wafers, grids, bytes per PE, expected cycles and bounds of a model's layers.

    Expected cycles come from formulas; `generate` measures.
    """
    import json

    from ...fabric.link import link
    from ...fabric.spec import machine
    from ..model_file import grid_of, open_model
    from ..models import describe_model
    from ..models.layout import layout, lines
    from ..models.wafers import head_plan, layer_plan, layers_per_wafer

    spec, links, grid = machine(options["machine"]), link(options["link_file"]), grid_of(options["grid"])
    with open_model(model, terminal) as file:
        config = describe_model(file)
    plan = layer_plan(config, spec, grid, options["kv"])
    shares = layers_per_wafer(config, plan, options["wafers"])
    told = layout(config, plan, shares, head_plan(config, plan), links)
    if options["as_json"]:
        click.echo(json.dumps(told, sort_keys=True, indent=1, ensure_ascii=False))
    else:
        click.echo(lines(told, plan))
