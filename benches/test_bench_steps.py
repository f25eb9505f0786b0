"""Bench: the steps of a SmolLM2 layer on 12 x 12 PEs, each on its own; where sums of a line should meet."""

import pytest
from kernel_run import WSE3
from report import figure
from waferloom.programs.kernels.attention_step import Attention
from waferloom.programs.kernels.steps import AllReduce, RmsNorm, RotaryPosition, SiluGate

STEPS = {
    "RMSNorm, 48 values of a row": RmsNorm(12, 12, 48),
    "RoPE, 4 vectors of 16": RotaryPosition(12, 12, 4, 16),
    "SiLU gate, 128 neurons of a column": SiluGate(12, 12, 128),
    "attention to 512 tokens": Attention(3, 4, 12, 3, 16, 512),
    "all-reduce of q, k, v in a column": AllReduce(12, 80, 11, lines_of_pes=12),
    "all-reduce of gate and up in a column": AllReduce(12, 256, 11, lines_of_pes=12),
}


@pytest.mark.parametrize("name", STEPS)
def test_step(benchmark, name):
    job = STEPS[name]
    ran = benchmark.pedantic(job.run, args=(WSE3, job.example()), rounds=2)
    assert ran.equal
    bound = job.bound(WSE3)
    figure(name, f"{ran.result.cycles:,} cycles, lower bound", bound.cycles, f"cycles ({bound.by})")


@pytest.mark.parametrize("pes", [12, 24, 96])
def test_where_sums_should_meet(benchmark, pes):
    """The exact formula finds the number of words from which the end is better than the middle."""

    def cycles(words, meet):
        return AllReduce(pes, words, meet).cycles(WSE3)

    def crossover():
        return next(n for n in range(1, 2000) if cycles(n, pes - 1) <= cycles(n, pes // 2))

    words = benchmark.pedantic(crossover, rounds=1)
    figure(f"all-reduce along {pes} PEs", "meets at the end from", words, "words on")
