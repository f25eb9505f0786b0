"""The instruction table: one row per instruction, the only place where an opcode number exists.

The assembler, the disassembler, the decoder, both engines' dispatch, `waferloom isa` and docs/isa.md are
derived from `INSTRUCTIONS`. A new instruction is one row here, one meaning in the reference engine, one arm
in fabric/engine and one example program in tests/run.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

from .element_types import ElementType
from .fields import FIELDS, IMMEDIATE_FIELDS, LAUNCH_FIELDS, Field

T = ElementType


class Unit(IntEnum):
    """Which part of the PE executes the instruction."""

    SCALAR = 0
    VECTOR = 1


@dataclass(frozen=True)
class Instruction:
    """A row of the table.

    `fields` names operand fields in source order (fields.py; spelling.py has the one exception). `types`
    lists the legal (type, source) pairs; an instruction without a `source` field has equal types in each
    pair. `setup` and `rate` name the machine's timing keys of a vector instruction (`rate` is completed by
    type in `rate_key`); `latency` is that of a scalar result: `integer` (1 cycle), `load` (1), `floating`,
    a key of the machine's `[special]` table, or `branch`, `jump`, `none`. `sources` counts vector source
    operands.
    """

    name: str
    opcode: int
    fields: tuple[str, ...]
    meaning: str
    unit: Unit = Unit.SCALAR
    types: tuple[tuple[ElementType, ElementType], ...] = ()
    latency: str = "none"
    setup: str = ""
    rate: str = ""
    sources: int = 0
    second_word: bool = False  # always followed by an immediate word

    @property
    def to_register(self) -> bool:
        """A vector instruction whose destination is a register (a reduction)."""
        return self.unit is Unit.VECTOR and "rd" in self.fields

    @cached_property
    def has_source_type(self) -> bool:
        return "source" in self.fields

    @cached_property
    def used_bits(self) -> int:
        """All bits of the first word that an operand or the opcode accounts for; the others must be zero."""
        bits = FIELDS["opcode"].mask
        for name in self.fields:
            bits |= FIELDS[name].mask
        return bits


def _same(*types: ElementType) -> tuple[tuple[ElementType, ElementType], ...]:
    return tuple((t, t) for t in types)


_WORDS = _same(T.I16, T.I32)
_FLOATS = _same(T.F16, T.F32)
_NUMBERS = _same(T.I16, T.I32, T.F16, T.F32)
_ANY = _same(T.I16, T.I32, T.F16, T.F32, T.BF16)
_MIXED = ((T.F32, T.F16), (T.F32, T.BF16))
_CONVERSIONS = tuple(
    (t, s)
    for t in (T.I16, T.I32, T.F16, T.F32, T.BF16)
    for s in (T.I16, T.I32, T.F16, T.F32, T.BF16)
    if t is not s
)

_VECTOR_2 = ("dd", "da", "db", "scalar", "advance_d", "advance_a", "advance_b", "asynchronous", "type")
_VECTOR_2M = (*_VECTOR_2[:-1], "source", "type")
_VECTOR_1 = ("dd", "da", "scalar", "advance_d", "advance_a", "asynchronous", "type")
_VECTOR_1M = (*_VECTOR_1[:-1], "source", "type")


def _alu(name: str, opcode: int, meaning: str) -> Instruction:
    return Instruction(name, opcode, ("rd", "ra", "rb"), meaning, latency="integer")


def _alu_imm(name: str, opcode: int, field: str, meaning: str) -> Instruction:
    return Instruction(name, opcode, ("rd", "ra", field), meaning, latency="integer")


def _branch(name: str, opcode: int, meaning: str) -> Instruction:
    # Compared registers stand in rd and ra: bits 12:0 and rb's place are left for the distance.
    return Instruction(name, opcode, ("rd", "ra", "offset"), meaning, latency="branch")


def _fp(name: str, opcode: int, meaning: str, latency: str = "floating") -> Instruction:
    return Instruction(name, opcode, ("rd", "ra", "rb", "type"), meaning, types=_FLOATS, latency=latency)


def _special(name: str, opcode: int, latency: str, meaning: str) -> Instruction:
    return Instruction(name, opcode, ("rd", "ra", "type"), meaning, types=_FLOATS, latency=latency)


def _vector(name, opcode, fields, types, setup, rate, sources, meaning) -> Instruction:
    return Instruction(
        name, opcode, fields, meaning, unit=Unit.VECTOR, types=types, setup=setup, rate=rate, sources=sources
    )


INSTRUCTIONS: tuple[Instruction, ...] = (
    # --- scalar integers: 32-bit registers, results wrap ---
    _alu("add", 1, "rd = ra + rb"),
    _alu("sub", 2, "rd = ra - rb"),
    _alu("mul", 3, "rd = low 32 bits of ra * rb"),
    _alu("and", 4, "rd = ra & rb"),
    _alu("or", 5, "rd = ra | rb"),
    _alu("xor", 6, "rd = ra ^ rb"),
    _alu("shl", 7, "rd = ra << rb (0 if rb, unsigned, is 32 or more)"),
    _alu("shr", 8, "rd = ra >> rb, logical (0 if rb, unsigned, is 32 or more)"),
    _alu("sar", 9, "rd = ra >> rb, arithmetic (sign fill if rb, unsigned, is 32 or more)"),
    _alu_imm("addi", 10, "imm", "rd = ra + imm"),
    _alu_imm("muli", 11, "imm", "rd = low 32 bits of ra * imm"),
    _alu_imm("andi", 12, "imm", "rd = ra & imm (imm sign-extended)"),
    _alu_imm("shli", 13, "shift", "rd = ra << shift (0 if 32 or more)"),
    _alu_imm("shri", 14, "shift", "rd = ra >> shift, logical (0 if 32 or more)"),
    _alu_imm("sari", 15, "shift", "rd = ra >> shift, arithmetic (sign fill if 32 or more)"),
    Instruction("li", 16, ("rd", "imm"), "rd = imm", latency="integer"),
    Instruction("li32", 17, ("rd",), "rd = the next word", latency="integer", second_word=True),
    # --- branches: the next instruction issues 3 (not taken) or 6 (taken) cycles later ---
    _branch("beq", 18, "branch if rd == ra"),
    _branch("bne", 19, "branch if rd != ra"),
    _branch("blt", 20, "branch if rd < ra, signed"),
    _branch("bge", 21, "branch if rd >= ra, signed"),
    _branch("bltu", 22, "branch if rd < ra, unsigned"),
    _branch("bgeu", 23, "branch if rd >= ra, unsigned"),
    Instruction("jmp", 24, ("jump",), "jump", latency="jump"),
    Instruction("jal", 25, ("rd", "jump"), "rd = word address of the next instruction; jump", latency="jump"),
    Instruction("jr", 26, ("ra",), "jump to the word address in ra", latency="jump"),
    # --- scalar floating point: f16 in the low half of a register ---
    _fp("fadd", 27, "rd = ra + rb"),
    _fp("fsub", 28, "rd = ra - rb"),
    _fp("fmul", 29, "rd = ra * rb"),
    Instruction(
        "fmac",
        30,
        ("rd", "ra", "rb", "source", "type"),
        "rd = rd + ra * rb, one rounding",
        types=_FLOATS + _MIXED,
        latency="floating",
    ),
    _fp("fmax", 31, "rd = maximum of ra, rb"),
    _fp("flt", 32, "rd = 1 if ra < rb else 0"),
    _fp("fle", 33, "rd = 1 if ra <= rb else 0"),
    Instruction(
        "cvt", 34, ("rd", "ra", "source", "type"), "rd = ra converted", types=_CONVERSIONS, latency="floating"
    ),
    _special("frcp", 35, "reciprocal", "rd = 1 / ra"),
    _special("frsqrt", 36, "rsqrt", "rd = 1 / square root of ra"),
    _special("fexp", 37, "exp", "rd = e to the ra"),
    _special("flog", 38, "log", "rd = natural logarithm of ra"),
    _fp("fdiv", 39, "rd = ra / rb", latency="divide"),
    # --- memory and descriptors ---
    Instruction(
        "ld",
        40,
        ("rd", "ra", "disp", "type"),
        "rd = element at ra + disp (i16 sign-extended, f16 and bf16 zero-extended)",
        types=_ANY,
        latency="load",
    ),
    Instruction("st", 41, ("rd", "ra", "disp", "type"), "element at ra + disp = rd", types=_ANY),
    Instruction("ldm", 42, ("rd", "address", "type"), "rd = element at address", types=_ANY, latency="load"),
    Instruction("stm", 43, ("rd", "address", "type"), "element at address = rd", types=_ANY),
    Instruction("ldd", 44, ("dd", "address"), "descriptor dd = the descriptor stored at address"),
    Instruction("setd", 45, ("dd", "ra", "part"), "part of descriptor dd = ra"),
    Instruction("addd", 46, ("dd", "ra", "part"), "part of descriptor dd += ra"),
    # --- vectors ---
    _vector("vmov", 47, _VECTOR_1, _ANY, "copy", "add", 1, "d = a (bits unchanged)"),
    _vector("vadd", 48, _VECTOR_2, _NUMBERS, "elementwise", "add", 2, "d = a + b"),
    _vector("vsub", 49, _VECTOR_2, _NUMBERS, "elementwise", "add", 2, "d = a - b"),
    _vector("vmul", 50, _VECTOR_2, _NUMBERS, "elementwise", "mul", 2, "d = a * b"),
    _vector("vmac", 51, _VECTOR_2M, _FLOATS + _MIXED, "mac", "mac", 2, "d = d + a * b, one rounding"),
    _vector("vmax", 52, _VECTOR_2, _NUMBERS, "elementwise", "max", 2, "d = maximum of a, b"),
    _vector("vmin", 53, _VECTOR_2, _NUMBERS, "elementwise", "max", 2, "d = minimum of a, b"),
    _vector("vneg", 54, _VECTOR_1, _NUMBERS, "elementwise", "add", 1, "d = -a"),
    _vector("vabs", 55, _VECTOR_1, _NUMBERS, "elementwise", "add", 1, "d = |a|"),
    _vector("vcvt", 56, _VECTOR_1M, _CONVERSIONS, "copy", "convert", 1, "d = a converted"),
    _vector("vand", 57, _VECTOR_2, _WORDS, "elementwise", "add", 2, "d = a & b"),
    _vector("vor", 58, _VECTOR_2, _WORDS, "elementwise", "add", 2, "d = a | b"),
    _vector("vxor", 59, _VECTOR_2, _WORDS, "elementwise", "add", 2, "d = a ^ b"),
    _vector("vshl", 60, _VECTOR_2, _WORDS, "elementwise", "shift", 2, "d = a << b"),
    _vector("vshr", 61, _VECTOR_2, _WORDS, "elementwise", "shift", 2, "d = a >> b, logical"),
    _vector(
        "vdeq",
        62,
        ("dd", "da", "advance_d", "advance_a", "group", "source", "type"),
        ((T.F16, T.Q4), (T.F16, T.Q8)),
        "dequantise",
        "dequantise",
        1,
        "d = weights of a: groups of `group` along a, one dimension, dense",
    ),
    _vector("vexp", 63, _VECTOR_1, _FLOATS, "special", "special", 1, "d = e to the a"),
    _vector("vrcp", 64, _VECTOR_1, _FLOATS, "special", "special", 1, "d = 1 / a"),
    _vector("vrsqrt", 65, _VECTOR_1, _FLOATS, "special", "special", 1, "d = 1 / square root of a"),
    _vector("vdiv", 66, _VECTOR_2, _FLOATS, "special", "divide", 2, "d = a / b"),
    _vector(
        "vred",
        67,
        ("rd", "da", "advance_a", "source", "type"),
        _NUMBERS + _MIXED,
        "reduce",
        "reduce",
        1,
        "rd = rd + every element of a, rounded after each, in order",
    ),
    _vector(
        "vredmax",
        68,
        ("rd", "da", "advance_a", "type"),
        _NUMBERS,
        "reduce",
        "reduce",
        1,
        "rd = maximum of rd and every element of a",
    ),
    _vector(
        "vdot",
        69,
        ("rd", "da", "db", "advance_a", "advance_b", "source", "type"),
        _FLOATS + _MIXED,
        "mac",
        "reduce",
        2,
        "rd = rd + a * b for every element, one rounding each, in order",
    ),
    # --- fabric ---
    Instruction("send", 70, ("queue", "ra"), "append a wavelet with payload ra to an output queue"),
    Instruction("sendc", 71, ("queue", "ra"), "append a control wavelet with payload ra to an output queue"),
    Instruction(
        "recv", 72, ("queue", "ra"), "ra = payload of the next wavelet of an input queue", latency="integer"
    ),
    # --- tasks ---
    Instruction("activate", 73, ("task",), "make a local task pending"),
    Instruction("block", 74, ("task",), "keep a task from being picked"),
    Instruction("unblock", 75, ("task",), "let a task be picked again"),
    Instruction("end", 76, (), "end of the task"),
    Instruction("done", 77, (), "this PE has done its work (the task goes on)"),
    # --- the rest ---
    Instruction("tsc", 78, ("rd",), "rd = low 32 bits of the cycle at issue", latency="integer"),
    Instruction("trap", 79, ("trap_code",), "fault with a code of the program's"),
    Instruction("assert", 80, ("ra", "trap_code"), "fault with the code if ra is zero"),
)

BY_NAME: dict[str, Instruction] = {row.name: row for row in INSTRUCTIONS}
BY_OPCODE: dict[int, Instruction] = {row.opcode: row for row in INSTRUCTIONS}


def rate_key(row: Instruction, element: ElementType, source: ElementType) -> str:
    """Key of the machine's `[rate]` table for a vector instruction of the given types."""
    if row.rate in ("dequantise", "special", "divide", "reduce", "convert", "shift"):
        return row.rate
    width = element.bits
    if row.rate == "mac":
        if element is ElementType.F16:
            return "f16_mac"
        return "f32_mac" if source is ElementType.F32 else "mixed_mac"
    family = "f" if element in (T.F16, T.F32, T.BF16) else "i"
    return f"{family}{width}_{row.rate}"  # e.g. f16_add, i32_mul, f32_max


