"""Dispatch of vector instructions: operands from descriptor registers, the checks of docs/machine.md §7,
queues.

An instruction under way is a VECTOR record with three OPERANDs (d, a, b). Context 0 of a PE is its
synchronous instruction, context 1 + k microthread k.
"""

from __future__ import annotations

import numpy as np

from ...isa.program import DescriptorKind
from ..outcome import FaultCode
from .jit import jit
from .memory import inside, rewind, run_length
from .opcodes import VMAC
from .state import CONSTANT, FABRIC_IN, FABRIC_OUT, FIFO, MEMORY, NO_OPERAND
from .vectors import group_bytes

D_MEMORY, D_IN, D_OUT, D_FIFO = (
    int(DescriptorKind.MEMORY),
    int(DescriptorKind.FABRIC_IN),
    int(DescriptorKind.FABRIC_OUT),
    int(DescriptorKind.FIFO),
)
EXTENT, DESCRIPTOR = int(FaultCode.EXTENT), int(FaultCode.DESCRIPTOR)
QUEUE_BUSY, QUEUE_UNBOUND = int(FaultCode.QUEUE_BUSY), int(FaultCode.QUEUE_UNBOUND)
TOO_MANY = np.int64(1) << np.int64(31)  # elements: so many, or more, are an extent fault
NOT_LOADED = np.uint16(0xFFFF)  # flags of a descriptor register that was never loaded


@jit
def _operand(s, i, o, register, size, weights, source):
    """Set up operand `o` from a descriptor register; returns its element count, or -1 if the descriptor is
    no good.

    `weights`: weights per group of a packed source, else 0.
    """
    d = s.descriptors[i * s.machine[0].descriptors + s.descriptor_slot[register]]
    flags = d[0]
    if flags == NOT_LOADED:
        return np.int64(-1)
    kind = flags & 3
    dimensions = (flags >> 2 & 3) + 1
    packed = flags >> 8 & 1
    o.bytes = size
    o.control = flags >> 7 & 1
    o.queue = flags >> 4 & 7
    o.per_wavelet = 2 if packed else 1
    o.base = d[1]
    o.extent0, o.extent1, o.extent2, o.extent3 = 1, 1, 1, 1
    o.stride0, o.stride1, o.stride2, o.stride3 = 0, 0, 0, 0
    o.repeat = 255
    rewind(o)
    if kind != D_MEMORY and weights:
        return np.int64(-1)
    if kind == D_IN or kind == D_OUT:
        if dimensions != 1 or (packed and (size != 2 or d[2] & 1)):
            return np.int64(-1)
        o.kind = FABRIC_IN if kind == D_IN else FABRIC_OUT
        o.pipe = s.pe_in[i, o.queue] if kind == D_IN else s.pe_out[i, o.queue]
        return np.int64(d[2])
    if kind == D_FIFO:
        if dimensions != 2 or d[3] == 0:
            return np.int64(-1)
        o.kind = FIFO
        o.extent0 = d[3]
        return np.int64(d[2])
    o.kind = MEMORY
    if weights and (dimensions != 1 or d[2] % weights):
        return np.int64(-1)
    elements = np.int64(1)
    for k in range(dimensions):
        extent = np.int32(d[2 + dimensions - 1 - k])  # the last dimension first
        stride = np.int32(np.int16(d[6 + dimensions - 1 - k]))
        elements = min(elements * extent, TOO_MANY)
        if stride == 0 and o.repeat == 255:
            o.repeat = 3 - k
        if k == 0:
            o.extent3, o.stride3 = extent, stride
        elif k == 1:
            o.extent2, o.stride2 = extent, stride
        elif k == 2:
            o.extent1, o.stride1 = extent, stride
        else:
            o.extent0, o.stride0 = extent, stride
    if weights:
        o.stride3 = 0  # one group after another; packed_weight finds the bytes of an element by its index
        o.bytes = 1
    return elements


@jit
def _constant(o, value, size):
    """A register as a source: of a 16-bit type its low half."""
    o.kind = CONSTANT
    o.value = value if size == 4 else value & np.uint32(0xFFFF)


