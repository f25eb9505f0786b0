"""Bit patterns to floating-point values and back, inside compiled code.

Each function here is one or a few LLVM instructions. f16 exists only as a pattern in a uint16: it is
widened to f32 for arithmetic and rounded back by `f16_from_f32`.
"""

from __future__ import annotations

import platform

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic

from .jit import jit_inline

_HALF = ir.HalfType()
_FLOAT = ir.FloatType()


def half_in_hardware() -> bool:
    """True when LLVM turns half <-> float into instructions; else it calls routines that may not exist."""
    if platform.machine().lower() in ("arm64", "aarch64"):
        return True
    named = getattr(config, "CPU_NAME", None), getattr(config, "CPU_FEATURES", None)
    if named != (None, None):  # the user asked Numba for another processor than this one
        return "+f16c" in (named[1] or "")
    return bool(llvmlite.binding.get_host_cpu_features().get("f16c", False))


HALF_IN_HARDWARE = half_in_hardware()


def _bitcast(source, target):
    """Build an intrinsic that reinterprets the bits of `source` as `target`."""

    def reinterpret(typingctx, value):
        def codegen(context, builder, signature, args):
            return builder.bitcast(args[0], context.get_value_type(target))

        return target(source), codegen

    return intrinsic(reinterpret)


f32_from_bits = _bitcast(types.uint32, types.float32)
bits_from_f32 = _bitcast(types.float32, types.uint32)
f64_from_bits = _bitcast(types.uint64, types.float64)
bits_from_f64 = _bitcast(types.float64, types.uint64)


@intrinsic
def _hardware_f32_from_f16(typingctx, value):
    """f16 pattern (uint16) -> float32, exact."""

    def codegen(context, builder, signature, args):
        return builder.fpext(builder.bitcast(args[0], _HALF), _FLOAT)

    return types.float32(types.uint16), codegen


@intrinsic
def _hardware_f16_from_f32(typingctx, value):
    """float32 -> f16 pattern (uint16), to nearest even; a NaN keeps some payload."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(builder.fptrunc(args[0], _HALF), ir.IntType(16))

    return types.uint16(types.float32), codegen


@intrinsic
def fma_f32(typingctx, a, b, c):
    """a * b + c in float32 with one rounding (llvm.fma)."""

    def codegen(context, builder, signature, args):
        return builder.fma(*args)

    return types.float32(types.float32, types.float32, types.float32), codegen


@jit_inline
def portable_f32_from_f16(bits):
    """f16 pattern -> float32 by integers and an exact product; for hosts without the instruction."""
    magnitude = np.uint32(bits & np.uint16(0x7FFF)) << np.uint32(13)
    sign = np.uint32(bits & np.uint16(0x8000)) << np.uint32(16)
    scaled = f32_from_bits(magnitude) * np.float32(2.0**112)  # moves the exponent bias, exactly
    special = magnitude | np.uint32(0x7F800000)
    value = special if magnitude >= np.uint32(0x7C00 << 13) else bits_from_f32(scaled)
    return f32_from_bits(np.uint32(value | sign))


@jit_inline
def portable_f16_from_f32(value):
    """float32 -> f16 pattern by integer rounding, NaN canonical; for hosts without the instruction."""
    bits = bits_from_f32(value)
    magnitude = np.uint32(bits & np.uint32(0x7FFFFFFF))
    # Subnormal: adding 0.5 aligns the last kept bit (2^-24) with f32's last bit, so the sum rounds as wanted.
    subnormal = np.uint32(bits_from_f32(f32_from_bits(magnitude) + np.float32(0.5)) - np.uint32(0x3F000000))
    odd = np.uint32((magnitude >> np.uint32(13)) & np.uint32(1))
    # 0xC8000000 is (15 - 127) << 23 modulo 2^32: it moves the exponent bias.
    normal = np.uint32(np.uint32(magnitude + np.uint32(0xC8000FFF) + odd) >> np.uint32(13))
    result = subnormal if magnitude < np.uint32(0x38800000) else normal
    if magnitude >= np.uint32(0x47800000):  # 65536 and above, infinity, NaN
        result = np.uint32(0x7C00)
    if magnitude > np.uint32(0x7F800000):
        result = np.uint32(0x7E00)
    return np.uint16(result | ((bits >> np.uint32(16)) & np.uint32(0x8000)))


if HALF_IN_HARDWARE:
    f32_from_f16 = _hardware_f32_from_f16
    f16_from_f32 = _hardware_f16_from_f32
else:
    f32_from_f16 = portable_f32_from_f16
    f16_from_f32 = portable_f16_from_f32
