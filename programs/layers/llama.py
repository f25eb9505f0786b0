"""A llama layer as one wafer program: the names that chains and tools use.

plan = plan_layer(LayerConfig(hidden=576, heads=9, kv_heads=3, head_dim=64, ffn=1536), machine("wse3"))
wafer = Wafer(plan.spec, build_layer(plan))
load_layer(wafer, plan, layer_weights(file, 0))
result = wafer.run({"hidden": plan.to_lanes(hidden)})          # one token, float16
hidden = plan.from_lanes(result["hidden_out"])
"""

from .llama_golden import LayerGolden
from .llama_plan import LayerConfig, LayerPlan, PlanError, alternatives, plan_layer
from .llama_program import build_layer, layer_source
from .llama_weights import layer_weights, load_layer, reset_layer

__all__ = [
    "LayerConfig",
    "LayerGolden",
    "LayerPlan",
    "PlanError",
    "alternatives",
    "build_layer",
    "layer_source",
    "layer_weights",
    "load_layer",
    "plan_layer",
    "reset_layer",
]
