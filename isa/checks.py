"""Static checks of a whole program, whoever made it: the assembler, a builder, an image file.

`check` asks what is true on every machine; `check_fits` asks one machine's limits. Both find everything that
is wrong and say it once per rectangle of PEs.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from .code_checks import check_code
from .diagnostics import AssemblyError, Diagnostic
from .memory import ADDRESSES
from .origins import Origins
from .program import COLOURS, Kernel, Location, Program
from .route_checks import check_routes

LARGEST_SHOWN = 3


def check(program: Program, *, origins: Origins | None = None) -> list[Diagnostic]:
    """Everything that is wrong with a program on any machine; `origins` gives findings places in source."""
    found: list[Diagnostic] = []
    for kernel in program.kernels:
        found += check_code(kernel)
        found += capacity(kernel, ADDRESSES, "addresses have 16 bits")
    return found + check_routes(program, origins)


def check_fits(
    program: Program,
    sram_bytes: int,
    *,
    grid: tuple[int, int] | None = None,
    reserved_colours: Collection[int] = (),
    in_queues: int | None = None,
    out_queues: int | None = None,
    machine: str = "the machine",
) -> None:
    """Raise AssemblyError if the program does not fit a machine: SRAM, grid, colours, queues."""
    found: list[Diagnostic] = []
    if grid is not None and (program.width > grid[0] or program.height > grid[1]):
        found.append(
            Diagnostic(
                "capacity",
                f"a grid of {program.width} x {program.height} PEs does not fit on {machine}: "
                f"{grid[0]} x {grid[1]}",
                help="choose a larger machine or smaller parameters",
            )
        )
    for number, kernel in enumerate(program.kernels):
        if (program.placement == number).any():
            found += capacity(kernel, sram_bytes, f"SRAM of {machine}")
            for limit, queues, direction in (
                (in_queues, kernel.in_queues, "input"), (out_queues, kernel.out_queues, "output")
            ):  # fmt: skip
                found += [
                    Diagnostic(
                        "resource",
                        f"kernel `{kernel.name}`: {direction} queue {queue} (`{name}`) does not "
                        f"exist on {machine}; "
                        f"legal: 0..{limit - 1}", kernel.location,
                    )
                    for queue, name in queues.items() if limit is not None and queue >= limit
                ]  # fmt: skip
    found += reserved(program, reserved_colours, machine)
    if found:
        raise AssemblyError(found, program.sources, program.name)


def reserved(program: Program, reserved_colours: Collection[int], machine: str) -> list[Diagnostic]:
    """Uses of colours that the machine keeps for itself."""
    used = {c for c, table in program.routes.items() if table.any()} | {
        p.colour for p in program.edge_ports.values()
    }
    for table in (program.in_colour, program.out_colour):
        used |= {int(c) for c in np.unique(table) if c >= 0}
    legal = ", ".join(map(str, (c for c in range(COLOURS) if c not in set(reserved_colours))))
    names = {number: name for name, number in reversed(program.colour_names.items())}
    return [
        Diagnostic(
            "range",
            f"colour {c}" + (f" (`{names[c]}`)" if c in names else "") + f" is reserved on {machine}",
            _user(program, c),
            help=f"legal colours: {legal}",
        )
        for c in sorted(used & set(reserved_colours))
    ]  # fmt: skip


def _user(program: Program, colour: int) -> Location | None:
    """Where a colour is used: its edge port, or the kernel of the first PE with a queue bound to it."""
    for port in program.edge_ports.values():
        if port.colour == colour and port.location:
            return port.location
    for table in (program.out_colour, program.in_colour):
        for y, x, _ in np.argwhere(table == colour)[:1]:
            kernel = program.kernel_at(int(x), int(y))
            return kernel.location if kernel else None
    return None


def capacity(kernel: Kernel, limit: int, what: str) -> list[Diagnostic]:
    """A finding if data and code of a kernel exceed `limit` bytes: by how much, map, largest items."""
    code = 4 * len(kernel.code)
    over = kernel.sram_bytes - limit
    if over <= 0:
        return []
    if code > limit:
        text = (
            f"the code of kernel `{kernel.name}` alone takes {code} bytes, over by {code - limit} bytes "
            f"({limit}: {what})"
        )
    else:
        text = (
            f"kernel `{kernel.name}` takes {kernel.sram_bytes} bytes, over by {over} bytes ({limit}: {what})"
        )
    items = sorted(((size, name) for _, size, name in _items(kernel)), reverse=True)[:LARGEST_SHOWN]
    largest = ", ".join(f"{name} {size} bytes" for size, name in items)
    notes: list[tuple[str, Location | None]] = [
        ("map of one PE\n" + "\n".join(memory_map(kernel, limit)), None),
        (f"largest: {largest}", None),
    ]
    return [Diagnostic("capacity", text, kernel.location, notes)]


def memory_map(kernel: Kernel, sram_bytes: int) -> list[str]:
    """One line per item of a PE's SRAM: first address, bytes, what; then what is free."""
    lines = [f"  {address:>6} {size:>7} bytes  {name}" for address, size, name in _items(kernel)]
    free = sram_bytes - kernel.sram_bytes
    lines.append(f"  {kernel.sram_bytes:>6} {free:>7} bytes  free")
    return lines


def _items(kernel: Kernel) -> list[tuple[int, int, str]]:
    """(address, bytes, name) of symbols with memory of their own, descriptors together, then the code."""
    rows: list[tuple[int, int, str]] = []
    descriptors = [s for s in kernel.symbols.values() if s.role == "descriptor"]
    end = 0
    for symbol in sorted(kernel.symbols.values(), key=lambda s: (s.address, -s.nbytes)):
        if symbol.role == "descriptor":
            continue
        if symbol.address >= end:  # else an overlay
            shape = f"[{', '.join(map(str, symbol.shape))}]" if symbol.shape else ""
            kind = "fifo " if symbol.role == "fifo" else ""
            rows.append(
                (symbol.address, symbol.nbytes, f"{symbol.name}: {kind}{symbol.element.source_name}{shape}")
            )
            end = symbol.address + symbol.nbytes
    if descriptors:
        total = sum(s.nbytes for s in descriptors)
        rows.append((min(s.address for s in descriptors), total, f"{len(descriptors)} descriptors"))
    rows.append((len(kernel.data), 4 * len(kernel.code), "code"))
    return rows
