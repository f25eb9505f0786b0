"""Reductions in two phases and as a tree: any sizes and machines, their order, and which one is the best."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from waferloom.fabric.spec import machine
from waferloom.isa.errors import Usage
from waferloom.programs.kernels import RowReduction, TreeReduction, TwoPhaseReduction, best_reduction
from waferloom.programs.kernels.segmented import crossover

WSE3 = machine("wse3")


@st.composite
def jobs(draw):
    pes, lines, words = draw(st.integers(1, 24)), draw(st.integers(1, 2)), draw(st.integers(1, 40))
    column = draw(st.booleans())
    cols, rows = (lines, pes) if column else (pes, lines)
    if draw(st.booleans()):
        return TreeReduction(cols, rows, words, column)
    segment = draw(st.integers(1, 12))
    return TwoPhaseReduction(cols, rows, words, column, 0 if segment == 1 else segment)


@st.composite
def machines(draw):
    """WSE-3 with other latencies and depths."""
    latency, depth = st.integers(1, 4), st.integers(2, 9)
    fabric = {name: draw(latency) for name in ("hop", "ramp_up", "ramp_down")}
    return dataclasses.replace(
        WSE3,
        fabric=dataclasses.replace(WSE3.fabric, buffer_depth=draw(st.integers(2, 4)), **fabric),
        queues=dataclasses.replace(WSE3.queues, in_depth=(draw(depth),) * 8, out_depth=(draw(depth),)),
    )


@given(job=jobs(), spec=machines(), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_any_size_on_any_machine(job, spec, seed):
    ran = job.run(spec, job.example(seed), engine="fast")
    assert ran.equal
    assert ran.result.cycles == job.cycles(spec)
    assert job.bound(spec).cycles <= ran.result.cycles


def test_the_order_of_each_kind_shows():
    """One after a number that is too large for it is lost, two at once are not."""
    v = np.zeros((1, 4, 1), np.float32)
    v[0, :, 0] = 2**24, 1, 1, 1
    sums = {
        kind: job.run(WSE3, {"v": v}, engine="reference").outputs["sums"][0, 0]
        for kind, job in {
            "chain": RowReduction(4, 1, 1),
            "two_phase": TwoPhaseReduction(4, 1, 1, segment=3),
            "tree": TreeReduction(4, 1, 1),
        }.items()
    }
    assert sums == {"chain": 2**24, "two_phase": 2**24, "tree": 2**24 + 2}


def test_the_best_depends_on_words_and_pes():
    """Few words on many PEs: two phases; many words: a chain, which adds each only once at a time."""
    assert isinstance(best_reduction(64, 4, WSE3), TwoPhaseReduction)
    assert isinstance(best_reduction(64, 1024, WSE3), RowReduction)
    assert isinstance(best_reduction(1, 4, WSE3), RowReduction)
    chosen = best_reduction(20, 3, WSE3, lines=2, column=True)
    assert (chosen.cols, chosen.rows) == (2, 20)
    choice = crossover(48, 16, WSE3)
    assert choice.cycles[choice.kind] == min(choice.cycles.values()) == choice.job.cycles(WSE3)
    assert choice.job.run(WSE3, choice.job.example(), engine="fast").result.cycles == choice.job.cycles(WSE3)
    assert "tree" not in crossover(300, 1, WSE3).cycles


def test_what_no_machine_can_is_refused():
    with pytest.raises(Usage, match="a line has 257 PEs"):
        TreeReduction(257, 1, 1)
    with pytest.raises(Usage, match="segment is 1"):
        TwoPhaseReduction(4, 1, 1, segment=1)
