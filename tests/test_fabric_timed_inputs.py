"""Edge inputs with a cycle before which each wavelet is not there (docs/machine.md §3), both engines."""

import dataclasses

import numpy as np
import pytest
from support import RAMP, Asm, E, Grid, W, execute, fast_engine
from waferloom.fabric.compare import outcome_differences
from waferloom.fabric.spec import machine
from waferloom.fabric.wafer import Wafer
from waferloom.isa.errors import Usage
from waferloom.isa.program import TaskKind

# Hop 1: a wavelet that enters at t leaves the router at t + 1, and reaches the host at t + 2.
TINY = machine("tiny")


def timed(words, cycles):
    return np.array(words, np.uint32), None, np.array(cycles, np.int64)


def passing(width: int = 1, lanes: int = 1) -> Grid:
    """Wavelets cross a grid without PEs from west to east."""
    grid = Grid(width, lanes)
    for y in range(lanes):
        for x in range(width):
            grid.route(x, y, 0, ({W}, {E}))
    rows = tuple(range(lanes))
    return grid.port("a", False, W, 0, rows).port("b", True, E, 0, rows)


def adder(count: int) -> Grid:
    """One PE: `count` data tasks, each sends the sum so far to the east."""
    asm = Asm()
    asm.task(0, TaskKind.DATA, queue=0)
    asm("add", rd=1, ra=1, rb=0)
    asm("send", queue=0, ra=1)
    asm("end")
    grid = Grid(1).place(asm, (0, 0), receives={0: 0}, sends={0: 1})
    grid.route(0, 0, 0, ({W}, {RAMP})).route(0, 0, 1, ({RAMP}, {E}))
    return grid.port("a", False, W, 0, (0,), count).port("b", True, E, 1, (0,), count)


def both(grid, inputs, spec=TINY, **options):
    """The outcome of a run, after checking that both engines have the same one."""
    slow = execute(grid, spec, inputs, **options).outcome
    fast = execute(grid, spec, inputs, engine=fast_engine(), **options).outcome
    assert not outcome_differences(slow, fast)
    return slow


def arrivals(outcome, lane=0):
    return outcome.outputs["b"][lane].cycle.tolist()


def test_a_wavelet_enters_at_its_cycle_or_when_there_is_room():
    ran = both(passing(), {"a": [timed([1, 2, 3, 4], [0, 0, 50, 50])]})
    assert arrivals(ran) == [2, 3, 52, 53]
    assert (ran.end, ran.cycles) == ("finished", 54)


def test_cycle_zero_is_the_same_as_no_cycles():
    words = np.arange(20, dtype=np.uint32)
    plain = both(passing(3), {"a": [(words, None)]})
    given = both(passing(3), {"a": [timed(words, np.zeros(20))]})
    assert not outcome_differences(plain, given)


def test_lanes_have_times_of_their_own():
    ran = both(passing(2, 2), {"a": [timed([1, 2], [10, 30]), timed([3, 4], [0, 7])]})
    assert arrivals(ran, 0) == [13, 33]
    assert arrivals(ran, 1) == [3, 10]


def test_tasks_start_when_wavelets_come():
    ran = both(adder(3), {"a": [timed([5, 6, 7], [0, 100, 1000])]})
    assert ran.outputs["b"][0].payload.tolist() == [5, 11, 18]
    first, second, third = arrivals(ran)
    assert (second - first, third - first) == (100, 1000)


def test_a_long_gap_is_no_livelock_and_no_hang():
    spec = dataclasses.replace(TINY, fabric=dataclasses.replace(TINY.fabric, livelock_cycles=300))
    ran = both(adder(2), {"a": [timed([5, 6], [0, 5000])]}, spec)
    assert ran.end == "finished"
    assert ran.cycles > 5000


def test_what_comes_after_the_limit_is_unread():
    ran = both(adder(3), {"a": [timed([5, 6, 7], [0, 100, 1000])]}, max_cycles=500)
    assert (ran.end, ran.cycles, ran.unread_inputs) == ("limit", 500, {"a": [1]})


def test_nobody_takes_them():
    """A PE that stops taking wavelets: what cannot enter is unread, and its time does not matter."""
    asm = Asm()
    asm.task(0, entry=True)
    asm("end")
    grid = Grid(1).place(asm, (0, 0), receives={0: 0})
    grid.route(0, 0, 0, ({W}, {RAMP})).port("a", False, W, 0, (0,), 12)
    ran = both(grid, {"a": [timed(range(12), range(0, 240, 20))]})
    assert ran.end == "hang"
    assert ran.unread_inputs["a"][0] > 0


def test_a_fault_ends_the_run_before_later_wavelets():
    asm = Asm()
    asm.task(0, TaskKind.DATA, queue=0)
    asm("trap", trap_code=3)
    grid = Grid(1).place(asm, (0, 0), receives={0: 0})
    grid.route(0, 0, 0, ({W}, {RAMP})).port("a", False, W, 0, (0,), 3)
    ran = both(grid, {"a": [timed([1, 2, 3], [10, 2000, 3000])]})
    assert (ran.end, ran.unread_inputs) == ("fault", {"a": [2]})


@pytest.mark.parametrize("seed", range(12))
def test_random_times(seed):
    random = np.random.default_rng(seed)
    count = int(random.integers(1, 40))
    cycles = np.cumsum(random.choice([0, 0, 1, 2, 9, 60], count))
    grid = adder(count) if seed % 2 else passing(int(random.integers(1, 5)))
    both(grid, {"a": [timed(random.integers(0, 99, count), cycles)]})


def test_wafer_checks_the_cycles():
    wafer = Wafer(TINY, passing().program(), engine="reference")
    words = np.array([1, 2], np.uint32)
    for cycles, text in (
        (np.array([0], np.int64), "one per payload"),
        (np.array([0, 1], np.int32), "int64"),
        (np.array([3, 1], np.int64), "never decrease"),
        (np.array([-1, 1], np.int64), "0 or later"),
    ):
        with pytest.raises(Usage, match=text):
            wafer.run(wavelets_in={"a": [(words, None, cycles)]})
    assert wafer.run(wavelets_in={"a": [timed([1, 2], [0, 9])]}).cycles == 12
