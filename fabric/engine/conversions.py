"""Conversions between element types on bit patterns, compiled; the rules are those of isa/numbers.py.

Each is one rounding from the exact source value. Names give the result first: `f16_of_i32(a)`. i16, f16 and
bf16 patterns are uint16; i32 and f32 patterns are uint32.
"""

from __future__ import annotations

import numpy as np

from ...isa.special import ROUND_TO_INTEGER
from .arithmetic import (
    bf16_result,
    f16_result,
    f32_from_bf16,
    f32_result,
    odd_f32_from_f64,
)
from .bitcasts import f32_from_bits, f32_from_f16
from .jit import jit_inline


@jit_inline
def f32_of_f16(a):
    """f16 -> f32, exact; NaN canonical."""
    return f32_result(f32_from_f16(a))


@jit_inline
def f32_of_bf16(a):
    """bf16 -> f32, exact; NaN canonical."""
    return f32_result(f32_from_bf16(a))


@jit_inline
def f32_of_i16(a):
    """i16 -> f32, exact."""
    return f32_result(np.float32(np.int16(a)))


@jit_inline
def f32_of_i32(a):
    """i32 -> f32."""
    return f32_result(np.float32(np.int32(a)))


@jit_inline
def f16_of_f32(a):
    """f32 -> f16."""
    return f16_result(f32_from_bits(a))


@jit_inline
def f16_of_bf16(a):
    """bf16 -> f16."""
    return f16_result(f32_from_bf16(a))


@jit_inline
def f16_of_i16(a):
    """i16 -> f16."""
    return f16_result(np.float32(np.int16(a)))


@jit_inline
def f16_of_i32(a):
    """i32 -> f16; beyond 65519 in magnitude it is infinite."""
    return f16_result(odd_f32_from_f64(np.float64(np.int32(a))))


@jit_inline
def bf16_of_f32(a):
    """f32 -> bf16."""
    return bf16_result(f32_from_bits(a))


@jit_inline
def bf16_of_f16(a):
    """f16 -> bf16."""
    return bf16_result(f32_from_f16(a))


@jit_inline
def bf16_of_i16(a):
    """i16 -> bf16."""
    return bf16_result(np.float32(np.int16(a)))


@jit_inline
def bf16_of_i32(a):
    """i32 -> bf16."""
    return bf16_result(odd_f32_from_f64(np.float64(np.int32(a))))


@jit_inline
def nearest_integer(value, least, most):
    """float32 -> int64 in least..most (doubles): to nearest even, saturating, NaN 0."""
    x = min(max(np.float64(value), least), most) if value == value else 0.0
    return np.int64((x + ROUND_TO_INTEGER) - ROUND_TO_INTEGER)


@jit_inline
def i16_of_f32(a):
    """f32 -> i16."""
    return np.uint16(nearest_integer(f32_from_bits(a), -32768.0, 32767.0))


@jit_inline
def i16_of_f16(a):
    """f16 -> i16."""
    return np.uint16(nearest_integer(f32_from_f16(a), -32768.0, 32767.0))


@jit_inline
def i16_of_bf16(a):
    """bf16 -> i16."""
    return np.uint16(nearest_integer(f32_from_bf16(a), -32768.0, 32767.0))


@jit_inline
def i32_of_f32(a):
    """f32 -> i32."""
    return np.uint32(nearest_integer(f32_from_bits(a), -2147483648.0, 2147483647.0))


@jit_inline
def i32_of_f16(a):
    """f16 -> i32."""
    return np.uint32(nearest_integer(f32_from_f16(a), -2147483648.0, 2147483647.0))


@jit_inline
def i32_of_bf16(a):
    """bf16 -> i32."""
    return np.uint32(nearest_integer(f32_from_bf16(a), -2147483648.0, 2147483647.0))


@jit_inline
def i32_of_i16(a):
    """i16 -> i32, sign extended."""
    return np.uint32(np.int32(np.int16(a)))


@jit_inline
def i16_of_i32(a):
    """i32 -> i16, the low half."""
    return np.uint16(a)
