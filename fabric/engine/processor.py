"""A PE's compute engine: which task, which thread, and scalar instructions.

`run_pe` lets one PE go on as far as what it knows allows. A choice that depends on what has not arrived yet is taken only at
calendar time (events.py); everything else runs ahead of the others.
"""

from __future__ import annotations

import numpy as np

from ...isa.instructions import BY_NAME
from ...isa.program import TaskKind
from ..outcome import Cycle, FaultCode
from . import arithmetic_by_type as by
from .bulk import all_elements
from .events import schedule
from .jit import jit
from .memory import READING, access_fault, read, read16, whole_cost, write
from .pipes import enter, first_word, is_control, leave, room, visible
from .state import NEVER, NO_OPERAND
from .stream import batch
from .vectors import NOT_LOADED, as_register, begin, cost_of_group, group_fault, issue_group, ready, release, wait

COMPUTE, BANK, SETUP, BRANCH, LATENCY, RECEIVE, SEND, IDLE = (int(c) for c in Cycle)
LOCAL, DATA, CONTROL = int(TaskKind.LOCAL), int(TaskKind.DATA), int(TaskKind.CONTROL)
ILLEGAL, PC, QUEUE_BUSY, QUEUE_UNBOUND, NO_TASK, NO_CONTROL_TASK, TRAP_FAULT, THREAD_BUSY, DESCRIPTOR = (
    int(FaultCode[name])
    for name in (
        "ILLEGAL", "PC", "QUEUE_BUSY", "QUEUE_UNBOUND", "NO_TASK", "NO_CONTROL_TASK", "TRAP", "THREAD_BUSY",
        "DESCRIPTOR",
    )
)
(ADD, SUB, MUL, AND, OR, XOR, SHL, SHR, SAR, ADDI, MULI, ANDI, SHLI, SHRI, SARI, LI, LI32) = (
    BY_NAME[n].opcode
    for n in "add sub mul and or xor shl shr sar addi muli andi shli shri sari li li32".split()
)
BEQ, BNE, BLT, BGE, BLTU, BGEU, JMP, JAL, JR = (
    BY_NAME[n].opcode for n in "beq bne blt bge bltu bgeu jmp jal jr".split()
)
FADD, FSUB, FMUL, FMAC, FMAX, FLT, FLE, CVT, FRCP, FRSQRT, FEXP, FLOG, FDIV = (
    BY_NAME[n].opcode for n in "fadd fsub fmul fmac fmax flt fle cvt frcp frsqrt fexp flog fdiv".split()
)
LD, ST, LDM, STM, LDD, SETD, ADDD, SEND_WORD, SEND_CONTROL, RECV = (
    BY_NAME[n].opcode for n in "ld st ldm stm ldd setd addd send sendc recv".split()
)
ACTIVATE, BLOCK, UNBLOCK, END, DONE, TSC, TRAP, ASSERT = (
    BY_NAME[n].opcode for n in "activate block unblock end done tsc trap assert".split()
)
NOTHING, THEN_ACTIVATE, THEN_UNBLOCK = range(3)
SYNCHRONOUS = np.int64(0)  # vector context of the main thread
NONE, ONE = np.int64(0), np.int64(1)
GO_ON, SLEEP = True, False


# --- faults and accounting ---


@jit
def fault(s, i, cycle, code, argument, pc):
    """Stop PE i with a fault of the instruction at `pc` at `cycle`; the run ends after the earliest one."""
    pe = s.pes[i]
    pe.stopped = 1
    account(s, i, cycle)
    if code != NO_CONTROL_TASK and pe.clock <= cycle:
        hold(s, i, cycle, ONE, ONE)  # what faulted was issued; of a completion, its group already was
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
    """Charge the cycles [accounted, until) in which nothing issued: up to `setup` set-up, then branch, latency, receive, send."""
    pe = s.pes[i]
    at = pe.accounted
    counters = s.counters[i]
    for reason, end in ((SETUP, setup), (BRANCH, branch), (LATENCY, latency), (RECEIVE, receive), (SEND, until)):
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
    latency, receive, _ = _main_waits(s, i)
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


