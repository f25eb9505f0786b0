"""A weight file as the rest of the project sees it: named tensors read on demand from a mapped file.

What is common to every format: the error, the tensor, the mapping. A tensor's bytes are never copied or
changed here; a file that is not a plain readable file never gets further than `map_file`.
"""

from __future__ import annotations

import difflib
import mmap
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from pathlib import Path
from types import TracebackType
from typing import Any

import gguf
import numpy as np

from ...isa.errors import Rejected, Usage

__all__ = ["MappedFile", "Tensor", "WeightFile", "WeightFileError", "map_file", "quoted"]

# Kinds whose elements are plain numbers, with the little-endian type they are stored in. BF16 has no
# NumPy type and stays the 16 bits it is.
PLAIN_KINDS = {
    "F32": "<f4", "F16": "<f2", "BF16": "<u2", "F64": "<f8",
    "I8": "|i1", "I16": "<i2", "I32": "<i4", "I64": "<i8",
    "U8": "|u1", "U16": "<u2", "U32": "<u4", "U64": "<u8", "BOOL": "|u1",
}  # fmt: skip

MAX_DIMS = 64  # NumPy's limit
MAX_ELEMENTS = 2**60

DAMAGED = "the file is damaged or incomplete: fetch or copy it again and compare its checksum"
CONVERT = "convert the file to Q4_1, Q8_0 or F16"


def quoted(name: str) -> str:
    """A name taken from a file, safe to print on one line: quoted, escaped, at most 80 characters."""
    text = ascii(name if len(name) <= 80 else name[:77] + "...")
    return f'"{text[1:-1]}"'


class WeightFileError(Rejected):
    """A weight file was refused.

    `path` is the file, `item` the tensor or key (`tensor "a.weight"`) or None, `rule` the violated rule;
    the message joins the three in one sentence, `help` is the next step.
    """

    path: str
    item: str | None
    rule: str

    def __init__(
        self,
        path: str | os.PathLike[str],
        rule: str,
        *,
        item: str | None = None,
        help: str | None = DAMAGED,
        category: str = "format",
    ) -> None:
        shown = os.fspath(path)
        shown = shown.encode("utf-8", "backslashreplace").decode() if isinstance(shown, str) else repr(shown)
        shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in shown)
        super().__init__(": ".join(filter(None, (shown, item, rule))), category=category, help=help)
        self.path, self.item, self.rule = shown, item, rule


@dataclass(frozen=True, eq=False)
class Tensor:
    """One tensor of a weight file: `shape` in rows first order, (out, in) for a matrix, y = W x.

    `blocks` is a read-only view of the file: for a quantised kind uint8 of shape
    (*shape[:-1], blocks per row, bytes per block), else the elements, of shape `shape`.
    """

    file: str
    name: str
    shape: tuple[int, ...]
    kind: str  # F32, F16, BF16, Q4_0, Q4_1, Q8_0, ...: the name of the format's own table
    blocks: np.ndarray

    def error(self, rule: str, help: str | None = DAMAGED) -> WeightFileError:
        """The error that says this tensor violates `rule`."""
        return WeightFileError(self.file, rule, item=f"tensor {quoted(self.name)}", help=help)

    def to_float32(self) -> np.ndarray:
        """The weights as float32 of shape `shape`: the golden values, computed by the `gguf` library.

        Raises WeightFileError for kinds that are no weights and for values that are not finite.
        """
        if self.kind in ("F32", "F16"):
            values = self.blocks.astype(np.float32)
        elif self.kind == "BF16":
            values = (self.blocks.astype(np.uint32) << 16).view(np.float32)
        elif self.kind in PLAIN_KINDS:
            raise self.error(f"{self.kind} elements are no weights", help="choose a tensor of real numbers")
        else:
            values = self._dequantised()
        finite = np.isfinite(values)
        if not finite.all():
            index = tuple(int(i) for i in np.argwhere(~finite)[0])
            raise self.error(f"element {index} is {values[index]}, weights must be finite")
        return values

    def _dequantised(self) -> np.ndarray:
        if self.blocks.size == 0:
            return np.zeros(self.shape, np.float32)
        rows = self.blocks.reshape(*self.shape[:-1], -1)
        try:
            with np.errstate(invalid="ignore", over="ignore"):
                return gguf.quants.dequantize(rows, gguf.GGMLQuantizationType[self.kind]).reshape(self.shape)
        except NotImplementedError:
            raise self.error(f"kind {self.kind} cannot be turned into numbers", help=CONVERT) from None


class MappedFile:
    """The bytes of one file, mapped read-only. `data` is None once closed; views made before stay valid."""

    def __init__(self, path: str, data: mmap.mmap | bytes, size: int, identity: tuple[int, ...]) -> None:
        self.path, self.data, self.size, self.identity = path, data, size, identity
        self.closed = False

    def array(self, offset: int, nbytes: int) -> np.ndarray:
        """Bytes [offset, offset + nbytes) as a read-only uint8 array; the file must not have changed."""
        if self.closed:
            raise Usage(f"{self.path}: already closed", help="read tensors before the file is closed")
        try:
            now = _identity(os.stat(self.path))
        except OSError:
            now = self.identity  # removed or renamed: the mapping still holds the old bytes
        if now[:2] == self.identity[:2] and now != self.identity:
            raise WeightFileError(self.path, "the file changed while it was open", help="open it again")
        return np.frombuffer(self.data, np.uint8, nbytes, offset)

    def close(self) -> None:
        """Let the mapping go; it is unmapped when the last array made from it is gone."""
        self.data, self.closed = b"", True


