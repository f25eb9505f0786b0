"""f16 on arrays: the NumPy form of half-precision arithmetic, for golden programs and file loaders.

Each function has the meaning of the same operation in numbers.py, bit for bit, NaN patterns included.
Arrays are np.float16 or np.float32 and broadcast as in NumPy.
"""

from __future__ import annotations

import numpy as np

from . import floating

CANONICAL_NAN = np.array(floating.F16.canonical_nan, np.uint16).view(np.float16)[()]


def _decode_table() -> np.ndarray:
    """Value of each f16 pattern from its fields: (65536,) float32, exact; NaN entries are the f32 NaN."""
    bits = np.arange(65536)
    field, fraction = (bits >> 10) & 31, bits & 1023
    hidden = np.where(field > 0, 1024, 0)
    value = np.ldexp((fraction + hidden).astype(np.float32), np.maximum(field, 1) - 25).astype(np.float32)
    value = np.where(field == 31, np.where(fraction == 0, np.float32(np.inf), np.float32(np.nan)), value)
    return np.where(bits & 0x8000, -value, value).astype(np.float32)


F16_VALUES = _decode_table()  # (65536,) float32, indexed by the bit pattern


def canonical16(values: np.ndarray) -> np.ndarray:
    """float16 -> float16 with every NaN replaced by 0x7E00."""
    return np.where(np.isnan(values), CANONICAL_NAN, values)


def f16_from_f32(values: np.ndarray) -> np.ndarray:
    """float32 -> float16, one rounding (what `convert f16, f32` does)."""
    with np.errstate(all="ignore"):
        return canonical16(np.asarray(values, np.float32).astype(np.float16))


def f16_from_f64(values: np.ndarray) -> np.ndarray:
    """float64 -> float16, one rounding directly from double, never by way of f32."""
    return floating.encode_array(floating.F16, values).astype(np.uint16).view(np.float16)


def f32_from_f16(values: np.ndarray) -> np.ndarray:
    """float16 -> float32, exact; any NaN becomes the canonical f32 NaN."""
    wide = np.asarray(values, np.float16).astype(np.float32)
    return np.where(np.isnan(wide), np.float32(np.nan), wide)


def add16(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a + b in float16. By way of f32 this is exact rounding: f32 has at least 2 * 11 + 2 bits."""
    with np.errstate(all="ignore"):
        return f16_from_f32(np.asarray(a, np.float32) + np.asarray(b, np.float32))


def sub16(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a - b in float16."""
    return add16(a, np.negative(b))


def mul16(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a * b in float16; the product is exact in f32, so there is one rounding."""
    with np.errstate(all="ignore"):
        return f16_from_f32(np.asarray(a, np.float32) * np.asarray(b, np.float32))


def fma16(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a * b + c in float16 with one rounding.

    The product of two f16 is exact in f32 (22 bits). The sum with c is not: it is rounded to odd in f32,
    which makes the final rounding to f16 equal to the single rounding of the exact sum.
    """
    with np.errstate(all="ignore"):
        product = np.asarray(a, np.float32) * np.asarray(b, np.float32)
        product, addend = np.broadcast_arrays(product, np.asarray(c, np.float32))
        return f16_from_f32(floating.round_to_odd(*floating.two_sum(product, addend)))


def mac_f32_f16(acc: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """acc (float32) + a * b (float16) -> float32 with one rounding; the product is exact in f32."""
    with np.errstate(all="ignore"):
        product = np.asarray(a, np.float16).astype(np.float32) * np.asarray(b, np.float16).astype(np.float32)
        total = np.asarray(acc, np.float32) + product
    return np.where(np.isnan(total), np.float32(np.nan), total)


def max16(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Larger of two float16; -0 is below +0, and a NaN on either side gives the canonical NaN."""
    x, y = np.broadcast_arrays(np.asarray(a, np.float16), np.asarray(b, np.float16))
    chosen = np.where(floating.order_keys(x) >= floating.order_keys(y), x, y)
    return np.where(np.isnan(x) | np.isnan(y), CANONICAL_NAN, chosen)


def min16(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Smaller of two float16; -0 is below +0, and a NaN on either side gives the canonical NaN."""
    x, y = np.broadcast_arrays(np.asarray(a, np.float16), np.asarray(b, np.float16))
    chosen = np.where(floating.order_keys(x) <= floating.order_keys(y), x, y)
    return np.where(np.isnan(x) | np.isnan(y), CANONICAL_NAN, chosen)


def sum_in_order(values: np.ndarray, start: float = 0.0) -> np.generic:
    """Reduce a vector into a scalar as the machine does: one rounding per element, in element order.

    values: (n,) float16 or float32; the accumulator has the same type. np.sum would reorder.
    """
    with np.errstate(all="ignore"):
        running = np.add.accumulate(np.concatenate([np.array([start], values.dtype), values]))[-1]
    return values.dtype.type(np.nan) if np.isnan(running) else running


def dot_in_order(a: np.ndarray, b: np.ndarray, start: float = 0.0) -> np.float32:
    """f16 x f16 + f32 multiply-adds over two (n,) float16 vectors, in element order; float32."""
    with np.errstate(all="ignore"):
        products = np.asarray(a, np.float16).astype(np.float32) * np.asarray(b, np.float16).astype(np.float32)
    return np.float32(sum_in_order(products, start))
