"""Numbers of the machine: what every arithmetic instruction computes, by element type, on bit patterns.

This is the definition the reference engine runs. Operands and results are non-negative Python ints holding
exactly the element's bits (16 or 32). The compiled form (fabric/engine/arithmetic.py) and the array form
(float16.py, float32.py, bfloat16.py) agree with it bit for bit. No host floating point is used here.

Rules
- Every floating result is rounded once, to nearest with ties to even; subnormals are kept.
- A floating result that is NaN is the canonical pattern: f16 0x7E00, bf16 0x7FC0, f32 0x7FC00000.
- Moves keep bits, and so do `negate` and `absolute`, which only flip or clear the sign bit, of a NaN too.
  `convert` is arithmetic: it turns a NaN into the canonical one, and `convert(t, t, x)` is not a move.
- i16 and i32 are two's complement and wrap; negate and absolute of the most negative value give itself.
- maximum and minimum: NaN if either operand is NaN; -0 is less than +0.
- less, less_equal and equal follow IEEE: false if either operand is NaN, and -0 equals +0.
- Float to integer rounds to nearest even and saturates; NaN gives 0. Integer narrowing wraps.
- Shift amounts are unsigned; an amount of the width or more gives 0, or the sign fill for shift_right_signed.
"""

from __future__ import annotations

from . import floating
from .element_types import ElementType
from .floating import FloatFormat

I16, I32, F16, F32, BF16 = (
    ElementType.I16,
    ElementType.I32,
    ElementType.F16,
    ElementType.F32,
    ElementType.BF16,
)

FORMATS: dict[int, FloatFormat] = {F16: floating.F16, F32: floating.F32, BF16: floating.BF16}
_WIDTH: dict[int, int] = {I16: 16, I32: 32, F16: 16, F32: 32, BF16: 16}

# (accumulator and result, source) pairs that have a multiply-add.
MULTIPLY_ADD_TYPES = ((I16, I16), (I32, I16), (I32, I32), (F16, F16), (F32, F16), (F32, BF16), (F32, F32))


def canonical_nan(t: int) -> int:
    """The NaN pattern that arithmetic of a floating type produces."""
    return FORMATS[t].canonical_nan


def is_nan(t: int, a: int) -> bool:
    """True when `a` is a NaN of type t; integers never are."""
    return t in FORMATS and FORMATS[t].is_nan(a)


def signed(t: int, a: int) -> int:
    """The two's-complement value of an integer pattern."""
    width = _WIDTH[t]
    return a - (1 << width) if a >> (width - 1) else a


def _wrap(t: int, value: int) -> int:
    return value & ((1 << _WIDTH[t]) - 1)


def add(t: int, a: int, b: int, s: int | None = None) -> int:
    """a + b in type t; with s, b is of type s and widened exactly first (f32 += f16, i32 += i16)."""
    s = t if s is None else s
    if t in FORMATS:
        return floating.add(FORMATS[t], FORMATS[t], a, FORMATS[s], b)
    return _wrap(t, signed(t, a) + signed(s, b))


def sub(t: int, a: int, b: int, s: int | None = None) -> int:
    """a - b in type t; with s, b is of type s and widened exactly first."""
    s = t if s is None else s
    if t in FORMATS:
        return floating.add(FORMATS[t], FORMATS[t], a, FORMATS[s], b ^ FORMATS[s].sign_bit)
    return _wrap(t, signed(t, a) - signed(s, b))


def mul(t: int, a: int, b: int) -> int:
    """a * b in type t; integers keep the low half."""
    if t in FORMATS:
        return floating.multiply(FORMATS[t], FORMATS[t], a, b)
    return _wrap(t, a * b)


def mac(t: int, s: int, acc: int, a: int, b: int) -> int:
    """acc + a * b with one rounding; acc and the result are of type t, a and b of type s."""
    if (t, s) not in MULTIPLY_ADD_TYPES:
        raise ValueError(f"no multiply-add of {ElementType(s).source_name} into {ElementType(t).source_name}")
    if t in FORMATS:
        return floating.multiply_add(FORMATS[t], acc, FORMATS[s], a, b)
    return _wrap(t, acc + signed(s, a) * signed(s, b))


