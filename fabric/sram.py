"""The SRAM of a whole wafer: one lazily committed mapping, `stride` bytes per PE, never the 48 KiB of each.

The operating system gives a page only when it is first touched, already zero: an 883,350-PE wafer whose
program uses 64 bytes per PE costs 57 MB, and nothing before it is loaded.
"""

from __future__ import annotations

import mmap
import platform
import sys

import numpy as np

from ..isa.errors import Usage
from ..isa.program import Program

__all__ = ["ROW_ALIGNMENT", "allocate", "available", "check_room", "stride_of"]

ROW_ALIGNMENT = 8  # bytes: every PE's row starts on a boundary that any element type may be read at
# Python names MAP_NORESERVE from 3.13 on; its value is the same on all these.
_NORESERVE = 0x4000 if platform.machine() in ("x86_64", "aarch64", "riscv64") else 0
_ROOM_MATTERS_FROM = 256 << 20  # bytes: not worth asking the system for less
_HUGE_PAGES_FROM = 4 << 20  # bytes: a smaller arena gains nothing from 2 MiB pages

_CDEF = """
void *mmap(void *address, size_t length, int protection, int flags, int file, long offset);
int munmap(void *address, size_t length);
int madvise(void *address, size_t length, int advice);
"""


def stride_of(program: Program) -> int:
    """Bytes per PE: the largest kernel's data, rounded up to `ROW_ALIGNMENT`."""
    largest = max((len(kernel.data) for kernel in program.kernels), default=0)
    return max(ROW_ALIGNMENT, -(-largest // ROW_ALIGNMENT) * ROW_ALIGNMENT)


def allocate(rows: int, stride: int) -> np.ndarray:
    """Zeroed (rows, stride) uint8. The memory goes back when the array and all its views are gone.

    Linux: an anonymous mapping that asks for huge pages. Elsewhere, or where a mapping of our own is refused:
    NumPy's zeros, which most systems commit lazily too.
    """
    size = rows * stride
    if size <= 0:
        raise Usage(f"a wafer's SRAM of {rows} rows of {stride} bytes")
    flat = _mapped(size) if sys.platform == "linux" else None
    try:
        flat = np.zeros(size, np.uint8) if flat is None else flat
    except MemoryError:
        raise Usage(
            f"no room for the wafer's SRAM: {rows:,} PEs of {stride:,} bytes are {size / 2**30:.1f} GiB",
            category="resource",
            help="use a smaller grid, a program with less data per PE, or a host with more memory",
        ) from None
    return flat.reshape(rows, stride)


def available() -> int | None:
    """Bytes of memory this host can still give without pushing anybody out; None where it does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            found = dict(line.split(":", 1) for line in file)
        return sum(int(found[key].split()[0]) << 10 for key in ("MemAvailable", "SwapFree"))
    except (OSError, ValueError, KeyError, IndexError):
        return None


def check_room(size: int, what: str) -> None:
    """Raise Usage if `size` bytes of SRAM that will be filled with data are more than the host has left.

    The system hands out such a mapping gladly, and kills the process while it is being filled.
    """
    room = available() if size >= _ROOM_MATTERS_FROM else None
    if room is not None and size > room:
        raise Usage(
            f"no room for the SRAM of {what}: {size / 2**30:.1f} GiB; "
            f"this host has {room / 2**30:.1f} GiB left",
            category="resource",
            help="use a smaller grid, less data per PE, or a host with more memory",
        )


def _mapped(size: int) -> np.ndarray | None:
    """`size` bytes of a private anonymous mapping; None if the system refuses."""
    from cffi import FFI

    ffi = FFI()
    ffi.cdef(_CDEF)
    try:
        libc = ffi.dlopen(None)
    except OSError:
        return None
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", _NORESERVE)
    address = libc.mmap(ffi.NULL, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    if address == ffi.cast("void *", -1):
        return None
    if size >= _HUGE_PAGES_FROM and hasattr(mmap, "MADV_HUGEPAGE"):
        libc.madvise(address, size, mmap.MADV_HUGEPAGE)  # a refusal costs speed, nothing else
    # The array holds the buffer, the buffer holds `owned`, and `owned` unmaps when it is collected.
    owned = ffi.gc(address, lambda pointer: libc.munmap(pointer, size), size)
    return np.frombuffer(ffi.buffer(owned, size), np.uint8)
