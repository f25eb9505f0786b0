"""Rotary position as a fragment: pairs (2 i, 2 i + 1) turn by this position's angles, which then step on.

`rotation` f32[3, dims / 2] holds -sin, cos, sin; `step` f32[2, dims / 2] cos and sin of the angles per
position. The next position's come from the addition theorem in f32: no table and no last position.
"""

from __future__ import annotations

import numpy as np

from ...isa.float32 import fma32, mul32

__all__ = ["next_rotation", "rope", "rotated", "turned"]


def rope(vectors: int, dims: int) -> list[str]:
    """Lines that turn the first `vectors` * `dims` of `sums` into `rotated`, both f32."""
    loops = f"over h:{vectors}, i:{dims // 2}, e:2"
    at = f"{dims}*h + 2*i"
    return [
        f"  vmul.f32 rotated[{at} + e], sums[{at} + e], rotation[1, i] {loops}",
        f"  vmac.f32 rotated[{at} + e], sums[{at} - e + 1], rotation[2*e, i] {loops}",
    ]


def next_rotation(dims: int) -> list[str]:
    """Lines that take `rotation` to the next position. Symbol: `turned` f32[2, dims / 2]."""
    half = f"i:{dims // 2}"
    return [
        f"  vmul.f32 turned[k, i], rotation[k + 1, i], step[0, i] over k:2, {half}",
        f"  vmac.f32 turned[k, i], rotation[k, i], step[1, i] over k:2, {half}",
        f"  vmov.f32 rotation[k + 1, i], turned[k, i] over k:2, {half}",
        f"  vneg.f32 rotation[0, i], turned[1, i] over {half}",
    ]


def rotated(vectors: np.ndarray, rotation: np.ndarray) -> np.ndarray:
    """Golden: float32 (columns, vectors, dims), `rotation` (columns, 3, dims / 2)."""
    minus_sin, cos, sin = (rotation[:, None, k] for k in range(3))
    even, odd = vectors[..., 0::2], vectors[..., 1::2]
    out = np.empty_like(vectors)
    out[..., 0::2] = fma32(odd, minus_sin, mul32(even, cos))
    out[..., 1::2] = fma32(even, sin, mul32(odd, cos))
    return out


def turned(rotation: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Golden: the next position's rotation (columns, 3, dims / 2); `step` (columns, 2, dims / 2)."""
    both = fma32(rotation[:, :2], step[:, 1:], mul32(rotation[:, 1:], step[:, :1]))
    return np.concatenate([-both[:, 1:], both], axis=1)
