"""Values on the host's side: the NumPy dtype of an element type, arrays into wavelets and back.

Nothing is converted here: an array whose dtype is not the declared element type is refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..isa.dequantise import q4_group_bytes, q8_group_bytes
from ..isa.element_types import ElementType
from ..isa.errors import Mismatch, Usage
from ..isa.program import EdgePort, Symbol
from .outcome import Lane, LaneOutput

__all__ = [
    "DTYPES",
    "Lane",
    "array_shape",
    "checked",
    "dtype_of",
    "pack",
    "raw_lanes",
    "unit_of",
    "unpack",
    "words_per_lane",
]

# bf16 has no NumPy dtype: its 16-bit patterns travel as uint16. q4 and q8 travel as bytes of their groups.
DTYPES: dict[ElementType, np.dtype] = {
    ElementType.I16: np.dtype("<i2"),
    ElementType.I32: np.dtype("<i4"),
    ElementType.F16: np.dtype("<f2"),
    ElementType.F32: np.dtype("<f4"),
    ElementType.BF16: np.dtype("<u2"),
    ElementType.Q4: np.dtype("u1"),
    ElementType.Q8: np.dtype("u1"),
}
_UNITS = {
    ElementType.BF16: "16-bit patterns of bf16, one per element",
    ElementType.Q4: "bytes of q4 groups",
    ElementType.Q8: "bytes of q8 groups",
}


def dtype_of(element: ElementType) -> np.dtype:
    """The one NumPy dtype whose arrays hold elements of this type."""
    return DTYPES[element]


def unit_of(element: ElementType) -> str:
    """What one item of such an array is, for messages."""
    return _UNITS.get(element, f"{element.source_name} elements of {element.bits // 8} bytes")


def array_shape(symbol: Symbol) -> tuple[int, ...]:
    """Shape of a symbol's array for one PE. q4 and q8: (..., groups along K, bytes per group)."""
    if symbol.element not in (ElementType.Q4, ElementType.Q8):
        return symbol.shape
    per_group = (q4_group_bytes if symbol.element is ElementType.Q4 else q8_group_bytes)(symbol.group)
    *leading, inputs = symbol.shape or (1,)
    return (*leading, -(-inputs // symbol.group), per_group)


def checked(name: str, array: object, element: ElementType) -> np.ndarray:
    """`array` as NumPy array if its dtype is the declared one; otherwise an error that names both."""
    given = np.asarray(array)
    wanted = DTYPES[element]
    if given.dtype != wanted:
        spelled = {ElementType.F16: "float16", ElementType.F32: "float32"}.get(element, wanted.name)
        raise Usage(
            f"`{name}` is declared {element.source_name} ({unit_of(element)}); "
            f"the array given is {given.dtype}",
            category="type",
            help=f"convert it yourself, as with `.astype(np.{spelled})`; nothing is reinterpreted here",
        )
    return given


def words_per_lane(port: EdgePort) -> int:
    """Data wavelets that one lane of a port carries per run."""
    elements = math.prod(port.shape)
    return -(-elements // 2) if port.packed and port.element.bits == 16 else elements


def pack(port: EdgePort, array: object) -> list[np.ndarray]:
    """One uint32 payload array per lane from an array of shape (lanes, *shape).

    A port of one lane also takes (*shape). 32-bit elements: one per wavelet. 16-bit: two per wavelet, low
    half first, if the port is packed; else the element in the low half, its index (mod 65,536) in the high.
    """
    given = checked(port.name, array, port.element)
    lanes = len(port.lanes)
    if given.shape == port.shape and lanes == 1:
        given = given[None]
    if given.shape != (lanes, *port.shape):
        raise Usage(
            f"input `{port.name}` takes shape {(lanes, *port.shape)} (lanes, then {port.element.source_name} "
            f"elements per lane); the array given has shape {given.shape}",
            category="range",
        )
    values = np.ascontiguousarray(given).reshape(lanes, -1)
    if port.element.bits == 32:
        words = values.view("<u4")
    elif port.packed:
        words = values.view("<u4") if values.shape[1] % 2 == 0 else _odd(port)
    else:
        index = np.arange(values.shape[1], dtype=np.uint32) & 0xFFFF
        words = values.view("<u2").astype(np.uint32) | index << 16
    return [np.array(row, np.uint32) for row in words]


def raw_lanes(port: EdgePort, lanes: Sequence[Lane]) -> list[Lane]:
    """Wavelets as they are, checked: per lane (payload uint32, control bool or None[, earliest int64])."""
    if len(lanes) != len(port.lanes):
        raise Usage(f"input `{port.name}` has {len(port.lanes)} lanes; wavelets for {len(lanes)} were given")
    for number, lane in enumerate(lanes):
        payload, control = lane[0], lane[1]
        if payload.dtype != np.uint32 or payload.ndim != 1:
            raise Usage(
                f"input `{port.name}`, lane {number}: payloads are uint32 in one dimension, "
                f"not {payload.dtype} {payload.shape}",
                category="type",
            )
        if control is not None and (control.dtype != np.bool_ or control.shape != payload.shape):
            raise Usage(
                f"input `{port.name}`, lane {number}: control bits are bool, one per payload "
                f"({len(payload)})",
                category="type",
            )
        if len(lane) == 3:
            _check_times(f"input `{port.name}`, lane {number}", lane[2], len(payload))
    return list(lanes)


def _check_times(where: str, earliest: np.ndarray, count: int) -> None:
    """Cycles before which wavelets are not there: int64, one per payload, not negative, never decreasing."""
    if earliest.dtype != np.int64 or earliest.shape != (count,):
        raise Usage(f"{where}: earliest cycles are int64, one per payload ({count})", category="type")
    if count and (earliest[0] < 0 or (np.diff(earliest) < 0).any()):
        raise Usage(f"{where}: earliest cycles start at 0 or later and never decrease", category="range")


def unpack(port: EdgePort, lanes: list[LaneOutput]) -> np.ndarray:
    """Array (lanes, *shape) of what an output port received, elements in order of arrival.

    Control wavelets are not data and are left out. Raises Mismatch naming the first lane of a wrong count.
    """
    wanted = words_per_lane(port)
    rows = []
    for number, lane in enumerate(lanes):
        words = lane.payload[~lane.control]
        if len(words) != wanted:
            along = "x" if port.side.name in "NS" else "y"
            raise Mismatch(
                f"output `{port.name}`, lane {number} ({along} = {port.lanes[number]}): {len(words)} data "
                f"wavelets arrived, {wanted} were declared ({_described(port)})",
                help=f"`result.lanes[{port.name!r}][{number}]` holds what arrived, with cycles",
            )
        rows.append(np.asarray(words, np.uint32))
    words = np.stack(rows) if rows else np.zeros((0, wanted), np.uint32)
    if port.element.bits == 32:
        values = words.view(DTYPES[port.element])
    elif port.packed:
        values = words.view(DTYPES[port.element]) if math.prod(port.shape) % 2 == 0 else _odd(port)
    else:
        values = words.astype("<u2").view(DTYPES[port.element])  # the low half
    return values.reshape(len(lanes), *port.shape)


def _described(port: EdgePort) -> str:
    shape = ", ".join(map(str, port.shape))
    return f"{port.element.source_name}[{shape}]" + (", two elements per wavelet" if port.packed else "")


def _odd(port: EdgePort) -> np.ndarray:
    raise Usage(
        f"edge port `{port.name}` is packed and has {math.prod(port.shape)} elements per lane: "
        "an even number is needed",
        category="range",
    )
