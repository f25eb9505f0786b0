"""Values written as text in expectation comments, and their exact place in an array of the declared type.

`1.5`, `-2`, `nan`, `inf`, nested lists, `[0] * 8`, `range(4)`; `bits(...)` gives bit patterns instead of
numbers. Nothing is evaluated but these.
"""

from __future__ import annotations

import ast
import math
from typing import Any

import numpy as np

from ..fabric.wavelets import dtype_of
from ..isa.element_types import ElementType

__all__ = ["Bits", "ValueTextError", "first_difference", "read", "spell", "typed"]

MOST_ELEMENTS = 1 << 22  # a comment cannot ask for more


class ValueTextError(ValueError):
    """A value text that cannot be understood, or does not fit its type or shape."""


class Bits:
    """Bit patterns: integers that stand for themselves."""

    def __init__(self, values: Any) -> None:
        self.values = values


def read(text: str) -> Any:
    """The value of a text: number, string, bool, nested list, or Bits."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        raise ValueTextError(f"not a value: {text.strip()!r}") from None
    return _value(tree)


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=bool() | int() | float() | str() as value):
            return value
        case ast.Name(id="nan"):
            return math.nan
        case ast.Name(id="inf"):
            return math.inf
        case ast.Name(id=word):
            return word  # finished, bounds and the like stand for themselves
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_number(inner)
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value(item) for item in items]
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            first, times = _value(left), _value(right)
            if isinstance(first, list) and isinstance(times, int) and len(first) * times <= MOST_ELEMENTS:
                return first * times
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            first, second = _value(left), _value(right)
            if isinstance(first, list) and isinstance(second, list):
                return first + second
        case ast.Call(func=ast.Name(id="range"), args=bounds, keywords=[]) if 1 <= len(bounds) <= 3:
            limits = [_value(b) for b in bounds]
            if all(type(v) is int for v in limits) and (len(limits) < 3 or limits[2]):
                counted = range(*limits)
                if len(counted) <= MOST_ELEMENTS:
                    return list(counted)
        case ast.Call(func=ast.Name(id="bits"), args=[inner], keywords=[]):
            return Bits(_value(inner))
    raise ValueTextError(f"not a value: {ast.unparse(node)!r}")


def _number(node: ast.expr) -> int | float:
    value = _value(node)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueTextError(f"not a number: {ast.unparse(node)!r}")
    return value


def typed(value: Any, element: ElementType, shapes: list[tuple[int, ...]]) -> np.ndarray:
    """An array of the declared type and one of `shapes` (the first that fits); a number fills the first.

    Floats round to nearest even; integers must fit; bf16 takes bits or numbers it holds exactly.
    """
    kind = dtype_of(element)
    if isinstance(value, Bits):
        array = _integers(value.values, np.dtype(f"u{kind.itemsize}")).view(kind)
    elif element in (ElementType.F16, ElementType.F32):
        array = _floats(value).astype(kind)
    elif element is ElementType.BF16:
        wide = _floats(value).astype(np.float32).view(np.uint32)
        if (wide & 0xFFFF).any():
            raise ValueTextError("a number that bf16 does not hold exactly; write bits(0x....)")
        array = (wide >> 16).astype(np.uint16)
    else:
        array = _integers(value, kind)
    if array.shape == () and shapes[0]:
        return np.full(shapes[0], array)
    for shape in shapes:
        if array.shape == shape:
            return array
    wanted = " or ".join(map(str, shapes))
    raise ValueTextError(f"shape {array.shape}, declared is {wanted}")


def _floats(value: Any) -> np.ndarray:
    try:
        return np.array(value, np.float64)
    except (TypeError, ValueError):
        raise ValueTextError("numbers in rows of equal length are wanted") from None


def _integers(value: Any, kind: np.dtype) -> np.ndarray:
    limits = np.iinfo(kind)
    try:
        array = np.array(value)
    except ValueError:
        raise ValueTextError("whole numbers in rows of equal length are wanted") from None
    if array.size and (array.dtype.kind not in "iu" or array.min() < limits.min or array.max() > limits.max):
        raise ValueTextError(f"whole numbers in {limits.min}..{limits.max} are wanted")
    return array.astype(kind)


def first_difference(got: np.ndarray, wanted: np.ndarray) -> str | None:
    """The first index whose bits differ, with both values in hex and decimal; None if all bits are equal."""
    a, b = (np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}").reshape(x.shape) for x in (got, wanted))
    differ = a != b
    if not differ.any():
        return None
    index = tuple(int(i) for i in np.argwhere(differ)[0])
    digits = 2 * got.dtype.itemsize
    where = ", ".join(map(str, index))
    return (
        f"[{where}] is {int(a[index]):#0{digits + 2}x} ({got[index]}), "
        f"expected {int(b[index]):#0{digits + 2}x} ({wanted[index]}); "
        f"{int(differ.sum()):,} of {differ.size:,} elements differ"
    )


def spell(array: np.ndarray, element: ElementType | None = None) -> str:
    """Text that `read` and `typed` turn into the same bits."""
    if element is ElementType.BF16:
        return _hex(array)
    if array.dtype.kind == "f" and np.isnan(array).any():
        return _hex(array.view(f"u{array.dtype.itemsize}"))  # a NaN's payload has no other spelling
    return str(array.tolist())


def _hex(array: np.ndarray) -> str:
    def nested(part: Any) -> str:
        return f"[{', '.join(map(nested, part))}]" if isinstance(part, list) else f"{part:#x}"

    return f"bits({nested(array.tolist())})"
