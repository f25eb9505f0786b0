"""Layer programs: a transformer layer as one wafer program, its plan, its weights and its golden twin."""

from .llama import (
    LayerConfig,
    LayerGolden,
    LayerPlan,
    PlanError,
    alternatives,
    build_layer,
    layer_weights,
    load_layer,
    plan_layer,
)

__all__ = [
    "LayerConfig",
    "LayerGolden",
    "LayerPlan",
    "PlanError",
    "alternatives",
    "build_layer",
    "layer_weights",
    "load_layer",
    "plan_layer",
]
