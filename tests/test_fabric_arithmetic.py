"""Compiled arithmetic equals the definition of the machine's numbers, and an independent C compiler."""

from __future__ import annotations

import shutil
import subprocess

import cffi
import numpy as np
import pytest
from awkward_bits import awkward, sample
from waferloom.fabric.engine import arithmetic, bitcasts, conversions, integers
from waferloom.fabric.engine import arithmetic_by_type as by_type
from waferloom.fabric.engine import special as compiled_special
from waferloom.fabric.engine.jit import jit
from waferloom.isa import dequantise, float16, numbers, special
from waferloom.isa.numbers import BF16, F16, F32, I16, I32

NUMBERS = (I16, I32, F16, F32, BF16)
KIND = {I16: np.uint16, I32: np.uint32, F16: np.uint16, F32: np.uint32, BF16: np.uint16}


def operands(t, count=500, seed=0):
    """Patterns for one operand: seed chooses an independent sample."""
    return sample(t, count, 100 + seed)


def check(function, types, definition, count=500):
    """One typed compiled function on patterns, against the definition on Python ints."""
    columns = [operands(t, count, k) for k, t in enumerate(types)]
    for row in zip(*columns, strict=True):
        got, expected = int(function(*row)), definition(*map(int, row))
        assert got == expected, (function, [hex(v) for v in row], hex(got), hex(expected))


def test_half_conversions_on_every_pattern():
    """The host's instruction and the portable form: exact widening, and the narrowing of it, NaN apart."""

    @jit
    def widen(bits, out, portable):
        for k in range(bits.size):
            out[k] = bitcasts.f32_from_f16(bits[k])
            portable[k] = bitcasts.portable_f32_from_f16(bits[k])

    bits = np.arange(65536, dtype=np.uint16)
    out, portable = np.empty((2, 65536), np.float32)
    widen(bits, out, portable)
    number = ~np.isnan(float16.F16_VALUES)
    for got in (out, portable):
        assert np.array_equal(got[number].view(np.uint32), float16.F16_VALUES[number].view(np.uint32))
        assert np.isnan(got[~number]).all()


def test_narrowing_to_f16_on_ties_and_neighbours():
    @jit
    def narrow(bits, out, portable):
        for k in range(bits.size):
            value = bitcasts.f32_from_bits(bits[k])
            out[k] = arithmetic.f16_result(value)
            portable[k] = bitcasts.portable_f16_from_f32(value)

    values = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    ties = np.append((values[:-1] + values[1:]) / 2, np.float32(65520))
    centre = np.concatenate([values, ties]).view(np.int32)
    bits = np.maximum(np.concatenate([centre - 1, centre, centre + 1]), 0).astype(np.uint32)
    bits = np.concatenate([bits, bits | np.uint32(0x80000000), np.arange(0, 2**32, 65521).astype(np.uint32)])
    out, portable = np.empty((2, bits.size), np.uint16)
    narrow(bits, out, portable)
    expected = float16.f16_from_f32(bits.view(np.float32)).view(np.uint16)
    assert np.array_equal(out, expected)
    nan = np.isnan(bits.view(np.float32))
    assert np.array_equal(portable[~nan], expected[~nan])
    assert ((portable[nan] & 0x7FFF) == 0x7E00).all()


