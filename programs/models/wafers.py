"""A model on wafers: one layer on each, all with the same program, in a chain; the head on the last one."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...fabric.chain import Chain
from ...fabric.link import LinkSpec
from ...fabric.spec import MachineSpec
from ...fabric.wafer import Wafer
from ..layers import LayerPlan, build_layer, layer_weights, load_layer, plan_layer
from ..weights.groups import groups_of
from ..weights.weight_file import WeightFile
from .description import ModelConfig
from .head_plan import HeadPlan, plan_head
from .head_program import build_head, load_head

__all__ = ["chain_of_layers", "head_plan", "head_weights", "layer_plan"]


def layer_plan(
    config: ModelConfig,
    spec: MachineSpec,
    grid: tuple[int, int] | None,
    kv_capacity: int,
    requests: int = 1,
) -> LayerPlan:
    """The plan of every layer; raises PlanError, "over by N bytes", if it does not fit."""
    return plan_layer(config.layer(kv_capacity), spec, grid, config.kind, requests)  # type: ignore[arg-type]


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
    head: HeadPlan | None = None,
    threads: int = 1,
    engine: str = "fast",
) -> Chain:
    """One loaded wafer per layer, at position 0, and one for the head if it has a plan.

    `links`: of the whole chain; `threads`: of the host.
    """
    program = build_layer(plan)
    wafers = []
    for layer in range(config.layers):
        wafer = Wafer(plan.spec, program, engine=engine)
        load_layer(wafer, plan, layer_weights(file, layer))
        wafers.append(wafer)
    if head is not None:
        wafer = Wafer(head.spec, build_head(head), engine=engine)
        load_head(wafer, head, *head_weights(file, config))
        wafers.append(wafer)
    return Chain(wafers, links, threads=threads)
