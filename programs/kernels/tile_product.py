"""The product of a PE's tile of weights with its inputs, as a fragment: sums = W x in f32, in order of x."""

from __future__ import annotations

__all__ = ["tile_product"]


def tile_product(
    name: str, x: str, outputs: int, inputs: int, slice: int, kind: str, group: int
) -> list[str]:
    """Lines that leave `outputs` sums in `sums` (whole slices). Symbols: `w_{name}`, and for quantised kinds
    `part_{name}` and `slice_{name}`, its first slice in groups and in f16. Uses d0..d4, r3."""
    if kind == "f16":
        loops = f"b:{outputs // 8}, j:{inputs}, r:8"
        return [
            f"  vmov.f32 sums[i], r1 over i:{outputs}",
            f"  vmac.f32.f16 sums[8*b + r], w_{name}[8*b + r, j], {x}[j] over {loops}",
        ]
    loops = f"b:{slice // 8}, j:{inputs}, r:8"
    lines = [
        f"  vmov.f32 sums[i], r1 over i:{outputs}",
        f"  ldd d0, part_{name}",
        f"  ldd d1, slice_{name}[i, j] over i:{slice}, j:{inputs}",
        f"  ldd d2, sums[8*b + r] over {loops}",
        f"  ldd d3, slice_{name}[8*b + r, j] over {loops}",
        f"  ldd d4, {x}[j] over {loops}",
    ]
    once = [f"  vdeq.f16.{kind} d1, d0+ group {group}", "  vmac.f32.f16 d2+, d3, d4"]
    if outputs == slice:
        return [*lines, *once]
    return [
        *lines,
        f"  li r3, {outputs // slice}",
        f"{name}_slice:",
        *once,
        "  addi r3, r3, -1",
        f"  bne r3, r1, {name}_slice",
    ]
