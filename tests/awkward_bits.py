"""Operand patterns that break arithmetic: every kind of edge of f16, bf16, f32 and the integers."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from waferloom.isa.element_types import ElementType

_MAGNITUDES = {
    ElementType.I16: (0, 1, 2, 15, 16, 17, 0x7FFF, 0x5555),
    ElementType.I32: (0, 1, 2, 31, 32, 33, 0x7FFFFFFF, 0x8000, 0xFFFF, 0x10000, 65519, 65520, 0x1000001),
    # zero, subnormals, least normal, one and its neighbours, 2048, greatest, infinity, NaNs
    ElementType.F16: (
        0,
        1,
        2,
        0x3FF,
        0x400,
        0x401,
        0x3BFF,
        0x3C00,
        0x3C01,
        0x6800,
        0x7BFF,
        0x7C00,
        0x7C01,
        0x7FFF,
    ),
    ElementType.BF16: (0, 1, 2, 0x7F, 0x80, 0x81, 0x3F7F, 0x3F80, 0x3F81, 0x7F7F, 0x7F80, 0x7F81, 0x7FFF),
    ElementType.F32: (
        0,
        1,
        2,
        0x7FFFFF,
        0x800000,
        0x800001,
        0x3F7FFFFF,
        0x3F800000,
        0x3F800001,
        0x7F7FFFFF,
        0x7F800000,
        0x7F800001,
        0x7FFFFFFF,
        0x33000000,
        0x33000001,
        0x38800000,
        0x477FEFFF,
        0x477FF000,
    ),
}


def awkward(t: ElementType) -> list[int]:
    """Edge patterns of a type, each with both settings of the top bit."""
    return [m | top for m in _MAGNITUDES[t] for top in (0, 1 << (t.bits - 1))]


def patterns(t: ElementType) -> st.SearchStrategy[int]:
    """Random and awkward patterns of a type."""
    return st.one_of(st.sampled_from(awkward(t)), st.integers(0, (1 << t.bits) - 1))


def sample(t: ElementType, count: int, seed: int) -> np.ndarray:
    """`count` patterns, uint16 or uint32: a third each awkward, of modest size, and uniform over bits."""
    random = np.random.default_rng(seed)
    kind = np.uint16 if t.bits == 16 else np.uint32
    uniform = random.integers(0, 1 << t.bits, count, dtype=np.uint64).astype(kind)
    edges = np.array(awkward(t), kind)[random.integers(0, len(awkward(t)), count)]
    values = random.standard_normal(count).astype(np.float32)
    if t is ElementType.F16:
        modest = values.astype(np.float16).view(np.uint16)
    elif t is ElementType.F32:
        modest = values.view(np.uint32)
    elif t is ElementType.BF16:
        modest = (values.view(np.uint32) >> 16).astype(np.uint16)
    else:
        modest = (values * 100).astype(np.int64).astype(kind)
    return np.choose(random.integers(0, 3, count), [uniform, edges, modest])
