"""Arithmetic chosen by a run-time element type, compiled: the scalar path of the compute engine.

Same names, arguments and meaning as isa/numbers.py and isa/special.py. Every operand and result is a uint32
holding a pattern of its type's width in the low bits; t and s are ElementType values. Pairs of types that
isa/numbers.py refuses are refused at assembly and give 0 here.
"""

from __future__ import annotations

import numpy as np

from ...isa.element_types import ElementType
from . import arithmetic as ar
from . import conversions as cv
from . import special as sp
from .bitcasts import f32_from_bits, f32_from_f16
from .jit import jit

I16, I32, F16, F32, BF16 = (
    int(t) for t in (ElementType.I16, ElementType.I32, ElementType.F16, ElementType.F32, ElementType.BF16)
)


@jit
def widen(t, a):
    """Exact value of a floating pattern as float32."""
    if t == F16:
        return f32_from_f16(np.uint16(a))
    if t == BF16:
        return ar.f32_from_bf16(np.uint16(a))
    return f32_from_bits(np.uint32(a))


@jit
def round_to(t, value):
    """float32 -> pattern of a floating type in a uint32, one rounding."""
    if t == F16:
        return np.uint32(ar.f16_result(value))
    if t == BF16:
        return np.uint32(ar.bf16_result(value))
    return ar.f32_result(value)


@jit
def sign_extended(t, a):
    """Integer pattern -> int32 value."""
    return np.int32(np.int16(a)) if t == I16 else np.int32(a)


@jit
def wrapped(t, value):
    """Low bits of an integer result as a pattern of type t."""
    return np.uint32(np.uint16(value)) if t == I16 else np.uint32(value)


@jit
def is_float(t):
    """True for f16, f32, bf16."""
    return t >= F16


@jit
def add(t, a, b, s):
    """a (type t) + b (type s, widened exactly)."""
    if is_float(t):
        return round_to(t, widen(t, a) + widen(s, b))
    return wrapped(t, np.uint32(sign_extended(t, a)) + np.uint32(sign_extended(s, b)))


@jit
def sub(t, a, b, s):
    """a (type t) - b (type s, widened exactly)."""
    if is_float(t):
        return round_to(t, widen(t, a) - widen(s, b))
    return wrapped(t, np.uint32(sign_extended(t, a)) - np.uint32(sign_extended(s, b)))


@jit
def mul(t, a, b):
    """a * b."""
    if is_float(t):
        return round_to(t, widen(t, a) * widen(t, b))
    return wrapped(t, np.uint32(a) * np.uint32(b))


@jit
def mac(t, s, acc, a, b):
    """acc (type t) + a * b (type s), one rounding."""
    if t == F16:
        return np.uint32(ar.mac_f16(np.uint16(acc), np.uint16(a), np.uint16(b)))
    if t == F32:  # fused, whatever the source: exact products make no difference to it
        return ar.f32_result(ar.fma_f32(widen(s, a), widen(s, b), f32_from_bits(np.uint32(acc))))
    if is_float(t):
        return np.uint32(0)
    return wrapped(t, np.uint32(acc) + np.uint32(sign_extended(s, a)) * np.uint32(sign_extended(s, b)))


@jit
def is_nan(t, a):
    """True when the pattern is a NaN of a floating type."""
    if not is_float(t):
        return False
    value = widen(t, a)
    return value != value


@jit
def nan_of(t):
    """Canonical NaN of a floating type."""
    if t == F16:
        return np.uint32(0x7E00)
    return np.uint32(0x7FC0) if t == BF16 else np.uint32(0x7FC00000)


@jit
def order(t, a):
    """Sort key (int32): integers by value, floats by value with -0 just below +0."""
    if t == I16:
        return np.int32(np.int16(a))
    if t == I32:
        return np.int32(a)
    return ar.key_f32(np.uint32(a)) if t == F32 else np.int32(ar.key_f16(np.uint16(a)))


@jit
def maximum(t, a, b):
    """The larger operand; NaN if either is NaN."""
    if is_nan(t, a) or is_nan(t, b):
        return nan_of(t)
    return np.uint32(a) if order(t, a) >= order(t, b) else np.uint32(b)


