"""Who acts next: a stack of items that can go on, and a calendar of items that wait for a cycle.

An item is a PE, a stream channel, an arbiter or a host lane (numbered in this order, see State.machine).
Everything an item does at cycle t becomes visible to others at t + 1 or later, so at calendar time t
everything up to t is known.
"""

from __future__ import annotations

import numpy as np

from .jit import jit
from .state import NEVER


@jit
def wake(s, item):
    """Let `item` act as soon as possible. No effect if it is waiting to act already."""
    if item >= 0 and not s.queued[item]:
        run = s.run[0]
        s.queued[item] = True
        s.work[run.work] = item
        run.work += 1


@jit
def schedule(s, item, cycle):
    """Let `item` act at calendar time `cycle`, unless it does so earlier anyway."""
    if cycle >= s.event[item]:
        return
    s.event[item] = cycle
    run = s.run[0]
    if run.events == len(s.heap_time):
        _drop_stale(s)
    i = run.events
    run.events += 1
    while i > 0:
        parent = (i - 1) >> 1
        if s.heap_time[parent] <= cycle:
            break
        s.heap_time[i] = s.heap_time[parent]
        s.heap_item[i] = s.heap_item[parent]
        i = parent
    s.heap_time[i] = cycle
    s.heap_item[i] = item


@jit
def next_event(s):
    """Cycle of the earliest event, NEVER if there is none."""
    run = s.run[0]
    while run.events > 0:
        if s.heap_time[0] == s.event[s.heap_item[0]]:
            return s.heap_time[0]
        _remove_first(s)
    return NEVER


@jit
def take_event(s):
    """Remove the earliest event and return its item. There must be one."""
    item = s.heap_item[0]
    s.event[item] = NEVER
    _remove_first(s)
    return item


@jit
def _remove_first(s):
    run = s.run[0]
    run.events -= 1
    n = run.events
    cycle = s.heap_time[n]
    item = np.int64(s.heap_item[n])
    _sink_into(s, np.int64(0), n, cycle, item)


@jit
def _sink_into(s, i, n, cycle, item):
    """Put (cycle, item) into the hole at i of a heap of n entries."""
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if child + 1 < n and s.heap_time[child + 1] < s.heap_time[child]:
            child += 1
        if s.heap_time[child] >= cycle:
            break
        s.heap_time[i] = s.heap_time[child]
        s.heap_item[i] = s.heap_item[child]
        i = child
    s.heap_time[i] = cycle
    s.heap_item[i] = item


@jit
def _drop_stale(s):
    """Remove entries that an earlier one of the same item has made void, and order the rest again.

    Capacity is one entry per item and some more, and an item has one valid entry, so there is room
    afterwards.
    """
    run = s.run[0]
    n = 0
    for i in range(run.events):
        if s.heap_time[i] == s.event[s.heap_item[i]]:
            s.heap_time[n] = s.heap_time[i]
            s.heap_item[n] = s.heap_item[i]
            n += 1
    for i in range(n // 2 - 1, -1, -1):
        _sink_into(s, np.int64(i), n, s.heap_time[i], np.int64(s.heap_item[i]))
    run.events = n
