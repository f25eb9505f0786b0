"""Both engines agree on random programs: end, cycles, counters, registers, memory, outputs, waits, faults.

A few hundred runs by default. `pytest tests/test_fabric_engines_agree.py --hypothesis-profile=nightly` runs
several thousand. `WAFERLOOM_RANDOM_RUNS=N` sets the number of seeded runs, `WAFERLOOM_FIRST_SEED=S` the
first of them.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from random_runs import Run, runs, seeded_run
from waferloom.fabric.compare import outcome_differences
from waferloom.fabric.engine import execute as fast_execute
from waferloom.fabric.engine import run as fast
from waferloom.fabric.outcome import Outcome
from waferloom.fabric.reference import run as reference
from waferloom.fabric.reference.router import Grant, Router

SEEDED = int(os.environ.get("WAFERLOOM_RANDOM_RUNS", "300"))
FIRST = int(os.environ.get("WAFERLOOM_FIRST_SEED", "0"))
Executed = tuple[Outcome, np.ndarray, np.ndarray | None]

NIGHTLY = settings.get_profile("nightly").max_examples  # registered in conftest.py
ORDINARY = settings(
    max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)  # whole programs are large examples


def differences(a: Executed, b: Executed) -> list[str]:
    """What differs between two executions; of memory after a fault only the row of the PE at fault."""
    found = outcome_differences(a[0], b[0])
    fault = a[0].fault
    for name, x, y in (("memory", a[1], b[1]), ("written", a[2], b[2])):
        if x is None or y is None:
            continue
        if fault is not None:
            row = fault.y * a[0].counters.shape[1] + fault.x
            rows = [row] if fault.pc >= 0 and name == "memory" else []
        else:
            rows = list(range(len(x)))
        for row in rows:
            places = np.flatnonzero(x[row] != y[row])
            if len(places):
                found.append(f"{name} of row {row} at {places[:4].tolist()} ({len(places)} bytes)")
    return found


def check(run: Run, what: str = "") -> Outcome:
    expected = run.execute(reference)
    found = differences(expected, run.execute(fast))
    assert not found, f"{what}{run}\nreference and fast engine differ:\n  " + "\n  ".join(found[:12])
    return expected[0]


def test_seeded_runs_agree():
    for seed in range(FIRST, FIRST + SEEDED):
        check(seeded_run(seed), f"seed {seed}: ")


def test_hypothesis_runs_agree():
    """The same generator driven by hypothesis, which makes a failing run as small as it can."""
    chosen = settings() if settings().max_examples == NIGHTLY else ORDINARY

    @chosen
    @given(runs())
    def agree(run: Run) -> None:
        check(run)

    agree()


def test_a_run_twice_is_the_same():
    """In one process, with the same program object: what the engine learnt of it must not show."""
    for seed in range(40):
        run = seeded_run(seed)
        first = run.execute(fast)
        assert not differences(first, run.execute(fast)), seed


@pytest.mark.parametrize("slice_", [1, 7, 100])
def test_the_slice_does_not_show(monkeypatch, slice_):
    expected = [seeded_run(seed).execute(fast) for seed in range(30)]
    monkeypatch.setattr(fast_execute, "SLICE", slice_)
    for seed, whole in enumerate(expected):
        assert not differences(whole, seeded_run(seed).execute(fast)), seed


def test_two_wafers_in_two_host_threads():
    """Compiled code releases the GIL: runs at the same time must not see each other."""
    many = [seeded_run(seed) for seed in range(60)]
    expected = [run.execute(fast) for run in many]
    found: list[str] = []

    def work(start: int) -> None:
        for k in [*range(start, 60), *range(start)]:
            found.extend(f"{k}: {line}" for line in differences(expected[k], seeded_run(k).execute(fast)))

    threads = [threading.Thread(target=work, args=(start,)) for start in (0, 30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not found


def test_the_generator_makes_enough_happen(monkeypatch, capsys):
    """Shares of the runs in which something of each kind happens; a lower one would test less than before."""
    counts: Counter[str] = Counter()
    seen: set[str] = set()
    whole = Router.grants

    def grants(self: Router, t: int) -> list[Grant]:
        granted = whole(self, t)
        if len(granted) < len(list(self.waiting(t))):
            seen.add("contention at a link")
        return granted

    monkeypatch.setattr(Router, "grants", grants)
    total = 250
    for seed in range(total):
        seen.clear()
        run = seeded_run(seed)
        threads: dict[tuple[int, int], list[int]] = {}
        inputs: dict[tuple[int, int, int], set[int]] = {}

        def observe(event, t, x, y, threads=threads, inputs=inputs, **details):
            if event == "issue":
                threads.setdefault((x, y), []).append(details["thread"])
            else:
                inputs.setdefault((x, y, details["colour"]), set()).add(details["port"])
                seen.update(["control wavelets"] * details["control"])

        outcome = run.execute(reference, observer=observe)[0]
        seen.add(outcome.end)
        seen.update(["livelock"] * bool(outcome.waits and outcome.waits.livelock))
        seen.update(
            ["finished after 100 instructions"]
            * bool(outcome.end == "finished" and outcome.instructions.sum() > 100)
        )
        seen.update(["100 instructions"] * bool(outcome.instructions.sum() > 100))
        seen.update(["a merge"] * any(len(ports) > 1 for ports in inputs.values()))
        seen.update(
            ["words to the host"]
            * any(len(lane.cycle) for lanes in outcome.outputs.values() for lane in lanes)
        )
        seen.update(["words over a link"] * bool(outcome.link_words[..., :4].any()))
        for order in threads.values():
            if len(set(order)) > 1:
                seen.add("a microthread")
            if any(0 < a != b for a, b in pairwise(order)):
                seen.add("threads that take turns")
        seen.update(["bank cycles"] * bool(outcome.counters[..., 1].any()))
        seen.update(["sends that wait"] * bool(outcome.counters[..., 6].any()))
        counts.update(seen)
    shares = {name: 100 * n // total for name, n in counts.items()}
    with capsys.disabled():
        print("\n  percent of random runs:", ", ".join(f"{name} {shares[name]}" for name in sorted(shares)))
    for name, least in LEAST.items():
        assert shares.get(name, 0) >= least, f"{name}: {shares.get(name, 0)} %"


LEAST = {
    "finished": 8, "hang": 20, "fault": 8, "limit": 5, "100 instructions": 50, "contention at a link": 30,
    "a merge": 40, "control wavelets": 30, "words to the host": 40, "words over a link": 60,
    "a microthread": 60, "threads that take turns": 50, "bank cycles": 50, "sends that wait": 15,
    "finished after 100 instructions": 5,
}  # fmt: skip
