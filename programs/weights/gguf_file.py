"""Reading GGUF weight files: the header is checked byte by byte before anything is believed.

The `gguf` library gives the format's tables (value types, tensor types, block sizes). Its reader trusts
counts, lengths and offsets, so the walk through the header is here and bounds everything by the file's
size; tests compare both readers. Nothing is allocated that the file's own bytes do not pay for.
"""

from __future__ import annotations

import mmap
import os
import struct
from math import prod
from typing import Any

import gguf
import numpy as np

from .weight_file import (
    CONVERT,
    DAMAGED,
    PLAIN_KINDS,
    MappedFile,
    TensorPlace,
    WeightFile,
    WeightFileError,
    check_overlaps,
    check_shape,
    map_file,
    quoted,
)

__all__ = ["open_gguf"]

VERSIONS = (2, 3)  # version 1 has 32-bit lengths and was replaced within weeks
MAX_DIMS = 4
MAX_KEY_BYTES = 65_535
MIN_KEY_BYTES = 8 + 1 + 4 + 1  # key length, one character, type, one byte of value
MIN_TENSOR_BYTES = 8 + 1 + 4 + 4 + 8  # name length, one character, dimensions, type, offset
REWRITE = "write the file again with a current converter"

ValueType = gguf.GGUFValueType
_SCALARS: dict[int, struct.Struct] = {
    int(kind): struct.Struct("<" + code)
    for kind, code in {
        ValueType.UINT8: "B", ValueType.INT8: "b", ValueType.UINT16: "H", ValueType.INT16: "h",
        ValueType.UINT32: "I", ValueType.INT32: "i", ValueType.FLOAT32: "f", ValueType.BOOL: "B",
        ValueType.UINT64: "Q", ValueType.INT64: "q", ValueType.FLOAT64: "d",
    }.items()
}  # fmt: skip
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")


class _Header:
    """A position in the mapped file; every step forward is checked against the file's end."""

    def __init__(self, mapped: MappedFile) -> None:
        assert isinstance(mapped.data, mmap.mmap)
        self.path, self.data, self.size = mapped.path, mapped.data, mapped.size
        self.at = 0
        self.item: str | None = None  # what is being read, for errors

    def fail(self, rule: str, help: str = DAMAGED) -> WeightFileError:
        return WeightFileError(self.path, rule, item=self.item, help=help)

    def step(self, nbytes: int, what: str) -> int:
        """Move over `nbytes`, return where they start."""
        at = self.at
        if nbytes > self.size - at:
            raise self.fail(
                f"{what} at byte {at} needs {nbytes} bytes, but the file ends after {self.size - at} more"
            )
        self.at = at + nbytes
        return at

    def u32(self, what: str) -> int:
        return _U32.unpack_from(self.data, self.step(4, what))[0]

    def u64(self, what: str) -> int:
        return _U64.unpack_from(self.data, self.step(8, what))[0]

    def string(self, what: str) -> str:
        size = self.u64(f"the length of {what}")
        at = self.step(size, what)
        try:
            return self.data[at : at + size].decode()
        except UnicodeDecodeError as error:
            raise self.fail(f"{what} is not UTF-8 (byte {at + error.start})") from None

    def count(self, what: str, least: int) -> int:
        """A count of things that take at least `least` bytes each: no more than the file can hold."""
        count = self.u64(f"the number of {what}")
        if count * least > self.size - self.at:
            raise self.fail(f"{count} {what} cannot fit in the {self.size - self.at} bytes that follow")
        return count


def open_gguf(path: str | os.PathLike[str]) -> WeightFile:
    """Open a GGUF file (version 2 or 3, little-endian); tensors are read on demand from a mapping.

    `metadata` values are bool, int, float, str, list[str] or a read-only NumPy array for numeric arrays.
    Every malformed file raises WeightFileError with file, tensor or key, and the violated rule.
    """
    mapped = map_file(path)
    try:
        header = _Header(mapped)
        _check_start(header)
        header.item = None
        tensors = header.count("tensors", MIN_TENSOR_BYTES)
        keys = header.count("keys", MIN_KEY_BYTES)
        metadata = _read_metadata(header, keys)
        places = _read_tensors(header, tensors, _alignment(header, metadata))
    except BaseException:
        mapped.close()
        raise
    return WeightFile(mapped, metadata, places)


def _check_start(header: _Header) -> None:
    magic = header.data[:4]
    if magic != b"GGUF":
        old = {b"lmgg": "GGML", b"fmgg": "GGMF", b"tjgg": "GGJT", b"algg": "GGLA"}.get(magic)
        if old:
            raise header.fail(f"this is the older {old} format, not GGUF", help=REWRITE)
        if magic == b"GGUF"[: len(magic)]:
            raise header.fail(f"the file ends inside the magic number, after {len(magic)} bytes")
        raise header.fail(f"not a GGUF file: it starts with {magic!r}, not b'GGUF'", help="check the path")
    header.at = 4
    version = header.u32("the version")
    if version & 0xFFFF == 0 and version:
        raise header.fail("the file is big-endian, only little-endian GGUF is read", help=REWRITE)
    if version not in VERSIONS:
        known = " and ".join(map(str, VERSIONS))
        raise header.fail(f"GGUF version {version} is not supported, versions {known} are", help=REWRITE)


