"""Bench: a layer of SmolLM2's sizes on grids from the smallest that holds it to 96 x 96 PEs.

Cycles of a token beside the compute bound: multiply-adds and, for 4-bit weights, turning them into f16. On
large grids the sums of rows and columns bound a token, not the compute: see the share of it.
"""

import pytest
from report import figure
from waferloom.fabric.spec import machine
from waferloom.fabric.wafer import Wafer
from waferloom.programs.kernels.job import same_bits
from waferloom.programs.layers.examples import random_layer
from waferloom.programs.layers.llama import LayerConfig, LayerGolden, build_layer, load_layer, plan_layer

WSE3 = machine("wse3")
SIZES = LayerConfig(576, 9, 3, 64, 1536, rope_base=100_000.0, kv_capacity=256)
GRIDS = [((12, 9), "q4"), ((12, 12), "q4"), ((24, 12), "q4"), ((24, 24), "q4"), ((24, 24), "f16"),
         ((48, 24), "f16"), ((48, 48), "f16"), ((96, 96), "f16")]  # fmt: skip
AIM = 60  # per cent of the compute bound, on the default grid


@pytest.mark.parametrize(("grid", "kind"), GRIDS, ids=lambda v: v if isinstance(v, str) else f"{v[0]}x{v[1]}")
def test_layer(benchmark, grid, kind):
    plan = plan_layer(SIZES, WSE3, grid, kind)
    weights = random_layer(SIZES, kind="q4")
    wafer, golden = Wafer(WSE3, build_layer(plan)), LayerGolden(plan, weights)
    load_layer(wafer, plan, weights)
    hidden = random_layer(SIZES)["attn_norm"].astype("float16")
    result = wafer.run({"hidden": plan.to_lanes(hidden)})
    assert same_bits(plan.from_lanes(result["hidden_out"]), golden.step(hidden))
    again = benchmark.pedantic(wafer.run, args=({"hidden": plan.to_lanes(hidden)},), rounds=3)
    name = f"layer on {grid[0]} x {grid[1]} PEs, {kind}"
    figure(name, "expected by the plan", plan.cycles(1), "cycles")
    figure(name, "a token takes", result.cycles, "cycles")
    share = 100 * plan.bound(1) / result.cycles
    default = plan_layer(SIZES, WSE3).grid == grid and kind == "q4"
    figure(name, "share of the compute bound", share, "%", AIM if default else None, at_most=False)
    figure(name, "host", 1e3 * again.settings.seconds, "ms")