def maximum(t: int, a: int, b: int) -> int:
    """The larger operand, unchanged; NaN if either is NaN."""
    if is_nan(t, a) or is_nan(t, b):
        return canonical_nan(t)
    return a if _order(t, a) >= _order(t, b) else b


def minimum(t: int, a: int, b: int) -> int:
    """The smaller operand, unchanged; NaN if either is NaN."""
    if is_nan(t, a) or is_nan(t, b):
        return canonical_nan(t)
    return a if _order(t, a) <= _order(t, b) else b


def _order(t: int, a: int) -> int:
    return floating.order_key(FORMATS[t], a) if t in FORMATS else signed(t, a)


def negate(t: int, a: int) -> int:
    """-a: the sign bit flipped (a NaN keeps its other bits); integers wrap."""
    return a ^ FORMATS[t].sign_bit if t in FORMATS else _wrap(t, -a)


def absolute(t: int, a: int) -> int:
    """|a|: the sign bit cleared (a NaN keeps its other bits); the most negative integer gives itself."""
    if t in FORMATS:
        return a & (FORMATS[t].sign_bit - 1)
    return _wrap(t, abs(signed(t, a)))


def convert(t: int, s: int, a: int) -> int:
    """The value of `a`, of type s, in type t: one rounding from the exact source value."""
    if s in FORMATS:
        if t in FORMATS:
            return floating.convert(FORMATS[t], FORMATS[s], a)
        return _float_to_integer(t, FORMATS[s], a)
    value = signed(s, a)
    if t in FORMATS:
        return FORMATS[t].encode(value < 0, abs(value), 0)
    return _wrap(t, value)


def _float_to_integer(t: int, form: FloatFormat, a: int) -> int:
    if form.is_nan(a):
        return 0
    least, most = -(1 << (_WIDTH[t] - 1)), (1 << (_WIDTH[t] - 1)) - 1
    if form.is_infinite(a):
        return _wrap(t, least if a & form.sign_bit else most)
    sign, significand, exponent = form.decode(a)
    if exponent >= 0:
        value = significand << exponent
    else:
        value = significand >> -exponent
        rest, half = significand - (value << -exponent), 1 << (-exponent - 1)
        if rest > half or (rest == half and value & 1):
            value += 1
    return _wrap(t, min(max(-value if sign else value, least), most))


def equal(t: int, a: int, b: int) -> bool:
    """a == b by value."""
    if t not in FORMATS:
        return a == b
    if is_nan(t, a) or is_nan(t, b):
        return False
    return a == b or ((a | b) & (FORMATS[t].sign_bit - 1)) == 0


def less(t: int, a: int, b: int) -> bool:
    """a < b by value; integers compare as signed."""
    if t not in FORMATS:
        return signed(t, a) < signed(t, b)
    if is_nan(t, a) or is_nan(t, b):
        return False
    return _order(t, a) < _order(t, b) and not equal(t, a, b)


def less_equal(t: int, a: int, b: int) -> bool:
    """a <= b by value; integers compare as signed."""
    return less(t, a, b) or equal(t, a, b)


def less_unsigned(t: int, a: int, b: int) -> bool:
    """a < b for integer patterns taken as unsigned."""
    return a < b


def shift_left(t: int, a: int, amount: int) -> int:
    """Shift an integer pattern left; an amount of the width or more gives 0."""
    return _wrap(t, a << amount) if amount < _WIDTH[t] else 0


def shift_right(t: int, a: int, amount: int) -> int:
    """Shift an integer pattern right, filling with zeros."""
    return a >> amount if amount < _WIDTH[t] else 0


def shift_right_signed(t: int, a: int, amount: int) -> int:
    """Shift an integer pattern right, filling with the sign."""
    return _wrap(t, signed(t, a) >> min(amount, _WIDTH[t] - 1))


def bit_and(t: int, a: int, b: int) -> int:
    """Bitwise and of two patterns of the same width."""
    return a & b


def bit_or(t: int, a: int, b: int) -> int:
    """Bitwise or of two patterns of the same width."""
    return a | b


def bit_xor(t: int, a: int, b: int) -> int:
    """Bitwise exclusive or of two patterns of the same width."""
    return a ^ b
