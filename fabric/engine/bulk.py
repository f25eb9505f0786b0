"""Memory-only vector instructions at once: the values of all elements, without their times.

Same results as issuing group by group, since elements are computed in order and nobody else touches this
PE's memory meanwhile. Runs are the longest stretch in which every operand moves by one stride; common
operations on dense runs have loops that vectorise, everything else goes element by element.
"""

from __future__ import annotations

import numpy as np

from ...isa.dequantise import Q4_HEADER_BYTES
from ...isa.element_types import ElementType
from . import arithmetic as ar
from . import integers
from .bitcasts import f32_from_bits, f32_from_f16
from .jit import jit
from .meaning import element_of
from .memory import operand_value, read16, read32, run_length, span, step, write
from .opcodes import VADD, VDEQ, VMAC, VMOV, VMUL, VRED, VSUB
from .state import CONSTANT, MEMORY, NO_OPERAND
from .vectors import Q4, as_register, group_bytes, packed_weight

U1, U3, U4, U5, U6, U7, U15 = (np.uint64(n) for n in (1, 3, 4, 5, 6, 7, 15))
F16, F32, I16, I32 = int(ElementType.F16), int(ElementType.F32), int(ElementType.I16), int(ElementType.I32)


@jit
def _gcd(a, b):
    while b:
        a, b = b, a % b
    return a


@jit
def _skip(o, n):
    """Move an address generator on by n elements, n a divisor of its run length."""
    if o.kind != MEMORY:
        return
    o.at3 += n
    if o.at3 < o.extent3:
        o.address += n * o.stride3
        return
    rest = o.at3 // o.extent3
    o.at3 -= rest * o.extent3
    o.at2 += rest
    rest = o.at2 // o.extent2
    o.at2 -= rest * o.extent2
    o.at1 += rest
    rest = o.at1 // o.extent1
    o.at1 -= rest * o.extent1
    o.at0 += rest
    o.address = o.base + o.at0 * o.stride0 + o.at1 * o.stride1 + o.at2 * o.stride2 + o.at3 * o.stride3


