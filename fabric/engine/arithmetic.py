"""Arithmetic of the compute engine on bit patterns, compiled; same meaning as isa/numbers.py, bit for bit.

f16 and bf16 operands are uint16, f32 operands uint32; integers.py has i16 and i32. Names end in the element
type; a mixed operation names the result first: `mac_f32_f16(acc, a, b)` is f32 + f16 * f16. All functions
are free of branches or nearly so: a loop of them over contiguous arrays is vectorised by LLVM.
"""

from __future__ import annotations

import numpy as np

from .bitcasts import (
    bits_from_f32,
    f16_from_f32,
    f32_from_bits,
    f32_from_f16,
    fma_f32,
)
from .jit import jit_inline

F16_NAN = np.uint16(0x7E00)
BF16_NAN = np.uint16(0x7FC0)
F32_NAN = np.uint32(0x7FC00000)
F16_SIGN, F16_INFINITY = np.uint16(0x8000), np.uint16(0x7C00)
F32_SIGN, F32_INFINITY = np.uint32(0x80000000), np.uint32(0x7F800000)


# Results: from a host value to the pattern, NaN canonical.


@jit_inline
def f32_result(value):
    """float32 -> f32 pattern."""
    return F32_NAN if value != value else bits_from_f32(value)


@jit_inline
def f16_result(value):
    """float32 -> f16 pattern, one rounding."""
    return F16_NAN if value != value else f16_from_f32(value)


@jit_inline
def bf16_result(value):
    """float32 -> bf16 pattern, one rounding; the carry runs into the exponent."""
    bits = bits_from_f32(value)
    odd = np.uint32((bits >> np.uint32(16)) & np.uint32(1))
    rounded = np.uint16(np.uint32(bits + np.uint32(0x7FFF) + odd) >> np.uint32(16))
    return BF16_NAN if value != value else rounded


@jit_inline
def f32_from_bf16(bits):
    """bf16 pattern -> float32 value, exact."""
    return f32_from_bits(np.uint32(np.uint32(bits) << np.uint32(16)))


@jit_inline
def odd_sum_f32(x, y):
    """x + y in float32 rounded to odd (see isa/floating.py): what is left to round once to f16 or bf16."""
    total = x + y
    y_part = total - x
    error = (x - (total - y_part)) + (y - y_part)
    bits = bits_from_f32(total)
    inexact = (error < np.float32(0.0)) | (error > np.float32(0.0))  # false for a NaN left by infinities
    even = (bits & np.uint32(1)) == np.uint32(0)
    outward = (error < np.float32(0.0)) == (total < np.float32(0.0))
    moved = np.uint32(bits + (np.uint32(1) if outward else np.uint32(0xFFFFFFFF)))
    return f32_from_bits(moved) if inexact & even else total


@jit_inline
def odd_f32_from_f64(value):
    """float64 -> float32 rounded to odd, so that a further rounding to f16 or bf16 is the only one."""
    near = np.float32(value)
    back = np.float64(near)
    bits = bits_from_f32(near)
    inexact = (back != value) & (value == value)
    even = (bits & np.uint32(1)) == np.uint32(0)
    outward = (back < value) == (value > 0.0)
    moved = np.uint32(bits + (np.uint32(1) if outward else np.uint32(0xFFFFFFFF)))
    return f32_from_bits(moved) if inexact & even else near


# f16


@jit_inline
def add_f16(a, b):
    """a + b; by way of f32 this is one exact rounding (24 >= 2 * 11 + 2 bits)."""
    return f16_result(f32_from_f16(a) + f32_from_f16(b))


@jit_inline
def sub_f16(a, b):
    """a - b."""
    return f16_result(f32_from_f16(a) - f32_from_f16(b))


@jit_inline
def mul_f16(a, b):
    """a * b; the product is exact in f32."""
    return f16_result(f32_from_f16(a) * f32_from_f16(b))


@jit_inline
def mac_f16(acc, a, b):
    """acc + a * b with one rounding to f16."""
    return f16_result(odd_sum_f32(f32_from_f16(a) * f32_from_f16(b), f32_from_f16(acc)))


# f32 and mixed


@jit_inline
def add_f32(a, b):
    """a + b."""
    return f32_result(f32_from_bits(a) + f32_from_bits(b))


@jit_inline
def sub_f32(a, b):
    """a - b."""
    return f32_result(f32_from_bits(a) - f32_from_bits(b))


@jit_inline
def mul_f32(a, b):
    """a * b."""
    return f32_result(f32_from_bits(a) * f32_from_bits(b))


@jit_inline
def mac_f32(acc, a, b):
    """acc + a * b with one rounding to f32."""
    return f32_result(fma_f32(f32_from_bits(a), f32_from_bits(b), f32_from_bits(acc)))


@jit_inline
def mac_f32_f16(acc, a, b):
    """f32 acc + f16 a * f16 b; the product is exact in f32, so there is one rounding."""
    return f32_result(f32_from_bits(acc) + f32_from_f16(a) * f32_from_f16(b))


