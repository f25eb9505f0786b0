"""A PE: lets it go on as far as what it knows allows.

A choice that depends on what has not arrived yet is taken only at calendar time (events.py); everything
else runs ahead of the others.
"""

from __future__ import annotations

import numpy as np

from .accounts import account
from .events import schedule
from .jit import jit
from .main_thread import main_ready, wait_main
from .scalars import scalar
from .state import NEVER
from .tasks import earliest_pick, pick, watch_arrivals
from .threads import GO_ON, SLEEP, issue, run_synchronous, run_thread, thread_ready
from .vectors import wait


@jit
def run_alone(s, i):
    """The running task with no microthread beside it. GO_ON when something else has to be looked at, else
    SLEEP."""
    pe = s.pes[i]
    run = s.run[0]
    limit = run.limit
    while pe.task >= 0 and not pe.threads and not pe.synchronous:
        if pe.stopped:
            return SLEEP
        cycle = main_ready(s, i)
        if cycle >= NEVER:
            wait_main(s, i)
            return SLEEP
        if cycle >= limit:
            run.cut = 1
            return SLEEP
        if cycle > pe.accounted:
            account(s, i, cycle)
        pe.last_thread = 0
        scalar(s, i, cycle)
        run.budget -= 1
        if run.budget < 0:
            return GO_ON
    return GO_ON


@jit
def run_pe(s, i):
    """Let PE i go on as far as possible."""
    pe = s.pes[i]
    run = s.run[0]
    while not pe.stopped:
        if run.budget < 0:
            # Hand back to Python now and then; come back at the same place.
            schedule(s, i, run.now)
            return
        if pe.synchronous:
            run.budget -= 1
            if run_synchronous(s, i) == SLEEP:
                return
            continue
        if pe.task >= 0 and not pe.threads:
            if run_alone(s, i) == SLEEP:
                return
            continue
        if not _choose(s, i):
            return
        run.budget -= 1


@jit
def _choose(s, i):
    """One step of a PE without a running task or with microthreads: pick a task, or issue from one thread.
    False to sleep."""
    pe = s.pes[i]
    run = s.run[0]
    if (
        pe.task < 0
        and not pe.arrivals
        and not pe.pending
        and pe.threads & (pe.threads - np.uint16(1)) == 0
        and pe.threads
    ):
        return run_thread(s, i)
    unknown = False
    earliest = NEVER
    picking = False
    main = NEVER
    if pe.task >= 0:
        main = main_ready(s, i)
        unknown = main >= NEVER
        earliest = main
    else:
        earliest, unknown = earliest_pick(s, i)
        picking = earliest < NEVER
    first_pick = earliest
    contexts = s.machine[0].contexts
    best = np.int64(0) if pe.task >= 0 else np.int64(-1)
    best_rank = NEVER
    # Earliest ready cycle over all threads, then the winner among those that are ready in it.
    for k in range(8):
        if pe.threads >> k & 1:
            cycle = thread_ready(s, i, k)
            if cycle >= NEVER:
                unknown = True
            elif cycle < earliest:
                earliest = cycle
    if earliest >= NEVER:
        _watch(s, i)
        return False
    if earliest >= run.limit:
        run.cut = 1
        if unknown:
            _watch(s, i)  # what is not known yet may come before the limit
        return False
    if unknown and earliest > run.now:
        _watch(s, i)
        schedule(s, i, earliest)
        return False
    if picking and first_pick == earliest:
        pick(s, i, earliest)
        return not pe.stopped
    best = np.int64(-1)
    for thread in range(9):
        if thread == 0:
            if pe.task < 0 or main > earliest:
                continue
            priority = np.int64(pe.priority)
        else:
            if not pe.threads >> (thread - 1) & 1 or thread_ready(s, i, thread - 1) > earliest:
                continue
            priority = np.int64(s.vectors[i * contexts + thread].priority)
        turn = thread - pe.last_thread - 1
        if turn < 0:
            turn += 9
        rank = (1 - priority) * 16 + turn
        if rank < best_rank:
            best_rank = rank
            best = np.int64(thread)
    pe.last_thread = best
    if best == 0:
        account(s, i, earliest)
        scalar(s, i, earliest)
        return not pe.stopped
    return issue(s, i, best, earliest)


@jit
def _watch(s, i):
    """Ask to be called when anything changes that this PE waits for."""
    pe = s.pes[i]
    if pe.task >= 0:
        wait_main(s, i)
    else:
        watch_arrivals(s, i)
    for k in range(8):
        if pe.threads >> k & 1:
            wait(s, i, k + 1)
