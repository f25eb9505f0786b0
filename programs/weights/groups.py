"""The machine's layout of quantised weights: groups along the inputs, the unit that `dequantise` reads.

The layout, the group sizes and the f16 arithmetic are `isa/dequantise.py`'s: a q4 group of s weights is f16
scale, f16 offset and s/2 bytes of codes, a q8 group f16 scale and s signed bytes (20 and 34 bytes for 32).

Only bytes are moved here. Conversion from GGUF blocks is exact and never creates a NaN or an infinity.
A group of zero bytes is s weights of exactly 0: that is the padding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from ...isa.dequantise import (
    DEFAULT_GROUP,
    GROUP_SIZES,
    Q4_HEADER_BYTES,
    Q8_HEADER_BYTES,
    pack_q4,
    q4_group_bytes,
    q8_group_bytes,
)
from ...isa.errors import Usage
from .weight_file import Tensor

__all__ = ["Groups", "Tiling", "group_bytes", "groups_of"]

F16_OVERFLOW = 65520  # the smallest number that rounds to infinity in f16

Kind = Literal["q4", "q8"]


def ceil_div(a: int, b: int) -> int:
    """a / b rounded up."""
    return -(-a // b)


def group_bytes(kind: Kind, size: int = DEFAULT_GROUP) -> int:
    """Bytes of one group of `size` weights."""
    if size not in GROUP_SIZES:
        raise Usage(f"group size {size} is not one of {', '.join(map(str, GROUP_SIZES))} weights")
    return q4_group_bytes(size) if kind == "q4" else q8_group_bytes(size)


@dataclass(frozen=True, eq=False)
class Groups:
    """A weight matrix (rows = outputs, inputs) in groups.

    `data` is uint8 of shape (rows, groups per row, bytes per group); the last group of a row may be longer
    than `inputs` needs, its rest is padding.
    """

    name: str
    kind: Kind
    size: int
    inputs: int
    data: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        """(outputs, inputs) of the matrix."""
        return self.data.shape[0], self.inputs

    @property
    def scale_bits(self) -> np.ndarray:
        """f16 bit patterns of the scales, uint16 of shape (rows, groups)."""
        return np.ascontiguousarray(self.data[..., :2]).view("<u2")[..., 0]

    @property
    def offset_bits(self) -> np.ndarray:
        """f16 bit patterns of the offsets, uint16 of shape (rows, groups); zeros for q8."""
        if self.kind == "q8":
            return np.zeros(self.data.shape[:2], "<u2")
        return np.ascontiguousarray(self.data[..., 2:4]).view("<u2")[..., 0]

    @property
    def codes(self) -> np.ndarray:
        """The integers q in weight order, of shape (rows, groups, size): uint8 0..15 for q4, int8 for q8."""
        if self.kind == "q8":
            return np.ascontiguousarray(self.data[..., Q8_HEADER_BYTES:]).view(np.int8)
        nibbles = self.data[..., Q4_HEADER_BYTES:]
        return np.stack([nibbles & 15, nibbles >> 4], axis=-1).reshape(*self.data.shape[:2], self.size)

    def to_float32(self) -> np.ndarray:
        """scale * q + offset in float32, shape (outputs, inputs): the golden value, not the machine's f16."""
        scale = self.scale_bits.view("<f2").astype(np.float32)[..., None]
        values = scale * self.codes.astype(np.float32)
        if self.kind == "q4":
            values += self.offset_bits.view("<f2").astype(np.float32)[..., None]
        return values.reshape(self.data.shape[0], -1)[:, : self.inputs]

    def regroup(self, size: int) -> Groups:
        """The same weights in smaller groups of `size`, scale and offset repeated."""
        if size == self.size:
            return self
        width = group_bytes(self.kind, size)  # refuses illegal sizes
        if size > self.size:
            raise Usage(f"groups of {self.size} weights cannot be joined to groups of {size}")
        rows, groups, _ = self.data.shape
        parts = self.size // size
        header = Q4_HEADER_BYTES if self.kind == "q4" else Q8_HEADER_BYTES
        data = np.empty((rows, groups, parts, width), np.uint8)
        data[..., :header] = self.data[:, :, None, :header]
        data[..., header:] = self.data[..., header:].reshape(rows, groups, parts, -1)
        needed = ceil_div(self.inputs, size)  # groups that hold only padding are dropped
        return Groups(self.name, self.kind, size, self.inputs, data.reshape(rows, -1, width)[:, :needed])


