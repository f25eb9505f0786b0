"""The definition of the machine's numbers, checked against exact fractions, NumPy and worked examples."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from awkward_bits import awkward, patterns, sample
from hypothesis import given, settings
from hypothesis import strategies as st
from waferloom.isa import bfloat16, float16, float32, floating, numbers
from waferloom.isa.element_types import BY_SOURCE_NAME, ElementType
from waferloom.isa.numbers import BF16, F16, F32, I16, I32

ALL_16 = np.arange(65536, dtype=np.uint16)
FLOATS = (F16, F32, BF16)


def exact(t: int, bits: int) -> Fraction:
    """Exact value of a finite pattern."""
    sign, significand, exponent = numbers.FORMATS[t].decode(bits)
    return (-1) ** sign * significand * Fraction(2) ** exponent


def nearest(t: int, value: Fraction) -> int:
    """The finite pattern nearest a fraction, ties to even, found among its neighbours; shares no code."""
    form = numbers.FORMATS[t]
    low, high = 0, form.infinity  # magnitudes are ordered as their patterns
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if exact(t, middle) <= abs(value) else (low, middle)
    # infinity stands where the next value would be
    above = exact(t, high) if high < form.infinity else exact(t, high - 1) * 2 - exact(t, high - 2)
    down, up = abs(value) - exact(t, low), above - abs(value)
    chosen = high if up < down or (up == down and high % 2 == 0) else low
    return chosen | (form.sign_bit if value < 0 else 0)


def test_element_types_have_names_and_widths():
    assert BY_SOURCE_NAME["bf16"] is ElementType.BF16
    assert [t.bits for t in ElementType] == [16, 32, 16, 32, 16, 4, 8]
    assert ElementType.F32.bytes == 4
    with pytest.raises(ValueError, match="half a byte"):
        _ = ElementType.Q4.bytes


def test_every_f16_pattern_decodes_to_its_value_and_encodes_back():
    values = ALL_16.view(np.float16).astype(np.float32)
    nan = np.isnan(values)
    assert np.array_equal(float16.F16_VALUES[~nan].view(np.uint32), values[~nan].view(np.uint32))
    assert np.isnan(float16.F16_VALUES[nan]).all()
    for bits in range(65536):
        wide = numbers.convert(F32, F16, bits)
        back = numbers.convert(F16, F32, wide)
        assert back == (0x7E00 if nan[bits] else bits)
        assert wide == (0x7FC00000 if nan[bits] else int(values[bits : bits + 1].view(np.uint32)[0]))


def test_every_bf16_pattern_widens_and_narrows_back():
    wide = bfloat16.f32_from_bf16(ALL_16)
    back = bfloat16.bf16_from_f32(wide)
    nan = np.isnan(wide)
    assert np.array_equal(back[~nan], ALL_16[~nan])
    assert (back[nan] == 0x7FC0).all()
    for bits in range(0, 65536, 7):
        assert numbers.convert(F32, BF16, bits) == int(wide[bits : bits + 1].view(np.uint32)[0])
        assert numbers.convert(BF16, F32, numbers.convert(F32, BF16, bits)) == back[bits]


def test_negate_and_absolute_are_moves_of_all_patterns():
    for bits in range(0, 65536, 11):
        assert numbers.negate(F16, bits) == bits ^ 0x8000
        assert numbers.absolute(BF16, bits) == bits & 0x7FFF
    assert numbers.negate(F16, 0x7C01) == 0xFC01  # a signalling NaN keeps its payload
    assert numbers.absolute(I16, 0x8000) == 0x8000
    assert numbers.negate(I32, 1) == 0xFFFFFFFF


@pytest.mark.parametrize(
    ("value", "bits"),
    [
        (65519.99, 0x7BFF),
        (65520.0, 0x7C00),  # the tie beyond the greatest value goes to infinity
        (2.0**-24, 0x0001),
        (2.0**-25, 0x0000),  # half the smallest subnormal: tie to even
        (2.0**-25 * (1 + 2**-40), 0x0001),
        (2.0**-14, 0x0400),
        (3811.0, 0x6B72),  # 3812: above 2048 f16 steps by 2, and the tie goes to even
        (1 + 2.0**-11 + 2.0**-30, 0x3C01),  # just above a tie: directly from double it rounds up
    ],
)
def test_f16_from_double_is_one_rounding(value, bits):
    assert floating.bits_from_double(floating.F16, value) == bits
    assert float16.f16_from_f64(np.array(value)).view(np.uint16) == bits


def test_conversion_by_way_of_f32_is_a_different_path():
    value = np.array([1 + 2.0**-11 + 2.0**-30])
    assert float16.f16_from_f64(value).view(np.uint16)[0] == 0x3C01
    assert float16.f16_from_f32(value.astype(np.float32)).view(np.uint16)[0] == 0x3C00


def test_f32_to_f16_at_every_value_tie_and_neighbour():
    """Each f16, each midpoint of two, and the f32 just beside them; both signs; NumPy and the definition."""
    values = ALL_16[:0x7C00].view(np.float16).astype(np.float32)
    ties = np.append((values[:-1] + values[1:]) / 2, np.float32(65520))
    centre = np.concatenate([values, ties]).view(np.int32)
    bits = np.unique(np.maximum(np.concatenate([centre - 1, centre, centre + 1]), 0)).astype(np.uint32)
    for sign in (0, 0x80000000):
        signed = bits | np.uint32(sign)
        array = float16.f16_from_f32(signed.view(np.float32)).view(np.uint16)
        double = floating.encode_array(floating.F16, signed.view(np.float32).astype(np.float64))
        assert np.array_equal(array, double)
        for k in range(0, signed.size, 5):
            assert numbers.convert(F16, F32, int(signed[k])) == array[k]


@settings(deadline=None, max_examples=150)
@given(
    st.sampled_from(FLOATS),
    st.fractions(min_value=0, max_value=70000) | st.integers(0, 2**60).map(lambda n: Fraction(n, 2**80)),
)
def test_encode_chooses_the_nearest_pattern(t, value):
    scaled = value.limit_denominator(2**30)
    denominator = 2 ** scaled.denominator.bit_length()
    value = Fraction(scaled.numerator * denominator // scaled.denominator, denominator)  # make it dyadic
    form = numbers.FORMATS[t]
    assert form.encode(0, value.numerator, -(value.denominator.bit_length() - 1)) == nearest(t, value)


@settings(deadline=None, max_examples=400)
@given(st.data())
def test_multiply_add_rounds_the_exact_sum_once(data):
    t, s = data.draw(st.sampled_from([(F16, F16), (F32, F16), (F32, BF16), (F32, F32)]))
    acc, a, b = data.draw(patterns(t)), data.draw(patterns(s)), data.draw(patterns(s))
    got = numbers.mac(t, s, acc, a, b)
    finite = all(
        not f.is_nan(x) and not f.is_infinite(x)
        for f, x in [(numbers.FORMATS[t], acc), (numbers.FORMATS[s], a), (numbers.FORMATS[s], b)]
    )
    if finite:
        total = exact(t, acc) + exact(s, a) * exact(s, b)
        assert got == nearest(t, total) or (total == 0 and got in (0, numbers.FORMATS[t].sign_bit))
    elif numbers.is_nan(t, got):
        assert got == numbers.canonical_nan(t)


def test_f16_multiply_add_differs_from_rounding_twice():
    """The product lies just below half a step of the accumulator; f32 loses that, and the tie goes up."""
    accumulator = np.float16(1 + 2.0**-10)
    a, b = np.float16(2.0**-5 * (1 + 2.0**-10)), np.float16(2.0**-6 * (1 - 2.0**-10))
    by_f32 = np.float16(np.float32(a) * np.float32(b) + np.float32(accumulator))
    bits = [int(v.view(np.uint16)) for v in (accumulator, a, b)]
    assert bits[0] == 0x3C01
    assert numbers.mac(F16, F16, *bits) == 0x3C01
    assert float16.fma16(a, b, accumulator).view(np.uint16) == 0x3C01
    assert by_f32.view(np.uint16) == 0x3C02


def test_add_subtract_multiply_of_f16_by_way_of_f32_is_exact():
    a, b = sample(F16, 3000, 4), sample(F16, 3000, 5)
    x, y = a.view(np.float16), b.view(np.float16)
    pairs = [(float16.add16, numbers.add), (float16.sub16, numbers.sub), (float16.mul16, numbers.mul)]
    for array, scalar in pairs:
        _agree(array(x, y), [scalar(F16, int(p), int(q)) for p, q in zip(a, b, strict=True)])


def test_accumulator_width_and_order_show_in_a_sum():
    """4096 ones in f16 stop at 2048; eight ones after 2048 are lost, before it they count."""
    one, total16, total32 = 0x3C00, 0, 0
    for _ in range(4096):
        total16 = numbers.add(F16, total16, one)
        total32 = numbers.add(F32, total32, one, F16)
    assert total16 == 0x6800  # 2048
    assert total32 == 0x45800000  # 4096
    row = np.array([2048] + [1] * 8, np.float16)
    assert float16.sum_in_order(row) == 2048
    assert float16.sum_in_order(row[::-1]) == 2056
    assert float16.dot_in_order(np.ones(4096, np.float16), np.ones(4096, np.float16)) == 4096


def test_long_dot_product_needs_the_f32_accumulator():
    random = np.random.default_rng(28)
    a, b = random.standard_normal((2, 4096)).astype(np.float16)
    true = float(np.dot(a.astype(np.float64), b.astype(np.float64)))
    acc16 = np.float16(0)
    for x, y in zip(a, b, strict=True):
        acc16 = float16.fma16(x, y, acc16)[()]
    assert abs(float(float16.dot_in_order(a, b)) - true) < 1e-3
    assert abs(float(acc16) - true) > 0.01


@pytest.mark.parametrize("t", FLOATS)
def test_order_of_zeros_and_nan(t):
    form = numbers.FORMATS[t]
    minus_zero, nan = form.sign_bit, form.infinity | 1
    assert numbers.maximum(t, minus_zero, 0) == numbers.maximum(t, 0, minus_zero) == 0
    assert numbers.minimum(t, minus_zero, 0) == numbers.minimum(t, 0, minus_zero) == minus_zero
    assert numbers.maximum(t, nan, 0) == numbers.minimum(t, 0, nan) == form.canonical_nan
    assert numbers.equal(t, 0, minus_zero)
    assert not numbers.less(t, minus_zero, 0)
    assert not numbers.equal(t, nan, nan)
    assert not numbers.less_equal(t, nan, 0)
    assert numbers.less(t, form.infinity | form.sign_bit, minus_zero)


def test_float_to_integer_rounds_to_even_and_saturates():
    def i16(value):
        return numbers.signed(I16, numbers.convert(I16, F32, floating.bits_from_double(floating.F32, value)))

    assert [i16(v) for v in (0.5, 1.5, 2.5, -0.5, -1.5, 0.49)] == [0, 2, 2, 0, -2, 0]
    assert [i16(v) for v in (32767.4, 32767.5, 1e9, -32768.5, -1e9)] == [32767, 32767, 32767, -32768, -32768]
    assert [i16(v) for v in (float("inf"), float("-inf"), float("nan"))] == [32767, -32768, 0]
    assert numbers.convert(I32, F32, 0x4F000000) == 0x7FFFFFFF  # 2^31 saturates


def test_integer_to_float_is_one_rounding():
    assert numbers.convert(F32, I32, 0x01000001) == 0x4B800000  # 2^24 + 1 is a tie
    assert numbers.convert(F16, I32, 65519) == 0x7BFF
    assert numbers.convert(F16, I32, 65520) == 0x7C00
    assert numbers.convert(BF16, I16, 0xFFFF) == 0xBF80


def test_integers_wrap_and_shifts_beyond_the_width():
    assert numbers.add(I16, 0x7FFF, 1) == 0x8000
    assert numbers.mul(I32, 0x10001, 0x10001) == 0x20001
    assert numbers.mac(I32, I16, 5, 0xFFFF, 3) == 2
    assert numbers.shift_left(I16, 1, 15) == 0x8000
    assert numbers.shift_left(I16, 1, 16) == 0
    assert numbers.shift_right(I32, 0x80000000, 31) == 1
    assert numbers.shift_right(I32, 0x80000000, 0xFFFFFFFF) == 0
    assert numbers.shift_right_signed(I16, 0x8000, 99) == 0xFFFF
    with pytest.raises(ValueError, match="no multiply-add of f32 into f16"):
        numbers.mac(F16, F32, 0, 0, 0)


def _agree(array: np.ndarray, expected: list[int]) -> None:
    got = np.atleast_1d(array)
    got = got.view(np.uint16 if got.itemsize == 2 else np.uint32).tolist()
    bad = [(k, hex(g), hex(e)) for k, (g, e) in enumerate(zip(got, expected, strict=True)) if g != e]
    assert not bad, bad[:5]


@pytest.mark.parametrize("edges", [False, True])
def test_array_forms_equal_the_definition(edges):
    views = {F16: np.float16, F32: np.float32, BF16: np.uint16}

    def operands(t, seed):
        if edges:  # all pairs of awkward patterns
            kind = np.uint16 if t.bits == 16 else np.uint32
            grid = np.meshgrid(*[np.array(awkward(t), kind)] * 2)
            return grid[seed % 2].ravel()[:1600]
        return sample(t, 1600, seed)

    for array, t, scalar in [
        (float16.max16, F16, numbers.maximum),
        (float16.min16, F16, numbers.minimum),
        (float32.max32, F32, numbers.maximum),
        (float32.min32, F32, numbers.minimum),
        (float32.add32, F32, numbers.add),
        (float32.sub32, F32, numbers.sub),
        (float32.mul32, F32, numbers.mul),
        (bfloat16.add_bf16, BF16, numbers.add),
        (bfloat16.mul_bf16, BF16, numbers.mul),
    ]:
        a, b = operands(t, 10), operands(t, 11)
        view = views[t]
        expected = [scalar(t, int(x), int(y)) for x, y in zip(a, b, strict=True)]
        _agree(array(a.view(view), b.view(view)), expected)

    for array, t, s in [
        (lambda acc, a, b: float16.fma16(a, b, acc), F16, F16),
        (float16.mac_f32_f16, F32, F16),
        (bfloat16.mac_f32_bf16, F32, BF16),
        (lambda acc, a, b: float32.fma32(a, b, acc), F32, F32),
    ]:
        a, b = operands(s, 12), operands(s, 13)
        acc = sample(t, a.size, 14)
        expected = [numbers.mac(t, s, *map(int, row)) for row in zip(acc, a, b, strict=True)]
        _agree(array(acc.view(views[t]), a.view(views[s]), b.view(views[s])), expected)
