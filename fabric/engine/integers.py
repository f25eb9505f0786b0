"""Integer arithmetic of the compute engine on bit patterns, compiled; same meaning as isa/numbers.py.

i16 operands and results are uint16, i32 ones uint32; everything wraps. Loops of these vectorise.
"""

from __future__ import annotations

import numpy as np

from .jit import jit_inline


@jit_inline
def add_i16(a, b):
    """a + b modulo 2^16."""
    return np.uint16(a + b)


@jit_inline
def sub_i16(a, b):
    """a - b modulo 2^16."""
    return np.uint16(a - b)


@jit_inline
def mul_i16(a, b):
    """Low 16 bits of a * b."""
    return np.uint16(a * b)


@jit_inline
def mac_i16(acc, a, b):
    """acc + a * b modulo 2^16."""
    return np.uint16(acc + a * b)


@jit_inline
def max_i16(a, b):
    """Larger operand, signed."""
    return a if np.int16(a) >= np.int16(b) else b


@jit_inline
def min_i16(a, b):
    """Smaller operand, signed."""
    return a if np.int16(a) <= np.int16(b) else b


@jit_inline
def neg_i16(a):
    """-a; the most negative value gives itself."""
    return np.uint16(np.uint16(0) - a)


@jit_inline
def abs_i16(a):
    """|a|; the most negative value gives itself."""
    return np.uint16(np.uint16(0) - a) if np.int16(a) < np.int16(0) else a


@jit_inline
def shl_i16(a, amount):
    """Left shift; an unsigned amount of 16 or more gives 0."""
    return np.uint16(a << (amount & np.uint16(15))) if amount < np.uint16(16) else np.uint16(0)


@jit_inline
def shr_i16(a, amount):
    """Right shift filling with zeros; 16 or more gives 0."""
    return np.uint16(a >> (amount & np.uint16(15))) if amount < np.uint16(16) else np.uint16(0)


@jit_inline
def sar_i16(a, amount):
    """Right shift filling with the sign; 16 or more leaves only the sign."""
    return np.uint16(np.int16(a) >> np.int16(min(amount, np.uint16(15))))


@jit_inline
def add_i32(a, b):
    """a + b modulo 2^32."""
    return np.uint32(a + b)


@jit_inline
def sub_i32(a, b):
    """a - b modulo 2^32."""
    return np.uint32(a - b)


@jit_inline
def mul_i32(a, b):
    """Low 32 bits of a * b."""
    return np.uint32(a * b)


@jit_inline
def mac_i32(acc, a, b):
    """acc + a * b modulo 2^32."""
    return np.uint32(acc + a * b)


@jit_inline
def max_i32(a, b):
    """Larger operand, signed."""
    return a if np.int32(a) >= np.int32(b) else b


@jit_inline
def min_i32(a, b):
    """Smaller operand, signed."""
    return a if np.int32(a) <= np.int32(b) else b


@jit_inline
def neg_i32(a):
    """-a; the most negative value gives itself."""
    return np.uint32(np.uint32(0) - a)


@jit_inline
def abs_i32(a):
    """|a|; the most negative value gives itself."""
    return np.uint32(np.uint32(0) - a) if np.int32(a) < np.int32(0) else a


@jit_inline
def shl_i32(a, amount):
    """Left shift; an unsigned amount of 32 or more gives 0."""
    return np.uint32(a << (amount & np.uint32(31))) if amount < np.uint32(32) else np.uint32(0)


@jit_inline
def shr_i32(a, amount):
    """Right shift filling with zeros; 32 or more gives 0."""
    return np.uint32(a >> (amount & np.uint32(31))) if amount < np.uint32(32) else np.uint32(0)


@jit_inline
def sar_i32(a, amount):
    """Right shift filling with the sign; 32 or more leaves only the sign."""
    return np.uint32(np.int32(a) >> np.int32(min(amount, np.uint32(31))))


@jit_inline
def mac_i32_i16(acc, a, b):
    """i32 acc + i16 a * i16 b modulo 2^32."""
    return np.uint32(acc + np.uint32(np.int32(np.int16(a)) * np.int32(np.int16(b))))