def setup_key(row: Instruction, element: ElementType, source: ElementType, scalar: bool) -> str:
    """Key of the machine's `[setup]` table of a vector instruction; `scalar`: last source is a register."""
    if row.setup == "copy" and scalar:
        return "fill"
    if row.setup == "mac":
        if element is ElementType.F32 and source is ElementType.F32:
            return "mac_f32"
        return "mac_scalar" if scalar else "mac"
    return row.setup


def second_word_fields(row: Instruction, word: int) -> dict[str, Field]:
    """Fields of the word that follows `word`; empty if the instruction is one word long."""
    if row.second_word:
        return IMMEDIATE_FIELDS
    if "asynchronous" in row.fields and FIELDS["asynchronous"].unpack(word):
        return LAUNCH_FIELDS
    return {}


@dataclass(frozen=True)
class Decoded:
    """One instruction of a program: its row and the values of its fields, second word included."""

    row: Instruction
    values: dict[str, int]
    words: int

    @property
    def types(self) -> tuple[ElementType, ElementType]:
        t = ElementType(self.values["type"])
        return t, ElementType(self.values.get("source", t))


class IllegalInstruction(ValueError):
    """A word that no row of the table describes."""


def encode(name: str, values: dict[str, int]) -> list[int]:
    """The word or words of an instruction.

    Raises ValueError (field and legal range) for a value that does not fit, KeyError for an unknown name.
    Optional flag fields default to 0; operands do not default.
    """
    row = BY_NAME[name]
    word = FIELDS["opcode"].pack(row.opcode)
    for operand in row.fields:
        flag = FIELDS[operand].kind == "flag"
        word |= FIELDS[operand].pack(values.get(operand, 0) if flag else values[operand])
    words = [word]
    if second := second_word_fields(row, word):
        extra = 0
        for field in second.values():
            key = "launch_task" if field is LAUNCH_FIELDS["task"] else field.name
            extra |= field.pack(values[key])
        words.append(extra)
    decode(words, 0)  # the same legality as on the way back
    return words


