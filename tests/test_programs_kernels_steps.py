"""A layer's steps as kernels of their own: golden bits on both engines, cycle formulas, bounds, crossover."""

import numpy as np
import pytest
from waferloom.fabric.spec import machine
from waferloom.isa.errors import Usage
from waferloom.programs.kernels.attention_step import Attention
from waferloom.programs.kernels.steps import AllReduce, RmsNorm, RotaryPosition, SiluGate

WSE3 = machine("wse3")
ALL_REDUCES = [
    AllReduce(1, 5),
    AllReduce(2, 3, 1),
    AllReduce(2, 1, 0, "row"),
    AllReduce(3, 7, 1, lines_of_pes=2),
    AllReduce(6, 20, 5),
    AllReduce(6, 2, 0, "row"),
    AllReduce(9, 1, 4),
    AllReduce(9, 40, 4, "row", 2),
    AllReduce(5, 6, 2, largest=True),
    AllReduce(12, 3, 6, "row"),
    AllReduce(5, 3, 2, "row"),
    AllReduce(10, 60, 5),
    AllReduce(8, 9, 2),
    AllReduce(8, 9, 3, "row"),
]
OTHERS = [
    RmsNorm(1, 1, 8),
    RmsNorm(2, 5, 20),
    RmsNorm(1, 12, 48),
    RotaryPosition(1, 1, 1, 4),
    RotaryPosition(2, 2, 4, 16),
    SiluGate(1, 1, 6),
    SiluGate(2, 2, 10),
    SiluGate(3, 5, 34),
    SiluGate(1, 12, 128),
    Attention(1, 1, 1, 1, 4, 1),
    Attention(2, 2, 3, 2, 8, 20, spare=1),
    Attention(1, 4, 2, 3, 4, 1),
    Attention(3, 4, 4, 3, 16, 70),
]


def check(job, spec=WSE3):
    fast = job.run(spec, job.example(), engine="fast", strict=True)
    slow = job.run(spec, job.example(1), engine="reference", strict=True)
    assert fast.equal, job
    assert slow.equal, job
    assert fast.result.cycles == slow.result.cycles
    assert job.bound(spec).cycles <= fast.result.cycles
    return fast.result.cycles


@pytest.mark.parametrize("job", ALL_REDUCES, ids=repr)
@pytest.mark.parametrize("spec", ["wse3", "wse2"])
def test_all_reduce_bits_and_exact_cycles(job, spec):
    assert check(job, machine(spec)) == job.cycles(machine(spec))


@pytest.mark.parametrize("job", OTHERS, ids=repr)
def test_bits_and_expected_cycles(job):
    assert job.cycles(WSE3) == pytest.approx(check(job), rel=0.2)


def test_where_sums_meet_has_a_crossover():
    """Short vectors meet in the middle, long ones at the end; the formula finds the same as the machine."""
    pes = 24

    def cycles(words, meet):
        job = AllReduce(pes, words, meet)
        measured = job.run(WSE3, job.example(), engine="fast").result.cycles
        assert measured == job.cycles(WSE3)
        return measured

    assert cycles(1, 12) < cycles(1, 23)
    assert cycles(300, 12) > cycles(300, 23)


def test_sums_of_a_residual_that_f16_squares_would_lose():
    job = RmsNorm(1, 4, 16)
    data = dict(job.example())
    data["hidden"] = np.full_like(data["hidden"], 24_926)
    ran = job.run(WSE3, data)
    assert ran.equal
    assert np.allclose(ran.outputs["x"], data["norm"], rtol=2e-3)


def test_attention_is_softmax_attention():
    """Against doubles, within what f16 storage explains."""
    job = Attention(2, 2, 3, 2, 8, 40)
    data = job.example(3)
    out = job.run(WSE3, data).outputs["context"][0].reshape(4, 2, 8).astype(float)
    query, keys, values = (data[name].astype(float) for name in ("query", "keys", "values"))
    for head in range(2):
        mine = slice(2 * head, 2 * head + 2)
        scores = np.einsum("chd,tcd->ht", query[mine], keys[:, mine])
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        want = np.einsum("ht,tcd->chd", weights, values[:, mine])
        assert np.abs(out[mine] - want).max() < 2e-3


def test_sizes_that_do_not_fit_are_refused():
    with pytest.raises(Usage, match="meeting at PE 4 of 4"):
        AllReduce(4, 2, 4)
    with pytest.raises(Usage, match="multiple of 4"):
        RmsNorm(1, 1, 6)
    with pytest.raises(Usage, match="pairs"):
        RotaryPosition(1, 1, 1, 3)
    with pytest.raises(Usage, match="even"):
        SiluGate(1, 1, 3)