@jit
def _inner_extent(o):
    """Product of the extents inside the repeating dimension."""
    inner = np.int64(1)
    if o.repeat < 3:
        inner *= o.extent3
    if o.repeat < 2:
        inner *= o.extent2
    if o.repeat < 1:
        inner *= o.extent1
    return inner


@jit
def _is_bound(o):
    return (o.kind != FABRIC_IN and o.kind != FABRIC_OUT) or o.pipe >= 0


@jit
def _claim(s, i, o):
    """Claim the queue of a fabric operand; False if something uses it."""
    pe = s.pes[i]
    bit = np.uint8(1 << o.queue)
    if o.kind == FABRIC_IN:
        if pe.in_busy & bit or s.kernels[pe.kernel].data_queues >> o.queue & 1:
            return False
        pe.in_busy |= bit
    elif o.kind == FABRIC_OUT:
        if pe.out_busy & bit:
            return False
        pe.out_busy |= bit
    return True


@jit
def _operands(s, i, c, v, first):
    """Set up a, b, d. (fault code, argument, elements of a, of b, of d); -2 elements: no descriptor."""
    d, a, b = s.operands[first], s.operands[first + 1], s.operands[first + 2]
    size_t = 4 if c.t == 1 or c.t == 3 else 2
    size_s = 4 if c.s == 1 or c.s == 3 else 2
    none = np.int64(-2)
    count_a, count_b, count_d = none, none, none
    d.kind, a.kind, b.kind = NO_OPERAND, NO_OPERAND, NO_OPERAND
    if c.sources == 1 and c.scalar:
        _constant(a, s.registers[i, c.ra], size_s)
    else:
        count_a = _operand(s, i, a, c.ra, size_s, np.int64(v.group_weights), c.s)
        if count_a < 0 or a.kind == FABRIC_OUT:
            return DESCRIPTOR, np.int64(c.ra), none, none, none
    if c.sources == 2:
        if c.scalar:
            _constant(b, s.registers[i, c.rb], size_s)
        else:
            count_b = _operand(s, i, b, c.rb, size_s, np.int64(0), c.s)
            if count_b < 0 or b.kind == FABRIC_OUT:
                return DESCRIPTOR, np.int64(c.rb), none, none, none
    if not c.to_register:
        count_d = _operand(s, i, d, c.rd, size_t, np.int64(0), c.t)
        if count_d < 0 or d.kind == FABRIC_IN or (v.accumulates and d.kind != MEMORY):
            return DESCRIPTOR, np.int64(c.rd), none, none, none
    return 0, np.int64(0), count_a, count_b, count_d