@jit
def all_elements(s, i, context):
    """Compute every element of a memory-only vector that has not begun."""
    machine = s.machine[0]
    v = s.vectors[i * machine.contexts + context]
    first = (i * machine.contexts + context) * 3
    d, a, b = s.operands[first], s.operands[first + 1], s.operands[first + 2]
    origin = i * machine.stride
    if v.op == VDEQ:
        _dequantise(s, v, d, a, origin)
    elif d.kind == NO_OPERAND:
        _reduce(s, i, v, a, b, origin)
    elif v.op == VMAC and v.t == F32 and v.s == F16 and _blocked(s, v, d, a, b, origin):
        pass
    else:
        n = np.int64(v.elements)
        run = _gcd(run_length(d, n), _gcd(run_length(a, n), run_length(b, n)))
        for _ in range(n // run):
            _run(s, v, d, a, b, origin, run)
            _skip(d, run)
            _skip(a, run)
            _skip(b, run)
    v.left = 0


@jit
def _apart(o, at, dense, size, at_d, n):
    """Whether computing n dense results at halfword at_d in any order leaves what operand `o` still has to
    give."""
    if o.kind != MEMORY or (at == at_d and dense and o.bytes == size):
        return True
    return at >= at_d + n * size // 2 or at_d >= at + n * o.bytes // 2


@jit
def _run(s, v, d, a, b, origin, n):
    """n elements, each operand with its innermost stride."""
    m = s.sram16
    size = d.bytes
    dense_d = d.stride3 == size
    dense_a = a.kind == MEMORY and a.stride3 == a.bytes
    fixed_b = b.kind != MEMORY or b.stride3 == 0
    dense_b = b.kind == MEMORY and b.stride3 == b.bytes
    at_d = origin + d.address >> 1
    at_a = origin + a.address >> 1
    at_b = origin + b.address >> 1
    # Runs that overlap without being the same elements must go one by one, in order.
    apart = _apart(a, at_a, dense_a, size, at_d, n) and _apart(b, at_b, dense_b, size, at_d, n)
    if dense_d and apart and size == 2 and v.t == v.s:
        if v.op == VMOV and a.kind == CONSTANT:
            value = np.uint16(a.value & np.uint32(0xFFFF))
            for k in range(n):
                m[at_d + k] = value
            return
        if dense_a:
            if v.op == VMOV:
                for k in range(n):
                    m[at_d + k] = m[at_a + k]
                return
            if fixed_b and v.t == F16:
                y = np.uint16(operand_value(s, b, origin) & np.uint32(0xFFFF)) if b.kind else np.uint16(0)
                if v.op == VMAC:
                    for k in range(n):
                        m[at_d + k] = ar.mac_f16(m[at_d + k], m[at_a + k], y)
                    return
                if v.op == VMUL:
                    for k in range(n):
                        m[at_d + k] = ar.mul_f16(m[at_a + k], y)
                    return
            if dense_b and v.t == F16:
                if v.op == VADD:
                    for k in range(n):
                        m[at_d + k] = ar.add_f16(m[at_a + k], m[at_b + k])
                    return
                if v.op == VMUL:
                    for k in range(n):
                        m[at_d + k] = ar.mul_f16(m[at_a + k], m[at_b + k])
                    return
                if v.op == VMAC:
                    for k in range(n):
                        m[at_d + k] = ar.mac_f16(m[at_d + k], m[at_a + k], m[at_b + k])
                    return
            if dense_b and v.t == I16 and v.op == VADD:
                for k in range(n):
                    m[at_d + k] = integers.add_i16(m[at_a + k], m[at_b + k])
                return
    if dense_d and size == 4 and at_d & 1 == 0:
        if _run_f32(s, v, a, b, origin, n, at_d, at_a, at_b, dense_a, dense_b, fixed_b, apart):
            return
    _one_by_one(s, v, d, a, b, origin, n)


@jit
def _run_f32(s, v, a, b, origin, n, at_d, at_a, at_b, dense_a, dense_b, fixed_b, apart):
    """32-bit destinations; False if there is no loop for this case."""
    if not apart:
        return False
    m = s.sram32
    half = s.sram16
    at_d >>= 1
    if v.t == F32 and v.s == F16 and v.op == VMAC and dense_a:
        if fixed_b and b.kind:
            y = np.uint16(operand_value(s, b, origin) & np.uint32(0xFFFF))
            for k in range(n):
                m[at_d + k] = ar.mac_f32_f16(m[at_d + k], half[at_a + k], y)
            return True
        if dense_b:
            for k in range(n):
                m[at_d + k] = ar.mac_f32_f16(m[at_d + k], half[at_a + k], half[at_b + k])
            return True
        return False
    if v.t != v.s:
        return False
    if v.op == VMOV and a.kind == CONSTANT:
        for k in range(n):
            m[at_d + k] = a.value
        return True
    if not dense_a or at_a & 1:
        return False
    at_a >>= 1
    if v.op == VMOV:
        for k in range(n):
            m[at_d + k] = m[at_a + k]
        return True
    if v.t != F32:
        return False
    if dense_b and at_b & 1 == 0:
        at_b >>= 1
        if v.op == VADD:
            for k in range(n):
                m[at_d + k] = ar.add_f32(m[at_a + k], m[at_b + k])
            return True
        if v.op == VSUB:
            for k in range(n):
                m[at_d + k] = ar.sub_f32(m[at_a + k], m[at_b + k])
            return True
        if v.op == VMUL:
            for k in range(n):
                m[at_d + k] = ar.mul_f32(m[at_a + k], m[at_b + k])
            return True
    elif fixed_b and b.kind:
        y = operand_value(s, b, origin)
        if v.op == VMUL:
            for k in range(n):
                m[at_d + k] = ar.mul_f32(m[at_a + k], y)
            return True
        if v.op == VMAC:
            for k in range(n):
                m[at_d + k] = ar.mac_f32(m[at_d + k], m[at_a + k], y)
            return True
    return False


@jit
def _one_by_one(s, v, d, a, b, origin, n):
    """Any operation, element by element."""
    size = d.bytes
    at_a = origin + a.address
    at_b = origin + b.address
    at_d = origin + d.address
    for _ in range(n):
        x = a.value
        if a.kind == MEMORY:
            x = read16(s, at_a) if a.bytes == 2 else read32(s, at_a)
        y = b.value
        if b.kind == MEMORY:
            y = read16(s, at_b) if b.bytes == 2 else read32(s, at_b)
        present = np.uint32(0)
        if v.accumulates:
            present = read16(s, at_d) if size == 2 else read32(s, at_d)
        write(s, at_d, size, element_of(v, present, x, y))
        at_a += a.stride3
        at_b += b.stride3
        at_d += d.stride3


@jit
def _blocked(s, v, d, a, b, origin):
    """f16 x f16 + f32 with eight resident accumulators: the inner loop of a GEMV. False if the shape is
    another one."""
    fits = (
        d.kind == MEMORY
        and d.extent3 == 8
        and d.stride3 == 4
        and d.stride2 == 0
        and (d.base | d.stride1) & 3 == 0
        and a.kind == MEMORY
        and a.extent3 == 8
        and b.kind == MEMORY
        and b.extent3 == 8
        and b.stride3 == 0
        and a.extent2 == d.extent2
        and b.extent2 == d.extent2
        and a.extent1 == d.extent1
        and b.extent1 == d.extent1
        and d.extent0 == 1
        and a.extent0 == 1
        and b.extent0 == 1
    )
    if not fits:
        return False
    # The accumulators must not be read as weights or inputs on the way.
    low, high = span(d)
    for o in (a, b):
        first, end = span(o)
        if first < high and end > low:
            return False
    m = s.sram32
    half = s.sram16
    # Unsigned places: a signed one costs a comparison per access, since it could count from the end.
    row = np.uint64(a.stride3 >> 1)
    step_a = np.uint64(a.stride2 >> 1)
    step_b = np.uint64(b.stride2 >> 1)
    row2, row3, row4, row5, row6, row7 = row + row, row * U3, row * U4, row * U5, row * U6, row * U7
    for outer in range(d.extent1):
        at_d = origin + d.base + outer * d.stride1 >> 2
        at_a = np.uint64(origin + a.base + outer * a.stride1 >> 1)
        at_b = np.uint64(origin + b.base + outer * b.stride1 >> 1)
        m0, m1, m2, m3 = (
            f32_from_bits(m[at_d]),
            f32_from_bits(m[at_d + 1]),
            f32_from_bits(m[at_d + 2]),
            f32_from_bits(m[at_d + 3]),
        )
        m4, m5, m6, m7 = (
            f32_from_bits(m[at_d + 4]),
            f32_from_bits(m[at_d + 5]),
            f32_from_bits(m[at_d + 6]),
            f32_from_bits(m[at_d + 7]),
        )
        for _ in range(d.extent2):
            # Products of f16 are exact in f32, so this is mac_f32_f16; a NaN stays one and is made
            # canonical at the end.
            y = f32_from_f16(half[at_b])
            m0 += f32_from_f16(half[at_a]) * y
            m1 += f32_from_f16(half[at_a + row]) * y
            m2 += f32_from_f16(half[at_a + row2]) * y
            m3 += f32_from_f16(half[at_a + row3]) * y
            m4 += f32_from_f16(half[at_a + row4]) * y
            m5 += f32_from_f16(half[at_a + row5]) * y
            m6 += f32_from_f16(half[at_a + row6]) * y
            m7 += f32_from_f16(half[at_a + row7]) * y
            at_a += step_a
            at_b += step_b
        m[at_d], m[at_d + 1], m[at_d + 2], m[at_d + 3] = (
            ar.f32_result(m0),
            ar.f32_result(m1),
            ar.f32_result(m2),
            ar.f32_result(m3),
        )
        m[at_d + 4], m[at_d + 5], m[at_d + 6], m[at_d + 7] = (
            ar.f32_result(m4),
            ar.f32_result(m5),
            ar.f32_result(m6),
            ar.f32_result(m7),
        )
    return True


@jit
def _reduce(s, i, v, a, b, origin):
    """vred, vredmax, vdot: into a register, in element order."""
    value = s.registers[i, v.rd]
    if v.op == VRED and v.t == F32 and v.s == F32 and a.kind == MEMORY:
        for _ in range(v.elements):
            value = ar.add_f32(value, operand_value(s, a, origin))
            step(a)
    else:
        for _ in range(v.elements):
            x = operand_value(s, a, origin)
            if a.kind == MEMORY:
                step(a)
            y = np.uint32(0)
            if b.kind != NO_OPERAND:
                y = operand_value(s, b, origin)
                step(b)
            value = as_register(v.t, element_of(v, value, x, y))
    s.registers[i, v.rd] = value


@jit
def _dequantise(s, v, d, a, origin):
    """Packed weights to f16, group by group of the source, to wherever the destination's generator leads."""
    weights = np.int64(v.group_weights)
    n = np.int64(v.elements)
    run = _gcd(run_length(d, n), weights)
    low, high = span(d)
    size = group_bytes(v.s, weights)
    if low < a.base + -(-n // weights) * size and high > a.base:
        run = np.int64(1)  # results overwrite weights still to come: read each anew
    index = np.int64(0)
    m = s.sram16
    bytes_ = s.sram8
    values = np.empty(16, np.uint16)
    valued = np.int64(-1)  # the group whose sixteen weights stand in `values`
    while index < n:
        if v.s == Q4 and run > 1:
            group = index // weights
            at = origin + a.base + group * size
            if group != valued:
                valued = group
                scale = m[at >> 1]
                offset = m[(at >> 1) + 1]
                for code in range(len(values)):  # not a constant: LLVM would unroll it instead of vectorising
                    values[code] = ar.q4_weight(scale, offset, np.uint8(code))
            within = index - group * weights
            at_d = np.uint64(origin + d.address >> 1)
            step_d = np.uint64(d.stride3 >> 1)
            codes = np.uint64(at + Q4_HEADER_BYTES)
            if within & 1 or run & 1:
                for k in range(np.uint64(within), np.uint64(within + run)):
                    code = bytes_[codes + (k >> U1)] >> (np.uint8(4) * np.uint8(k & U1)) & np.uint8(15)
                    m[at_d] = values[np.uint64(code)]
                    at_d += step_d
            else:
                for k in range(np.uint64(within) >> U1, np.uint64(within + run) >> U1):
                    pair = np.uint64(bytes_[codes + k])
                    m[at_d] = values[pair & U15]
                    m[at_d + step_d] = values[pair >> U4]
                    at_d += step_d + step_d
        else:
            for k in range(run):
                write(s, origin + d.address + k * d.stride3, 2, packed_weight(s, v, a, origin, index + k))
        _skip(d, run)
        index += run