def _identity(info: os.stat_result) -> tuple[int, ...]:
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns


def map_file(path: str | os.PathLike[str]) -> MappedFile:
    """Map a plain, readable, non-empty file; anything else is a WeightFileError that says what it is."""
    name = os.fspath(path)
    try:
        # A pipe would block in open() and a device has no size, so ask what it is first.
        info = os.stat(name)
        if stat.S_ISDIR(info.st_mode):
            raise WeightFileError(name, "this is a directory, not a weight file", help="name a file in it")
        if not stat.S_ISREG(info.st_mode):
            raise WeightFileError(name, "this is not a regular file", help="copy the data to a file first")
        with open(name, "rb") as handle:
            info = os.fstat(handle.fileno())
            if info.st_size == 0:
                raise WeightFileError(name, "the file is empty (0 bytes)")
            data = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise WeightFileError(name, "no such file", help=_nearby(name)) from None
    except PermissionError:
        raise WeightFileError(name, "no permission to read it", help="change its mode or owner") from None
    except (OSError, ValueError) as error:  # too long a name, a NUL in it, a loop of links, no address space
        reason = getattr(error, "strerror", None) or str(error)
        raise WeightFileError(name, f"cannot be opened: {reason}", help="check the path") from None
    return MappedFile(os.fsdecode(name), data, len(data), _identity(info))


def _nearby(name: str) -> str:
    try:
        others = os.listdir(Path(name).parent)
    except OSError:
        return "the folder does not exist either: check the path"
    close = difflib.get_close_matches(Path(name).name, others, n=3)
    return f"did you mean {' or '.join(close)}?" if close else "check the path"


@dataclass(frozen=True)
class TensorPlace:
    """Where a tensor lies: kind, shape, (elements, bytes) of a block, first byte and bytes in the file."""

    kind: str
    shape: tuple[int, ...]
    block: tuple[int, int]
    offset: int
    nbytes: int


class WeightFile:
    """An open weight file: `metadata`, `names`, `tensor(name)`. A context manager; nothing is read early."""

    def __init__(
        self, mapped: MappedFile, metadata: Mapping[str, Any], places: Mapping[str, TensorPlace]
    ) -> None:
        self._mapped, self._places = mapped, places
        self.path = mapped.path
        self.metadata = dict(metadata)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all tensors, in the order of the file's header."""
        return tuple(self._places)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def tensor(self, name: str) -> Tensor:
        """The tensor of that name; raises WeightFileError (category `name`) with the nearest names."""
        place = self._places.get(name)
        if place is None:
            close = difflib.get_close_matches(str(name), self.names, n=3)
            help = f"did you mean {' or '.join(close)}?" if close else "see `names` for what the file holds"
            raise WeightFileError(
                self.path, "no such tensor", item=f"tensor {quoted(str(name))}", help=help, category="name"
            )
        raw = self._mapped.array(place.offset, place.nbytes)
        if place.kind in PLAIN_KINDS:
            blocks = raw.view(PLAIN_KINDS[place.kind]).reshape(place.shape)
        else:
            elements, size = place.block
            # At least one dimension: a scalar of a quantised kind never passes the readers' checks.
            blocks = raw.reshape(*place.shape[:-1], place.shape[-1] // elements, size)
        return Tensor(self.path, name, place.shape, place.kind, blocks)

    def key(self, name: str, kind: type | tuple[type, ...] = object) -> Any:
        """The metadata value of a key; raises WeightFileError if it is absent or of another type."""
        if name not in self.metadata:
            close = difflib.get_close_matches(name, self.metadata, n=3)
            help = f"the nearest keys are {', '.join(close)}" if close else "see `metadata`"
            raise WeightFileError(
                self.path, "no such key", item=f"key {quoted(name)}", help=help, category="name"
            )
        value = self.metadata[name]
        if not isinstance(value, kind):
            rule = f"has a value of type {type(value).__name__}, which is not the expected one"
            raise WeightFileError(self.path, rule, item=f"key {quoted(name)}", category="type")
        return value

    def close(self) -> None:
        """Let the file go. Tensors already read stay valid."""
        self._mapped.close()

    def __enter__(self) -> WeightFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def check_shape(shape: tuple[int, ...], fail: Callable[[str], WeightFileError]) -> None:
    """Refuse shapes that no array can have, also when a zero hides them from the product."""
    if len(shape) > MAX_DIMS:
        raise fail(f"{len(shape)} dimensions, at most {MAX_DIMS} are legal")
    if max(shape, default=0) >= MAX_ELEMENTS or prod(n for n in shape if n) >= MAX_ELEMENTS:
        sizes = " x ".join(str(n) if n < MAX_ELEMENTS else "2^60 or more" for n in shape)
        raise fail(f"a shape of {sizes} has too many elements")


def check_overlaps(
    places: Mapping[str, TensorPlace], fail: Callable[[str, str], WeightFileError]
) -> list[tuple[int, int, str]]:
    """(first byte, end, name) of all non-empty tensors, sorted; `fail(name, rule)` on the first overlap."""
    spans = sorted((p.offset, p.offset + p.nbytes, name) for name, p in places.items() if p.nbytes)
    for (_, end, before), (start, _, name) in pairwise(spans):
        if start < end:
            raise fail(name, f"its bytes from {start} overlap those of tensor {quoted(before)} up to {end}")
    return spans
