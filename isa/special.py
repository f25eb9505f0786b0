"""Special functions: reciprocal, square roots, exp, log and division, defined bit for bit.

A result is defined by a fixed sequence of IEEE double operations (+, -, *, /, square root; no host library
function), then one rounding to f32. The functions named `*_in_double` hold that sequence; they use only
operators, so the very same source runs on Python floats, on NumPy arrays and compiled by the engine.

f16 and bf16 operands are widened to f32 (exact), the f32 function is applied, and its f32 result is rounded
to the type. For divide, reciprocal and square root this equals one rounding of the exact result.

Accuracy
- divide, reciprocal and square root are correctly rounded for every operand: double has at least 2 * 24 + 2
  bits, so rounding twice is harmless.
- exp and reciprocal square root are correctly rounded for every f32 operand, log for all but five
  (0x3C413D3A, 0x41178FEB, 0x4C5D65A5, 0x65D890D3, 0x6F31A8EC), which are off by one unit in the last place.
  Found by scanning all operands for double results within 64 double units of a rounding boundary of f32 and
  recomputing those with 140 bits; the double results themselves are within one double unit of the truth.
"""

from __future__ import annotations

import math
import struct

import numpy as np
from numpy.typing import ArrayLike

from .float32 import f32_from_f64
from .floating import bits_from_double, double_from_bits
from .numbers import F32, FORMATS, convert

# ln 2 in two parts (Cody and Waite): the high part is floor(ln 2 * 2^37) / 2^37, so k * LN2_HIGH is exact for
# |k| < 2^16; the low part is ln 2 - LN2_HIGH rounded to double. tests/test_isa_special.py derives them again.
LN2_HIGH = float.fromhex("0x1.62e42fefap-1")
LN2_LOW = float.fromhex("0x1.cf79abc9e3b3ap-40")
LOG2_E = float.fromhex("0x1.71547652b82fep+0")  # 1 / ln 2 rounded to double

# Adding and subtracting 1.5 * 2^52 rounds a double of modest size to the nearest integer, ties to even.
ROUND_TO_INTEGER = 6755399441055744.0

# Taylor coefficients of exp, 1/n! rounded to double, n = 13 down to 0. On |r| <= ln 2 / 2 the first omitted
# term is r^14/14! < 5e-18, far below half a unit of double (1.1e-16).
EXP_COEFFICIENTS = tuple(1.0 / math.factorial(n) for n in range(13, -1, -1))
E13, E12, E11, E10, E9, E8, E7, E6, E5, E4, E3, E2, E1, E0 = EXP_COEFFICIENTS

# Series of 2 atanh(s) = log((1 + s) / (1 - s)): 2/(2n+1), n = 11 down to 1. For a significand in
# [sqrt(1/2), sqrt(2)) |s| <= 0.1716, so the first omitted term relative to the first is s^24/25 < 2e-20.
LOG_COEFFICIENTS = tuple(2.0 / (2 * n + 1) for n in range(11, 0, -1))
L11, L10, L9, L8, L7, L6, L5, L4, L3, L2, L1 = LOG_COEFFICIENTS

EXP_LEAST, EXP_MOST = -110.0, 90.0  # exp rounds to 0, respectively overflows to infinity, well inside these
SQRT2_BITS = 0x3504F3  # fraction field of the f32 just below sqrt(2); larger significands are halved


def exp_reduced_in_double(x):
    """exp(x) for a double in EXP_LEAST..EXP_MOST as (k, y): exp(x) = y * 2^k, k an integer-valued double."""
    k = (x * LOG2_E + ROUND_TO_INTEGER) - ROUND_TO_INTEGER
    r = (x - k * LN2_HIGH) - k * LN2_LOW
    y = E12 + r * E13
    y = E11 + r * y
    y = E10 + r * y
    y = E9 + r * y
    y = E8 + r * y
    y = E7 + r * y
    y = E6 + r * y
    y = E5 + r * y
    y = E4 + r * y
    y = E3 + r * y
    y = E2 + r * y
    y = E1 + r * y
    y = E0 + r * y
    return k, y


def log_in_double(m, k):
    """log(m * 2^k) as a double; m is a significand in [sqrt(1/2), sqrt(2)], k an integer-valued double."""
    f = m - 1.0  # exact, and so is f * f: m has 24 bits
    s = f / (m + 1.0)
    z = s * s
    y = L10 + z * L11
    y = L9 + z * y
    y = L8 + z * y
    y = L7 + z * y
    y = L6 + z * y
    y = L5 + z * y
    y = L4 + z * y
    y = L3 + z * y
    y = L2 + z * y
    y = L1 + z * y
    half_square = 0.5 * (f * f)
    # 2 s = f - s f and s f = f^2/2 - s f^2/2: the leading terms f and f^2/2 carry no rounding error.
    small = s * (half_square + z * y) + k * LN2_LOW
    return k * LN2_HIGH + (f - (half_square - small))


def _by_f32(t: int, function, *operands: int) -> int:
    """Apply a function of f32 patterns to operands of type t, rounding its result to t."""
    return convert(t, F32, function(*(convert(F32, t, a) for a in operands)))


def divide(t: int, a: int, b: int) -> int:
    """a / b, correctly rounded; x / 0 is infinity, 0 / 0 and infinity / infinity are NaN."""
    return _by_f32(t, _divide32, a, b)


def reciprocal(t: int, a: int) -> int:
    """1 / a, correctly rounded; 1 / -0 is -infinity."""
    return _by_f32(t, lambda x: _divide32(0x3F800000, x), a)


