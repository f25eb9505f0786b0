"""Special functions on f32 (uint32) and f16 (uint16) patterns, compiled from isa/special.py itself.

Only taking numbers apart and putting them together is written here; every rounding step comes from isa.
"""

from __future__ import annotations

import math

import numpy as np

from ...isa import special
from ...isa.special import EXP_LEAST, EXP_MOST, SQRT2_BITS
from .arithmetic import F32_INFINITY, F32_NAN, F32_SIGN, f32_result
from .bitcasts import bits_from_f64, f32_from_bits, f64_from_bits
from .conversions import f16_of_f32, f32_of_f16
from .jit import jit, jit_inline

_exp_reduced = jit_inline(special.exp_reduced_in_double)
_log = jit_inline(special.log_in_double)

_FRACTION = np.uint64((1 << 52) - 1)


@jit
def divide_f32(a, b):
    """a / b, correctly rounded."""
    return f32_result(np.float32(np.float64(f32_from_bits(a)) / np.float64(f32_from_bits(b))))


@jit
def reciprocal_f32(a):
    """1 / a, correctly rounded."""
    return f32_result(np.float32(1.0 / np.float64(f32_from_bits(a))))


@jit
def sqrt_f32(a):
    """Square root, correctly rounded."""
    return f32_result(np.float32(math.sqrt(np.float64(f32_from_bits(a)))))


@jit
def rsqrt_f32(a):
    """1 / sqrt(a) in double, rounded to f32."""
    return f32_result(np.float32(1.0 / math.sqrt(np.float64(f32_from_bits(a)))))


@jit
def exp_f32(a):
    """e^a."""
    x = np.float64(f32_from_bits(a))
    if x != x:
        return F32_NAN
    k, y = _exp_reduced(min(max(x, EXP_LEAST), EXP_MOST))
    power = f64_from_bits(np.uint64(np.int64(k) + 1023) << np.uint64(52))
    return f32_result(np.float32(y * power))


@jit
def log_f32(a):
    """Natural logarithm."""
    magnitude = np.uint32(a & np.uint32(0x7FFFFFFF))
    if magnitude == np.uint32(0):
        return np.uint32(F32_INFINITY | F32_SIGN)
    if magnitude != a or magnitude > F32_INFINITY:
        return F32_NAN
    if magnitude == F32_INFINITY:
        return F32_INFINITY
    bits = bits_from_f64(np.float64(f32_from_bits(a)))
    fraction = np.uint64(bits & _FRACTION)
    field = np.uint64(1022 if (fraction >> np.uint64(29)) > np.uint64(SQRT2_BITS) else 1023)
    m = f64_from_bits(np.uint64(fraction | np.uint64(field << np.uint64(52))))
    k = np.float64(np.int64(bits >> np.uint64(52)) - np.int64(field))
    return f32_result(np.float32(_log(m, k)))


# f16: the f32 function of the widened operand, rounded to f16.


@jit
def divide_f16(a, b):
    """a / b, correctly rounded."""
    return f16_of_f32(divide_f32(f32_of_f16(a), f32_of_f16(b)))


@jit
def reciprocal_f16(a):
    """1 / a, correctly rounded."""
    return f16_of_f32(reciprocal_f32(f32_of_f16(a)))


@jit
def sqrt_f16(a):
    """Square root, correctly rounded."""
    return f16_of_f32(sqrt_f32(f32_of_f16(a)))


@jit
def rsqrt_f16(a):
    """1 / sqrt(a)."""
    return f16_of_f32(rsqrt_f32(f32_of_f16(a)))


@jit
def exp_f16(a):
    """e^a."""
    return f16_of_f32(exp_f32(f32_of_f16(a)))


@jit
def log_f16(a):
    """Natural logarithm."""
    return f16_of_f32(log_f32(f32_of_f16(a)))
