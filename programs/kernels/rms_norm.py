"""RMSNorm as a fragment: x = f16(wide * scale * weight), scale = 1 / sqrt(mean square + eps), in f32."""

from __future__ import annotations

from .all_reduce import COLUMN, Vector, all_reduce

__all__ = ["rms_norm"]


def rms_norm(norm: str, values: int, total: int, eps: float, rows: int) -> list[str]:
    """Lines that turn `hidden` f16[values] of every row, `total` in all rows, into `x`.

    Symbols: `hidden`, `x`, `wide` f32[values], `square` f32[1], `{norm}` f32[values]. Uses r6, r7.
    """
    return [
        "  li r6, 0",
        "  vdot.f32.f16 r6, hidden, hidden",
        "  st.f32 r6, square",
        "  vcvt.f32.f16 wide, hidden",
        *all_reduce(COLUMN, rows, Vector("square"), norm),
        "  ld.f32 r6, square",
        f"  li r7, f32({1.0 / total!r})",
        "  fmul.f32 r6, r6, r7",
        f"  li r7, f32({eps!r})",
        "  fadd.f32 r6, r6, r7",
        "  frsqrt.f32 r6, r6",
        "  vmul.f32 wide, wide, r6",
        f"  vmul.f32 wide, wide, {norm}",
        f"  vcvt.f16.f32 x[i], wide[i] over i:{values}",
    ]