@jit
def begin(s, i, c, context, cycle):
    """Dispatch instruction `c` of PE i into a context at `cycle`. Returns (fault code, argument), (0, 0) if
    all is well.

    A vector without elements is left with left = 0: complete.
    """
    v = s.vectors[i * s.machine[0].contexts + context]
    first = (i * s.machine[0].contexts + context) * 3
    pe = s.pes[i]
    d = s.operands[first]
    v.op, v.t, v.s = c.op, c.t, c.s
    v.pc = pe.pc
    v.priority, v.completion, v.task, v.rd = c.priority, c.completion, c.task, c.rd
    v.start = cycle + c.lead
    v.since = v.start
    v.per_cycle, v.per_element = c.per_cycle, c.per_element
    v.group_weights = c.group
    v.accumulates = 1 if c.op == VMAC else 0
    v.index = 0
    code, argument, count_a, count_b, count_d = _operands(s, i, c, v, first)
    if code:
        return code, argument
    # All fabric operands carry as many elements per wavelet, and a FIFO can hold as many.
    per_wavelet = np.int64(0)
    v.fabric = 0
    for turn in range(3):
        o = s.operands[first + (turn + 1) % 3]
        if o.kind == FABRIC_IN or o.kind == FABRIC_OUT:
            if per_wavelet and o.per_wavelet != per_wavelet:
                return DESCRIPTOR, np.int64(c.ra if turn == 0 else c.rb if turn == 1 else c.rd)
            per_wavelet = np.int64(o.per_wavelet)
            v.fabric = 1
    group = per_wavelet if per_wavelet else np.int64(v.per_cycle)
    for turn in range(3):
        o = s.operands[first + (turn + 1) % 3]
        if o.kind == FIFO:
            if per_wavelet > o.extent0:
                return DESCRIPTOR, np.int64(c.ra if turn == 0 else c.rb if turn == 1 else c.rd)
            v.fabric = 1
            group = min(group, np.int64(o.extent0))
    if c.asynchronous and not v.fabric:
        return DESCRIPTOR, np.int64(c.rd)
    elements = count_a if c.to_register else count_d
    if count_a != -2 and (count_a != elements or elements == TOO_MANY):
        return EXTENT, count_a
    if count_b != -2 and count_b != elements:
        return EXTENT, count_b
    if elements == TOO_MANY:
        return EXTENT, elements
    for turn in range(3):
        o = s.operands[first + (turn + 1) % 3]
        if not _is_bound(o):
            return QUEUE_UNBOUND, np.int64(o.queue)
    for turn in range(3):
        o = s.operands[first + (turn + 1) % 3]
        if not _claim(s, i, o):
            return QUEUE_BUSY, np.int64(o.queue)
    v.elements = elements
    v.left = elements
    v.group = group
    v.resident = 0
    if v.accumulates and d.repeat != 255 and elements:
        inner = _inner_extent(d)
        if inner <= s.machine[0].accumulators:
            v.resident = inner
    _look_ahead(s, pe, v, first)
    # A register in two places moves once, as the last of a, b, d says.
    by_d = not c.to_register
    if c.advance_a and not (c.advance_d and by_d and c.rd == c.ra) and not (c.advance_b and c.rb == c.ra):
        _advance(s, i, c.ra, np.int64(v.group_weights), c.s)
    if c.advance_b and not (c.advance_d and by_d and c.rd == c.rb):
        _advance(s, i, c.rb, np.int64(0), c.s)
    if c.advance_d:
        _advance(s, i, c.rd, np.int64(0), c.s)
    return 0, np.int64(0)


@jit
def _look_ahead(s, pe, v, first):
    """Decide once what need not be looked at group by group: addresses in range, banks that cannot clash."""
    data = s.kernels[pe.kernel].data_bytes
    v.guarded = s.machine[0].strict
    accesses = 0
    simple = True
    for k in range(3):
        o = s.operands[first + k]
        if o.kind == MEMORY and k == 1 and v.group_weights:
            groups = np.int64(v.elements) // v.group_weights
            if o.base & 1 or o.base + groups * group_bytes(v.s, np.int64(v.group_weights)) > data:
                v.guarded = 1
        elif o.kind == MEMORY:
            if not inside(o, data):
                v.guarded = 1
            accesses += 1
            # A group of at most two elements of one dense operand cannot clash with itself.
            simple = simple and abs(o.stride3) <= 4 and (o.extent3 % 2 == 0 or v.group == 1)
        elif o.kind == FIFO:
            v.guarded = 1
            simple = False
    v.plain = (
        v.fabric
        and s.machine[0].banks > 2  # two unaligned elements of 32 bits stand in three words
        and v.group <= 2
        and simple
        and accesses <= 1
        and not v.accumulates
    )
    v.streams = v.plain and not v.guarded and not v.group_weights and s.operands[first].kind != NO_OPERAND
    for k in range(3):
        if run_length(s.operands[first + k], np.int64(v.elements)) != v.elements:
            v.streams = 0


@jit
def _advance(s, i, register, weights, source):
    """Leave a descriptor register behind its outermost extent."""
    d = s.descriptors[i * s.machine[0].descriptors + s.descriptor_slot[register]]
    distance = np.int64(d[2]) * np.int64(np.int16(d[6]))
    if weights:
        distance = np.int64(d[2]) // weights * group_bytes(source, weights)
    d[1] = np.uint16((np.int64(d[1]) + distance) & 0xFFFF)


@jit
def release(s, i, context):
    """Give back the queues of a completed vector."""
    first = (i * s.machine[0].contexts + context) * 3
    pe = s.pes[i]
    for k in range(3):
        o = s.operands[first + k]
        if o.kind == FABRIC_IN:
            pe.in_busy &= np.uint8(~np.uint8(1 << o.queue))
        elif o.kind == FABRIC_OUT:
            pe.out_busy &= np.uint8(~np.uint8(1 << o.queue))
