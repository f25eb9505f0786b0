"""Scalar instructions of the main thread: one arm per row of the instruction table."""

from __future__ import annotations

import numpy as np

from ..outcome import FaultCode
from . import arithmetic_by_type as by
from .accounts import ONE, fault, hold
from .dispatch import D_OUT, NOT_LOADED
from .jit import jit
from .main_thread import code_index
from .memory import READING, access_fault, read, read16, write
from .opcodes import (
    ACTIVATE,
    ADD,
    ADDD,
    ADDI,
    AND,
    ANDI,
    BEQ,
    BGE,
    BGEU,
    BLOCK,
    BLT,
    BLTU,
    BNE,
    CVT,
    DONE,
    END,
    FADD,
    FDIV,
    FEXP,
    FLE,
    FLOG,
    FLT,
    FMAC,
    FMAX,
    FMUL,
    FRCP,
    FRSQRT,
    FSUB,
    JAL,
    JR,
    LDD,
    LI,
    LI32,
    MUL,
    MULI,
    OR,
    RECV,
    SENDC,
    SHL,
    SHLI,
    SHR,
    ST,
    STM,
    SUB,
    TRAP,
    TSC,
    UNBLOCK,
    XOR,
)
from .pipes import enter, leave
from .tasks import LOCAL, activate, unblock
from .threads import dispatch
from .vectors import as_register

ILLEGAL, PC, QUEUE_BUSY, QUEUE_UNBOUND, NO_TASK, TRAP_FAULT, DESCRIPTOR = (
    int(FaultCode[name])
    for name in ("ILLEGAL", "PC", "QUEUE_BUSY", "QUEUE_UNBOUND", "NO_TASK", "TRAP", "DESCRIPTOR")
)


@jit
def scalar(s, i, cycle):
    """Issue the running task's next instruction at `cycle`: a scalar one, or the dispatch of a vector one."""
    pe = s.pes[i]
    c = s.code[code_index(s, i)]
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
        dispatch(s, i, c, cycle)
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
        if flags & 3 == D_OUT and flags >> 7 & 1:
            if not s.kernels[pe.kernel].control_queues >> (flags >> 4 & 7) & 1:
                s.run[0].trouble = 1  # routes were set up without control wavelets of this queue
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
    enter(s, p, s.registers[i, c.ra], np.int64(c.op == SENDC), cycle)
    return True