# --- the main thread ---


@jit
def _registers_ready(s, i, c):
    """First cycle in which all registers of a scalar instruction or vector dispatch can be used."""
    ready_at = s.ready[i]
    op = c.op
    if op <= 0:
        return np.int64(0)  # no instruction: a fault at once
    if c.vector:
        cycle = ready_at[c.rd] if c.to_register else np.int64(0)
        if c.scalar:
            cycle = max(cycle, ready_at[c.ra] if c.sources == 1 else ready_at[c.rb])
        return cycle
    if op <= SAR or (op >= FADD and op <= FLE) or op == FDIV:
        return max(ready_at[c.rd], ready_at[c.ra], ready_at[c.rb])
    if op <= SARI or (op >= BEQ and op <= BGEU) or op == LD or op == ST or (op >= CVT and op <= FLOG):
        return max(ready_at[c.rd], ready_at[c.ra])
    if op == LI or op == LI32 or op == JAL or op == LDM or op == STM or op == TSC:
        return ready_at[c.rd]
    if op == JR or op == SETD or op == ADDD or (op >= SEND_WORD and op <= RECV) or op == ASSERT:
        return ready_at[c.ra]
    return np.int64(0)


@jit
def _code_index(s, i):
    return s.kernels[s.pes[i].kernel].code + s.pes[i].pc


@jit
def _main_waits(s, i):
    """(registers ready, input there, room there) of the running task's next instruction; NEVER where unknown."""
    c = s.code[_code_index(s, i)]
    receive = np.int64(0)
    send = np.int64(0)
    if c.op == RECV:
        p = np.int64(s.pe_in[i, c.queue])
        pe = s.pes[i]
        if p >= 0 and not (pe.in_busy | s.kernels[pe.kernel].data_queues) >> c.queue & 1:
            receive = visible(s, p)
            if receive < NEVER and is_control(s, p):
                receive = NEVER
    elif c.op == SEND_WORD or c.op == SEND_CONTROL:
        p = np.int64(s.pe_out[i, c.queue])
        if p >= 0 and not s.pes[i].out_busy >> c.queue & 1:
            send = room(s, p)
    return _registers_ready(s, i, c), receive, send


@jit
def main_ready(s, i):
    """First cycle in which the running task's next instruction can issue, other threads apart; NEVER if unknown."""
    latency, receive, send = _main_waits(s, i)
    pe = s.pes[i]
    return max(pe.clock, pe.branch_ready, latency, receive, send)


@jit
def _wait_main(s, i):
    """Ask to be called when the queue changes that the next instruction lacks."""
    c = s.code[_code_index(s, i)]
    if c.op == RECV and s.pe_in[i, c.queue] >= 0:
        s.pipes[s.pe_in[i, c.queue]].consumer_waits = 1
    elif (c.op == SEND_WORD or c.op == SEND_CONTROL) and s.pe_out[i, c.queue] >= 0:
        s.pipes[s.pe_out[i, c.queue]].producer_waits = 1


