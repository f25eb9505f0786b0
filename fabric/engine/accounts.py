"""Every cycle of a PE has one reason (docs/machine.md §8): charging them, holding the engine, and faults."""

from __future__ import annotations

import numpy as np

from ..outcome import Cycle, FaultCode
from .jit import jit
from .main_thread import main_waits
from .vectors import ready

COMPUTE, BANK, SETUP, BRANCH, LATENCY, RECEIVE, SEND, IDLE = (int(c) for c in Cycle)
NO_CONTROL_TASK = int(FaultCode.NO_CONTROL_TASK)
SYNCHRONOUS = np.int64(0)  # vector context of the main thread
NONE, ONE = np.int64(0), np.int64(1)


@jit
def fault(s, i, cycle, code, argument, pc):
    """Stop PE i with a fault of the instruction at `pc` at `cycle`; the run ends after the earliest one."""
    pe = s.pes[i]
    pe.stopped = 1
    account(s, i, cycle)
    if code != NO_CONTROL_TASK and pe.clock <= cycle:
        hold(s, i, cycle, ONE, ONE)  # what faulted was issued; of a completion, its group already was
    elif code == NO_CONTROL_TASK and pe.threads:
        k = 0
        while not pe.threads >> k & 1:
            k += 1
        v = s.vectors[i * s.machine[0].contexts + k + 1]
        inputs, outputs = ready(s, i, np.int64(k + 1), np.int64(min(v.left, v.group)))
        if max(v.start, inputs, outputs) <= cycle:  # nobody waits, and nobody issues in this cycle
            s.counters[i, IDLE] += 1
            pe.accounted = cycle + 1
    run = s.run[0]
    if cycle < run.fault_cycle or (cycle == run.fault_cycle and i < run.fault_pe):
        run.fault_cycle = cycle
        run.fault_pe = i
        run.fault_code = code
        run.fault_pc = pc
        run.fault_argument = argument
    run.limit = min(run.limit, cycle + 1)


@jit
def charge(s, i, until, setup, branch, latency, receive):
    """Charge the cycles [accounted, until) in which nothing issued: up to `setup` set-up, then branch,
    latency, receive, send."""
    pe = s.pes[i]
    at = pe.accounted
    counters = s.counters[i]
    for reason, end in (
        (SETUP, setup),
        (BRANCH, branch),
        (LATENCY, latency),
        (RECEIVE, receive),
        (SEND, until),
    ):
        end = min(end, until)
        if end > at:
            counters[reason] += end - at
            at = end
    pe.accounted = max(pe.accounted, until)


@jit
def account(s, i, until):
    """Charge the cycles before `until` in which PE i issued nothing."""
    pe = s.pes[i]
    if pe.accounted >= until:
        return
    if pe.synchronous:
        _account_vector(s, i, SYNCHRONOUS, until)
    elif pe.task >= 0:
        _account_main(s, i, until)
    elif pe.threads:
        k = 0
        while not pe.threads >> k & 1:
            k += 1
        _account_vector(s, i, k + 1, until)
    else:
        s.counters[i, IDLE] += until - pe.accounted
        pe.accounted = until


@jit
def _account_vector(s, i, context, until):
    v = s.vectors[i * s.machine[0].contexts + context]
    receive, _ = ready(s, i, context, np.int64(min(v.left, v.group)))
    charge(s, i, until, v.start, NONE, NONE, receive)


@jit
def _account_main(s, i, until):
    pe = s.pes[i]
    latency, receive, _ = main_waits(s, i)
    charge(s, i, until, NONE, pe.branch_ready, latency, receive)


@jit
def hold(s, i, cycle, cost, rate_cycles):
    """The engine of PE i is held for `cost` cycles from `cycle` on."""
    pe = s.pes[i]
    s.counters[i, COMPUTE] += rate_cycles
    s.counters[i, BANK] += cost - rate_cycles
    pe.last_bank = cost - rate_cycles
    pe.clock = cycle + cost
    pe.accounted = cycle + cost
    pe.last_issue = cycle + cost - 1
