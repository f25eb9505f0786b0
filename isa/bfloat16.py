"""bf16 on arrays: NumPy form. NumPy has no bfloat16, so arrays hold the bit patterns as uint16.

Each function has the meaning of the same operation in numbers.py, bit for bit.
"""

from __future__ import annotations

import numpy as np

from . import float32, floating


def f32_from_bf16(bits: np.ndarray) -> np.ndarray:
    """bf16 patterns (uint16) -> float32, exact; any NaN becomes the canonical f32 NaN."""
    wide = (np.asarray(bits, np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    return float32.canonical32(wide)


def bf16_from_f32(values: np.ndarray) -> np.ndarray:
    """float32 -> bf16 patterns (uint16), one rounding."""
    values = np.asarray(values, np.float32)
    bits = values.view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = (bits + (np.uint32(0x7FFF) + odd)) >> np.uint32(16)  # the carry runs into the exponent
    return np.where(np.isnan(values), floating.BF16.canonical_nan, rounded).astype(np.uint16)


def bf16_from_f64(values: np.ndarray) -> np.ndarray:
    """float64 -> bf16 patterns (uint16), one rounding directly from double."""
    return floating.encode_array(floating.BF16, values).astype(np.uint16)


def add_bf16(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a + b on bf16 patterns; by way of f32 this is exact rounding (24 >= 2 * 8 + 2 bits)."""
    with np.errstate(all="ignore"):
        return bf16_from_f32(f32_from_bf16(a) + f32_from_bf16(b))


def mul_bf16(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a * b on bf16 patterns; the 16-bit product is exact in f32 wherever it can decide a rounding."""
    with np.errstate(all="ignore"):
        return bf16_from_f32(f32_from_bf16(a) * f32_from_bf16(b))


def mac_f32_bf16(acc: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """acc (float32) + a * b (bf16 patterns) -> float32 with one rounding, also where the product under- or
    overflows f32."""
    return float32.fma32(f32_from_bf16(a), f32_from_bf16(b), acc)