@jit
def scalar(s, i, cycle):
    """Issue the running task's next instruction at `cycle`: a scalar one, or the dispatch of a vector one."""
    pe = s.pes[i]
    c = s.code[_code_index(s, i)]
    op = c.op
    if op <= 0:
        if op < 0:
            fault(s, i, cycle, np.int64(PC), pe.target, pe.target)
        else:
            fault(s, i, cycle, np.int64(ILLEGAL), np.int64(c.word), np.int64(pe.pc))
        return
    s.recent[i, pe.instructions & 7] = pe.pc
    pe.instructions += 1
    if c.vector:
        _dispatch(s, i, c, cycle)
        return
    r = s.registers[i]
    next_pc = np.int64(pe.pc) + c.words
    if op <= LI32:
        r[c.rd] = _integer(np.int64(op), r[c.ra], r[c.rb], c.imm)
        s.ready[i, c.rd] = cycle + 1
    elif op <= BGEU:
        taken = _compare(op, r[c.rd], r[c.ra])
        if taken:
            next_pc = pe.pc + c.imm
            pe.branch_ready = cycle + s.machine[0].branch_taken
        else:
            pe.branch_ready = cycle + s.machine[0].branch_not_taken
    elif op <= JR:
        if op == JR:
            next_pc = np.int64(r[c.ra])
        else:
            if op == JAL:
                r[c.rd] = np.uint32(next_pc)
                s.ready[i, c.rd] = cycle + 1
            next_pc = pe.pc + c.imm
        pe.branch_ready = cycle + s.machine[0].branch_taken
    elif op <= FDIV:
        result = _floating(np.int64(op), np.int64(c.t), np.int64(c.s), r[c.rd], r[c.ra], r[c.rb])
        r[c.rd] = as_register(c.t, result) if op == CVT else result
        s.ready[i, c.rd] = cycle + c.latency
    else:
        if not _other(s, i, c, cycle):
            return
    hold(s, i, cycle, ONE, ONE)
    words = s.kernels[pe.kernel].code_words
    pe.since = max(cycle + 1, pe.branch_ready)
    pe.target = next_pc
    # Behind the last word stands a sentinel that faults.
    pe.pc = next_pc if 0 <= next_pc < words else words


@jit
def _integer(op, a, b, imm):
    immediate = np.uint32(imm)
    if op == ADDI:
        return a + immediate
    if op == ADD:
        return a + b
    if op == LI or op == LI32:
        return immediate
    if op == SUB:
        return a - b
    if op == MUL:
        return a * b
    if op == AND:
        return a & b
    if op == OR:
        return a | b
    if op == XOR:
        return a ^ b
    if op == MULI:
        return a * immediate
    if op == ANDI:
        return a & immediate
    if op >= SHLI:
        b = immediate
        op -= SHLI - SHL
    if op == SHL:
        return a << b if b < 32 else np.uint32(0)
    if op == SHR:
        return a >> b if b < 32 else np.uint32(0)
    return np.uint32(np.int32(a) >> np.int32(min(b, np.uint32(31))))


@jit
def _compare(op, a, b):
    if op == BNE:
        return a != b
    if op == BEQ:
        return a == b
    if op == BLT:
        return np.int32(a) < np.int32(b)
    if op == BGE:
        return np.int32(a) >= np.int32(b)
    return a < b if op == BLTU else a >= b


@jit
def _floating(op, t, source, d, a, b):
    if op == FADD:
        return by.add(t, a, b, t)
    if op == FMUL:
        return by.mul(t, a, b)
    if op == FSUB:
        return by.sub(t, a, b, t)
    if op == FMAC:
        return by.mac(t, source, d, a, b)
    if op == FMAX:
        return as_register(t, by.maximum(t, a, b))
    if op == FLT:
        return np.uint32(by.less(t, a, b))
    if op == FLE:
        return np.uint32(by.less_equal(t, a, b))
    if op == CVT:
        return by.convert(t, source, a)
    if op == FRCP:
        return by.reciprocal(t, a)
    if op == FRSQRT:
        return by.reciprocal_square_root(t, a)
    if op == FEXP:
        return by.exp(t, a)
    if op == FLOG:
        return by.log(t, a)
    return by.divide(t, a, b)


