"""Every kernel of the table at its small size: cycles beside the lower bound, host time of a run."""

import pytest
from kernel_run import WSE3, timed
from report import figure
from waferloom.programs.kernels import KERNELS


@pytest.mark.parametrize("name", KERNELS)
def test_kernel(benchmark, name):
    job = KERNELS[name].small
    run = timed(benchmark, job, rounds=3)
    bound = job.bound(WSE3)
    figure(name, f"{run.result.cycles:,} cycles, lower bound", bound.cycles, f"cycles ({bound.by})")
