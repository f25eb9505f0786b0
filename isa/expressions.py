"""Values of expressions: integers, reals, and, in a layout, arrays over the PEs of a region.

Integer division rounds down and the remainder has the divisor's sign; comparisons give 0 or 1; `?:`, `&&`,
`||` evaluate only what they need, per PE too. Nothing wraps: a value has a width only where it is used.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from . import floating
from .diagnostics import Problem, Span, did_you_mean
from .syntax import Binary, Call, Choose, Here, Index, Memory, Name, Node, Number, Unary

Value = Any  # int, float or a NumPy array of either

_FORMATS = {"f16": floating.F16, "f32": floating.F32, "bf16": floating.BF16}
FUNCTIONS = ("min", "max", "abs", "lo", "hi", *_FORMATS)
CONSTANTS = {"inf": float("inf"), "nan": float("nan")}

_ARITHMETIC: dict[str, Callable] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.floordiv, "%": operator.mod,
    "<<": operator.lshift, ">>": operator.rshift, "&": operator.and_, "|": operator.or_, "^": operator.xor,
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_INTEGERS_ONLY = ("%", "<<", ">>", "&", "|", "^")


class Scope:
    """Names with a value. `parent` is asked next; `hidden` explains names that have no value here."""

    def __init__(self, values: Mapping[str, Value] | None = None, parent: Scope | None = None) -> None:
        self.values: dict[str, Value] = dict(values or {})
        self.parent = parent
        self.hidden: dict[str, str] = {}

    def get(self, name: str) -> Value | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.parent
        return CONSTANTS.get(name)

    def names(self) -> set[str]:
        return set(self.values) | (self.parent.names() if self.parent else set())

    def why_hidden(self, name: str) -> str | None:
        return self.hidden.get(name) or (self.parent.why_hidden(name) if self.parent else None)

    def masked(self, mask: np.ndarray) -> Scope:
        """The same names, arrays cut down to the PEs of `mask`."""
        scope, values = self, dict[str, Value]()
        while True:
            for name, value in scope.values.items():
                if isinstance(value, np.ndarray) and value.shape == mask.shape:  # others: of other regions
                    values.setdefault(name, value[mask])
            if scope.parent is None:
                return Scope(values, self)
            scope = scope.parent


def evaluate(node: Node, scope: Scope) -> Value:
    """The value of an expression. Raises Problem."""
    if isinstance(node, Number):
        return node.value
    if isinstance(node, Name):
        value = scope.get(node.text)
        if value is None:
            raise unknown(node, scope)
        return value
    if isinstance(node, Unary):
        return _unary(node, evaluate(node.operand, scope))
    if isinstance(node, Binary):
        if node.operator in ("&&", "||"):
            return _logical(node, scope)
        return _binary(node, evaluate(node.left, scope), evaluate(node.right, scope))
    if isinstance(node, Choose):
        condition = evaluate(node.condition, scope)
        return _choose(condition, lambda s: evaluate(node.yes, s), lambda s: evaluate(node.no, s), scope)
    if isinstance(node, Call):
        return _call(node, [evaluate(argument, scope) for argument in node.arguments])
    if isinstance(node, (Index, Memory)):
        raise Problem(
            "type", f"`{node.span.text}` is an operand in memory; a number is wanted here", node.span
        )
    if isinstance(node, Here):
        raise Problem("type", "`.` is legal only in the target of a branch", node.span)
    raise Problem("type", f"`{node.span.text}` is not a number", node.span)


def integer(
    node: Node, scope: Scope, what: str = "this", low: int | None = None, high: int | None = None
) -> int:
    """An expression that must be one integer, in low..high if given."""
    value = evaluate(node, scope)
    if isinstance(value, np.ndarray):
        raise Problem("type", f"{what} must be the same for all PEs", node.span)
    if isinstance(value, float):
        raise Problem("type", f"{what} must be an integer, not {value}", node.span)
    if (low is not None and value < low) or (high is not None and value > high):
        legal = f"{low}..{high}" if low is not None and high is not None else f"at least {low}"
        raise Problem("range", f"{what} is {value}; legal: {legal}", node.span)
    return int(value)


def unknown(node: Name, scope: Scope) -> Problem:
    """The problem of a name without a value."""
    if reason := scope.why_hidden(node.text):
        return Problem("type", reason, node.span)
    return Problem(
        "name", f"unknown name `{node.text}`", node.span, help=did_you_mean(node.text, scope.names(), "")
    )


def _is_real(value: Value) -> bool:
    return isinstance(value, float) or (isinstance(value, np.ndarray) and value.dtype.kind == "f")


def _unary(node: Unary, value: Value) -> Value:
    if node.operator == "-":
        return -value
    if node.operator == "+":
        return value
    if _is_real(value):
        raise Problem("type", f"`{node.operator}` needs an integer, not {value}", node.span)
    if node.operator == "~":
        return ~value
    return (value == 0).astype(np.int64) if isinstance(value, np.ndarray) else int(value == 0)


def _binary(node: Binary, left: Value, right: Value) -> Value:
    symbol = node.operator
    real = _is_real(left) or _is_real(right)
    if real and symbol in _INTEGERS_ONLY:
        raise Problem("type", f"`{symbol}` needs integers", node.span)
    if symbol in ("/", "%"):
        if np.any(right == 0):
            raise Problem("range", "division by zero", node.right.span, help=_where_zero(right))
        if real:
            return left / right
    if symbol in ("<<", ">>") and (np.any(right < 0) or np.any(right > 64)):
        raise Problem("range", "shift amount outside 0..64", node.right.span)
    result = _ARITHMETIC[symbol](left, right)
    if symbol in _COMPARISONS:
        return result.astype(np.int64) if isinstance(result, np.ndarray) else int(result)
    return result


def _where_zero(value: Value) -> str | None:
    if isinstance(value, np.ndarray):
        return (
            "it is zero for some PEs of the region; choose with `?:`, which evaluates only the side it takes"
        )
    return None


def _choose(
    condition: Value, yes: Callable[[Scope], Value], no: Callable[[Scope], Value], scope: Scope
) -> Value:
    if not isinstance(condition, np.ndarray):
        return yes(scope) if condition else no(scope)
    mask = condition != 0
    if mask.all():
        return yes(scope)
    if not mask.any():
        return no(scope)
    one, other = yes(scope.masked(mask)), no(scope.masked(~mask))
    result = np.empty(mask.shape, np.float64 if _is_real(one) or _is_real(other) else np.int64)
    result[mask], result[~mask] = one, other
    return result


def _logical(node: Binary, scope: Scope) -> Value:
    left = evaluate(node.left, scope)

    def right(inner: Scope) -> Value:
        value = evaluate(node.right, inner)
        return (value != 0).astype(np.int64) if isinstance(value, np.ndarray) else int(value != 0)

    if node.operator == "&&":
        return _choose(left, right, lambda _: 0, scope)
    return _choose(left, lambda _: 1, right, scope)


def _call(node: Call, values: list[Value]) -> Value:
    name = node.function.text
    if name not in FUNCTIONS:
        raise Problem(
            "name",
            f"unknown function `{name}`",
            node.function.span,
            help=did_you_mean(name, FUNCTIONS, "functions: " + ", ".join(FUNCTIONS)),
        )
    if name in ("min", "max"):
        choose = np.minimum if name == "min" else np.maximum
        if any(isinstance(value, np.ndarray) for value in values):
            result = values[0]
            for value in values[1:]:
                result = choose(result, value)
            return result
        return min(values) if name == "min" else max(values)
    if len(values) != 1:
        raise Problem("type", f"`{name}` takes one argument, not {len(values)}", node.span)
    value = values[0]
    if name == "abs":
        return abs(value)
    if name in _FORMATS:
        return encode_real(value, name, node.span)
    if _is_real(value):
        raise Problem("type", f"`{name}` needs an integer", node.span)
    return value & 0xFFFF if name == "lo" else (value >> 16) & 0xFFFF


def encode_real(value: Value, format_name: str, span: Span) -> Value:
    """The bits of a number in a floating format, rounded once. Raises Problem if a finite value has none."""
    fmt = _FORMATS[format_name]
    bits: Value
    if not isinstance(value, np.ndarray):
        bits = floating.bits_from_double(fmt, float(value))
        overflow = fmt.is_infinite(bits) and not math.isinf(value)
        worst = value
    else:
        bits = floating.encode_array(fmt, value.astype(np.float64)).astype(np.int64)
        lost = ((bits & ~fmt.sign_bit) == fmt.infinity) & np.isfinite(value)
        overflow, worst = bool(lost.any()), value[lost][0] if lost.any() else 0
    if overflow:
        raise Problem(
            "range",
            f"{float(worst):g} is beyond the largest {format_name}",
            span,
            help="write `inf` if that is meant",
        )
    return bits


def span_of(nodes: Iterable[Node]) -> Span:
    """From the first node to the last."""
    spans = [node.span for node in nodes]
    return spans[0].to(spans[-1])
