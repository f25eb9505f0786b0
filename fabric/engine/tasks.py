"""Tasks: activation, blocking, and which one a PE picks (docs/machine.md §6)."""

from __future__ import annotations

import numpy as np

from ...isa.program import TaskKind
from .accounts import NO_CONTROL_TASK, account, fault
from .jit import jit
from .pipes import first_word, is_control, leave, visible
from .state import NEVER

LOCAL, DATA, CONTROL = int(TaskKind.LOCAL), int(TaskKind.DATA), int(TaskKind.CONTROL)


@jit
def activate(s, i, slot, cycle):
    """Make a local task pending; no effect if it is."""
    pe = s.pes[i]
    bit = np.uint32(1) << np.uint32(slot)
    if not pe.pending & bit:
        pe.pending |= bit
        s.task_time[i * s.machine[0].slots + slot] = max(s.task_time[i * s.machine[0].slots + slot], cycle)


@jit
def unblock(s, i, slot, cycle):
    """Let a task be picked from the next cycle on."""
    pe = s.pes[i]
    bit = np.uint32(1) << np.uint32(slot)
    if pe.blocked & bit:
        pe.blocked &= ~bit
        s.task_time[i * s.machine[0].slots + slot] = max(s.task_time[i * s.machine[0].slots + slot], cycle)


@jit
def earliest_pick(s, i):
    """(first cycle in which a task could be picked, whether an arrival not known yet could make it earlier
    or other)."""
    pe = s.pes[i]
    kernel = s.kernels[pe.kernel]
    earliest = NEVER
    unknown = False
    for slot in range(kernel.n_tasks):
        bit = np.uint32(1) << np.uint32(slot)
        task = s.tasks[kernel.first_task + slot]
        if task.kind == LOCAL and pe.pending & bit and not pe.blocked & bit:
            earliest = min(earliest, s.task_time[i * s.machine[0].slots + slot] + 1)
    arrivals = pe.arrivals
    queue = 0
    while arrivals >> queue:
        if arrivals >> queue & 1:
            p = np.int64(s.pe_in[i, queue])
            cycle = visible(s, p)
            if cycle == NEVER:
                unknown = True
            elif is_control(s, p):
                earliest = min(earliest, _control_pick(s, i, p, cycle))
            else:
                slot = s.task_slot[pe.kernel, 32 + queue]
                if slot >= 0 and not pe.blocked >> np.uint32(slot) & 1:
                    earliest = min(earliest, max(cycle, s.task_time[i * s.machine[0].slots + slot]) + 1)
        queue += 1
    if earliest < NEVER:
        earliest = max(earliest, pe.task_free, pe.clock)
    return earliest, unknown


@jit
def _control_pick(s, i, p, cycle):
    """First cycle in which the control wavelet at the head of pipe p could start its task (or fault)."""
    pe = s.pes[i]
    slot = s.task_slot[pe.kernel, first_word(s, p) >> np.uint32(24) & 31]
    if slot >= 0 and s.tasks[s.kernels[pe.kernel].first_task + slot].kind == CONTROL:
        if pe.blocked >> np.uint32(slot) & 1:
            return NEVER
        return max(cycle, s.task_time[i * s.machine[0].slots + slot]) + 1
    return cycle + 1


@jit
def watch_arrivals(s, i):
    """Ask to be called when a wavelet arrives that could start a task."""
    pe = s.pes[i]
    for queue in range(8):
        if pe.arrivals >> queue & 1:
            p = np.int64(s.pe_in[i, queue])
            if s.pipes[p].count == 0:
                s.pipes[p].consumer_waits = 1


@jit
def pick(s, i, cycle):
    """Choose and start a task at `cycle`: high priority first, then the lowest id."""
    pe = s.pes[i]
    kernel = s.kernels[pe.kernel]
    best = np.int64(-1)
    best_priority = np.int64(-1)
    best_pipe = np.int64(-1)
    for queue in range(8):
        if not pe.arrivals >> queue & 1:
            continue
        p = np.int64(s.pe_in[i, queue])
        if visible(s, p) >= cycle:
            continue
        if is_control(s, p):
            named = np.int64(first_word(s, p) >> np.uint32(24) & 31)
            slot = s.task_slot[pe.kernel, named]
            if slot < 0 or s.tasks[kernel.first_task + slot].kind != CONTROL:
                account(s, i, cycle)
                fault(s, i, cycle, np.int64(NO_CONTROL_TASK), named, np.int64(-1))
                return
        else:
            slot = s.task_slot[pe.kernel, 32 + queue]
            if slot < 0:
                continue
        if pe.blocked >> np.uint32(slot) & 1 or s.task_time[i * s.machine[0].slots + slot] >= cycle:
            continue
        priority = s.tasks[kernel.first_task + slot].priority
        if priority > best_priority or (priority == best_priority and slot < best):
            best, best_priority, best_pipe = np.int64(slot), np.int64(priority), np.int64(p)
    for slot in range(kernel.n_tasks):
        task = s.tasks[kernel.first_task + slot]
        if task.kind != LOCAL or not pe.pending >> np.uint32(slot) & 1 or pe.blocked >> np.uint32(slot) & 1:
            continue
        if s.task_time[i * s.machine[0].slots + slot] >= cycle:
            continue
        if task.priority > best_priority or (task.priority == best_priority and slot < best):
            best, best_priority, best_pipe = np.int64(slot), np.int64(task.priority), np.int64(-1)
    account(s, i, cycle)
    task = s.tasks[kernel.first_task + best]
    pe.task = best
    pe.priority = task.priority
    pe.pc = task.pc
    pe.target = task.pc
    pe.branch_ready = 0
    pe.clock = max(pe.clock, cycle)
    pe.since = cycle
    if best_pipe >= 0:
        s.registers[i, 0] = leave(s, best_pipe, cycle)
        s.ready[i, 0] = cycle
    else:
        pe.pending &= ~(np.uint32(1) << np.uint32(best))
