"""Bench (a): sums of 64 f32 words down every column. Aim: at most 20 ns of one core per PE and word."""

import pytest
from kernel_run import timed
from report import figure
from waferloom.programs.kernels import ColumnReduction

WORDS = 64
AIM_NS = 20
STRETCH_HOPS = 100e6  # wavelet hops per second


@pytest.mark.parametrize(("side", "cycles"), [(64, 453), pytest.param(512, 3141, marks=pytest.mark.large)])
def test_column_reduction(benchmark, side, cycles):
    run = timed(benchmark, ColumnReduction(side, side, WORDS))
    assert run.result.cycles == cycles
    name = f"column reduction, {side} x {side} PEs, {WORDS} words, {cycles:,} cycles"
    work = side * side * WORDS
    figure(name, "one core takes", 1e9 * run.core_s / work, "ns per PE and word", AIM_NS)
    hops = int(run.result.link_words[..., :4].sum())
    figure(name, "speed", hops / run.core_s, "wavelet hops/s", STRETCH_HOPS / 2, at_most=False)
