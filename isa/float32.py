"""f32 on arrays: the NumPy form of single-precision arithmetic, for golden programs.

Each function has the meaning of the same operation in numbers.py, bit for bit, NaN patterns included.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from . import floating

CANONICAL_NAN = np.array(floating.F32.canonical_nan, np.uint32).view(np.float32)[()]


def canonical32(values: np.ndarray) -> np.ndarray:
    """float32 -> float32 with every NaN replaced by 0x7FC00000."""
    return np.where(np.isnan(values), CANONICAL_NAN, values)


def f32_from_f64(values: np.ndarray) -> np.ndarray:
    """float64 -> float32, one rounding; NaN canonical."""
    with np.errstate(all="ignore"):
        return canonical32(np.asarray(values, np.float64).astype(np.float32))


def add32(a: ArrayLike, b: ArrayLike) -> np.ndarray:
    """a + b in float32."""
    with np.errstate(all="ignore"):
        return canonical32(np.asarray(a, np.float32) + np.asarray(b, np.float32))


def sub32(a: ArrayLike, b: ArrayLike) -> np.ndarray:
    """a - b in float32."""
    with np.errstate(all="ignore"):
        return canonical32(np.asarray(a, np.float32) - np.asarray(b, np.float32))


def mul32(a: ArrayLike, b: ArrayLike) -> np.ndarray:
    """a * b in float32."""
    with np.errstate(all="ignore"):
        return canonical32(np.asarray(a, np.float32) * np.asarray(b, np.float32))


def fma32(a: ArrayLike, b: ArrayLike, c: ArrayLike) -> np.ndarray:
    """a * b + c in float32 with one rounding: exact product in double, sum rounded to odd, then f32."""
    with np.errstate(all="ignore"):
        product = np.asarray(a, np.float64) * np.asarray(b, np.float64)
        product, addend = np.broadcast_arrays(product, np.asarray(c, np.float64))
        return f32_from_f64(floating.round_to_odd(*floating.two_sum(product, addend)))


def max32(a: ArrayLike, b: ArrayLike) -> np.ndarray:
    """Larger of two float32; -0 is below +0, and a NaN on either side gives the canonical NaN."""
    x, y = np.broadcast_arrays(np.asarray(a, np.float32), np.asarray(b, np.float32))
    chosen = np.where(floating.order_keys(x) >= floating.order_keys(y), x, y)
    return np.where(np.isnan(x) | np.isnan(y), CANONICAL_NAN, chosen)


def min32(a: ArrayLike, b: ArrayLike) -> np.ndarray:
    """Smaller of two float32; -0 is below +0, and a NaN on either side gives the canonical NaN."""
    x, y = np.broadcast_arrays(np.asarray(a, np.float32), np.asarray(b, np.float32))
    chosen = np.where(floating.order_keys(x) <= floating.order_keys(y), x, y)
    return np.where(np.isnan(x) | np.isnan(y), CANONICAL_NAN, chosen)