@jit
def _other(s, i, c, cycle):
    """Memory, descriptors, fabric, tasks. False if it faulted or has set the program counter itself."""
    pe = s.pes[i]
    op = c.op
    if op <= STM:
        return _load_store(s, i, c, cycle)
    if op <= ADDD:
        return _descriptor(s, i, c, cycle)
    if op <= RECV:
        return _queue(s, i, c, cycle)
    if op <= UNBLOCK:
        slot = s.task_slot[pe.kernel, c.task]
        local = slot >= 0 and s.tasks[s.kernels[pe.kernel].first_task + slot].kind == LOCAL
        if slot < 0 or (op == ACTIVATE and not local):
            fault(s, i, cycle, np.int64(NO_TASK), np.int64(c.task), np.int64(pe.pc))
            return False
        if op == ACTIVATE:
            activate(s, i, np.int64(slot), cycle)
        elif op == BLOCK:
            pe.blocked |= np.uint32(1) << np.uint32(slot)
        else:
            unblock(s, i, np.int64(slot), cycle)
        return True
    if op == END:
        pe.task = -1
        pe.task_free = cycle + 1
        pe.priority = 0
        hold(s, i, cycle, ONE, ONE)
        return False
    if op == DONE:
        pe.done = 1
    elif op == TSC:
        s.registers[i, c.rd] = np.uint32(cycle & 0xFFFFFFFF)
        s.ready[i, c.rd] = cycle + 1
    elif op == TRAP or s.registers[i, c.ra] == 0:
        fault(s, i, cycle, np.int64(TRAP_FAULT), np.int64(c.imm), np.int64(pe.pc))
        return False
    return True


@jit
def _load_store(s, i, c, cycle):
    pe = s.pes[i]
    size = 4 if c.t == 1 or c.t == 3 else 2
    address = np.int64(c.imm)
    if c.op <= ST:
        address = (address + np.int64(s.registers[i, c.ra])) & 0xFFFFFFFF
    storing = c.op == ST or c.op == STM
    code = access_fault(s, i, address, np.int64(size), np.int64(storing))
    if code:
        fault(s, i, cycle, np.int64(code), address, np.int64(pe.pc))
        return False
    at = i * s.machine[0].stride + address
    if storing:
        write(s, at, np.int64(size), s.registers[i, c.rd])
    else:
        value = read(s, at, np.int64(size))
        if c.t == 0:
            value = np.uint32(np.int32(np.int16(value)))
        s.registers[i, c.rd] = value
        s.ready[i, c.rd] = cycle + 1
    return True


@jit
def _descriptor(s, i, c, cycle):
    """ldd, setd, addd."""
    pe = s.pes[i]
    register = c.rd
    d = s.descriptors[i * s.machine[0].descriptors + s.descriptor_slot[register]]
    if c.op == LDD:
        at = i * s.machine[0].stride + np.int64(c.imm)
        code = access_fault(s, i, np.int64(c.imm), np.int64(2), READING)
        if code:
            fault(s, i, cycle, np.int64(code), np.int64(c.imm), np.int64(pe.pc))
            return False
        flags = read16(s, at)
        dimensions = (flags >> 2 & 3) + 1
        for k in range(1, 2 + 2 * dimensions):
            code = access_fault(s, i, np.int64(c.imm) + 2 * k, np.int64(2), READING)
            if code:
                fault(s, i, cycle, np.int64(code), np.int64(c.imm) + 2 * k, np.int64(pe.pc))
                return False
        if flags >> 9:
            fault(s, i, cycle, np.int64(DESCRIPTOR), np.int64(register), np.int64(pe.pc))
            return False
        d[0] = np.uint16(flags)
        d[1] = np.uint16(read16(s, at + 2))
        for k in range(4):
            d[2 + k] = np.uint16(read16(s, at + 4 + 2 * k)) if k < dimensions else 1
            d[6 + k] = np.uint16(read16(s, at + 4 + 2 * dimensions + 2 * k)) if k < dimensions else 0
        return True
    part = c.imm
    value = s.registers[i, c.ra]
    place = 1 + part  # base, extent0..3, stride0..3
    if d[0] == NOT_LOADED or (part > 0 and (part - 1) % 4 > (d[0] >> 2 & 3)):
        fault(s, i, cycle, np.int64(DESCRIPTOR), np.int64(register), np.int64(pe.pc))
        return False
    d[place] = np.uint16(value + d[place] if c.op == ADDD else value)
    return True


