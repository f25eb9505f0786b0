"""Element types: the kinds of number an operand of the machine can hold, with their widths and names.

This file only names and sizes them; what arithmetic on them means is in numbers.py.
"""

from __future__ import annotations

import enum


class ElementType(enum.IntEnum):
    """The kind of one vector element or scalar operand; Q4 and Q8 exist only as sources of dequantise."""

    I16 = 0
    I32 = 1
    F16 = 2
    F32 = 3
    BF16 = 4
    Q4 = 5
    Q8 = 6

    @property
    def source_name(self) -> str:
        """The name in assembly source: `i16`, `i32`, `f16`, `f32`, `bf16`, `q4`, `q8`."""
        return self.name.lower()

    @property
    def bits(self) -> int:
        """Width of one element in bits; for Q4 and Q8 the width of one code, without the group's scale."""
        return _BITS[self]

    @property
    def bytes(self) -> int:
        """Width of one element in whole bytes. Q4 has no whole-byte width: asking for it is an error."""
        if self is ElementType.Q4:
            raise ValueError("a q4 element is half a byte; sizes are given by q4_group_bytes(group)")
        return _BITS[self] // 8

    @property
    def is_integer(self) -> bool:
        """True for i16 and i32 (two's complement, wrapping)."""
        return self in (ElementType.I16, ElementType.I32)

    @property
    def is_float(self) -> bool:
        """True for f16, f32 and bf16 (IEEE-style sign, exponent and fraction)."""
        return self in (ElementType.F16, ElementType.F32, ElementType.BF16)


_BITS = {
    ElementType.I16: 16,
    ElementType.I32: 32,
    ElementType.F16: 16,
    ElementType.F32: 32,
    ElementType.BF16: 16,
    ElementType.Q4: 4,
    ElementType.Q8: 8,
}

BY_SOURCE_NAME = {t.source_name: t for t in ElementType}