@pytest.mark.parametrize(
    ("name", "types", "definition"),
    [
        *[
            (f"{op}_{n}", (t, t), lambda a, b, t=t, f=f: f(t, a, b))
            for n, t in (("f16", F16), ("f32", F32), ("bf16", BF16))
            for op, f in (
                ("add", numbers.add),
                ("sub", numbers.sub),
                ("mul", numbers.mul),
                ("max", numbers.maximum),
                ("min", numbers.minimum),
            )
        ],
        ("add_f32_f16", (F32, F16), lambda a, b: numbers.add(F32, a, b, F16)),
        ("sub_f32_f16", (F32, F16), lambda a, b: numbers.sub(F32, a, b, F16)),
        ("add_f32_bf16", (F32, BF16), lambda a, b: numbers.add(F32, a, b, BF16)),
        ("mac_f16", (F16, F16, F16), lambda c, a, b: numbers.mac(F16, F16, c, a, b)),
        ("mac_f32", (F32, F32, F32), lambda c, a, b: numbers.mac(F32, F32, c, a, b)),
        ("mac_f32_f16", (F32, F16, F16), lambda c, a, b: numbers.mac(F32, F16, c, a, b)),
        ("mac_f32_bf16", (F32, BF16, BF16), lambda c, a, b: numbers.mac(F32, BF16, c, a, b)),
        ("neg_f16", (F16,), lambda a: numbers.negate(F16, a)),
        ("abs_f16", (F16,), lambda a: numbers.absolute(F16, a)),
        ("neg_f32", (F32,), lambda a: numbers.negate(F32, a)),
        ("abs_f32", (F32,), lambda a: numbers.absolute(F32, a)),
    ],
)
def test_floating_operations(name, types, definition):
    check(getattr(arithmetic, name), types, definition)


@pytest.mark.parametrize(("suffix", "t"), [("i16", I16), ("i32", I32)])
def test_integer_operations(suffix, t):
    for name, f in (
        ("add", numbers.add),
        ("sub", numbers.sub),
        ("mul", numbers.mul),
        ("max", numbers.maximum),
        ("min", numbers.minimum),
        ("shl", numbers.shift_left),
        ("shr", numbers.shift_right),
        ("sar", numbers.shift_right_signed),
    ):
        check(getattr(integers, f"{name}_{suffix}"), (t, t), lambda a, b, f=f: f(t, a, b))
    check(getattr(integers, f"neg_{suffix}"), (t,), lambda a: numbers.negate(t, a))
    check(getattr(integers, f"abs_{suffix}"), (t,), lambda a: numbers.absolute(t, a))
    check(getattr(integers, f"mac_{suffix}"), (t, t, t), lambda c, a, b: numbers.mac(t, t, c, a, b))
    check(integers.mac_i32_i16, (I32, I16, I16), lambda c, a, b: numbers.mac(I32, I16, c, a, b))


@pytest.mark.parametrize("t", NUMBERS)
@pytest.mark.parametrize("s", NUMBERS)
def test_conversions(t, s):
    for a in [*awkward(s), *operands(s, 300).tolist()]:
        expected = numbers.convert(t, s, a)
        assert int(by_type.convert(int(t), int(s), np.uint32(a))) == expected
        if t is not s:
            typed = getattr(conversions, f"{t.source_name}_of_{s.source_name}")
            assert int(typed(KIND[s](a))) == expected, (t, s, hex(a))


@pytest.mark.parametrize("t", NUMBERS)
def test_operations_chosen_by_type(t):
    """The scalar path: same names and arguments as the definition, patterns in uint32."""
    a, b, c = (operands(t, 250, k).astype(np.uint32) for k in range(3))
    i = int(t)
    for x, y, z in zip(a, b, c, strict=True):
        p, q, r = int(x), int(y), int(z)
        assert by_type.add(i, x, y, i) == numbers.add(t, p, q)
        assert by_type.sub(i, x, y, i) == numbers.sub(t, p, q)
        for name in ("mul", "maximum", "minimum", "equal", "less", "less_equal"):
            assert getattr(by_type, name)(i, x, y) == getattr(numbers, name)(t, p, q), (name, hex(p), hex(q))
        for name in ("negate", "absolute"):
            assert getattr(by_type, name)(i, x) == getattr(numbers, name)(t, p), (name, hex(p))
        for s in NUMBERS:
            if (t, s) in numbers.MULTIPLY_ADD_TYPES and s.bits == t.bits:
                assert by_type.mac(i, int(s), z, x, y) == numbers.mac(t, s, r, p, q)
        if t.is_integer:
            for name in ("shift_left", "shift_right", "shift_right_signed"):
                assert getattr(by_type, name)(i, x, y) == getattr(numbers, name)(t, p, q), (name, hex(p), q)
        else:
            assert by_type.divide(i, x, y) == special.divide(t, p, q)


