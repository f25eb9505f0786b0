"""The head's wafer against its golden twin, bit for bit: kinds of weights, grids, ties, padding, memory."""

import numpy as np
import pytest
from waferloom.fabric.spec import machine
from waferloom.fabric.wafer import Wafer
from waferloom.isa.errors import Usage
from waferloom.programs.layers import LayerConfig, plan_layer
from waferloom.programs.models import Sampler
from waferloom.programs.models.description import ModelConfig
from waferloom.programs.models.head_golden import HeadGolden
from waferloom.programs.models.head_plan import HeadPlan, plan_head
from waferloom.programs.models.head_program import build_head, load_head
from waferloom.programs.models.host_head import WaferHead
from waferloom.programs.weights.groups import Groups, group_bytes

WSE3 = machine("wse3")
HIDDEN = 48


def weights(kind: str, tokens: int, hidden: int = HIDDEN, seed: int = 0):
    """Random weights that a file could hold."""
    random = np.random.default_rng(seed)
    if kind == "f16":
        return random.normal(0, 0.2, (tokens, hidden)).astype(np.float16)
    size = 16
    data = random.integers(0, 256, (tokens, hidden // size, group_bytes(kind, size)), np.uint8)
    data[..., :2] = random.uniform(0.001, 0.02, data.shape[:2]).astype("<f2")[..., None].view(np.uint8)
    if kind == "q4":
        data[..., 2:4] = random.uniform(-0.1, 0.1, data.shape[:2]).astype("<f2")[..., None].view(np.uint8)
    return Groups("head", kind, size, hidden, data)


def norm(hidden: int = HIDDEN) -> np.ndarray:
    return np.random.default_rng(9).uniform(0.5, 2, hidden).astype(np.float32)


def head(kind, tokens, cols, rows, given=None):
    """(plan, loaded wafer, golden twin)."""
    plan = HeadPlan(HIDDEN, tokens, 1e-5, WSE3, cols, rows, kind)
    given = weights(kind, tokens) if given is None else given
    wafer = Wafer(WSE3, build_head(plan))
    load_head(wafer, plan, given, norm())
    return plan, wafer, HeadGolden(plan, given, norm())


def hidden_vectors(count: int):
    random = np.random.default_rng(4)
    return [random.normal(0, 10.0 ** (n - 1), HIDDEN).astype(np.float16) for n in range(count)]


@pytest.mark.parametrize("kind", ["q4", "q8", "f16"])
@pytest.mark.parametrize(("cols", "rows"), [(1, 1), (2, 1), (1, 2), (3, 3), (5, 2), (4, 6)])
def test_bit_equal(kind, cols, rows):
    """101 tokens: the last columns have fewer or none."""
    plan, wafer, golden = head(kind, 101, cols, rows)
    for hidden in hidden_vectors(3):
        result = wafer.run({"hidden": plan.split(hidden)})
        result.raise_for_end()
        np.testing.assert_array_equal(
            result["token"].ravel().view(np.uint32), golden.step(hidden).view(np.uint32)
        )


def test_golden_is_the_product():
    plan, _, golden = head("f16", 101, 3, 2)
    given = weights("f16", 101)
    for hidden in hidden_vectors(3):
        wide = hidden.astype(np.float64)
        normal = wide / np.sqrt(np.mean(wide**2) + plan.eps) * norm()
        np.testing.assert_allclose(golden.logits(hidden), given.astype(np.float64) @ normal, atol=5e-3)


@pytest.mark.parametrize(("equal", "winner"), [((7, 30, 95), 7), ((64, 66), 64), ((100,), 100)])
def test_the_lowest_of_equal_tokens_wins(equal, winner):
    given = weights("f16", 101)
    given[list(equal)] = np.where(np.arange(HIDDEN) % 2, 9, 5).astype(np.float16)
    plan, wafer, golden = head("f16", 101, 5, 2, given)
    hidden = np.ones(HIDDEN, np.float16)
    assert wafer.run({"hidden": plan.split(hidden)})["token"][0, 0] == winner
    assert golden.step(hidden)[0] == winner


def test_padding_never_wins():
    """All logits are below the 0 that padding would give."""
    given = np.full((101, HIDDEN), -1, np.float16)
    given[33] = -0.5
    plan, wafer, _ = head("f16", 101, 40, 2, given)
    answer = wafer.run({"hidden": plan.split(np.ones(HIDDEN, np.float16))})["token"]
    assert answer[0, 0] == 33
    assert answer[0, 1] < 0


@pytest.mark.parametrize(("kind", "cols", "rows"), [("q4", 8, 12), ("q8", 256, 12), ("f16", 300, 2)])
def test_bytes_are_at_most_the_plan(kind, cols, rows):
    plan = HeadPlan(HIDDEN, 4096, 1e-5, WSE3, cols, rows, kind)
    kernel = build_head(plan).kernels[0]
    assert plan.sram_bytes < len(kernel.data) + 4 * len(kernel.code) + 700
    assert len(kernel.data) + 4 * len(kernel.code) <= plan.sram_bytes


def test_the_plan_follows_the_layer_and_says_what_does_not_fit():
    config = LayerConfig(hidden=576, heads=9, kv_heads=3, head_dim=64, ffn=1536)
    layer = plan_layer(config, WSE3, (12, 12))
    model = ModelConfig("m", 30, 576, 9, 3, 64, 1536, 49152, 8192, 1e5, 1e-5, True, "q4", "q8")
    plan = plan_head(model, "q8", layer)
    assert (plan.cols, plan.rows, plan.share) == (256, 12, 192)
    assert plan.sram_bytes <= WSE3.sram.bytes
    assert 2 * plan.product_cycles <= layer.cycles(1)
    large = ModelConfig("m", 30, 576, 9, 3, 64, 1536, 4_000_000, 8192, 1e5, 1e-5, True, "q4", "q8")
    with pytest.raises(Usage, match=r"a head of 4,000,000 tokens on 755 x 12 PEs is over by"):
        plan_head(large, "q8", layer)


def test_what_a_wafer_cannot_choose():
    ends = WaferHead.__new__(WaferHead)
    ends._vocabulary = 9
    assert ends.choose(np.array([8, 1.5], np.float32), Sampler()) == 8
    with pytest.raises(Usage, match="no logit is finite"):
        ends.choose(np.array([1e9, 0], np.float32), Sampler())
    with pytest.raises(Usage, match="most probable token only"):
        ends.choose(np.array([8, 1.5], np.float32), Sampler(1.0))


def test_the_number_of_a_request_is_passed_over():
    plan = HeadPlan(HIDDEN, 101, 1e-5, WSE3, 3, 2, "q8", requests=3)
    wafer, golden = Wafer(WSE3, build_head(plan)), HeadGolden(plan, weights("q8", 101), norm())
    load_head(wafer, plan, weights("q8", 101), norm())
    hidden = hidden_vectors(1)[0]
    front = np.broadcast_to(np.array([2, 0], np.uint16).view(np.float16), (2, 2))
    answer = wafer.run({"hidden": np.concatenate([front, plan.split(hidden)], axis=1)})["token"]
    np.testing.assert_array_equal(answer.ravel(), golden.step(hidden))
