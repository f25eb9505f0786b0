"""The main loop: let everything run ahead that can, then take the earliest event from the calendar."""

from __future__ import annotations

import numpy as np

from .accounts import account
from .events import next_event, take_event, wake
from .jit import jit
from .pipes import feed
from .processor import run_pe
from .router import plan_arbiter, run_arbiter, run_channel
from .state import NEVER


@jit
def start(s):
    """Everybody acts once at cycle 0."""
    machine = s.machine[0]
    for lane in range(len(s.sources)):
        wake(s, machine.first_source + lane)
    for i in range(machine.pes):
        if not s.pes[i].stopped:
            wake(s, i)


@jit
def advance(s):
    """Go on until nothing can happen before the limit (True), or the budget is used up (False)."""
    machine = s.machine[0]
    run = s.run[0]
    while True:
        while run.work > 0:
            if run.budget < 0:
                return False
            run.work -= 1
            item = np.int64(s.work[run.work])
            s.queued[item] = False
            if item < machine.pes:
                run_pe(s, item)
            elif item < machine.first_arbiter:
                run_channel(s, item - machine.first_channel)
            elif item < machine.first_source:
                plan_arbiter(s, item - machine.first_arbiter, item)
            else:
                feed(s, item - machine.first_source)
            run.budget -= 1
        cycle = next_event(s)
        if cycle >= run.limit:
            if cycle < NEVER:
                run.cut = 1
            return True
        if run.budget < 0:
            return False
        run.now = max(run.now, cycle)
        if machine.livelock and cycle - run.progress > machine.livelock and _lively(s, cycle):
            run.livelocked = 1
            return True
        item = np.int64(take_event(s))
        if item < machine.pes:
            run_pe(s, item)
        elif item < machine.first_arbiter:
            run_channel(s, item - machine.first_channel)
        elif item < machine.first_source:
            run_arbiter(s, item - machine.first_arbiter, item, cycle)
        else:
            feed(s, item - machine.first_source)


@jit
def _lively(s, cycle):
    """Whether no PE has issued for so long that the run is a livelock at `cycle`; refreshes what is known
    of progress."""
    machine = s.machine[0]
    run = s.run[0]
    for i in range(machine.pes):
        run.progress = max(run.progress, s.pes[i].last_issue)
    return cycle - run.progress > machine.livelock


@jit
def settle(s, cycles):
    """Charge what is left of every PE's cycles up to the end of the run."""
    for i in range(s.machine[0].pes):
        pe = s.pes[i]
        if pe.kernel < 0:
            continue
        account(s, i, cycles)
        over = pe.accounted - cycles
        if over > 0:
            # The run was cut while a group held the engine. After a fault elsewhere a PE may have been
            # further ahead: then its counters still have the right sum, and no more.
            bank = min(over, pe.last_bank)
            s.counters[i, 1] -= bank
            over -= bank
            for reason in range(len(s.counters[i])):
                less = min(over, s.counters[i, reason])
                s.counters[i, reason] -= less
                over -= less
