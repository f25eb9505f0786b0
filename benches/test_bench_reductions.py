"""Which reduction is the best by words and PEs of a row: the crossover by the exact formulas."""

import pytest
from kernel_run import WSE3, timed
from report import figure
from waferloom.programs.kernels.segmented import crossover

PES = (4, 16, 64, 256)
WORDS = (1, 16, 64, 256, 1024)


@pytest.mark.parametrize("pes", PES)
def test_crossover(pes):
    for words in WORDS:
        choice = crossover(pes, words, WSE3)
        others = ", ".join(f"{kind} {cycles:,}" for kind, cycles in choice.cycles.items())
        figure(f"reduction, {pes} PEs, {words} words", f"{choice.kind} is best of {others}:",
               choice.cycles[choice.kind], "cycles")  # fmt: skip


@pytest.mark.parametrize("words", WORDS[:3])
def test_best_of_a_row_of_64(benchmark, words):
    choice = crossover(64, words, WSE3)
    run = timed(benchmark, choice.job)
    figure(f"reduction, 64 PEs, {words} words", f"{choice.kind}, run", run.result.cycles, "cycles")
