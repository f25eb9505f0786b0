"""Random llama layers on random grids and machines: every token bit-equal to the golden twin."""

import random

import numpy as np
import pytest
from waferloom.fabric.spec import machine
from waferloom.fabric.wafer import Wafer
from waferloom.programs.kernels.job import same_bits
from waferloom.programs.layers.examples import random_layer
from waferloom.programs.layers.llama import (
    LayerConfig,
    LayerGolden,
    PlanError,
    build_layer,
    load_layer,
    plan_layer,
)


def random_plan(pick: random.Random):
    """A plan that fits; odd sizes leave padding in rows, columns and groups."""
    while True:
        kv = pick.choice([1, 1, 2, 3])
        config = LayerConfig(
            hidden=pick.randint(3, 80), heads=kv * pick.randint(1, 4), kv_heads=kv,
            head_dim=4 * pick.randint(1, 8), ffn=pick.randint(2, 120),
            rope_base=pick.choice([1e4, 1e5]), eps=pick.choice([1e-5, 1e-6]), kv_capacity=pick.randint(1, 40),
        )  # fmt: skip
        spec = machine(pick.choice(["wse3", "wse3", "wse2", "tiny"]))
        grid = pick.randint(kv, 12), pick.randint(1, 10)
        try:
            return plan_layer(config, spec, grid, pick.choice(["q4", "q8", "f16"]), pick.choice([1, 1, 2, 3]))
        except PlanError:
            continue


@pytest.mark.parametrize("seed", range(16))
def test_random_layer(seed):
    pick, rng = random.Random(seed), np.random.default_rng(seed)
    plan = random_plan(pick)
    weights = random_layer(plan.config, seed, plan.kind)
    wafer, golden = Wafer(plan.spec, build_layer(plan), strict=True), LayerGolden(plan, weights)
    load_layer(wafer, plan, weights)
    for _ in range(min(plan.rows * plan.capacity, pick.randint(1, 12))):
        size = 10.0 ** rng.integers(-2, 4)
        hidden = (size * rng.standard_normal(plan.config.hidden)).astype(np.float16)
        request = pick.randrange(plan.requests)
        result = wafer.run({"hidden": plan.to_lanes(hidden, request)})
        result.raise_for_end()
        assert same_bits(plan.from_lanes(result["hidden_out"]), golden.step(hidden, request)), plan
