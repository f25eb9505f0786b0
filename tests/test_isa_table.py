"""The instruction table tests itself: no overlaps, every bit accounted for, encode and decode are inverse."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from waferloom.isa.fields import FIELDS, IMMEDIATE_FIELDS, LAUNCH_FIELDS, WORD_BITS, Field
from waferloom.isa.instructions import (
    BY_NAME,
    INSTRUCTIONS,
    IllegalInstruction,
    Instruction,
    decode,
    encode,
    second_word_fields,
)

ALL_FIELDS = [*FIELDS.values(), *LAUNCH_FIELDS.values(), *IMMEDIATE_FIELDS.values()]


def name_of(row: Instruction) -> str:
    return row.name


def test_opcodes_and_names_are_unique() -> None:
    assert len({row.opcode for row in INSTRUCTIONS}) == len(INSTRUCTIONS)
    assert len({row.name for row in INSTRUCTIONS}) == len(INSTRUCTIONS)
    assert all(FIELDS["opcode"].accepts(row.opcode) and row.opcode for row in INSTRUCTIONS)


def test_a_zero_word_is_no_instruction() -> None:
    """Never-written code must not run."""
    with pytest.raises(IllegalInstruction):
        decode([0], 0)


@pytest.mark.parametrize("row", INSTRUCTIONS, ids=name_of)
def test_fields_of_a_row_do_not_overlap(row: Instruction) -> None:
    bits = FIELDS["opcode"].mask
    for name in row.fields:
        assert not bits & FIELDS[name].mask, f"{name} overlaps"
        bits |= FIELDS[name].mask
    assert bits == row.used_bits


@pytest.mark.parametrize("fields", [LAUNCH_FIELDS, IMMEDIATE_FIELDS], ids=["launch", "immediate"])
def test_fields_of_a_second_word_do_not_overlap(fields: dict[str, Field]) -> None:
    bits = 0
    for field in fields.values():
        assert not bits & field.mask
        bits |= field.mask


@pytest.mark.parametrize("field", ALL_FIELDS, ids=lambda f: f.name)
def test_a_field_accepts_exactly_its_legal_set(field: Field) -> None:
    assert 0 <= field.low <= field.high < WORD_BITS
    highest = len(field.choices) - 1 if field.choices else field.maximum
    for value in (field.minimum, 0, highest):
        assert field.unpack(field.pack(value)) == value
        assert not field.pack(value) & ~field.mask
    for value in (field.minimum - 1, highest + 1):
        with pytest.raises(ValueError, match="does not fit"):
            field.pack(value)


@pytest.mark.parametrize("row", [r for r in INSTRUCTIONS if r.types], ids=name_of)
def test_types_are_stated_by_the_word(row: Instruction) -> None:
    assert "type" in row.fields
    assert len(set(row.types)) == len(row.types)
    assert row.has_source_type or all(t is s for t, s in row.types)


def legal_values(draw, row: Instruction) -> dict[str, int]:
    """Random legal operands of a row, second word included."""
    values = {}
    for name in row.fields:
        field = FIELDS[name]
        high = len(field.choices) - 1 if field.choices else field.maximum
        values[name] = draw(st.integers(field.minimum, high))
    if row.types:
        t, s = draw(st.sampled_from(row.types))
        values["type"] = int(t)
        if row.has_source_type:
            values["source"] = int(s)
    if values.get("scalar"):  # a register cannot be left advanced
        values["advance_b" if "advance_b" in values else "advance_a"] = 0
    word = FIELDS["opcode"].pack(row.opcode) | FIELDS["asynchronous"].pack(values.get("asynchronous", 0))
    for name, field in second_word_fields(row, word).items():
        high = len(field.choices) - 1 if field.choices else field.maximum
        key = "launch_task" if field is LAUNCH_FIELDS["task"] else name
        values[key] = draw(st.integers(field.minimum, high))
    if values.get("completion") == 0:
        values["launch_task"] = 0
    return values


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_encode_and_decode_are_inverse(data) -> None:
    row = data.draw(st.sampled_from(INSTRUCTIONS))
    values = legal_values(data.draw, row)
    words = encode(row.name, values)
    decoded = decode(words, 0)
    assert decoded.row is row
    assert decoded.values == values
    assert decoded.words == len(words)


def check_word(word: int) -> bool:
    """Decode a one-word pattern; True if it is legal and encodes to itself."""
    try:
        decoded = decode([word], 0)
    except IllegalInstruction:
        return False
    assert encode(decoded.row.name, decoded.values) == [word]
    return True


@pytest.mark.parametrize("row", INSTRUCTIONS, ids=name_of)
def test_every_one_word_pattern_is_illegal_or_encodes_to_itself(row: Instruction) -> None:
    """Legal patterns, each with every single bit flipped, and random ones."""
    rng = random.Random(row.opcode)
    base = FIELDS["opcode"].pack(row.opcode)
    if row.types:
        base |= FIELDS["type"].pack(int(row.types[0][0]))
        if row.has_source_type:
            base |= FIELDS["source"].pack(int(row.types[0][1]))
    assert check_word(base) != row.second_word
    for bit in range(WORD_BITS):
        check_word(base ^ 1 << bit)
    for _ in range(100):
        check_word(base | rng.getrandbits(FIELDS["opcode"].low))
    unused = ~row.used_bits & 0xFFFFFFFF
    for bit in range(WORD_BITS):
        if unused >> bit & 1:
            assert not check_word(base | 1 << bit), f"reserved bit {bit} is ignored"


def test_opcodes_without_a_row_are_illegal() -> None:
    used = {row.opcode for row in INSTRUCTIONS}
    for opcode in set(range(128)) - used:
        assert not check_word(FIELDS["opcode"].pack(opcode))


def test_every_row_has_a_meaning_and_timing() -> None:
    for row in BY_NAME.values():
        assert row.meaning
        assert bool(row.setup) == bool(row.rate) == (row.sources > 0)
