"""The fast path of vectors with a fabric operand: one wavelet per group, dense memory, nothing to check.

Takes as many groups at once as its pipes allow without asking anybody: all of them are known. Same meaning
as `issue` in processor.py, group by group; only the bookkeeping is done once per batch.
"""

from __future__ import annotations

import numpy as np

from ...isa.element_types import ElementType
from ..outcome import Cycle
from . import arithmetic as ar
from .events import wake
from .jit import jit
from .meaning import element
from .memory import read16, read32, write
from .opcodes import VADD, VMOV
from .pipes import enter
from .state import FABRIC_IN, FABRIC_OUT, MEMORY

F32 = int(ElementType.F32)
COMPUTE, SETUP, RECEIVE, SEND = int(Cycle.COMPUTE), int(Cycle.SETUP), int(Cycle.RECEIVE), int(Cycle.SEND)


@jit
def batch(s, i, context):
    """Issue as many groups of a streaming vector as are known to be possible; returns how many.

    The vector must be marked `streams`, and its PE must have nothing else to issue.
    """
    contexts = s.machine[0].contexts
    v = s.vectors[i * contexts + context]
    first = (i * contexts + context) * 3
    d, a, b = s.operands[first], s.operands[first + 1], s.operands[first + 2]
    pe = s.pes[i]
    run = s.run[0]
    origin = i * s.machine[0].stride
    group = np.int64(v.group)
    groups = np.int64(v.left) // group
    pa, pb, pd = s.pipes[max(a.pipe, 0)], s.pipes[max(b.pipe, 0)], s.pipes[max(d.pipe, 0)]
    from_a, from_b, to_d = a.kind == FABRIC_IN, b.kind == FABRIC_IN, d.kind == FABRIC_OUT
    if from_a:
        groups = min(groups, np.int64(pa.count))
    if from_b:
        groups = min(groups, np.int64(pb.count))
    to_host = to_d and pd.to_host
    if to_d and not to_host:
        groups = min(groups, np.int64(pd.capacity - pd.count))
    if groups <= 0:
        return 0
    cost = max(
        np.int64(1), group * v.per_element if v.per_element > 1 else -(-group // np.int64(v.per_cycle))
    )
    # Everything the loop uses is copied: compiled code cannot know that rings and records do not overlap.
    op, t, source = np.int64(v.op), np.int64(v.t), np.int64(v.s)
    start, limit = v.start, run.limit
    at_a, at_b, at_d = origin + a.address, origin + b.address, origin + d.address
    step_a, step_b, step_d = np.int64(a.stride3), np.int64(b.stride3), np.int64(d.stride3)
    size_a, size_b, size_d = np.int64(a.bytes), np.int64(b.bytes), np.int64(d.bytes)
    memory_a, memory_b, pairs = a.kind == MEMORY, b.kind == MEMORY, d.per_wavelet == 2
    base_a, slot_a, end_a, reverse_a, free_a = (
        pa.base,
        pa.base + pa.tail,
        pa.base + pa.capacity,
        pa.reverse,
        pa.free,
    )
    base_b, slot_b, end_b, reverse_b, free_b = (
        pb.base,
        pb.base + pb.tail,
        pb.base + pb.capacity,
        pb.reverse,
        pb.free,
    )
    base_d, slot_d, end_d, latency_d = pd.base, pd.base + pd.head, pd.base + pd.capacity, pd.latency
    control_d = np.int64(d.control)
    index = np.int64(v.index)
    clock = pe.clock
    setup = np.int64(0)
    receive = np.int64(0)
    send = np.int64(0)
    done = np.int64(0)
    issued = np.int64(0)
    x = a.value
    y = b.value
    word_a = np.uint32(0)
    word_b = np.uint32(0)
    while done < groups:
        inputs = np.int64(0)
        if from_a:
            time = s.ring_time[slot_a]
            if time & 1:
                break  # a control wavelet: not for this operation
            inputs = max(time >> 1, free_a)
        if from_b:
            time = s.ring_time[slot_b]
            if time & 1:
                break
            inputs = max(inputs, time >> 1, free_b)
        outputs = np.int64(0)
        if to_d and not to_host:
            outputs = s.ring_time[slot_d]
        ready = max(clock, start)
        cycle = max(ready, inputs, outputs)
        if cycle >= limit:
            run.cut = 1
            break
        setup += ready - clock
        arrived = max(ready, inputs)
        receive += arrived - ready
        send += cycle - arrived
        if from_a:
            word_a = s.ring_value[slot_a]
            s.ring_time[slot_a] = cycle + reverse_a
            slot_a += 1
            if slot_a == end_a:
                slot_a = base_a
        if from_b:
            word_b = s.ring_value[slot_b]
            s.ring_time[slot_b] = cycle + reverse_b
            slot_b += 1
            if slot_b == end_b:
                slot_b = base_b
        out = np.uint32(0)
        for k in range(group):
            if from_a:
                x = word_a if size_a == 4 else np.uint32(word_a >> np.uint32(16 * k) & np.uint32(0xFFFF))
            elif memory_a:
                x = read16(s, at_a) if size_a == 2 else read32(s, at_a)
                at_a += step_a
            if from_b:
                y = word_b if size_b == 4 else np.uint32(word_b >> np.uint32(16 * k) & np.uint32(0xFFFF))
            elif memory_b:
                y = read16(s, at_b) if size_b == 2 else read32(s, at_b)
                at_b += step_b
            if op == VMOV:
                value = x
            elif op == VADD and t == F32:
                value = ar.add_f32(x, y)
            else:
                value = element(op, t, source, np.uint32(0), x, y)
            if not to_d:
                write(s, at_d, size_d, value)
                at_d += step_d
            elif pairs:
                out = np.uint32(out | (value & np.uint32(0xFFFF)) << np.uint32(16 * k))
            elif size_d == 2:
                out = np.uint32(value & np.uint32(0xFFFF) | np.uint32(index & 0xFFFF) << np.uint32(16))
                index += 1
            else:
                out = value
        if to_host:
            enter(s, np.int64(d.pipe), out, control_d, cycle)
        elif to_d:
            s.ring_value[slot_d] = out
            s.ring_time[slot_d] = (cycle + latency_d) << 1 | control_d
            slot_d += 1
            if slot_d == end_d:
                slot_d = base_d
        clock = cycle + cost
        issued = cycle
        done += 1
        if to_host and run.budget < 0:
            break
    if not done:
        return 0
    counters = s.counters[i]
    counters[SETUP] += setup
    counters[RECEIVE] += receive
    counters[SEND] += send
    counters[COMPUTE] += done * cost
    pe.clock = clock
    pe.accounted = clock
    pe.last_issue = clock - 1
    pe.last_bank = 0
    v.left -= done * group
    v.since = clock
    v.index = index
    a.address, b.address, d.address = at_a - origin, at_b - origin, at_d - origin
    if from_a:
        pa.tail = slot_a - base_a
        _left(s, pa, done, issued)
    if from_b:
        pb.tail = slot_b - base_b
        _left(s, pb, done, issued)
    if to_d and not to_host:
        pd.head = slot_d - base_d
        pd.count += done
        pd.entered += done
        if pd.consumer_waits:
            pd.consumer_waits = 0
            wake(s, np.int64(pd.consumer))
    run.budget -= done >> 4
    return done


@jit
def _left(s, pipe, done, last):
    """`done` wavelets have left a pipe, the last one in cycle `last`."""
    pipe.count -= done
    pipe.free = last + 1
    if pipe.producer_waits:
        pipe.producer_waits = 0
        wake(s, np.int64(pipe.producer))
