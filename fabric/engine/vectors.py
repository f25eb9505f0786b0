"""Vector instructions under way: when their next group can issue, what it costs, and issuing it.

See dispatch.py for how they begin.
"""

from __future__ import annotations

import numpy as np

from ...isa.dequantise import Q4_HEADER_BYTES, Q8_HEADER_BYTES
from ...isa.element_types import ElementType
from . import arithmetic as ar
from .jit import jit, jit_inline
from .meaning import element_of
from .memory import (
    READING,
    WRITING,
    access_fault,
    fifo_address,
    group_cost,
    operand_value,
    rate_cost,
    read,
    read16,
    step,
    write,
)
from .pipes import enter, is_control, leave, room, visible
from .state import FABRIC_IN, FABRIC_OUT, FIFO, MEMORY, NEVER, NO_OPERAND

Q4 = int(ElementType.Q4)


@jit
def group_bytes(source, weights):
    """Bytes of one group of packed weights, as isa/dequantise.py lays it out."""
    return Q4_HEADER_BYTES + weights // 2 if source == Q4 else Q8_HEADER_BYTES + weights


@jit
def fifo_header_inside(s, i, o):
    """Whether head index and fill count of a FIFO can be read; if not, its next group issues and faults."""
    return o.base & 1 == 0 and o.base + 4 <= s.kernels[s.pes[i].kernel].data_bytes


@jit
def ready(s, i, context, elements):
    """(first cycle with the next group's inputs there, the same for its outputs); NEVER if unknown."""
    first = (i * s.machine[0].contexts + context) * 3
    inputs = np.int64(0)
    outputs = np.int64(0)
    for k in range(3):
        o = s.operands[first + k]
        if o.kind == FABRIC_IN:
            cycle = visible(s, np.int64(o.pipe))
            if cycle < NEVER and is_control(s, np.int64(o.pipe)):
                cycle = NEVER
            inputs = max(inputs, cycle)
        elif o.kind == FABRIC_OUT:
            outputs = max(outputs, room(s, np.int64(o.pipe)))
        elif o.kind == FIFO and fifo_header_inside(s, i, o):
            fill = read16(s, i * s.machine[0].stride + o.base + 2)
            if k == 0:
                if fill + elements > o.extent0:
                    outputs = NEVER
            elif fill < elements:
                inputs = NEVER
    return inputs, outputs


@jit
def wait(s, i, context):
    """Ask to be called when a queue that the next group lacks changes. Whether one is empty or full."""
    first = (i * s.machine[0].contexts + context) * 3
    lacking = False
    for k in range(3):
        o = s.operands[first + k]
        if o.kind == FABRIC_IN:
            if s.pipes[o.pipe].count == 0:
                s.pipes[o.pipe].consumer_waits = 1
                lacking = True
        elif o.kind == FABRIC_OUT:
            if room(s, np.int64(o.pipe)) == NEVER:
                s.pipes[o.pipe].producer_waits = 1
                lacking = True
    return lacking


@jit
def packed_weight(s, v, o, origin, index):
    """Element `index` of a packed weight operand, as f16 bits."""
    weights = np.int64(v.group_weights)
    group = index // weights
    within = index - group * weights
    if v.s == Q4:
        at = origin + o.base + group * group_bytes(v.s, weights)
        scale = np.uint16(read16(s, at))
        offset = np.uint16(read16(s, at + 2))
        code = s.sram8[at + Q4_HEADER_BYTES + (within >> 1)] >> (4 * (within & 1)) & 15
        return np.uint32(ar.q4_weight(scale, offset, np.uint8(code)))
    at = origin + o.base + group * group_bytes(v.s, weights)
    return np.uint32(ar.q8_weight(np.uint16(read16(s, at)), np.int8(s.sram8[at + Q8_HEADER_BYTES + within])))


@jit
def group_fault(s, i, context, elements):
    """(fault code, argument) of the memory accesses of the next group: sources in order, then the
    destination."""
    machine = s.machine[0]
    v = s.vectors[i * machine.contexts + context]
    first = (i * machine.contexts + context) * 3
    for turn in range(3):
        k = turn + 1 if turn < 2 else 0
        o = s.operands[first + k]
        if o.kind == MEMORY and k == 1 and v.group_weights:
            weights = np.int64(v.group_weights)
            size = group_bytes(v.s, weights)
            done = np.int64(v.elements - v.left)
            for index in range(done, done + elements):
                at = np.int64(o.base) + index // weights * size
                code = access_fault(s, i, at, np.int64(size), READING)
                if code:
                    return code, at
        elif o.kind == MEMORY:
            cursor = (o.address, o.at0, o.at1, o.at2, o.at3)
            for _ in range(elements):
                code = 0
                if k or v.accumulates:
                    code = access_fault(s, i, np.int64(o.address), np.int64(o.bytes), READING)
                if not code and k == 0:
                    code = access_fault(s, i, np.int64(o.address), np.int64(o.bytes), WRITING)
                if code:
                    return code, np.int64(o.address)
                step(o)
            o.address, o.at0, o.at1, o.at2, o.at3 = cursor
        elif o.kind == FIFO:
            for address in (np.int64(o.base), np.int64(o.base) + 2):
                code = access_fault(s, i, address, np.int64(2), READING)
                if code:
                    return code, address
            for index in range(elements):
                address = fifo_address(s, o, i * machine.stride, np.int64(index), np.int64(k == 0))
                code = access_fault(s, i, address, np.int64(o.bytes), np.int64(k == 0))
                if code:
                    return code, address
    return 0, np.int64(0)


