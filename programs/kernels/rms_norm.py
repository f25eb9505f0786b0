"""RMSNorm as a fragment: x = f16(wide * weight * scale), scale = 1 / sqrt(mean square + eps), in f32."""

from __future__ import annotations

import numpy as np

from ...isa.float16 import f16_from_f32, f32_from_f16
from ...isa.float32 import add32, mul32
from ...isa.special import rsqrt32
from .all_reduce import Axis, Vector, all_reduce, sum_in_chains, sum_in_order

__all__ = ["normalised", "rms_norm", "squares_at_once"]


def squares_at_once(values: int) -> int:
    """Sums of squares that the engine keeps; `values` is a multiple of 4."""
    return 8 if values % 8 == 0 else 4


def rms_norm(norm: str, values: int, total: int, eps: float, column: Axis, residual: str = "") -> list[str]:
    """Lines that turn `hidden` f16[values] of every row, `total` in all rows, into `x`.

    Squares are added up in 8 sums (4 if 8 do not divide `values`), then these in order. Symbols: `hidden`,
    `x`, `wide` f32[values], `squares` f32[8], `square` f32[1], `{norm}` f32[values]. Uses r6, r7.
    `residual`: a symbol f32[values] to normalise; `hidden` is its f16 rounding, whose squares are taken.
    """
    weighted = [f"  vmul.f32 wide, {residual or 'wide'}, {norm}"]
    if not residual:
        weighted.insert(0, "  vcvt.f32.f16 wide, hidden")
    sums = squares_at_once(values)
    loops = f"over j:{values // sums}, r:{sums}"
    return [
        f"  vmov.f32 squares[r], r1 over r:{sums}",
        f"  vmac.f32.f16 squares[r], hidden[{sums}*j + r], hidden[{sums}*j + r] {loops}",
        "  li r6, 0",
        f"  vred.f32 r6, squares[r] over r:{sums}",
        "  st.f32 r6, square",
        *all_reduce(column, Vector("square[i]", "i:1"), norm, meanwhile=weighted),
        "  ld.f32 r6, square",
        f"  li r7, f32({1.0 / total!r})",
        "  fmul.f32 r6, r6, r7",
        f"  li r7, f32({eps!r})",
        "  fadd.f32 r6, r6, r7",
        "  frsqrt.f32 r6, r6",
        "  vmul.f32 wide, wide, r6",
        f"  vcvt.f16.f32 x[i], wide[i] over i:{values}",
    ]


def normalised(
    x: np.ndarray, weight: np.ndarray, total: int, eps: float, meet: int, residual: np.ndarray | None = None
) -> np.ndarray:
    """Golden: float16 (rows, values) to the same; `weight` float32 alike; `meet`: row of the sums.

    `residual`: float32 values that `x` is the rounding of.
    """
    wide = f32_from_f16(x)
    squares = (wide * wide).reshape(len(x), -1, squares_at_once(x.shape[1]))
    square = sum_in_chains(sum_in_order(sum_in_order(squares)), meet)
    scale = rsqrt32(add32(mul32(square, np.float32(1.0 / total)), np.float32(eps)))
    return f16_from_f32(mul32(mul32(wide if residual is None else residual, weight), scale))
