"""The llama layer on both engines against its golden twin, bit for bit: small sizes, awkward grids."""

import numpy as np
import pytest
from waferloom.fabric.spec import machine
from waferloom.fabric.wafer import Wafer
from waferloom.isa.errors import Usage
from waferloom.programs.kernels.job import same_bits
from waferloom.programs.layers.examples import random_layer
from waferloom.programs.layers.llama import (
    LayerConfig,
    LayerGolden,
    PlanError,
    build_layer,
    layer_source,
    load_layer,
    plan_layer,
    reset_layer,
)
from waferloom.programs.layers.llama_plan import alternatives

WSE3 = machine("wse3")
SMALL = LayerConfig(hidden=32, heads=2, kv_heads=1, head_dim=16, ffn=64, kv_capacity=64)
SMOLLM2 = LayerConfig(
    hidden=576, heads=9, kv_heads=3, head_dim=64, ffn=1536, rope_base=100_000.0, kv_capacity=2048
)


def tokens(config, count, seed=1):
    rng = np.random.default_rng(seed)
    return list(rng.standard_normal((count, config.hidden)).astype(np.float16))


def run(config, grid, kind="q4", engine="fast", count=6, spec=WSE3):
    """Runs tokens and compares each; returns plan, wafer and the cycles of every token."""
    plan = plan_layer(config, spec, grid, kind)
    weights = random_layer(config, kind=kind)
    wafer = Wafer(spec, build_layer(plan), engine=engine, strict=True)
    load_layer(wafer, plan, weights)
    golden = LayerGolden(plan, weights)
    cycles = []
    for number, hidden in enumerate(tokens(config, count)):
        result = wafer.run({"hidden": plan.to_lanes(hidden)})
        result.raise_for_end()
        have, want = plan.from_lanes(result["hidden_out"]), golden.step(hidden)
        assert same_bits(have, want), f"token {number} on {grid}"
        cycles.append(result.cycles)
    return plan, wafer, cycles


@pytest.mark.parametrize("kind", ["q4", "q8", "f16"])
def test_small_layer(kind):
    _, wafer, _ = run(SMALL, (4, 4), kind, count=9)
    assert int(wafer.read("position", at=(0, 0))) == 9


@pytest.mark.parametrize("grid", [(4, 4), (2, 3)])
def test_both_engines_agree_on_bits_and_cycles(grid):
    assert run(SMALL, grid, count=2)[2] == run(SMALL, grid, engine="reference", count=2)[2]


@pytest.mark.parametrize("grid", [(1, 1), (1, 4), (3, 1), (2, 2), (5, 3), (7, 8), (9, 2), (2, 14)])
def test_awkward_grids(grid):
    """One PE, one row, one column, columns outside attention, rows and columns of padding."""
    run(SMALL, grid)


@pytest.mark.parametrize(
    "config",
    [
        LayerConfig(hidden=40, heads=6, kv_heads=2, head_dim=8, ffn=52, kv_capacity=16),
        LayerConfig(hidden=64, heads=4, kv_heads=4, head_dim=32, ffn=96, kv_capacity=24),
        LayerConfig(hidden=36, heads=3, kv_heads=3, head_dim=4, ffn=20, eps=1e-3, kv_capacity=8),
    ],
)
def test_awkward_sizes(config):
    run(config, (8, 3))


def test_a_long_sequence_fills_several_eights_of_every_row():
    plan, wafer, cycles = run(SMALL, (4, 3), count=62)
    assert wafer.read("tokens")[:, 0].tolist() == [21, 21, 20]
    assert plan.cycles(62) == pytest.approx(cycles[-1], rel=0.08)


def test_other_machine():
    run(SMALL, (4, 4), spec=machine("wse2"), count=3)


def test_the_cache_spreads_over_the_rows_and_refuses_what_it_cannot_hold():
    config = LayerConfig(hidden=32, heads=2, kv_heads=1, head_dim=16, ffn=64, kv_capacity=16)
    plan, wafer, _ = run(config, (2, 2), count=11)
    assert wafer.read("tokens").tolist() == [[6, 6], [5, 5]]
    for hidden in tokens(config, 5):
        wafer.run({"hidden": plan.to_lanes(hidden)}).raise_for_end()
    result = wafer.run({"hidden": plan.to_lanes(hidden)})
    assert result.end == "fault"
    assert "1" in result.report.text()


def test_reset_starts_a_new_sequence():
    plan, wafer, _ = run(SMALL, (4, 4), count=5)
    reset_layer(wafer, plan)
    golden = LayerGolden(plan, random_layer(SMALL))
    for hidden in tokens(SMALL, 3, seed=7):
        result = wafer.run({"hidden": plan.to_lanes(hidden)})
        assert same_bits(plan.from_lanes(result["hidden_out"]), golden.step(hidden))


