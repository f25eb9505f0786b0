"""What one element of a vector instruction computes: one arm per row of the instruction table.

Opcodes come from isa/instructions.py; arithmetic from arithmetic_by_type.py. d is the destination's present
value (only vmac and reductions use it).
"""

from __future__ import annotations

import numpy as np

from . import arithmetic_by_type as by
from .jit import jit, jit_inline
from .opcodes import (
    VABS,
    VADD,
    VAND,
    VCVT,
    VDEQ,
    VDOT,
    VEXP,
    VMAC,
    VMAX,
    VMIN,
    VMOV,
    VMUL,
    VNEG,
    VOR,
    VRCP,
    VRED,
    VREDMAX,
    VRSQRT,
    VSHL,
    VSHR,
    VSUB,
    VXOR,
)


@jit_inline
def element_of(v, d, a, b):
    """Bits of the result of one element of vector `v`."""
    return element(np.int64(v.op), np.int64(v.t), np.int64(v.s), np.uint32(d), np.uint32(a), np.uint32(b))


@jit
def element(op, t, s, d, a, b):
    """Bits of the result of one element."""
    if op == VMOV or op == VDEQ:
        return a
    if op == VADD:
        return by.add(t, a, b, t)
    if op == VMAC or op == VDOT:
        return by.mac(t, s, d, a, b)
    if op == VMUL:
        return by.mul(t, a, b)
    if op == VSUB:
        return by.sub(t, a, b, t)
    if op == VRED:
        return by.add(t, d, a, s)
    if op == VMAX:
        return by.maximum(t, a, b)
    if op == VMIN:
        return by.minimum(t, a, b)
    if op == VREDMAX:
        return by.maximum(t, d, a)
    if op == VCVT:
        return by.convert(t, s, a)
    if op == VNEG:
        return by.negate(t, a)
    if op == VABS:
        return by.absolute(t, a)
    if op == VAND:
        return np.uint32(a & b)
    if op == VOR:
        return np.uint32(a | b)
    if op == VXOR:
        return np.uint32(a ^ b)
    return _rare(op, t, a, b)


@jit
def _rare(op, t, a, b):
    if op == VSHL:
        return by.shift_left(t, a, b)
    if op == VSHR:
        return by.shift_right(t, a, b)
    if op == VEXP:
        return by.exp(t, a)
    if op == VRCP:
        return by.reciprocal(t, a)
    if op == VRSQRT:
        return by.reciprocal_square_root(t, a)
    return by.divide(t, a, b)
