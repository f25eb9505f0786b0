"""Bench (b): a 4-bit GEMV on every PE of a WSE-3. Aims: built in 15 s, run in 90 s, under 8 GiB."""

import pytest
from kernel_run import timed
from report import figure, peak_memory_gib
from waferloom.programs.kernels import Gemv

TILE = 8  # outputs and inputs of a PE


@pytest.mark.parametrize(
    ("cols", "rows", "cycles"), [(75, 117, 740), pytest.param(755, 1170, 6926, marks=pytest.mark.large)]
)
def test_full_wafer_gemv(benchmark, cols, rows, cycles):
    whole = (cols, rows) == (755, 1170)
    job = Gemv(outputs=rows * TILE, inputs=cols * TILE, cols=cols, rows=rows, kind="q4", group=TILE)
    run = timed(benchmark, job, rounds=1, warmed=not whole)
    assert run.result.cycles == cycles
    name = f"4-bit GEMV, {job.outputs:,} x {job.inputs:,} on {cols} x {rows} PEs, {cycles:,} cycles"
    figure(name, "built in", run.build_s, "s", 15 if whole else None)
    figure(name, "run in", run.run_s, "s", 90 if whole else None)
    figure(name, "of which on one core", run.core_s, "s")
    figure(name, "peak memory of the process", peak_memory_gib(), "GiB", 8 if whole else None)
    figure(name, "bound", job.bound(run.result.spec).cycles, f"cycles ({job.bound(run.result.spec).by})")
