"""A model's layers on wafers: one layer on each, all with the same program, in a chain."""

from __future__ import annotations

from ...fabric.chain import Chain
from ...fabric.link import LinkSpec
from ...fabric.spec import MachineSpec
from ...fabric.wafer import Wafer
from ..layers import LayerPlan, build_layer, layer_weights, load_layer, plan_layer
from ..weights.weight_file import WeightFile
from .description import ModelConfig

__all__ = ["chain_of_layers", "layer_plan"]


def layer_plan(
    config: ModelConfig, spec: MachineSpec, grid: tuple[int, int] | None, kv_capacity: int
) -> LayerPlan:
    """The plan of every layer of a model; raises PlanError, "over by N bytes", if it does not fit."""
    return plan_layer(config.layer(kv_capacity), spec, grid, config.kind)  # type: ignore[arg-type]


def chain_of_layers(
    file: WeightFile,
    config: ModelConfig,
    plan: LayerPlan,
    links: LinkSpec | None = None,
    *,
    threads: int = 1,
    engine: str = "fast",
) -> Chain:
    """One loaded wafer per layer, at position 0. `links`: of the whole chain; `threads`: of the host."""
    program = build_layer(plan)
    wafers = []
    for layer in range(config.layers):
        wafer = Wafer(plan.spec, program, engine=engine)
        load_layer(wafer, plan, layer_weights(file, layer))
        wafers.append(wafer)
    return Chain(wafers, links, threads=threads)
