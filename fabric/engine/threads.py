"""Vector instructions as threads of a PE: dispatch, the synchronous one, microthreads, completion."""

from __future__ import annotations

import numpy as np

from ..outcome import FaultCode
from .accounts import ONE, SYNCHRONOUS, account, fault, hold
from .bulk import all_elements
from .dispatch import begin, release
from .jit import jit
from .memory import whole_cost
from .state import NEVER, NO_OPERAND
from .stream import batch
from .tasks import LOCAL, activate, unblock
from .vectors import cost_of_group, group_fault, issue_group, ready, wait

NO_TASK, THREAD_BUSY = int(FaultCode.NO_TASK), int(FaultCode.THREAD_BUSY)
NOTHING, THEN_ACTIVATE, THEN_UNBLOCK = range(3)
GO_ON, SLEEP = True, False


@jit
def dispatch(s, i, c, cycle):
    """Issue a vector instruction: it holds the engine, or becomes a microthread."""
    pe = s.pes[i]
    context = c.thread + 1 if c.asynchronous else 0
    if c.asynchronous and pe.threads >> c.thread & 1:
        fault(s, i, cycle, np.int64(THREAD_BUSY), np.int64(c.thread), np.int64(pe.pc))
        return
    code, argument = begin(s, i, c, context, cycle)
    if code:
        fault(s, i, cycle, np.int64(code), argument, np.int64(pe.pc))
        return
    account(s, i, cycle)
    hold(s, i, cycle, ONE, ONE)
    pe.pc += c.words
    pe.target = pe.pc
    pe.since = cycle + 1
    v = s.vectors[i * s.machine[0].contexts + context]
    if c.asynchronous:
        pe.threads |= np.uint16(1 << c.thread)
    else:
        pe.synchronous = 1
    if v.left == 0:
        complete(s, i, context, cycle)


@jit
def complete(s, i, context, cycle):
    """The vector of a context issued its last group at `cycle`."""
    pe = s.pes[i]
    v = s.vectors[i * s.machine[0].contexts + context]
    release(s, i, context)
    if context == 0:
        pe.synchronous = 0
        pe.since = pe.clock
        if s.operands[i * s.machine[0].contexts * 3].kind == NO_OPERAND and v.elements:
            s.ready[i, v.rd] = pe.clock - 1 + s.machine[0].writeback
        return
    pe.threads &= np.uint16(~np.uint16(1 << (context - 1)))
    if v.completion != NOTHING:
        slot = s.task_slot[pe.kernel, v.task]
        if slot < 0 or (
            v.completion == THEN_ACTIVATE and s.tasks[s.kernels[pe.kernel].first_task + slot].kind != LOCAL
        ):
            fault(s, i, cycle, np.int64(NO_TASK), np.int64(v.task), np.int64(v.pc))
        elif v.completion == THEN_ACTIVATE:
            activate(s, i, np.int64(slot), cycle)
        else:
            unblock(s, i, np.int64(slot), cycle)


@jit
def issue(s, i, context, cycle):
    """Issue the next group of a context at `cycle`. False if it faulted."""
    v = s.vectors[i * s.machine[0].contexts + context]
    elements = np.int64(min(v.left, v.group))
    if v.guarded:
        code, argument = group_fault(s, i, context, elements)
        if code:
            fault(s, i, cycle, np.int64(code), argument, np.int64(v.pc))
            return False
    cost, rate_cycles = cost_of_group(s, i, context, elements)
    account(s, i, cycle)
    issue_group(s, i, context, elements, cycle)
    hold(s, i, cycle, cost, rate_cycles)
    v.since = cycle + cost
    if v.left == 0:
        complete(s, i, context, cycle)
    return True


@jit
def run_synchronous(s, i):
    """Go on with the vector that holds the engine. GO_ON when it is complete, else SLEEP."""
    pe = s.pes[i]
    v = s.vectors[i * s.machine[0].contexts]
    limit = s.run[0].limit
    if not v.fabric and not v.guarded and v.left == v.elements:
        start = max(pe.clock, v.start)
        cycles, bank = whole_cost(s, v, i * s.machine[0].contexts * 3)
        if start + cycles <= limit:
            account(s, i, start)
            all_elements(s, i, SYNCHRONOUS)
            hold(s, i, start, cycles, cycles - bank)
            pe.last_bank = 0
            complete(s, i, SYNCHRONOUS, start)
            return GO_ON
    if v.streams:
        batch(s, i, SYNCHRONOUS)
        if not v.left:
            complete(s, i, SYNCHRONOUS, pe.clock - 1)
            return GO_ON
        if s.run[0].budget < 0:
            return GO_ON
        if wait(s, i, SYNCHRONOUS):
            return SLEEP
    while pe.synchronous:
        elements = np.int64(min(v.left, v.group))
        inputs, outputs = ready(s, i, SYNCHRONOUS, elements)
        cycle = max(pe.clock, v.start, inputs, outputs)
        if cycle >= NEVER:
            wait(s, i, SYNCHRONOUS)
            return SLEEP
        if cycle >= limit:
            s.run[0].cut = 1
            return SLEEP
        if not issue(s, i, SYNCHRONOUS, cycle):
            return SLEEP
        if s.run[0].budget < 0:
            return GO_ON
    return GO_ON


@jit
def run_thread(s, i):
    """A single microthread on an otherwise idle PE that no arrival can start a task on: a stream. False to
    sleep."""
    pe = s.pes[i]
    run = s.run[0]
    k = 0
    while not pe.threads >> k & 1:
        k += 1
    v = s.vectors[i * s.machine[0].contexts + k + 1]
    if v.streams and batch(s, i, k + 1):
        pe.last_thread = k + 1
        if not v.left:
            complete(s, i, k + 1, pe.clock - 1)
        return run.budget < 0 or not v.left or not wait(s, i, k + 1)
    while pe.threads and not pe.pending:
        cycle = thread_ready(s, i, k)
        if cycle >= NEVER:
            wait(s, i, k + 1)
            return False
        if cycle >= run.limit:
            run.cut = 1
            return False
        pe.last_thread = k + 1
        if not issue(s, i, k + 1, cycle):
            return False
        if run.budget < 0:
            return True
    return True


@jit
def thread_ready(s, i, k):
    """First cycle in which microthread k could issue, others apart; NEVER if unknown."""
    v = s.vectors[i * s.machine[0].contexts + k + 1]
    inputs, outputs = ready(s, i, k + 1, np.int64(min(v.left, v.group)))
    return max(s.pes[i].clock, v.start, inputs, outputs)
