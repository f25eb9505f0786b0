"""Floating-point formats: f16, bf16 and f32 as bit patterns, defined by exact integer arithmetic.

This is the definition the NumPy and the compiled forms are checked against. Every value is taken apart into
(sign, significand, exponent) with value = (-1)^sign * significand * 2^exponent, computed exactly in Python
integers, and rounded once by `FloatFormat.encode`: to nearest, ties to even, subnormals kept.
No host floating-point operation is used here.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np


class FloatFormat(NamedTuple):
    """One IEEE-style binary format. All bit patterns are non-negative Python ints."""

    name: str
    exponent_bits: int
    fraction_bits: int
    canonical_nan: int  # the pattern of every NaN that arithmetic produces

    @property
    def bits(self) -> int:
        """Width in bits, the sign included."""
        return 1 + self.exponent_bits + self.fraction_bits

    @property
    def sign_bit(self) -> int:
        """Mask of the sign."""
        return 1 << (self.exponent_bits + self.fraction_bits)

    @property
    def infinity(self) -> int:
        """Pattern of +infinity; a magnitude above it is a NaN."""
        return ((1 << self.exponent_bits) - 1) << self.fraction_bits

    @property
    def least_exponent(self) -> int:
        """Exponent of the unit in the last place of a subnormal: the smallest positive value is 2^this."""
        return 2 - (1 << (self.exponent_bits - 1)) - self.fraction_bits

    def is_nan(self, bits: int) -> bool:
        """True when the pattern is any NaN."""
        return (bits & (self.sign_bit - 1)) > self.infinity

    def is_infinite(self, bits: int) -> bool:
        """True when the pattern is +infinity or -infinity."""
        return (bits & (self.sign_bit - 1)) == self.infinity

    def decode(self, bits: int) -> tuple[int, int, int]:
        """Take a finite pattern apart: (sign, significand, exponent), exactly."""
        sign = 1 if bits & self.sign_bit else 0
        magnitude = bits & (self.sign_bit - 1)
        field = magnitude >> self.fraction_bits
        fraction = magnitude & ((1 << self.fraction_bits) - 1)
        if field == 0:
            return sign, fraction, self.least_exponent
        return sign, fraction | (1 << self.fraction_bits), field - 1 + self.least_exponent

    def encode(self, sign: int, significand: int, exponent: int) -> int:
        """Round (-1)^sign * significand * 2^exponent once: to nearest even, overflow to infinity."""
        signed = self.sign_bit if sign else 0
        if significand == 0:
            return signed
        top = exponent + significand.bit_length()  # the value is below 2^top
        last = max(top - 1 - self.fraction_bits, self.least_exponent)  # exponent of the last bit kept
        dropped = last - exponent
        if dropped <= 0:
            kept = significand << -dropped
        else:
            kept = significand >> dropped
            rest = significand - (kept << dropped)
            half = 1 << (dropped - 1)
            if rest > half or (rest == half and kept & 1):
                kept += 1
        # The hidden bit, and a carry out of rounding, add themselves into the exponent field.
        return signed | min(kept + ((last - self.least_exponent) << self.fraction_bits), self.infinity)


F16 = FloatFormat("f16", 5, 10, 0x7E00)
BF16 = FloatFormat("bf16", 8, 7, 0x7FC0)
F32 = FloatFormat("f32", 8, 23, 0x7FC00000)
F64 = FloatFormat("f64", 11, 52, 0x7FF8000000000000)  # only inside special functions and at the host's edge


def convert(to: FloatFormat, source: FloatFormat, bits: int) -> int:
    """Convert with at most one rounding, from the exact value of the source; any NaN becomes canonical."""
    if source.is_nan(bits):
        return to.canonical_nan
    if source.is_infinite(bits):
        return to.infinity | (to.sign_bit if bits & source.sign_bit else 0)
    return to.encode(*source.decode(bits))


def multiply(to: FloatFormat, source: FloatFormat, a: int, b: int) -> int:
    """a * b, both in `source`, rounded once to `to`."""
    if source.is_nan(a) or source.is_nan(b):
        return to.canonical_nan
    sign = 1 if (a ^ b) & source.sign_bit else 0
    if source.is_infinite(a) or source.is_infinite(b):
        if not (a & ~source.sign_bit and b & ~source.sign_bit):
            return to.canonical_nan  # infinity times zero
        return to.infinity | (to.sign_bit if sign else 0)
    _, m, e = source.decode(a)
    _, n, f = source.decode(b)
    return to.encode(sign, m * n, e + f)


def add(to: FloatFormat, a_format: FloatFormat, a: int, b_format: FloatFormat, b: int) -> int:
    """a + b of two formats, rounded once to `to`. An exact zero is +0 unless both are -0."""
    if a_format.is_nan(a) or b_format.is_nan(b):
        return to.canonical_nan
    a_infinite, b_infinite = a_format.is_infinite(a), b_format.is_infinite(b)
    a_sign, b_sign = bool(a & a_format.sign_bit), bool(b & b_format.sign_bit)
    if a_infinite or b_infinite:
        if a_infinite and b_infinite and a_sign != b_sign:
            return to.canonical_nan
        return to.infinity | (to.sign_bit if (a_sign if a_infinite else b_sign) else 0)
    return _encode_sum(to, a_format.decode(a), b_format.decode(b))


def multiply_add(to: FloatFormat, accumulator: int, source: FloatFormat, a: int, b: int) -> int:
    """accumulator + a * b with one rounding: accumulator and result in `to`, a and b in `source`."""
    if to.is_nan(accumulator) or source.is_nan(a) or source.is_nan(b):
        return to.canonical_nan
    product_sign = bool((a ^ b) & source.sign_bit)
    if source.is_infinite(a) or source.is_infinite(b):
        if not (a & ~source.sign_bit and b & ~source.sign_bit):
            return to.canonical_nan
        if to.is_infinite(accumulator) and bool(accumulator & to.sign_bit) != product_sign:
            return to.canonical_nan
        return to.infinity | (to.sign_bit if product_sign else 0)
    if to.is_infinite(accumulator):
        return accumulator
    _, m, e = source.decode(a)
    _, n, f = source.decode(b)
    return _encode_sum(to, to.decode(accumulator), (int(product_sign), m * n, e + f))


def _encode_sum(to: FloatFormat, x: tuple[int, int, int], y: tuple[int, int, int]) -> int:
    """Add two exact (sign, significand, exponent) values and round once."""
    exponent = min(x[2], y[2])
    left = x[1] << (x[2] - exponent)
    right = y[1] << (y[2] - exponent)
    total = (-left if x[0] else left) + (-right if y[0] else right)
    if total == 0:
        return to.encode(x[0] & y[0], 0, 0)  # nearest-even: x + (-x) is +0, (-0) + (-0) is -0
    return to.encode(total < 0, abs(total), exponent)


def order_key(form: FloatFormat, bits: int) -> int:
    """An integer that sorts non-NaN patterns by value, with -0 just below +0."""
    return -1 - (bits - form.sign_bit) if bits & form.sign_bit else bits


def bits_from_double(to: FloatFormat, value: float) -> int:
    """The pattern nearest a Python float: one rounding directly from double."""
    return convert(to, F64, struct.unpack("<Q", struct.pack("<d", value))[0])


def double_from_bits(source: FloatFormat, bits: int) -> float:
    """The exact value of a pattern as a Python float; every format here fits in a double."""
    return struct.unpack("<d", struct.pack("<Q", convert(F64, source, bits)))[0]


def encode_array(to: FloatFormat, values: np.ndarray) -> np.ndarray:
    """Round float64 values once to f16, bf16 or f32 patterns: float64 (any shape) -> uint32, same shape."""
    bits = np.ascontiguousarray(values, np.float64).view(np.uint64)
    magnitude = bits & np.uint64(0x7FFFFFFFFFFFFFFF)
    field = (magnitude >> np.uint64(52)).astype(np.int64)
    hidden = np.where(field > 0, np.uint64(1 << 52), np.uint64(0))
    significand = (magnitude & np.uint64((1 << 52) - 1)) | hidden
    exponent = np.maximum(field, 1) - 1075
    last = np.maximum(exponent + 52 - to.fraction_bits, to.least_exponent)
    dropped = np.minimum(last - exponent, 60).astype(np.uint64)  # 60 drops all 53 bits, and more than half
    kept = significand >> dropped
    rest = significand - (kept << dropped)
    half = np.uint64(1) << (dropped - np.uint64(1))
    kept += (rest > half) | ((rest == half) & ((kept & np.uint64(1)) == 1))
    result = np.minimum(
        kept + ((last - to.least_exponent).astype(np.uint64) << np.uint64(to.fraction_bits)),
        np.uint64(to.infinity),
    )
    result |= np.where(bits >> np.uint64(63), np.uint64(to.sign_bit), np.uint64(0))
    nan = magnitude > np.uint64(F64.infinity)
    return np.where(nan, np.uint64(to.canonical_nan), result).astype(np.uint32)


def round_to_odd(total: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Replace `total`, a sum rounded to nearest, by the sum rounded to odd.

    total, error: float32 or float64, same shape, with total + error the exact sum. Where the sum is not exact
    the neighbour with an odd last bit is taken. Rounding that to a format with at least two bits less gives
    the same result as rounding the exact sum (Boldo and Melquiond, 2008).
    """
    integer: type[np.signedinteger] = np.int32 if total.dtype == np.float32 else np.int64
    bits: Any = total.view(integer)
    inexact = (error < 0) | (error > 0)  # false for the NaN that an infinite sum leaves in `error`
    step = np.where((error < 0) == (total < 0), integer(1), integer(-1))
    return np.where(inexact & ((bits & 1) == 0), bits + step, bits).view(total.dtype)


def two_sum(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rounded sum and its exact error (Knuth): total + error == x + y. Same dtype and shape as x and y."""
    total = x + y
    y_part = total - x
    x_part = total - y_part
    return total, (x - x_part) + (y - y_part)


def order_keys(values: np.ndarray) -> np.ndarray:
    """Integers that sort float16 or float32 patterns by value, with -0 just below +0; same shape."""
    integer: type[np.signedinteger] = np.int16 if values.dtype == np.float16 else np.int32
    bits: Any = np.ascontiguousarray(values).view(integer).reshape(values.shape)
    return np.where(bits < 0, bits ^ np.iinfo(integer).max, bits)