def square_root(t: int, a: int) -> int:
    """Square root, correctly rounded; -0 gives -0, any other negative operand NaN."""
    return _by_f32(t, _square_root32, a)


def reciprocal_square_root(t: int, a: int) -> int:
    """1 / sqrt(a) in double, then rounded; a zero gives infinity of its sign, a negative operand NaN."""
    return _by_f32(t, _reciprocal_square_root32, a)


def exp(t: int, a: int) -> int:
    """e^a; overflow gives infinity, underflow subnormals and then +0."""
    return _by_f32(t, _exp32, a)


def log(t: int, a: int) -> int:
    """Natural logarithm; either zero gives -infinity, a negative operand NaN."""
    return _by_f32(t, _log32, a)


_F32 = FORMATS[F32]


def _divide32(a: int, b: int) -> int:
    if _F32.is_nan(a) or _F32.is_nan(b):
        return _F32.canonical_nan
    sign = (a ^ b) & _F32.sign_bit
    if b & ~_F32.sign_bit == 0:
        return _F32.canonical_nan if a & ~_F32.sign_bit == 0 else _F32.infinity | sign
    return bits_from_double(_F32, double_from_bits(_F32, a) / double_from_bits(_F32, b))


def _square_root32(a: int) -> int:
    if a & ~_F32.sign_bit == 0:
        return a
    if _F32.is_nan(a) or a & _F32.sign_bit:
        return _F32.canonical_nan
    return bits_from_double(_F32, math.sqrt(double_from_bits(_F32, a)))  # IEEE square root, one rounding


def _reciprocal_square_root32(a: int) -> int:
    if a & ~_F32.sign_bit == 0:
        return _F32.infinity | a
    if _F32.is_nan(a) or a & _F32.sign_bit:
        return _F32.canonical_nan
    return bits_from_double(_F32, 1.0 / math.sqrt(double_from_bits(_F32, a)))


def _exp32(a: int) -> int:
    if _F32.is_nan(a):
        return _F32.canonical_nan
    k, y = exp_reduced_in_double(min(max(double_from_bits(_F32, a), EXP_LEAST), EXP_MOST))
    power = struct.unpack("<d", struct.pack("<Q", (int(k) + 1023) << 52))[0]
    return bits_from_double(_F32, y * power)  # the product with a power of two is exact


def _log32(a: int) -> int:
    if a & ~_F32.sign_bit == 0:
        return _F32.infinity | _F32.sign_bit
    if _F32.is_nan(a) or a & _F32.sign_bit:
        return _F32.canonical_nan
    if a == _F32.infinity:
        return a
    bits = struct.unpack("<Q", struct.pack("<d", double_from_bits(_F32, a)))[0]  # every f32 is normal here
    halved = (bits >> 29) & 0x7FFFFF > SQRT2_BITS
    field = 1022 if halved else 1023
    m = struct.unpack("<d", struct.pack("<Q", (bits & ((1 << 52) - 1)) | (field << 52)))[0]
    return bits_from_double(_F32, log_in_double(m, float((bits >> 52) - field)))


# The same on arrays: float32 in, float32 out, any shape.


def divide32(a: ArrayLike, b: ArrayLike) -> np.ndarray:
    """a / b on float32 arrays, correctly rounded."""
    with np.errstate(all="ignore"):
        return f32_from_f64(np.asarray(a, np.float32).astype(np.float64) / np.asarray(b, np.float32))


def reciprocal32(a: ArrayLike) -> np.ndarray:
    """1 / a on a float32 array, correctly rounded."""
    return divide32(np.array(1.0, np.float32), a)


def sqrt32(a: ArrayLike) -> np.ndarray:
    """Square root of a float32 array, correctly rounded."""
    with np.errstate(all="ignore"):
        return f32_from_f64(np.sqrt(np.asarray(a, np.float32).astype(np.float64)))


def rsqrt32(a: ArrayLike) -> np.ndarray:
    """1 / sqrt(a) of a float32 array."""
    with np.errstate(all="ignore"):
        return f32_from_f64(1.0 / np.sqrt(np.asarray(a, np.float32).astype(np.float64)))


def exp32(a: ArrayLike) -> np.ndarray:
    """e^a of a float32 array."""
    with np.errstate(all="ignore"):
        x = np.asarray(a, np.float32).astype(np.float64)
        k, y = exp_reduced_in_double(np.clip(x, EXP_LEAST, EXP_MOST))
        power = ((np.nan_to_num(k).astype(np.int64) + 1023) << 52).view(np.float64)
        return f32_from_f64(y * power)


def log32(a: ArrayLike) -> np.ndarray:
    """Natural logarithm of a float32 array."""
    with np.errstate(all="ignore"):
        x = np.asarray(a, np.float32).astype(np.float64)
    bits = np.asarray(x).view(np.int64)
    field = np.where(((bits >> 29) & 0x7FFFFF) > SQRT2_BITS, 1022, 1023)
    with np.errstate(all="ignore"):
        m = ((bits & ((1 << 52) - 1)) | (field << 52)).view(np.float64)
        y = log_in_double(m, ((bits >> 52) - field).astype(np.float64))
        y = np.where(x == np.inf, np.inf, np.where(x == 0, -np.inf, np.where(x < 0, np.nan, y)))
        return f32_from_f64(np.where(np.isnan(x), np.nan, y))


# Named by the instruction's operation, for engines and tables.
UNARY = {
    "reciprocal": reciprocal,
    "sqrt": square_root,
    "rsqrt": reciprocal_square_root,
    "exp": exp,
    "log": log,
}
