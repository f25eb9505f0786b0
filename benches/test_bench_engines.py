"""Bench (f): the fast engine against the reference engine on one program. Aim: over 1,000 times as fast."""

import time

import numpy as np
import pytest
from report import figure
from waferloom.fabric import machine
from waferloom.fabric.compare import outcome_differences
from waferloom.programs.kernels import ColumnReduction, Gemv

AIM = 1000


@pytest.mark.parametrize(
    ("name", "job"),
    [
        ("4-bit GEMV, 64 x 64 weights on 6 x 6 PEs", Gemv(384, 384, 6, 6, "q4", 32)),
        pytest.param(
            "4-bit GEMV, 64 x 64 weights on 16 x 16 PEs",
            Gemv(1024, 1024, 16, 16, "q4", 32),
            marks=pytest.mark.large,
        ),
        pytest.param(
            "column reduction, 64 x 64 PEs, 64 words", ColumnReduction(64, 64, 64), marks=pytest.mark.large
        ),
    ],
)
def test_fast_against_reference(benchmark, name, job):
    data = job.example()
    feeds = job.feeds(data)
    slow = job.wafer(machine("wse3"), data, engine="reference")
    began = time.process_time()
    expected = slow.run(feeds)
    reference = time.process_time() - began

    fast = job.wafer(machine("wse3"), data)
    fast.run(feeds)  # compiles, or reads the cache
    core = []

    def run():
        began = time.process_time()
        result = fast.run(feeds)
        core.append(time.process_time() - began)
        return result

    result = benchmark.pedantic(run, rounds=5)
    assert outcome_differences(expected.outcome, result.outcome) == []
    assert result.cycles == job.cycles(machine("wse3"))
    assert np.array_equal(slow.sram, fast.sram)
    name = f"{name}, {result.cycles:,} cycles: reference {reference:.3g} s, fast {min(core):.3g} s"
    figure(name, "ratio", reference / min(core), "times", AIM, at_most=False)
