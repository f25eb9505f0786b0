"""SiLU gate as a fragment: silu(gate) * up of a column's neurons, a share per row, gathered everywhere."""

from __future__ import annotations

import numpy as np

from ...isa.float16 import f16_from_f32
from ...isa.float32 import add32, mul32
from ...isa.special import exp32, reciprocal32
from .all_reduce import Axis

__all__ = ["silu_gate", "silu_gated"]


def silu_gate(neurons: int, share: int, column: Axis) -> list[str]:
    """Lines that turn `sums` f32, gate and up in turn, into `neurons` f16 on every PE of the column.

    Row y gates neurons y * share ... and sends them to the row where sums meet, then passes on those of the
    rows further out. Scalars: `gate_at` = 8 * share * y, `behind`: neurons of the rows further out.
    Symbols: `gate` f32[share], `gated` f16[share], `neurons` f16[rows * share]. Uses d0..d3, r3, r4.
    """
    lines = [
        "  ld.i32 r3, gate_at",
        f"  ldd d0, sums[2*i] over i:{share}",
        f"  ldd d1, sums[2*i + 1] over i:{share}",
        "  addd d0, r3, base",
        "  addd d1, r3, base",
        "  li r4, f32(1.0)",
        "  vneg.f32 gate, d0",
        "  vexp.f32 gate, gate",
        "  vadd.f32 gate, gate, r4",
        "  vrcp.f32 gate, gate",
        "  vmul.f32 gate, gate, d0",
        "  vmul.f32 gate, gate, d1",
    ]
    if column.pes == 1:
        return [*lines, f"  vcvt.f16.f32 neurons[i], gate[i] over i:{share}"]
    meet, last, count = column.meet, column.last, neurons + neurons % 2
    near, far = f"{(meet - 1) * share} - {share}*k + i", f"{(meet + 1) * share} + {share}*k + i"
    inner = []
    if meet > 0:
        inner += [f"  vmov.f16 neurons[{near}], {column.before} over k:{meet}, i:{share}"]
    if meet < last:
        inner += [f"  vmov.f16 neurons[{far}], {column.other} over k:{last - meet}, i:{share}"]
    return [
        *lines,
        "  vcvt.f16.f32 gated, gate",
        f"  bge {column.role}, r2, gather_end",
        f"  vmov.f16 {column.after}, gated",
        "  ld.i32 r3, behind",
        f"  ldd d2, {column.before}.packed[2]",
        f"  ldd d3, {column.after}.packed[2]",
        "  setd d2, r3, extent0",
        "  setd d3, r3, extent0",
        f"  beq {column.role}, r1, gather_sent",
        "  vmov.f16 d3, d2",
        "gather_sent:",
        f"  vmov.f16 neurons[i], {column.back} over i:{count}",
        "  jmp gather_done",
        "gather_end:",
        f"  vmov.f16 neurons[{meet * share} + i], gated[i] over i:{share}",
        *inner,
        f"  vmov.f16 {column.copies}, neurons[i] over i:{count}",
        "gather_done:",
    ]


def silu_gated(sums: np.ndarray) -> np.ndarray:
    """Golden: float32 (columns, 2 * neurons), gate and up in turn, to float16 (columns, neurons)."""
    gate, up = sums[:, 0::2], sums[:, 1::2]
    sigmoid = reciprocal32(add32(exp32(-gate), np.float32(1)))
    return f16_from_f32(mul32(mul32(sigmoid, gate), up))
