"""Bench (h): how long a user waits. Aims: `--help` 0.3 s, a warm small `run` 2 s, the first compilation 40 s.

Processes of their own, measured by the time they had a core, so that other work on the host does not count.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from report import figure

PROGRAM = Path(__file__).parents[1] / "programs/examples/relay.loom"
CYCLES = 30


def core_seconds(*words: str, **environment: str) -> tuple[float, str]:
    """Seconds of one core that the command took, and what it printed."""
    before = os.times()
    done = subprocess.run(
        [sys.executable, "-m", "waferloom.programs.cli", *words],
        env={**os.environ, **environment}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    after = os.times()
    return sum(after[2:4]) - sum(before[2:4]), done.stdout


def test_help(benchmark):
    core_seconds("--help")  # the host's file cache
    took, text = benchmark.pedantic(core_seconds, args=("--help",), rounds=1)
    took = min(took, *(core_seconds("--help")[0] for _ in range(3)))
    assert "calibrate" in text
    figure("waferloom --help", "one core takes", took, "s", 0.3)


def run_cycles(text: str) -> int:
    return int(re.search(r"finished after (\d+) cycles", text).group(1))


def test_warm_run(benchmark):
    core_seconds("run", str(PROGRAM))  # compiles, or reads the cache
    took, text = benchmark.pedantic(core_seconds, args=("run", str(PROGRAM)), rounds=1)
    assert run_cycles(text) == CYCLES
    figure("waferloom run relay.loom, warm", "one core takes", took, "s", 2)


@pytest.mark.large
def test_first_compilation(benchmark, tmp_path):
    def first():
        return core_seconds("run", str(PROGRAM), NUMBA_CACHE_DIR=str(tmp_path / "cache"))

    took, text = benchmark.pedantic(first, rounds=1)
    assert run_cycles(text) == CYCLES
    figure("waferloom run relay.loom, first compilation", "one core takes", took, "s", 40)