@jit
def cost_of_group(s, i, context, elements):
    """(cycles, of which rate) of the next group."""
    v = s.vectors[i * s.machine[0].contexts + context]
    rate_cycles = rate_cost(s, v, elements)
    if v.plain:
        return rate_cycles, rate_cycles
    machine = s.machine[0]
    first = (i * machine.contexts + context) * 3
    return group_cost(s, v, first, i * machine.stride, elements, rate_cycles), rate_cycles


@jit
def _fifo_place(s, o, origin, push):
    """Index of the first element that the next group moves: known before the group changes anything."""
    place = np.int64(0)
    if o.kind == FIFO:
        place = np.int64(read16(s, origin + o.base))
        if push:
            place += np.int64(read16(s, origin + o.base + 2))
    return place


@jit
def _fifo_element(o, origin, place):
    """Arena byte of a FIFO's element."""
    return origin + o.base + 4 + place % np.int64(o.extent0) * o.bytes


@jit
def _fifo_moved(s, o, origin, elements, push):
    """Head index and fill count after a group."""
    if o.kind == FIFO:
        at = origin + o.base
        head = np.int64(read16(s, at))
        fill = np.int64(read16(s, at + 2))
        if not push:
            write(s, at, 2, np.uint32((head + elements) % np.int64(o.extent0)))
        write(s, at + 2, 2, np.uint32((fill + elements if push else fill - elements) & 0xFFFF))


@jit_inline
def as_register(t, bits):
    """A result as a register holds it: i16 sign-extended, everything else zero-extended."""
    if t == 0:
        return np.uint32(np.int32(np.int16(bits)))
    return np.uint32(bits) if t == 1 or t == 3 else np.uint32(np.uint32(bits) & np.uint32(0xFFFF))


@jit
def issue_group(s, i, context, elements, cycle):
    """Execute the next group at `cycle`; everything it needs is there and in range."""
    machine = s.machine[0]
    v = s.vectors[i * machine.contexts + context]
    first = (i * machine.contexts + context) * 3
    d, a, b = s.operands[first], s.operands[first + 1], s.operands[first + 2]
    origin = i * machine.stride
    in_a = np.uint32(0)
    in_b = np.uint32(0)
    out = np.uint32(0)
    if a.kind == FABRIC_IN:
        in_a = leave(s, np.int64(a.pipe), cycle)
    if b.kind == FABRIC_IN:
        in_b = leave(s, np.int64(b.pipe), cycle)
    done = v.elements - v.left
    place_a, place_b = _fifo_place(s, a, origin, READING), _fifo_place(s, b, origin, READING)
    place_d = _fifo_place(s, d, origin, WRITING)
    for k in range(elements):
        if a.kind == FABRIC_IN:
            x = _from_wavelet(a, in_a, k)
        elif a.kind == FIFO:
            x = read(s, _fifo_element(a, origin, place_a + k), np.int64(a.bytes))
        elif v.group_weights:
            x = packed_weight(s, v, a, origin, done + k)
        else:
            x = operand_value(s, a, origin)
            if a.kind == MEMORY:
                step(a)
        y = np.uint32(0)
        if b.kind == FABRIC_IN:
            y = _from_wavelet(b, in_b, k)
        elif b.kind == FIFO:
            y = read(s, _fifo_element(b, origin, place_b + k), np.int64(b.bytes))
        elif b.kind != NO_OPERAND:
            y = operand_value(s, b, origin)
            if b.kind == MEMORY:
                step(b)
        if d.kind == MEMORY:
            at = origin + d.address
            present = read(s, at, d.bytes) if v.accumulates else np.uint32(0)
            write(s, at, d.bytes, element_of(v, present, x, y))
            step(d)
        elif d.kind == NO_OPERAND:
            s.registers[i, v.rd] = as_register(v.t, element_of(v, s.registers[i, v.rd], x, y))
        else:
            value = element_of(v, np.uint32(0), x, y)
            if d.kind == FIFO:
                write(s, _fifo_element(d, origin, place_d + k), np.int64(d.bytes), value)
            elif d.per_wavelet == 2:
                out = np.uint32(out | (value & np.uint32(0xFFFF)) << np.uint32(16 * k))
            elif d.bytes == 2:
                out = np.uint32(value & np.uint32(0xFFFF) | np.uint32(v.index & 0xFFFF) << np.uint32(16))
                v.index += 1
            else:
                out = value
    if d.kind == FABRIC_OUT:
        enter(s, np.int64(d.pipe), out, np.int64(d.control), cycle)
    _fifo_moved(s, a, origin, np.int64(elements), READING)
    _fifo_moved(s, b, origin, np.int64(elements), READING)
    _fifo_moved(s, d, origin, np.int64(elements), WRITING)
    v.left -= elements


@jit
def _from_wavelet(o, word, k):
    if o.per_wavelet == 2:
        return np.uint32(word >> np.uint32(16 * k) & np.uint32(0xFFFF))
    return np.uint32(word & np.uint32(0xFFFF)) if o.bytes == 2 else word
