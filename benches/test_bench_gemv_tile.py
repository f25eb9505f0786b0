"""Bench (d): a 4-bit GEMV with 64 x 64 weights per PE on 32 x 32 PEs. Aim: 1e9 multiply-adds per second."""

from kernel_run import WSE3, timed
from report import figure
from waferloom.programs.kernels import Gemv

SIDE, TILE = 32, 64
CYCLES = 2478


def test_gemv_tile(benchmark):
    job = Gemv(SIDE * TILE, SIDE * TILE, SIDE, SIDE, "q4", 32)
    run = timed(benchmark, job, rounds=5)
    assert run.result.cycles == CYCLES
    bound = job.bound(WSE3)
    name = f"4-bit GEMV, {TILE} x {TILE} weights on {SIDE} x {SIDE} PEs, {CYCLES:,} cycles"
    figure(
        name,
        "speed of one core",
        job.outputs * job.inputs / run.core_s,
        "multiply-adds/s",
        1e9,
        at_most=False,
    )
    figure(name, "share of the lower bound", bound.cycles / CYCLES, f"({bound.by})")
