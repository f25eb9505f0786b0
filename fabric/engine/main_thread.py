"""The running task's next instruction: what it waits for. Decides nothing and changes nothing."""

from __future__ import annotations

import numpy as np

from .jit import jit
from .opcodes import (
    ADDD,
    ASSERT,
    BEQ,
    BGEU,
    CVT,
    FADD,
    FDIV,
    FLE,
    FLOG,
    JAL,
    JR,
    LD,
    LDM,
    LI,
    LI32,
    RECV,
    SAR,
    SARI,
    SEND,
    SENDC,
    SETD,
    ST,
    STM,
    TSC,
)
from .pipes import is_control, room, visible
from .state import NEVER


@jit
def registers_ready(s, i, c):
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
    if op == JR or op == SETD or op == ADDD or (op >= SEND and op <= RECV) or op == ASSERT:
        return ready_at[c.ra]
    return np.int64(0)


@jit
def code_index(s, i):
    """Index into `code` of the running task's next instruction."""
    return s.kernels[s.pes[i].kernel].code + s.pes[i].pc


@jit
def main_waits(s, i):
    """(registers ready, input there, room there) of the task's next instruction; NEVER where unknown."""
    c = s.code[code_index(s, i)]
    receive = np.int64(0)
    send = np.int64(0)
    if c.op == RECV:
        p = np.int64(s.pe_in[i, c.queue])
        pe = s.pes[i]
        if p >= 0 and not (pe.in_busy | s.kernels[pe.kernel].data_queues) >> c.queue & 1:
            receive = visible(s, p)
            if receive < NEVER and is_control(s, p):
                receive = NEVER
    elif c.op == SEND or c.op == SENDC:
        p = np.int64(s.pe_out[i, c.queue])
        if p >= 0 and not s.pes[i].out_busy >> c.queue & 1:
            send = room(s, p)
    return registers_ready(s, i, c), receive, send


@jit
def main_ready(s, i):
    """First cycle in which the running task's next instruction can issue, other threads apart; NEVER if
    unknown."""
    latency, receive, send = main_waits(s, i)
    pe = s.pes[i]
    return max(pe.clock, pe.branch_ready, latency, receive, send)


@jit
def wait_main(s, i):
    """Ask to be called when the queue changes that the next instruction lacks."""
    c = s.code[code_index(s, i)]
    if c.op == RECV and s.pe_in[i, c.queue] >= 0:
        s.pipes[s.pe_in[i, c.queue]].consumer_waits = 1
    elif (c.op == SEND or c.op == SENDC) and s.pe_out[i, c.queue] >= 0:
        s.pipes[s.pe_out[i, c.queue]].producer_waits = 1
