"""Special functions and dequantise: worked values, accuracy, and equality of the scalar and array forms."""

from __future__ import annotations

from decimal import Decimal, getcontext
from fractions import Fraction
from math import isqrt

import numpy as np
import pytest
from awkward_bits import awkward, sample
from waferloom.isa import dequantise, floating, numbers, special
from waferloom.isa.numbers import BF16, F16, F32

ARRAYS = {
    "reciprocal": special.reciprocal32,
    "sqrt": special.sqrt32,
    "rsqrt": special.rsqrt32,
    "exp": special.exp32,
    "log": special.log32,
}


def f32(value: float) -> int:
    return floating.bits_from_double(floating.F32, value)


def nearest_f32(value: Decimal) -> int:
    """f32 nearest a decimal of many digits: one exact division, one rounding."""
    numerator, denominator = abs(value).as_integer_ratio()
    scale = 400
    return floating.F32.encode(value < 0, (numerator << scale) // denominator | 1, -scale)


def test_constants_are_what_their_comments_say():
    getcontext().prec = 60
    ln2 = Decimal(2).ln()
    assert Fraction(special.LN2_HIGH) == Fraction(int(ln2 * 2**37), 2**37)
    assert float(ln2 - Decimal(special.LN2_HIGH)) == special.LN2_LOW
    assert float(1 / ln2) == special.LOG2_E
    assert special.EXP_COEFFICIENTS[-1] == special.EXP_COEFFICIENTS[-2] == 1.0
    below = 0x3F800000 | special.SQRT2_BITS
    two = 2 * 2**300
    root = Fraction(isqrt(two), 2**150)
    at_most, above = (floating.double_from_bits(floating.F32, b) for b in (below, below + 1))
    assert at_most < root < above


@pytest.mark.parametrize(
    ("function", "operand", "result"),
    [
        ("reciprocal", 0x00000000, 0x7F800000),
        ("reciprocal", 0x80000000, 0xFF800000),
        ("reciprocal", 0xFF800000, 0x80000000),
        ("reciprocal", 0x00000001, 0x7F800000),  # 2^149 is beyond f32
        ("reciprocal", 0x7F7FFFFF, 0x00200000),  # a subnormal result is kept
        ("sqrt", 0x80000000, 0x80000000),
        ("sqrt", 0xBF800000, 0x7FC00000),
        ("rsqrt", 0x80000000, 0xFF800000),
        ("rsqrt", 0x40800000, 0x3F000000),
        ("rsqrt", 0x7F800000, 0x00000000),
        ("exp", 0x00000000, 0x3F800000),
        ("exp", 0x3F800000, 0x402DF854),
        ("exp", 0x42B17217, 0x7F7FFF84),  # the greatest operand with a finite result
        ("exp", 0x42B17218, 0x7F800000),
        ("exp", 0xC2CFF1B4, 0x00000001),  # the least operand with a positive result
        ("exp", 0xC2CFF1B5, 0x00000000),
        ("exp", 0xFF800000, 0x00000000),
        ("exp", 0x7F800001, 0x7FC00000),
        ("log", 0x3F800000, 0x00000000),
        ("log", 0x80000000, 0xFF800000),
        ("log", 0x80000001, 0x7FC00000),
        ("log", 0x7F800000, 0x7F800000),
    ],
)
def test_edges_of_each_function(function, operand, result):
    assert special.UNARY[function](F32, operand) == result
    array = ARRAYS[function](np.array([operand], np.uint32).view(np.float32))
    assert array.view(np.uint32)[0] == result


@pytest.mark.parametrize("function", list(ARRAYS))
def test_array_form_equals_the_definition(function):
    bits = np.concatenate([np.array(awkward(F32), np.uint32), sample(F32, 3000, 21)])
    got = ARRAYS[function](bits.view(np.float32)).view(np.uint32)
    assert got.tolist() == [special.UNARY[function](F32, int(b)) for b in bits]


def test_division_of_arrays_equals_the_definition():
    a, b = sample(F32, 3000, 22), sample(F32, 3000, 23)
    got = special.divide32(a.view(np.float32), b.view(np.float32)).view(np.uint32)
    assert got.tolist() == [special.divide(F32, int(x), int(y)) for x, y in zip(a, b, strict=True)]


def test_division_and_square_root_are_correctly_rounded():
    random = np.random.default_rng(24)
    for a, b in random.integers(1, 0x7F800000, (1500, 2)).tolist():
        x, y = (Fraction(floating.double_from_bits(floating.F32, v)) for v in (a, b))
        shift = 400
        scaled = x / y * 2**shift
        quotient = int(scaled) * 2 + (scaled.denominator > 1)  # with a sticky bit for the part cut off
        assert special.divide(F32, a, b) == floating.F32.encode(0, quotient, -shift - 1)
        square = x * 2 ** (2 * shift)
        root = isqrt(int(square))
        root = root * 2 + (root * root != square)
        assert special.square_root(F32, a) == floating.F32.encode(0, root, -shift - 1)


def test_exp_and_log_are_correctly_rounded_where_sampled():
    """Against 60 decimal digits; isa/special.py states the result of scanning all operands."""
    getcontext().prec = 60
    random = np.random.default_rng(25)
    exponents = np.concatenate([random.uniform(-103, 88.7, 200), random.normal(0, 0.5, 100)])
    for value in exponents.astype(np.float32):
        assert special.exp(F32, f32(value)) == nearest_f32(Decimal(float(value)).exp()), value
    for value in np.exp(random.uniform(-87, 88, 300)).astype(np.float32):
        assert special.log(F32, f32(value)) == nearest_f32(Decimal(float(value)).ln()), value


@pytest.mark.parametrize("bits", [0x3C413D3A, 0x41178FEB, 0x4C5D65A5, 0x65D890D3, 0x6F31A8EC])
def test_the_five_known_misroundings_of_log_are_off_by_one_unit(bits):
    getcontext().prec = 60
    value = Decimal(floating.double_from_bits(floating.F32, bits)).ln()
    assert abs(special.log(F32, bits) - nearest_f32(value)) == 1


def test_f16_functions_round_the_f32_result():
    assert special.reciprocal(F16, 0x4200) == 0x3555  # 1/3
    assert special.exp(F16, 0x498B) == 0x7BF7  # e^11.0859375 = 65248.2 is the greatest finite result
    assert special.exp(F16, 0x498C) == 0x7C00
    assert special.log(F16, 0x0001) == numbers.convert(F16, F32, f32(-24 * 0.6931471805599453))
    assert special.divide(BF16, 0x3F80, 0x4040) == 0x3EAB
    for a in range(1, 0x7C00, 97):  # correctly rounded, as f32 has 2 * 11 + 2 bits
        x = Fraction(floating.double_from_bits(floating.F16, a))
        quotient = 2**200 / x
        assert special.reciprocal(F16, a) == floating.F16.encode(
            0, int(quotient) * 2 + (quotient.denominator > 1), -201
        )


# Dequantise


def test_group_sizes_in_bytes():
    assert [dequantise.q4_group_bytes(g) for g in (4, 8, 16, 32)] == [6, 8, 12, 20]
    assert [dequantise.q8_group_bytes(g) for g in (4, 8, 16, 32)] == [6, 10, 18, 34]
    with pytest.raises(ValueError, match="group size 24"):
        dequantise.q4_group_bytes(24)


def test_a_q4_group_is_read_low_nibble_first():
    """Scale 0.5, offset -4: codes 0..15 are -4.0 .. 3.5; then the same backwards."""
    group = bytes.fromhex("003800c41032547698badcfeefcdab8967452301")
    ramp = [-4.0 + 0.5 * k for k in range(16)]
    weights = dequantise.dequantise_q4(np.frombuffer(group, np.uint8))
    assert weights.tolist() == ramp + ramp[::-1]
    assert dequantise.q4_weights(group) == weights.view(np.uint16).tolist()
    packed = dequantise.pack_q4(np.float16(0.5), np.float16(-4), list(range(16)) + list(range(15, -1, -1)))
    assert packed.tobytes() == group


def test_a_q8_group_is_scale_times_signed_code():
    group = bytes.fromhex("0030") + bytes([0, 1, 127, 128, 255, 3, 5, 7])  # scale 2^-3
    weights = dequantise.dequantise_q8(np.frombuffer(group, np.uint8))
    assert weights.tolist() == [0, 0.125, 15.875, -16, -0.125, 0.375, 0.625, 0.875]
    assert dequantise.q8_weights(group) == weights.view(np.uint16).tolist()
    assert dequantise.pack_q8(np.float16(0.125), np.array([0, 1, 127, -128, -1, 3, 5, 7])).tobytes() == group


@pytest.mark.parametrize("group", dequantise.GROUP_SIZES)
def test_arrays_of_groups_equal_the_definition(group):
    """Any header: subnormal, infinite and NaN scales follow IEEE rules and give canonical NaN."""
    random = np.random.default_rng(group)
    header = sample(F16, 120, group).reshape(60, 2)
    q4 = dequantise.pack_q4(*header.view(np.float16).T, random.integers(0, 16, (60, group)))
    q8 = dequantise.pack_q8(header.view(np.float16)[:, 0], random.integers(-128, 128, (60, group)))
    assert q4.shape == (60, dequantise.q4_group_bytes(group))
    assert q8.shape == (60, dequantise.q8_group_bytes(group))
    for blocks, array, scalar in (
        (q4, dequantise.dequantise_q4, dequantise.q4_weights),
        (q8, dequantise.dequantise_q8, dequantise.q8_weights),
    ):
        got = array(blocks.reshape(3, 20, -1)).reshape(60, group).view(np.uint16)
        assert got.tolist() == [scalar(row.tobytes()) for row in blocks]


def test_infinite_scale_and_zero_scale():
    assert dequantise.q4_weight(0x7C00, 0, 0) == 0x7E00  # infinity * 0
    assert dequantise.q4_weight(0x7C00, 0, 1) == 0x7C00
    assert dequantise.q4_weight(0x0000, 0x3C00, 9) == 0x3C00
    assert dequantise.q8_weight(0x8000, -3) == 0x0000
