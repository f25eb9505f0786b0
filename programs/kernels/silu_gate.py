"""SiLU gate as a fragment: silu(gate) * up of a column's neurons, a share per row, gathered everywhere."""

from __future__ import annotations

from .all_reduce import COLUMN

__all__ = ["silu_gate"]


def silu_gate(neurons: int, share: int, rows: int) -> list[str]:
    """Lines that turn `sums` f32, gate and up in turn, into `neurons` f16 on every PE of the column.

    Row y gates neurons y * share ... and sends them south, then passes on those of the rows in the north, so
    that they reach the last row in falling order. Scalars: `gate_at` = 8 * share * y, `behind` = share * y.
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
    if rows == 1:
        return [*lines, f"  vcvt.f16.f32 neurons[i], gate[i] over i:{share}"]
    last, count = rows - 1, neurons + neurons % 2
    return [
        *lines,
        "  vcvt.f16.f32 gated, gate",
        f"  beq {COLUMN.role}, r2, gather_end",
        f"  vmov.f16 {COLUMN.after}, gated",
        "  ld.i32 r3, behind",
        f"  ldd d2, {COLUMN.before}.packed[2]",
        f"  ldd d3, {COLUMN.after}.packed[2]",
        "  setd d2, r3, extent0",
        "  setd d3, r3, extent0",
        f"  beq {COLUMN.role}, r1, gather_sent",
        "  vmov.f16 d3, d2",
        "gather_sent:",
        f"  vmov.f16 neurons[i], {COLUMN.back} over i:{count}",
        "  jmp gather_done",
        "gather_end:",
        f"  vmov.f16 neurons[{last * share} + i], gated[i] over i:{share}",
        f"  vmov.f16 neurons[{(last - 1) * share} - {share}*k + i], {COLUMN.before} over k:{last}, i:{share}",
        f"  vmov.f16 {COLUMN.copies}, neurons[i] over i:{count}",
        "gather_done:",
    ]
