"""FIFOs between producers and consumers: entry, exit, and when either is possible.

A slot that holds a wavelet carries the cycle from which it can leave; a free slot carries the cycle from
which it can be filled. Whoever finds a pipe empty or full and wants to be called sets its waiting flag.
"""

from __future__ import annotations

import numpy as np

from .events import schedule, wake
from .jit import jit, jit_inline
from .state import NEVER

RESERVE = 4096


@jit_inline
def visible(s, p):
    """Cycle from which the first wavelet can leave; NEVER if there is none yet."""
    q = s.pipes[p]
    if q.count == 0:
        return NEVER
    return max(s.ring_time[q.base + q.tail] >> 1, q.free)


@jit_inline
def is_control(s, p):
    """Whether the first wavelet (there must be one) is a control wavelet."""
    q = s.pipes[p]
    return (s.ring_time[q.base + q.tail] & 1) == 1


@jit_inline
def first_word(s, p):
    """Payload of the first wavelet (there must be one)."""
    q = s.pipes[p]
    return s.ring_value[q.base + q.tail]


@jit_inline
def room(s, p):
    """Cycle from which the next wavelet can enter; NEVER if all slots are full."""
    q = s.pipes[p]
    if q.count == q.capacity:
        return NEVER
    return s.ring_time[q.base + q.head]


@jit
def enter(s, p, word, control, cycle):
    """Let a wavelet enter at `cycle` (room must have been found) and call the consumer if it waits."""
    q = s.pipes[p]
    if q.to_host:
        _to_host(s, p, word, control, cycle)
        return
    slot = q.base + q.head
    s.ring_value[slot] = word
    s.ring_time[slot] = (cycle + q.latency) << 1 | control
    q.head += 1
    if q.head == q.capacity:
        q.head = 0
    q.count += 1
    q.entered += 1
    if q.consumer_waits:
        q.consumer_waits = 0
        wake(s, np.int64(q.consumer))


@jit
def leave(s, p, cycle):
    """Take the first wavelet out at `cycle`, call the producer if it waits, and return the payload."""
    q = s.pipes[p]
    slot = q.base + q.tail
    word = s.ring_value[slot]
    s.ring_time[slot] = cycle + q.reverse
    q.tail += 1
    if q.tail == q.capacity:
        q.tail = 0
    q.count -= 1
    q.free = cycle + 1
    if q.producer_waits:
        q.producer_waits = 0
        wake(s, np.int64(q.producer))
    return word


@jit
def _to_host(s, p, word, control, cycle):
    """The host takes whatever arrives at once."""
    q = s.pipes[p]
    q.entered += 1
    run = s.run[0]
    arrival = cycle + q.latency
    if run.sunk + RESERVE >= len(s.sunk_word):
        run.budget = -1  # back to Python, which makes room; every loop stops within the reserve
    s.sunk_word[run.sunk] = word
    s.sunk_time[run.sunk] = arrival << 1 | control
    s.sunk_lane[run.sunk] = q.consumer
    run.sunk += 1
    run.last = max(run.last, arrival)
    run.progress = max(run.progress, arrival)


@jit
def feed(s, lane):
    """Input lane of an edge port: send as many words as there is room for."""
    source = s.sources[lane]
    p = np.int64(source.pipe)
    while source.next < source.stop:
        cycle = room(s, p)
        if cycle == NEVER:
            s.pipes[p].producer_waits = 1
            return
        due = s.source_time[source.next]
        cycle = max(cycle, source.free, due)
        if due > s.run[0].now:
            s.run[0].progress = max(s.run[0].progress, cycle)  # it will come: no livelock before
            schedule(s, s.machine[0].first_source + lane, due)
            return
        if cycle >= s.run[0].limit:
            s.run[0].cut = 1
            return
        if s.run[0].budget < 0:
            schedule(s, s.machine[0].first_source + lane, s.run[0].now)
            return
        enter(s, p, s.source_word[source.next], np.int64(s.source_control[source.next]), cycle)
        s.run[0].progress = max(s.run[0].progress, cycle)
        source.free = cycle + 1
        source.next += 1