def groups_of(tensor: Tensor, size: int = DEFAULT_GROUP) -> Groups:
    """A Q4_0, Q4_1 or Q8_0 tensor of a GGUF file in groups of `size` weights. Exact.

    Q4_0 has no offset; it becomes -8 * scale, which f16 holds exactly unless |scale| > 8188. Against
    d * (q - 8) the value is the same and a zero is always +0. Raises WeightFileError naming tensor and
    block for scales or offsets that are not finite or overflow, and for other kinds.
    """
    if tensor.kind not in ("Q4_0", "Q4_1", "Q8_0"):
        help = "convert the file to Q4_1, Q4_0 or Q8_0"
        raise tensor.error(f"kind {tensor.kind} has no groups, kinds Q4_0, Q4_1 and Q8_0 do", help=help)
    if 0 in tensor.shape:
        raise tensor.error(f"shape {tensor.shape} holds no weights", help="choose another tensor")
    inputs = tensor.shape[-1]
    blocks = tensor.blocks.reshape(-1, tensor.blocks.shape[-2], tensor.blocks.shape[-1])
    _check_finite(tensor, blocks[..., 0:2], "scale")
    if tensor.kind == "Q8_0":
        return _in_range(tensor, Groups(tensor.name, "q8", DEFAULT_GROUP, inputs, blocks)).regroup(size)
    scales = _halves(blocks[..., 0:2])
    if tensor.kind == "Q4_1":
        _check_finite(tensor, blocks[..., 2:4], "offset")
        offsets = _halves(blocks[..., 2:4])
    else:
        with np.errstate(over="ignore"):
            offsets = scales * np.float16(-8)
        _refuse(tensor, np.isinf(offsets), scales, "scale", "makes the offset, -8 times it, overflow f16")
    nibbles = blocks[..., -DEFAULT_GROUP // 2 :]  # byte j: weight j low, weight j + 16 high
    data = pack_q4(scales, offsets, np.concatenate([nibbles & 15, nibbles >> 4], axis=-1))
    return _in_range(tensor, Groups(tensor.name, "q4", DEFAULT_GROUP, inputs, data)).regroup(size)


def _in_range(tensor: Tensor, groups: Groups) -> Groups:
    """Refuse weights that round to an infinity in f16; only groups with large numbers are looked at."""
    scale, offset = groups.scale_bits.view("<f2"), groups.offset_bits.view("<f2")
    most = 15 if groups.kind == "q4" else 128
    large = np.abs(scale.astype(np.float32)) * most + np.abs(offset.astype(np.float32)) >= F16_OVERFLOW
    if large.any():
        values = scale[large, None].astype(np.float32) * groups.codes[large]
        values += offset[large, None].astype(np.float32)
        over = np.abs(values).max(axis=-1) >= F16_OVERFLOW
        if over.any():
            row, block = (int(i) for i in np.argwhere(large)[over.argmax()])
            raise tensor.error(f"block {block} of row {row}: a weight is too large for f16")
    return groups


def _halves(pairs: np.ndarray) -> np.ndarray:
    """f16 values of byte pairs: (..., 2) uint8 to (...) float16."""
    return np.ascontiguousarray(pairs).view("<f2")[..., 0]


def _check_finite(tensor: Tensor, pairs: np.ndarray, what: str) -> None:
    values = _halves(pairs)
    _refuse(tensor, ~np.isfinite(values), values, what, "must be finite")


def _refuse(tensor: Tensor, bad: np.ndarray, values: np.ndarray, what: str, rule: str) -> None:
    if bad.any():
        row, block = (int(i) for i in np.argwhere(bad)[0])
        raise tensor.error(f"block {block} of row {row}: the {what} {values[row, block]} {rule}")


class Tiling(NamedTuple):
    """How a matrix (outputs, inputs) lies on `out_parts` x `in_parts` PEs, one equal tile each.

    Part p holds outputs [p * out_tile, ...) and inputs [p * in_tile, ...); in_tile is a multiple of the
    group size. What lies past the matrix's end is padding: zero weights that meet zero inputs, and
    outputs that `join` drops.
    """

    outputs: int
    inputs: int
    out_parts: int
    in_parts: int
    out_tile: int  # outputs of one PE
    in_tile: int  # inputs of one PE
    size: int  # weights of a group; 1 for plain numbers

    @classmethod
    def of(cls, outputs: int, inputs: int, out_parts: int, in_parts: int, size: int = 1) -> Tiling:
        """The smallest equal tiles that cover the matrix; any sizes from 1 on."""
        for what, value in (
            ("outputs", outputs), ("inputs", inputs), ("parts along the outputs", out_parts),
            ("parts along the inputs", in_parts), ("weights of a group", size),
        ):  # fmt: skip
            if value < 1:
                raise Usage(f"the number of {what} must be at least 1, not {value}")
        in_tile = ceil_div(ceil_div(inputs, size), in_parts) * size
        return cls(outputs, inputs, out_parts, in_parts, ceil_div(outputs, out_parts), in_tile, size)

    def split_groups(self, groups: Groups) -> np.ndarray:
        """Tiles of a grouped matrix: uint8 (out_parts, in_parts, out_tile, groups, bytes per group)."""
        self._fits("groups", (*groups.shape, groups.size), (self.outputs, self.inputs, self.size))
        return self._tiles(groups.data, self.in_tile // self.size)

    def split_matrix(self, matrix: np.ndarray) -> np.ndarray:
        """Tiles of plain numbers (outputs, inputs): (out_parts, in_parts, out_tile, in_tile), zero-padded."""
        self._fits("matrix", matrix.shape, (self.outputs, self.inputs))
        return self._tiles(matrix[..., None], self.in_tile)[..., 0]

    def split_input(self, x: np.ndarray) -> np.ndarray:
        """(inputs,) to (in_parts, in_tile), zero-padded: what each part of the inputs multiplies."""
        self._fits("x", x.shape, (self.inputs,))
        padded = np.zeros(self.in_parts * self.in_tile, x.dtype)
        padded[: self.inputs] = x
        return padded.reshape(self.in_parts, self.in_tile)

    def join_output(self, y: np.ndarray) -> np.ndarray:
        """(out_parts, out_tile) to (outputs,), the outputs of padding rows dropped."""
        self._fits("y", y.shape, (self.out_parts, self.out_tile))
        return y.reshape(-1)[: self.outputs]

    def _tiles(self, data: np.ndarray, columns: int) -> np.ndarray:
        rows, width = self.out_parts * self.out_tile, self.in_parts * columns
        padded = np.zeros((rows, width, data.shape[-1]), data.dtype)
        padded[: data.shape[0], : data.shape[1]] = data
        tiles = padded.reshape(self.out_parts, self.out_tile, self.in_parts, columns, data.shape[-1])
        return np.ascontiguousarray(tiles.swapaxes(1, 2))

    def _fits(self, what: str, have: tuple[int, ...], want: tuple[int, ...]) -> None:
        if tuple(have) != tuple(want):
            raise Usage(f"{what} is {have}, this tiling is for {want}")