@jit_inline
def mac_f32_bf16(acc, a, b):
    """f32 acc + bf16 a * bf16 b with one rounding, also where the product leaves f32's range."""
    return f32_result(fma_f32(f32_from_bf16(a), f32_from_bf16(b), f32_from_bits(acc)))


@jit_inline
def add_f32_f16(a, b):
    """f32 a + f16 b."""
    return f32_result(f32_from_bits(a) + f32_from_f16(b))


@jit_inline
def sub_f32_f16(a, b):
    """f32 a - f16 b."""
    return f32_result(f32_from_bits(a) - f32_from_f16(b))


@jit_inline
def add_f32_bf16(a, b):
    """f32 a + bf16 b."""
    return f32_result(f32_from_bits(a) + f32_from_bf16(b))


@jit_inline
def add_bf16(a, b):
    """a + b in bf16."""
    return bf16_result(f32_from_bf16(a) + f32_from_bf16(b))


@jit_inline
def sub_bf16(a, b):
    """a - b in bf16."""
    return bf16_result(f32_from_bf16(a) - f32_from_bf16(b))


@jit_inline
def mul_bf16(a, b):
    """a * b in bf16."""
    return bf16_result(f32_from_bf16(a) * f32_from_bf16(b))


# Order. A key is a signed integer that sorts values, -0 just below +0.


@jit_inline
def key_f16(a):
    """Sort key of an f16 or bf16 pattern (int16)."""
    s = np.int16(a)
    return np.int16(s ^ np.int16(np.int16(s >> np.int16(15)) & np.int16(0x7FFF)))


@jit_inline
def key_f32(a):
    """Sort key of an f32 pattern (int32)."""
    s = np.int32(a)
    return np.int32(s ^ np.int32(np.int32(s >> np.int32(31)) & np.int32(0x7FFFFFFF)))


@jit_inline
def is_nan_f16(a):
    """True for any NaN pattern."""
    return np.uint16(a & np.uint16(0x7FFF)) > F16_INFINITY


@jit_inline
def is_nan_bf16(a):
    """True for any NaN pattern."""
    return np.uint16(a & np.uint16(0x7FFF)) > np.uint16(0x7F80)


@jit_inline
def is_nan_f32(a):
    """True for any NaN pattern."""
    return np.uint32(a & np.uint32(0x7FFFFFFF)) > F32_INFINITY


@jit_inline
def max_f16(a, b):
    """Larger operand; NaN if either is NaN."""
    chosen = a if key_f16(a) >= key_f16(b) else b
    return F16_NAN if is_nan_f16(a) | is_nan_f16(b) else chosen


@jit_inline
def min_f16(a, b):
    """Smaller operand; NaN if either is NaN."""
    chosen = a if key_f16(a) <= key_f16(b) else b
    return F16_NAN if is_nan_f16(a) | is_nan_f16(b) else chosen


@jit_inline
def max_bf16(a, b):
    """Larger operand; NaN if either is NaN."""
    chosen = a if key_f16(a) >= key_f16(b) else b
    return BF16_NAN if is_nan_bf16(a) | is_nan_bf16(b) else chosen


@jit_inline
def min_bf16(a, b):
    """Smaller operand; NaN if either is NaN."""
    chosen = a if key_f16(a) <= key_f16(b) else b
    return BF16_NAN if is_nan_bf16(a) | is_nan_bf16(b) else chosen


@jit_inline
def max_f32(a, b):
    """Larger operand; NaN if either is NaN."""
    chosen = a if key_f32(a) >= key_f32(b) else b
    return F32_NAN if is_nan_f32(a) | is_nan_f32(b) else chosen


@jit_inline
def min_f32(a, b):
    """Smaller operand; NaN if either is NaN."""
    chosen = a if key_f32(a) <= key_f32(b) else b
    return F32_NAN if is_nan_f32(a) | is_nan_f32(b) else chosen


# Sign: moves that change one bit, of a NaN too. bf16 is as f16.


@jit_inline
def neg_f16(a):
    """-a."""
    return np.uint16(a ^ F16_SIGN)


@jit_inline
def abs_f16(a):
    """|a|."""
    return np.uint16(a & np.uint16(0x7FFF))


@jit_inline
def neg_f32(a):
    """-a."""
    return np.uint32(a ^ F32_SIGN)


@jit_inline
def abs_f32(a):
    """|a|."""
    return np.uint32(a & np.uint32(0x7FFFFFFF))


# Dequantise: one weight, from the fields of its group (layout in isa/dequantise.py).


@jit_inline
def q4_weight(scale, offset, code):
    """scale * code + offset, one rounding to f16; scale, offset f16 patterns, code 0..15."""
    return f16_result(odd_sum_f32(f32_from_f16(scale) * np.float32(code), f32_from_f16(offset)))


@jit_inline
def q8_weight(scale, code):
    """scale * code, one rounding to f16; code is an int8 or any signed value in -128..127."""
    return f16_result(f32_from_f16(scale) * np.float32(code))