@jit
def minimum(t, a, b):
    """The smaller operand; NaN if either is NaN."""
    if is_nan(t, a) or is_nan(t, b):
        return nan_of(t)
    return np.uint32(a) if order(t, a) <= order(t, b) else np.uint32(b)


@jit
def sign_mask(t):
    """The sign bit of a pattern of type t."""
    return np.uint32(0x80000000) if t == I32 or t == F32 else np.uint32(0x8000)


@jit
def negate(t, a):
    """-a; of a NaN only the sign bit changes."""
    return np.uint32(np.uint32(a) ^ sign_mask(t)) if is_float(t) else wrapped(t, np.uint32(0) - np.uint32(a))


@jit
def absolute(t, a):
    """|a|; of a NaN only the sign bit changes."""
    if is_float(t):
        return np.uint32(np.uint32(a) & ~sign_mask(t))
    return negate(t, a) if np.uint32(a) & sign_mask(t) else np.uint32(a)


@jit
def convert(t, s, a):
    """The value of `a`, of type s, in type t."""
    if is_float(s):
        value = widen(s, a)
        if t == I16:
            return wrapped(I16, cv.nearest_integer(value, -32768.0, 32767.0))
        if t == I32:
            return wrapped(I32, cv.nearest_integer(value, -2147483648.0, 2147483647.0))
        return round_to(t, value)
    number = sign_extended(s, a)
    if t == F32:
        return ar.f32_result(np.float32(number))
    if is_float(t):
        return round_to(t, ar.odd_f32_from_f64(np.float64(number)))
    return wrapped(t, number)


@jit
def equal(t, a, b):
    """a == b by value."""
    return widen(t, a) == widen(t, b) if is_float(t) else np.uint32(a) == np.uint32(b)


@jit
def less(t, a, b):
    """a < b by value; integers signed."""
    return widen(t, a) < widen(t, b) if is_float(t) else sign_extended(t, a) < sign_extended(t, b)


@jit
def less_equal(t, a, b):
    """a <= b by value; integers signed."""
    return widen(t, a) <= widen(t, b) if is_float(t) else sign_extended(t, a) <= sign_extended(t, b)


@jit
def width(t):
    """Bits of an integer type."""
    return np.uint32(16) if t == I16 else np.uint32(32)


@jit
def shift_left(t, a, amount):
    """Left shift; an amount of the width or more gives 0."""
    if np.uint32(amount) >= width(t):
        return np.uint32(0)
    return wrapped(t, np.uint32(a) << np.uint32(amount))


@jit
def shift_right(t, a, amount):
    """Right shift filling with zeros."""
    return np.uint32(0) if np.uint32(amount) >= width(t) else np.uint32(np.uint32(a) >> np.uint32(amount))


@jit
def shift_right_signed(t, a, amount):
    """Right shift filling with the sign."""
    limit = np.uint32(width(t) - np.uint32(1))
    return wrapped(t, sign_extended(t, a) >> np.int32(min(np.uint32(amount), limit)))


@jit
def divide(t, a, b):
    """a / b by way of f32."""
    return round_to(t, f32_from_bits(sp.divide_f32(convert(F32, t, a), convert(F32, t, b))))


@jit
def reciprocal(t, a):
    """1 / a by way of f32."""
    return round_to(t, f32_from_bits(sp.reciprocal_f32(convert(F32, t, a))))


@jit
def square_root(t, a):
    """Square root by way of f32."""
    return round_to(t, f32_from_bits(sp.sqrt_f32(convert(F32, t, a))))


@jit
def reciprocal_square_root(t, a):
    """1 / sqrt(a) by way of f32."""
    return round_to(t, f32_from_bits(sp.rsqrt_f32(convert(F32, t, a))))


@jit
def exp(t, a):
    """e^a by way of f32."""
    return round_to(t, f32_from_bits(sp.exp_f32(convert(F32, t, a))))


@jit
def log(t, a):
    """Natural logarithm by way of f32."""
    return round_to(t, f32_from_bits(sp.log_f32(convert(F32, t, a))))
