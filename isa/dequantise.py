"""Dequantise: the one internal layout of 4-bit and 8-bit weights, and the f16 value of each weight.

Weights are stored in groups of `group` consecutive weights along K (4, 8, 16 or 32; 32 unless a weight format
needs less). All fields are little-endian and every group starts on a 2-byte boundary.

    q4 group, 4 + group/2 bytes:  f16 scale, f16 offset, then codes 0..15 two to a byte:
                                  weight 2i in the low nibble of byte i, weight 2i+1 in the high nibble
    q8 group, 2 + group bytes:    f16 scale, then `group` signed bytes

    q4 weight = scale * code + offset,  an f16 fused multiply-add: one rounding
    q8 weight = scale * code,           one rounding to f16

A scale or offset that is infinite or NaN follows IEEE rules (infinity * 0 is NaN, canonical). Loaders refuse
such groups; the instruction itself does not.
"""

from __future__ import annotations

import numpy as np

from . import floating
from .float16 import canonical16, fma16, mul16
from .numbers import F16, mac

GROUP_SIZES = (4, 8, 16, 32)
DEFAULT_GROUP = 32
Q4_HEADER_BYTES = 4  # scale, offset
Q8_HEADER_BYTES = 2  # scale


def q4_group_bytes(group: int = DEFAULT_GROUP) -> int:
    """Bytes of one q4 group: 20 for 32 weights."""
    _check_group(group)
    return Q4_HEADER_BYTES + group // 2


def q8_group_bytes(group: int = DEFAULT_GROUP) -> int:
    """Bytes of one q8 group: 34 for 32 weights."""
    _check_group(group)
    return Q8_HEADER_BYTES + group


def _check_group(group: int) -> None:
    if group not in GROUP_SIZES:
        raise ValueError(f"group size {group} is not one of {', '.join(map(str, GROUP_SIZES))}")


def q4_weight(scale: int, offset: int, code: int) -> int:
    """f16 pattern of one 4-bit weight; scale and offset are f16 patterns, code is 0..15."""
    return mac(F16, F16, offset, scale, floating.F16.encode(0, code, 0))


def q8_weight(scale: int, code: int) -> int:
    """f16 pattern of one 8-bit weight; scale is an f16 pattern, code is the signed value -128..127."""
    factor = floating.F16.encode(code < 0, abs(code), 0)  # integers up to 2048 are exact in f16
    return floating.multiply(floating.F16, floating.F16, scale, factor)


def q4_weights(group_bytes: bytes) -> list[int]:
    """f16 patterns of one whole q4 group, in order along K."""
    scale, offset = (int.from_bytes(group_bytes[i : i + 2], "little") for i in (0, 2))
    return [q4_weight(scale, offset, (byte >> shift) & 15) for byte in group_bytes[4:] for shift in (0, 4)]


def q8_weights(group_bytes: bytes) -> list[int]:
    """f16 patterns of one whole q8 group, in order along K."""
    scale = int.from_bytes(group_bytes[:2], "little")
    return [q8_weight(scale, byte - 256 if byte > 127 else byte) for byte in group_bytes[2:]]


# The same on arrays: blocks are uint8 (..., bytes of a group), weights float16 (..., group).


def dequantise_q4(blocks: np.ndarray) -> np.ndarray:
    """q4 groups, uint8 (..., 4 + group/2) -> weights, float16 (..., group), the size read off the shape."""
    blocks = np.ascontiguousarray(blocks, np.uint8)
    _check_group((blocks.shape[-1] - Q4_HEADER_BYTES) * 2)
    header = np.ascontiguousarray(blocks[..., :4]).view("<f2")
    packed = blocks[..., 4:]
    codes = np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:-1], -1)
    return fma16(header[..., :1], codes.astype(np.float16), header[..., 1:])


def dequantise_q8(blocks: np.ndarray) -> np.ndarray:
    """q8 groups, uint8 (..., 2 + group) -> weights, float16 (..., group)."""
    blocks = np.ascontiguousarray(blocks, np.uint8)
    _check_group(blocks.shape[-1] - Q8_HEADER_BYTES)
    scale = np.ascontiguousarray(blocks[..., :2]).view("<f2")
    codes = np.ascontiguousarray(blocks[..., 2:]).view(np.int8)
    return canonical16(mul16(scale, codes.astype(np.float16)))


def pack_q4(scale: np.ndarray, offset: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Build q4 groups: scale, offset float16 (...,), codes 0..15 (..., group) -> uint8 (..., 4 + group/2)."""
    codes = np.asarray(codes, np.uint8)
    _check_group(codes.shape[-1])
    header = np.stack([np.asarray(scale, "<f2"), np.asarray(offset, "<f2")], axis=-1)
    packed = codes[..., 0::2] | (codes[..., 1::2] << 4)
    return np.concatenate([np.ascontiguousarray(header).view(np.uint8), packed.astype(np.uint8)], axis=-1)


def pack_q8(scale: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Build q8 groups: scale float16 (...,), codes -128..127 (..., group) -> uint8 (..., 2 + group)."""
    codes = np.ascontiguousarray(codes, np.int8)
    _check_group(codes.shape[-1])
    header = np.ascontiguousarray(np.asarray(scale, "<f2")[..., None])
    return np.concatenate([header.view(np.uint8), codes.view(np.uint8)], axis=-1)