@pytest.mark.parametrize("engine", ["fast", "reference"])
def test_requests_in_turn_keep_apart(engine):
    plan = plan_layer(SMALL, WSE3, (4, 4), requests=3)
    weights = random_layer(SMALL)
    wafer, golden = Wafer(WSE3, build_layer(plan), engine=engine, strict=True), LayerGolden(plan, weights)
    alone = [LayerGolden(plan_layer(SMALL, WSE3, (4, 4)), weights) for _ in range(3)]
    load_layer(wafer, plan, weights)
    order = [0, 1, 0, 2, 2, 1, 0] if engine == "fast" else [1, 0, 1]
    for request, hidden in zip(order, tokens(SMALL, len(order)), strict=True):
        result = wafer.run({"hidden": plan.to_lanes(hidden, request)})
        result.raise_for_end()
        out = result["hidden_out"]
        assert same_bits(plan.from_lanes(out), golden.step(hidden, request))
        assert same_bits(plan.from_lanes(out), alone[request].step(hidden))
        assert same_bits(out, plan.to_lanes(plan.from_lanes(out), request)), "the number travels on"
    reset_layer(wafer, plan, 1)
    golden.reset(1)
    for request, hidden in ((1, tokens(SMALL, 1)[0]), (0, tokens(SMALL, 2)[1])):
        result = wafer.run({"hidden": plan.to_lanes(hidden, request)})
        assert same_bits(plan.from_lanes(result["hidden_out"]), golden.step(hidden, request))


def test_requests_that_a_layer_does_not_keep_are_refused():
    plan = plan_layer(SMALL, WSE3, (2, 2), requests=2)
    wafer = Wafer(WSE3, build_layer(plan))
    load_layer(wafer, plan, random_layer(SMALL))
    with pytest.raises(Usage, match="request 2; this layer keeps 2"):
        plan.to_lanes(np.zeros(32, np.float16), 2)
    lanes = plan.to_lanes(np.zeros(32, np.float16), 1)
    lanes[:, 0] = np.uint16(2).view(np.float16)
    assert wafer.run({"hidden": lanes}).end == "fault"
    with pytest.raises(PlanError, match="at least 1"):
        plan_layer(SMALL, WSE3, (2, 2), requests=0)


def test_large_numbers_pass_as_in_the_real_model():
    """A residual of 24,926 has a square that f16 does not hold."""
    plan = plan_layer(SMALL, WSE3, (4, 4))
    weights = random_layer(SMALL)
    wafer = Wafer(WSE3, build_layer(plan))
    load_layer(wafer, plan, weights)
    hidden = np.zeros(32, np.float16)
    hidden[3], hidden[9] = 24_926, -3_065
    out = plan.from_lanes(wafer.run({"hidden": plan.to_lanes(hidden)})["hidden_out"])
    assert np.isfinite(out).all()
    assert same_bits(out, LayerGolden(plan, weights).step(hidden))


# --- plans ---


@pytest.mark.parametrize(
    ("grid", "heads", "requests"), [((12, 12), 9, 1), ((24, 24), 9, 3), ((12, 8), 3, 1), ((12, 18), 48, 2)]
)
def test_code_and_data_fit_what_the_plan_says(grid, heads, requests):
    config = LayerConfig(576, heads, 3, 64, 1536, kv_capacity=128)
    plan = plan_layer(config, WSE3, grid, requests=requests)
    kernel = build_layer(plan).kernels[0]
    assert 4 * len(kernel.code) + len(kernel.data) <= plan.sram_bytes
    assert plan.sram_bytes - 4 * len(kernel.code) - len(kernel.data) < 1200, "not much is given away"


def test_the_default_grid_holds_smollm2():
    plan = plan_layer(SMOLLM2, WSE3)
    assert plan.grid == (12, 12)
    assert plan.sram_bytes <= WSE3.sram.bytes
    assert plan.rows * plan.capacity >= 2048
    assert "w_gate_up" in plan.sram_map()


def test_alternatives_fit_and_differ():
    plans = alternatives(SMOLLM2, WSE3)
    assert len({p.grid for p in plans}) == len(plans) > 3
    assert all(p.sram_bytes <= WSE3.sram.bytes for p in plans)


def test_too_small_a_grid_says_by_how_much_and_what_fits():
    with pytest.raises(PlanError, match=r"over by [\d,]+ bytes") as caught:
        plan_layer(SMOLLM2, WSE3, (3, 3))
    assert "12 x 12" in caught.value.help or "6 x 24" in caught.value.help
    with pytest.raises(PlanError, match="over by 1 columns"):
        plan_layer(SMOLLM2, WSE3, (2, 12))
    with pytest.raises(PlanError, match="do not lie on"):
        plan_layer(SMOLLM2, WSE3, (4000, 2))


def test_sizes_that_are_no_layer():
    with pytest.raises(Usage, match="head_dim is 6"):
        LayerConfig(hidden=32, heads=3, kv_heads=2, head_dim=6, ffn=8)


def test_weights_of_another_layer_are_refused_all_at_once():
    plan = plan_layer(SMALL, WSE3, (2, 2))
    weights = random_layer(SMALL)
    del weights["attn_q"]
    weights["ffn_up"] = weights["ffn_down"]
    weights["attn_v"] = np.zeros((16, 32), np.float16)
    with pytest.raises(Usage, match="`attn_q` is missing") as caught:
        LayerGolden(plan, weights)
    assert "ffn_up" in str(caught.value)
    assert "attn_v" in str(caught.value)


@pytest.mark.parametrize("grid", [(4, 4), (1, 1), (8, 2)])
def test_expected_cycles_are_close(grid):
    plan, _, cycles = run(SMALL, grid, count=6)
    for number, measured in enumerate(cycles):
        assert plan.cycles(number + 1) == pytest.approx(measured, rel=0.08)
        assert measured >= plan.bound(number + 1)


def test_the_source_can_be_read():
    source = layer_source(plan_layer(SMALL, WSE3, (2, 2)))
    assert "; --- attention ---" in source
    assert source.startswith("; A llama layer on 2 x 2 PEs")
