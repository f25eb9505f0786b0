"""A kernel under pytest-benchmark: built once, warmed up, run several times, cycles and bits checked."""

from __future__ import annotations

import time
from dataclasses import dataclass

from waferloom.fabric.result import Result
from waferloom.fabric.spec import machine
from waferloom.programs.kernels import Job
from waferloom.programs.kernels.job import Ran

WSE3 = machine("wse3")


@dataclass(frozen=True)
class Timed:
    """Seconds of the host: assembling and loading, the quickest run, its time on one core; and the run."""

    build_s: float
    run_s: float
    core_s: float  # without the time in which other processes had the core
    result: Result


def timed(benchmark, job: Job, *, rounds: int = 3, warmed: bool = True) -> Timed:
    """Build the wafer, run it `rounds` times on one core; the last run must be exact in bits and cycles."""
    data = job.example()
    began = time.perf_counter()
    wafer = job.wafer(WSE3, data)
    build = time.perf_counter() - began
    feeds = job.feeds(data)
    seconds: list[tuple[float, float]] = []  # on one core, by the clock

    def run() -> Result:
        began = time.process_time()
        result = wafer.run(feeds)
        seconds.append((time.process_time() - began, result.settings.seconds))
        return result

    if warmed:
        run()  # compiles, or reads the cache
        seconds.clear()
    result = benchmark.pedantic(run, rounds=rounds, iterations=1)
    result.raise_for_end()
    assert result.cycles == job.cycles(WSE3)
    assert Ran(result, job.gather(wafer, result), job.golden(data)).equal
    bound = job.bound(WSE3)
    benchmark.extra_info |= {
        "cycles": int(result.cycles), "bound_cycles": bound.cycles, "bound_by": bound.by, "build_s": build,
    }  # fmt: skip
    core, clock = min(seconds)
    return Timed(build, clock, core, result)