@pytest.mark.parametrize(
    ("short", "name"),
    [
        ("reciprocal", "reciprocal"),
        ("sqrt", "square_root"),
        ("rsqrt", "reciprocal_square_root"),
        ("exp", "exp"),
        ("log", "log"),
    ],
)
def test_special_functions(short, name):
    definition = getattr(special, name)
    for suffix, t in (("f32", F32), ("f16", F16)):
        for a in [*awkward(t), *operands(t, 400).tolist()]:
            expected = definition(t, a)
            assert getattr(compiled_special, f"{short}_{suffix}")(KIND[t](a)) == expected, (suffix, hex(a))
            assert getattr(by_type, name)(int(t), np.uint32(a)) == expected
    check(compiled_special.divide_f16, (F16, F16), lambda a, b: special.divide(F16, a, b))


def test_weights():
    for scale, offset in zip(operands(F16, 60, 1), operands(F16, 60, 2), strict=True):
        for code in range(16):
            expected = dequantise.q4_weight(int(scale), int(offset), code)
            assert arithmetic.q4_weight(scale, offset, np.uint8(code)) == expected
        for code in (-128, -1, 0, 1, 127):
            assert arithmetic.q8_weight(scale, np.int8(code)) == dequantise.q8_weight(int(scale), code)


# Loops over arrays, as the engine runs them.


@jit
def row_mac_f16(acc, a, b):
    for k in range(acc.size):
        acc[k] = arithmetic.mac_f16(acc[k], a[k], b[k])


@jit
def row_mac_f32_f16(acc, a, b):
    for k in range(acc.size):
        acc[k] = arithmetic.mac_f32_f16(acc[k], a[k], b[k])


@jit
def multiply_then_add(acc, a, b):
    for k in range(acc.size):
        acc[k] = acc[k] + a[k] * b[k]


def test_vectorised_loops_equal_the_array_form():
    a, b = operands(F16, 200_003, 1), operands(F16, 200_003, 2)
    acc16, acc32 = operands(F16, 200_003, 3), operands(F32, 200_003, 4)
    x, y = a.view(np.float16), b.view(np.float16)
    expected16 = float16.fma16(x, y, acc16.view(np.float16)).view(np.uint16)
    expected32 = float16.mac_f32_f16(acc32.view(np.float32), x, y).view(np.uint32)
    row_mac_f16(acc16, a, b)
    row_mac_f32_f16(acc32, a, b)
    assert np.array_equal(acc16, expected16)
    assert np.array_equal(acc32, expected32)


def test_llvm_does_not_contract_a_multiply_and_an_add():
    """(1 + 2^-12)^2 - (1 + 2^-11): 0 when the product is rounded first, 2^-24 when the two are fused."""
    a = np.full(64, 1 + 2.0**-12, np.float32)
    acc = np.full(64, -(1 + 2.0**-11), np.float32)
    multiply_then_add(acc, a, a)
    assert not acc.any()


