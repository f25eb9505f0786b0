"""A model on wafers: one layer or several on each, in a chain; the head on the last one."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...fabric import sram
from ...fabric.chain import Chain
from ...fabric.link import LinkSpec
from ...fabric.spec import MachineSpec
from ...fabric.wafer import Wafer
from ...isa.errors import Usage
from ..layers import LayerPlan, PlanError, build_layer, layer_weights, load_layer, plan_layer
from ..weights.groups import groups_of
from ..weights.weight_file import WeightFile
from .description import ModelConfig
from .head_plan import HeadPlan, plan_head
from .head_program import build_head, load_head

__all__ = ["chain_of_layers", "head_plan", "head_weights", "layer_plan", "layers_per_wafer"]


def layer_plan(
    config: ModelConfig,
    spec: MachineSpec,
    grid: tuple[int, int] | None,
    kv_capacity: int,
    requests: int = 1,
) -> LayerPlan:
    """The plan of every layer; raises PlanError, "over by N bytes", if it does not fit."""
    return plan_layer(config.layer(kv_capacity), spec, grid, config.kind, requests)  # type: ignore[arg-type]


def layers_per_wafer(config: ModelConfig, plan: LayerPlan, wafers: int | None = None) -> list[int]:
    """Layers on each of `wafers` wafers, as even as possible, more on the first ones; None: one on each.

    Raises PlanError if a wafer is too narrow for its layers side by side.
    """
    wafers = config.layers if wafers is None else wafers
    if not 1 <= wafers <= config.layers:
        raise Usage(f"{wafers} wafers for {config.layers} layers; 1 to {config.layers}", category="range")
    most = plan.spec.grid.width // plan.cols
    least = -(-config.layers // most)
    if wafers < least:
        needed = -(-config.layers // wafers)
        ask, has = f"{wafers} wafer{'s' * (wafers > 1)}", f"{most} layer{'s' * (most > 1)}"
        raise PlanError(
            f"{config.layers} layers on {ask}: {needed} layers of {plan.cols} columns side by side need "
            f"{needed * plan.cols} columns, {plan.spec.name} has {plan.spec.grid.width}",
            category="resource",
            help=f"a wafer holds {has} on this grid: at least {least} wafers, or fewer columns",
        )
    each, more = divmod(config.layers, wafers)
    return [each + (number < more) for number in range(wafers)]


def head_plan(config: ModelConfig, layer: LayerPlan) -> HeadPlan:
    """The plan of the head's wafer behind layers of that plan; raises PlanError if it does not fit."""
    return plan_head(config, config.head_kind, layer)  # type: ignore[arg-type]


def head_weights(file: WeightFile, config: ModelConfig) -> tuple[Any, np.ndarray]:
    """The head's weights, Groups or float16 (vocabulary, hidden), and its norm, float32 (hidden,)."""
    tensor = file.tensor("token_embd.weight" if config.tied else "output.weight")
    weights = tensor.to_float32().astype(np.float16) if config.head_kind == "f16" else groups_of(tensor)
    return weights, file.tensor("output_norm.weight").to_float32()


def chain_of_layers(
    file: WeightFile,
    config: ModelConfig,
    plan: LayerPlan,
    links: LinkSpec | None = None,
    *,
    wafers: int | None = None,
    head: HeadPlan | None = None,
    threads: int = 1,
    engine: str = "fast",
) -> Chain:
    """Loaded wafers for the layers, at position 0, and one more for the head if it has a plan.

    `links`: of the whole chain; `wafers`: that hold layers (None: one per layer); `threads`: of the host.
    """
    shares = layers_per_wafer(config, plan, wafers)
    programs = {regions: build_layer(plan, regions) for regions in set(shares)}
    sizes = [programs[n].width * programs[n].height * sram.stride_of(programs[n]) for n in shares]
    sram.check_room(sum(sizes), f"{len(shares)} wafers")
    made, layer = [], 0
    for regions in shares:
        wafer = Wafer(plan.spec, programs[regions], engine=engine)
        for region in range(regions):
            load_layer(wafer, plan, layer_weights(file, layer), region)
            layer += 1
        made.append(wafer)
    if head is not None:
        wafer = Wafer(head.spec, build_head(head), engine=engine)
        load_head(wafer, head, *head_weights(file, config))
        made.append(wafer)
    return Chain(made, links, threads=threads)
