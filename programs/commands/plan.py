"""`waferloom plan`: how a model would lie on wafers, and what to expect, without running anything."""

from __future__ import annotations

from typing import Any

import click

from ..layout_options import layout_options
from ..terminal import Terminal


@click.command("plan")
@click.argument("model", default="smollm2", metavar="[FILE.gguf]")
@layout_options
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