def _read_metadata(header: _Header, keys: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for index in range(keys):
        header.item = f"key {index} of {keys}"
        start = header.at
        name = header.string("the key's name")
        header.item = f"key {quoted(name)}"
        if not name:
            raise header.fail(f"the name at byte {start} is empty")
        size = header.at - start - 8
        if size > MAX_KEY_BYTES:
            raise header.fail(f"the name has {size} bytes, at most {MAX_KEY_BYTES} are legal")
        if name in metadata:
            raise header.fail("the key occurs twice")
        metadata[name] = _read_value(header, header.u32("the value's type"))
    header.item = None
    return metadata


def _read_value(header: _Header, kind: int) -> Any:
    if kind == ValueType.STRING:
        return header.string("the value")
    if kind == ValueType.ARRAY:
        return _read_array(header)
    if kind not in _SCALARS:
        raise header.fail(f"unknown value type {kind}, legal are 0 to {max(ValueType)}")
    code = _SCALARS[kind]
    (value,) = code.unpack_from(header.data, header.step(code.size, "the value"))
    if kind == ValueType.BOOL:
        if value > 1:
            raise header.fail(f"a truth value is 0 or 1, not {value}")
        return bool(value)
    return value


def _read_array(header: _Header) -> list[str] | np.ndarray:
    kind = header.u32("the elements' type")
    if kind == ValueType.STRING:
        count = header.count("strings", 8)
        return [header.string(f"string {index} of {count}") for index in range(count)]
    if kind == ValueType.ARRAY:
        raise header.fail("arrays of arrays are not supported", help=REWRITE)
    if kind not in _SCALARS:
        raise header.fail(f"unknown element type {kind}, legal are 0 to {max(ValueType)} but 9")
    code = _SCALARS[kind]
    count = header.count("array elements", code.size)
    at = header.step(count * code.size, "the array")
    values = np.frombuffer(header.data, "u1" if kind == ValueType.BOOL else code.format, count, at)
    if kind == ValueType.BOOL:
        if (values > 1).any():
            raise header.fail(f"truth value {int(np.argmax(values > 1))} of the array is neither 0 nor 1")
        values = values.view(np.bool_)
    values.flags.writeable = False
    return values


def _alignment(header: _Header, metadata: dict[str, Any]) -> int:
    alignment = metadata.get("general.alignment", gguf.GGUF_DEFAULT_ALIGNMENT)
    header.item = 'key "general.alignment"'
    if type(alignment) is not int or alignment <= 0 or alignment & (alignment - 1):
        raise header.fail(f"must be a power of two, not {alignment!r}"[:200])
    header.item = None
    return alignment


def _read_tensors(header: _Header, count: int, alignment: int) -> dict[str, TensorPlace]:
    places: dict[str, TensorPlace] = {}  # offsets relative to the data section at first
    for index in range(count):
        header.item = f"tensor {index} of {count}"
        name = header.string("the tensor's name")
        header.item = f"tensor {quoted(name)}"
        if not name:
            raise header.fail(f"tensor {index} has an empty name")
        if name in places:
            raise header.fail("the tensor occurs twice")
        places[name] = _read_place(header, alignment)
    header.item = None
    start = -(-header.at // alignment) * alignment
    for name, place in places.items():
        header.item = f"tensor {quoted(name)}"
        end = start + place.offset + place.nbytes
        if end > header.size:
            raise header.fail(
                f"its {place.nbytes} bytes end at byte {end}, past the end of the file at {header.size}"
            )
        places[name] = TensorPlace(place.kind, place.shape, place.block, start + place.offset, place.nbytes)

    def overlap(name: str, rule: str) -> WeightFileError:
        header.item = f"tensor {quoted(name)}"
        return header.fail(rule)

    check_overlaps(places, overlap)
    return places


def _read_place(header: _Header, alignment: int) -> TensorPlace:
    ndims = header.u32("the number of dimensions")
    if ndims > MAX_DIMS:
        raise header.fail(f"{ndims} dimensions, at most {MAX_DIMS} are legal")
    # The file lists the contiguous dimension (inputs) first; shapes here end with it.
    shape = tuple(header.u64("a dimension") for _ in range(ndims))[::-1]
    number = header.u32("the tensor type")
    offset = header.u64("the offset")
    try:
        kind = gguf.GGMLQuantizationType(number)
        block = gguf.GGML_QUANT_SIZES[kind]
    except (ValueError, KeyError):
        raise header.fail(f"unknown tensor type {number}", help=CONVERT) from None
    check_shape(shape, header.fail)
    row = shape[-1] if shape else 1
    if row % block[0] or (not shape and block[0] > 1):
        raise header.fail(
            f"rows of {row} weights do not divide into blocks of {block[0]} as {kind.name} needs"
        )
    if offset % alignment:
        raise header.fail(f"offset {offset} is not a multiple of the alignment, {alignment} bytes")
    if offset > header.size:
        raise header.fail(f"offset {offset} lies past the end of the file, {header.size} bytes")
    if block[0] == 1 and kind.name not in PLAIN_KINDS:
        raise header.fail(f"tensor type {kind.name} is not supported", help=REWRITE)
    return TensorPlace(kind.name, shape, block, offset, prod(shape) // block[0] * block[1])
