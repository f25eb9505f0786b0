"""Several llama layers side by side on one wafer: bit-equal to golden layers one after the other."""

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
    reset_layer,
)

WSE3 = machine("wse3")
SMALL = LayerConfig(hidden=32, heads=2, kv_heads=1, head_dim=16, ffn=64, kv_capacity=64)
SMALLEST = LayerConfig(hidden=8, heads=1, kv_heads=1, head_dim=4, ffn=8, kv_capacity=8)


def tokens(config, count, seed=1):
    rng = np.random.default_rng(seed)
    return list(rng.standard_normal((count, config.hidden)).astype(np.float16))


def loaded(config, grid, regions, engine="fast", requests=1):
    """Plan, wafer and one golden layer per region, each with weights of its own."""
    plan = plan_layer(config, WSE3, grid, requests=requests)
    wafer = Wafer(WSE3, build_layer(plan, regions), engine=engine, strict=True)
    golden = []
    for region in range(regions):
        weights = random_layer(config, seed=region)
        load_layer(wafer, plan, weights, region)
        golden.append(LayerGolden(plan, weights))
    return plan, wafer, golden


def step(plan, wafer, golden, hidden, request=0):
    """One token through the wafer, compared; the cycles it took."""
    result = wafer.run({"hidden": plan.to_lanes(hidden, request)})
    result.raise_for_end()
    for layer in golden:
        hidden = layer.step(hidden, request)
    assert same_bits(result["hidden_out"], plan.to_lanes(hidden, request))
    return result.cycles


@pytest.mark.parametrize("regions", [2, 3])
@pytest.mark.parametrize("grid", [(4, 4), (3, 2), (1, 2), (5, 3)])
def test_layers_side_by_side(grid, regions):
    """Even and odd widths: the colours of a row change places where a region starts in an odd column."""
    plan, wafer, golden = loaded(SMALL, grid, regions)
    for hidden in tokens(SMALL, 4):
        step(plan, wafer, golden, hidden)
    positions = wafer.read("position")
    assert positions.shape == (grid[1], regions * grid[0])
    assert (positions == 4).all()


@pytest.mark.parametrize("regions", [2, 3])
def test_both_engines_agree_on_bits_and_cycles(regions):
    cycles = [
        [step(*made, hidden) for hidden in tokens(SMALLEST, 2)]
        for made in (loaded(SMALLEST, (2, 2), regions, engine) for engine in ("fast", "reference"))
    ]
    assert cycles[0] == cycles[1]


def test_a_region_takes_as_long_as_a_wafer_without_the_way_between():
    one, two, three = (step(*loaded(SMALL, (4, 4), regions), tokens(SMALL, 1)[0]) for regions in (1, 2, 3))
    assert three - two == pytest.approx(two - one, abs=2)
    assert 0.85 * one < two - one < one


def test_requests_keep_apart_in_every_region():
    plan, wafer, golden = loaded(SMALL, (3, 4), 2, requests=2)
    for request, hidden in zip([0, 1, 1, 0], tokens(SMALL, 4), strict=True):
        step(plan, wafer, golden, hidden, request)
    for region in range(2):
        reset_layer(wafer, plan, 1, region)
        golden[region].reset(1)
    for request, hidden in zip([1, 0], tokens(SMALL, 2, seed=3), strict=True):
        step(plan, wafer, golden, hidden, request)


def test_a_region_is_reset_alone():
    plan, wafer, golden = loaded(SMALL, (2, 2), 2)
    for hidden in tokens(SMALL, 2):
        step(plan, wafer, golden, hidden)
    reset_layer(wafer, plan, region=1)
    golden[1].reset()
    step(plan, wafer, golden, tokens(SMALL, 1, seed=5)[0])


def test_a_wafer_too_narrow_says_what_it_holds():
    plan = plan_layer(SMALL, WSE3, (400, 1))
    with pytest.raises(PlanError, match="2 layers of 400 columns each need 800") as caught:
        build_layer(plan, 2)
    assert "one wafer holds 1 on this grid" in caught.value.help