ORACLE = """
#include <math.h>
#include <string.h>
#include <stdint.h>
static _Float16 h(uint16_t x) { _Float16 v; memcpy(&v, &x, 2); return v; }
static uint16_t hb(_Float16 v) { uint16_t x; memcpy(&x, &v, 2); return x; }
static float f(uint32_t x) { float v; memcpy(&v, &x, 4); return v; }
static uint32_t fb(float v) { uint32_t x; memcpy(&x, &v, 4); return x; }
void add16(int n, uint16_t *o, uint16_t *a, uint16_t *b) { while (n--) o[n] = hb(h(a[n]) + h(b[n])); }
void mul16(int n, uint16_t *o, uint16_t *a, uint16_t *b) { while (n--) o[n] = hb(h(a[n]) * h(b[n])); }
void div16(int n, uint16_t *o, uint16_t *a, uint16_t *b) { while (n--) o[n] = hb(h(a[n]) / h(b[n])); }
/* x86 long double has 64 bits: enough for the exact sum of an f16 and a product of two, down to 2^-48 */
void fma16(int n, uint16_t *o, uint16_t *a, uint16_t *b) {
    while (n--) o[n] = hb((_Float16)((long double)h(a[n]) * h(b[n]) + h(o[n]))); }
void fma32(int n, uint32_t *o, uint32_t *a, uint32_t *b) {
    while (n--) o[n] = fb(fmaf(f(a[n]), f(b[n]), f(o[n]))); }
void div32(int n, uint32_t *o, uint32_t *a, uint32_t *b) { while (n--) o[n] = fb(f(a[n]) / f(b[n])); }
void sqrt32(int n, uint32_t *o, uint32_t *a, uint32_t *b) { while (n--) o[n] = fb(sqrtf(f(a[n]))); }
void narrow64(int n, uint16_t *o, double *a) { while (n--) o[n] = hb((_Float16)a[n]); }
"""


@pytest.fixture(scope="module")
def oracle(tmp_path_factory):
    """The functions above, compiled by gcc, where it has _Float16."""
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("no gcc to build the independent oracle")
    folder = tmp_path_factory.mktemp("oracle")
    (folder / "oracle.c").write_text(ORACLE)
    command = [gcc, "-O1", "-ffp-contract=off", "-fPIC", "-shared", "oracle.c", "-o", "oracle.so", "-lm"]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if built.returncode:
        pytest.skip(f"gcc cannot build the oracle (no _Float16?): {built.stderr.splitlines()[0]}")
    ffi = cffi.FFI()
    for line in ORACLE.splitlines():
        if line.startswith("void"):
            ffi.cdef(line[: line.index(")") + 1] + ";")
    return ffi, ffi.dlopen(str(folder / "oracle.so"))


def run_oracle(oracle, name, *columns):
    ffi, library = oracle
    types = {2: "uint16_t[]", 4: "uint32_t[]", 8: "double[]"}
    pointers = [ffi.from_buffer(types[c.itemsize], c) for c in columns]
    getattr(library, name)(columns[0].size, *pointers)
    form = numbers.FORMATS[F16 if columns[0].itemsize == 2 else F32]
    out = columns[0]
    return np.where((out & (form.sign_bit - 1)) > form.infinity, form.canonical_nan, out)


@pytest.mark.parametrize(
    ("name", "t", "function"),
    [
        ("add16", F16, lambda o, a, b: arithmetic.add_f16(a, b)),
        ("mul16", F16, lambda o, a, b: arithmetic.mul_f16(a, b)),
        ("div16", F16, lambda o, a, b: compiled_special.divide_f16(a, b)),
        ("fma16", F16, arithmetic.mac_f16),
        ("fma32", F32, arithmetic.mac_f32),
        ("div32", F32, lambda o, a, b: compiled_special.divide_f32(a, b)),
        ("sqrt32", F32, lambda o, a, b: compiled_special.sqrt_f32(a)),
    ],
)
def test_against_the_c_compiler(oracle, name, t, function):
    o, a, b = (operands(t, 20_000, k) for k in range(3))
    got = [int(function(*row)) for row in zip(o, a, b, strict=True)]
    expected = run_oracle(oracle, name, o.copy(), a, b).tolist()
    rows = zip(o.tolist(), a.tolist(), b.tolist(), got, expected, strict=True)
    bad = [tuple(map(hex, row)) for row in rows if row[3] != row[4]]
    assert not bad, bad[:5]


def test_double_to_f16_against_the_c_compiler(oracle):
    values = np.random.default_rng(27).standard_normal(50_000)
    values *= np.exp2(np.random.default_rng(28).integers(-27, 18, values.size))
    values[:3] = 1 + 2.0**-11 + 2.0**-30, 65519.99, 65520
    expected = run_oracle(oracle, "narrow64", np.empty(values.size, np.uint16), values)
    assert np.array_equal(float16.f16_from_f64(values).view(np.uint16), expected)