def decode(code: list[int], pc: int) -> Decoded:
    """Decode the instruction at word `pc`. Raises IllegalInstruction with the reason."""
    word = int(code[pc])
    row = BY_OPCODE.get(FIELDS["opcode"].unpack(word))
    if row is None:
        raise IllegalInstruction(f"no instruction has opcode {FIELDS['opcode'].unpack(word)}")
    if word & ~row.used_bits:
        raise IllegalInstruction(f"`{row.name}` has reserved bits set: {word & ~row.used_bits:#010x}")
    values = {name: FIELDS[name].unpack(word) for name in row.fields}
    for name, value in values.items():
        if not FIELDS[name].accepts(value):
            raise IllegalInstruction(f"`{row.name}`: {value} is not a legal {name}")
    second = second_word_fields(row, word)
    if second:
        if pc + 1 >= len(code):
            raise IllegalInstruction(f"`{row.name}` lacks its second word")
        extra = int(code[pc + 1])
        for field in second.values():
            key = "launch_task" if field is LAUNCH_FIELDS["task"] else field.name
            value = field.unpack(extra)
            if not field.accepts(value):
                raise IllegalInstruction(f"`{row.name}`: {value} is not a legal {field.name}")
            values[key] = value
        unused = extra & ~sum(field.mask for field in second.values())
        if unused:
            raise IllegalInstruction(f"`{row.name}` has reserved bits set in its second word: {unused:#010x}")
        if second is LAUNCH_FIELDS and values["completion"] == 0 and values["launch_task"]:
            raise IllegalInstruction(f"`{row.name}` names a task but no completion action")
    if row.types:
        try:
            t = ElementType(values["type"])
            s = ElementType(values.get("source", values["type"]))
        except ValueError:
            raise IllegalInstruction(f"`{row.name}`: no such element type") from None
        if (t, s) not in row.types:
            raise IllegalInstruction(f"`{row.name}` has no form .{t.source_name}.{s.source_name}")
    if values.get("scalar") and values["advance_b" if "db" in row.fields else "advance_a"]:
        raise IllegalInstruction(f"`{row.name}` advances an operand that is a register")
    return Decoded(row, values, 2 if second else 1)
