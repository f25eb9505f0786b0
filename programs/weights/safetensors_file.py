"""Reading safetensors files: each violated rule of the format is one sentence that names the tensor.

The header is checked here, rule by rule, because the library's own messages often name no tensor and it
lets one of two equal keys win; then the library must accept the file as well. Tensors are read on demand.
"""

from __future__ import annotations

import json
import os
from math import prod
from typing import Any

import safetensors

from .weight_file import (
    CONVERT,
    DAMAGED,
    MappedFile,
    TensorPlace,
    WeightFile,
    WeightFileError,
    check_overlaps,
    check_shape,
    map_file,
    quoted,
)

__all__ = ["open_safetensors"]

MAX_HEADER_BYTES = 100_000_000  # the library's own limit
KINDS = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1,
    "U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1,
}  # fmt: skip
WRITE_AGAIN = "write the file again with the safetensors library"


def open_safetensors(path: str | os.PathLike[str]) -> WeightFile:
    """Open a safetensors file; `metadata` holds the strings of its `__metadata__`.

    Scalars, zero-size tensors, BF16 (as uint16 bits) and padded headers are valid. Every malformed file
    raises WeightFileError with file, tensor and the violated rule.
    """
    mapped = map_file(path)
    try:
        header, start = _read_header(mapped)
        metadata = _read_metadata(mapped, header.pop("__metadata__", {}))
        places = {name: _read_place(mapped, start, name, entry) for name, entry in header.items()}
        _check_cover(mapped, start, places)
        try:
            with safetensors.safe_open(mapped.path, "np"):
                pass
        except Exception as error:  # the library raises its own class, OSError, ValueError
            text = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise _error(mapped, f"refused by the safetensors library: {text}", None) from None
    except BaseException:
        mapped.close()
        raise
    return WeightFile(mapped, metadata, places)


def _error(mapped: MappedFile, rule: str, name: str | None, help: str = DAMAGED) -> WeightFileError:
    item = None if name is None else f"tensor {quoted(name)}"
    return WeightFileError(mapped.path, rule, item=item, help=help)


def _read_header(mapped: MappedFile) -> tuple[dict[str, Any], int]:
    """The header's object and the first byte after it."""
    if mapped.size < 8:
        raise _error(mapped, f"a header takes at least 8 bytes, the file has {mapped.size}", None)
    length = int.from_bytes(mapped.data[:8], "little")
    if length > mapped.size - 8:
        raise _error(mapped, f"a header of {length} bytes does not fit in {mapped.size - 8} bytes", None)
    if length > MAX_HEADER_BYTES:
        raise _error(mapped, f"a header of {length} bytes is more than {MAX_HEADER_BYTES} bytes", None)
    try:
        header = json.loads(mapped.data[8 : 8 + length].decode(), object_pairs_hook=_pairs)
    except UnicodeDecodeError as error:
        raise _error(mapped, f"the header is not UTF-8 (byte {8 + error.start})", None) from None
    except _Duplicate as error:
        item = f"key {quoted(error.args[0])}"
        rule = "it occurs twice in the header"
        raise WeightFileError(mapped.path, rule, item=item, help=WRITE_AGAIN) from None
    except (ValueError, RecursionError) as error:
        text = "nested too deeply" if isinstance(error, RecursionError) else error
        raise _error(mapped, f"the header is not JSON: {text}", None) from None
    if not isinstance(header, dict):
        what = {list: "an array", str: "a string", type(None): "null"}.get(type(header), "a value")
        raise _error(mapped, f"the header must be a JSON object, not {what}", None)
    return header, 8 + length


class _Duplicate(Exception):
    """Two equal keys in one object; the argument is the key."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise _Duplicate(key)
        result[key] = value
    return result


def _read_metadata(mapped: MappedFile, metadata: Any) -> dict[str, str]:
    if not isinstance(metadata, dict):
        raise _error(mapped, '"__metadata__" must be an object of strings', None, WRITE_AGAIN)
    for key, value in metadata.items():
        if not isinstance(value, str):
            rule = f'"__metadata__": the value of {quoted(key)} must be a string'
            raise _error(mapped, rule, None, WRITE_AGAIN)
    return metadata


def _read_place(mapped: MappedFile, start: int, name: str, entry: Any) -> TensorPlace:
    def fail(rule: str, help: str = DAMAGED) -> WeightFileError:
        return _error(mapped, rule, name, help)

    if not isinstance(entry, dict):
        raise fail("its entry in the header must be an object")
    for key in ("dtype", "shape", "data_offsets"):
        if key not in entry:
            raise fail(f'its entry has no "{key}"')
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in KINDS:
        raise fail(f"type {quoted(str(dtype))} is not supported, {', '.join(KINDS)} are", CONVERT)
    if not _naturals(shape):
        raise fail(f"shape {_short(shape)} must be an array of integers from 0 on")
    if not _naturals(offsets) or len(offsets) != 2:
        raise fail(f"offsets {_short(offsets)} must be two integers from 0 on")
    begin, end = offsets
    if end < begin:
        raise fail(f"offsets {_short(offsets)} are reversed, the end lies before the begin")
    check_shape(tuple(shape), fail)
    nbytes = prod(shape) * KINDS[dtype]
    if end - begin != nbytes:
        span = f"offsets {_short(offsets)} span {end - begin} bytes"
        raise fail(f"{span}, but {dtype} of shape {_short(shape)} takes {nbytes}")
    if start + end > mapped.size:
        raise fail(f"its data end at byte {start + end}, past the end of the file at {mapped.size}")
    return TensorPlace(dtype, tuple(shape), (1, KINDS[dtype]), start + begin, nbytes)


def _naturals(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int and n >= 0 for n in value)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= 60 else text[:57] + "..."


def _check_cover(mapped: MappedFile, start: int, places: dict[str, TensorPlace]) -> None:
    """The tensors must cover the bytes after the header, each byte once."""
    at = start
    for begin, end, name in check_overlaps(places, lambda name, rule: _error(mapped, rule, name)):
        if begin > at:
            raise _error(mapped, f"a gap of {begin - at} bytes before it belongs to no tensor", name)
        at = end
    if at < mapped.size:
        last = f", the last tensor ends at {at}" if places else ""
        raise _error(mapped, f"{mapped.size - at} trailing bytes belong to no tensor{last}", None)