@jit
def _queue(s, i, c, cycle):
    """send, sendc, recv; the wavelet or the room is there."""
    pe = s.pes[i]
    bit = 1 << c.queue
    if c.op == RECV:
        p = np.int64(s.pe_in[i, c.queue])
        if p < 0:
            fault(s, i, cycle, np.int64(QUEUE_UNBOUND), np.int64(c.queue), np.int64(pe.pc))
            return False
        if pe.in_busy & bit or s.kernels[pe.kernel].data_queues & bit:
            fault(s, i, cycle, np.int64(QUEUE_BUSY), np.int64(c.queue), np.int64(pe.pc))
            return False
        s.registers[i, c.ra] = leave(s, p, cycle)
        s.ready[i, c.ra] = cycle + 1
        return True
    p = np.int64(s.pe_out[i, c.queue])
    if p < 0:
        fault(s, i, cycle, np.int64(QUEUE_UNBOUND), np.int64(c.queue), np.int64(pe.pc))
        return False
    if pe.out_busy & bit:
        fault(s, i, cycle, np.int64(QUEUE_BUSY), np.int64(c.queue), np.int64(pe.pc))
        return False
    enter(s, p, s.registers[i, c.ra], np.int64(c.op == SEND_CONTROL), cycle)
    return True


# --- tasks ---


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
    """(first cycle in which a task could be picked, whether an arrival not known yet could make it earlier or other)."""
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


# --- vector instructions under way ---


@jit
def _dispatch(s, i, c, cycle):
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
        if slot < 0 or (v.completion == THEN_ACTIVATE and s.tasks[s.kernels[pe.kernel].first_task + slot].kind != LOCAL):
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
        while batch(s, i, SYNCHRONOUS) and v.left and s.run[0].budget >= 0:
            pass
        if not v.left:
            complete(s, i, SYNCHRONOUS, pe.clock - 1)
            return GO_ON
        if s.run[0].budget < 0:
            return GO_ON
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
def run_alone(s, i):
    """The running task with no microthread beside it. GO_ON when something else has to be looked at, else SLEEP."""
    pe = s.pes[i]
    run = s.run[0]
    limit = run.limit
    while pe.task >= 0 and not pe.threads and not pe.synchronous:
        if pe.stopped:
            return SLEEP
        cycle = main_ready(s, i)
        if cycle >= NEVER:
            _wait_main(s, i)
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
    """One step of a PE without a running task or with microthreads: pick a task, or issue from one thread. False to sleep."""
    pe = s.pes[i]
    run = s.run[0]
    if pe.task < 0 and not pe.arrivals and not pe.pending and pe.threads & (pe.threads - np.uint16(1)) == 0 and pe.threads:
        return _run_thread(s, i)
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
            cycle = _thread_ready(s, i, k)
            if cycle >= NEVER:
                unknown = True
            elif cycle < earliest:
                earliest = cycle
    if earliest >= NEVER:
        _watch(s, i)
        return False
    if earliest >= run.limit:
        run.cut = 1
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
            if not pe.threads >> (thread - 1) & 1 or _thread_ready(s, i, thread - 1) > earliest:
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
def _run_thread(s, i):
    """A single microthread on an otherwise idle PE that no arrival can start a task on: a stream. False to sleep."""
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
        return True
    while pe.threads and not pe.pending:
        cycle = _thread_ready(s, i, k)
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
def _thread_ready(s, i, k):
    """First cycle in which microthread k could issue, others apart; NEVER if unknown."""
    v = s.vectors[i * s.machine[0].contexts + k + 1]
    inputs, outputs = ready(s, i, k + 1, np.int64(min(v.left, v.group)))
    return max(s.pes[i].clock, v.start, inputs, outputs)


@jit
def _watch(s, i):
    """Ask to be called when anything changes that this PE waits for."""
    pe = s.pes[i]
    if pe.task >= 0:
        _wait_main(s, i)
    else:
        watch_arrivals(s, i)
    for k in range(8):
        if pe.threads >> k & 1:
            wait(s, i, k + 1)
