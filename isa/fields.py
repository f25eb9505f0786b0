"""Operand fields: where each operand of an instruction stands in its word, and which values it accepts.

A bit range is named here once. A field checks, packs and unpacks; nothing is ever masked to fit.
"""

from __future__ import annotations

from dataclasses import dataclass

WORD_BITS = 32


@dataclass(frozen=True)
class Field:
    """Bits `high`..`low` of a word, holding an integer in `minimum`..`maximum`.

    `kind` tells the assembler what the operand looks like in source: `register`, `descriptor`, `type`,
    `flag`, `number`, `label` (a signed distance in words), `address` (bytes), `queue`, `task`, `thread` or
    `choice`.
    """

    name: str
    high: int
    low: int
    kind: str
    signed: bool = False
    choices: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        return self.high - self.low + 1

    @property
    def mask(self) -> int:
        """The field's bits, in place."""
        return ((1 << self.width) - 1) << self.low

    @property
    def minimum(self) -> int:
        return -(1 << (self.width - 1)) if self.signed else 0

    @property
    def maximum(self) -> int:
        return (1 << (self.width - 1)) - 1 if self.signed else (1 << self.width) - 1

    def accepts(self, value: int) -> bool:
        if self.choices:
            return 0 <= value < len(self.choices)
        return self.minimum <= value <= self.maximum

    def pack(self, value: int) -> int:
        """`value` in place. Raises ValueError with the legal range if it does not fit."""
        if not self.accepts(value):
            raise ValueError(f"{value} does not fit in field `{self.name}` ({self.legal})")
        return (value & ((1 << self.width) - 1)) << self.low

    def unpack(self, word: int) -> int:
        value = (word >> self.low) & ((1 << self.width) - 1)
        if self.signed and value > self.maximum:
            value -= 1 << self.width
        return value

    @property
    def legal(self) -> str:
        """The legal set in words, for messages."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        return f"{self.minimum}..{self.maximum}"


# First word. Registers and descriptors share positions: bit 24:21 is always the destination.
FIELDS: dict[str, Field] = {
    field.name: field
    for field in (
        Field("opcode", 31, 25, "opcode"),
        Field("rd", 24, 21, "register"),
        Field("ra", 20, 17, "register"),
        Field("rb", 16, 13, "register"),
        Field("imm", 16, 0, "number", signed=True),
        Field("shift", 5, 0, "number"),
        Field("offset", 12, 0, "label", signed=True),  # words, from the branch itself; after ra, rb
        Field("jump", 16, 0, "label", signed=True),  # words, from the jump itself
        Field("disp", 16, 3, "number", signed=True),  # bytes, added to ra
        Field("address", 20, 3, "address"),  # bytes
        Field("dd", 24, 21, "descriptor"),
        Field("da", 20, 17, "descriptor"),
        Field("db", 16, 13, "descriptor"),
        Field("scalar", 12, 12, "flag"),  # the last source is a register, not a descriptor
        Field("advance_d", 11, 11, "flag"),  # leave the descriptor advanced
        Field("advance_a", 10, 10, "flag"),
        Field("advance_b", 9, 9, "flag"),
        Field("group", 8, 7, "choice", choices=("32", "16", "8", "4")),  # weights per scale, of vdeq
        Field("asynchronous", 6, 6, "flag"),  # a second word follows: LAUNCH_FIELDS
        Field("source", 5, 3, "type"),
        Field("type", 2, 0, "type"),
        Field(
            "part",
            16,
            13,
            "choice",
            choices=("base", *(f"extent{n}" for n in range(4)), *(f"stride{n}" for n in range(4))),
        ),
        Field("queue", 24, 22, "queue"),
        Field("task", 24, 20, "task"),
        Field("trap_code", 7, 0, "number"),
    )
}

# Second word of an asynchronous vector instruction.
LAUNCH_FIELDS: dict[str, Field] = {
    field.name: field
    for field in (
        Field("thread", 2, 0, "thread"),
        Field("priority", 3, 3, "flag"),
        Field("completion", 5, 4, "choice", choices=("none", "activate", "unblock")),
        Field("task", 10, 6, "task"),
    )
}

# Second word of `li32`: the whole word is the value.
IMMEDIATE_FIELDS: dict[str, Field] = {"value": Field("value", 31, 0, "number")}
