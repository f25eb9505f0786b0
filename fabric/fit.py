"""Does a program fit a machine: grid, SRAM, queues, colours. Asked before anything is loaded."""

from __future__ import annotations

import numpy as np

from ..isa.errors import Rejected
from ..isa.program import Kernel, Program
from .spec import MachineSpec

__all__ = ["check_fit"]

LARGEST_SHOWN = 3  # symbols named when a kernel is too big


def check_fit(spec: MachineSpec, program: Program) -> None:
    """Raise Rejected with every way in which the program does not fit; do nothing if it does."""
    problems: list[str] = []
    help = None
    if program.width < 1 or program.height < 1:
        problems.append(f"the grid is {program.width} x {program.height} PEs: at least 1 x 1")
    if program.width > spec.grid.width or program.height > spec.grid.height:
        problems.append(
            f"the program's grid is {program.width} x {program.height} PEs, {spec.name} has "
            f"{spec.grid.width} x {spec.grid.height}"
        )
        help = "pass smaller sizes with -D, or a larger machine"
    for kernel in program.kernels:
        over = kernel.sram_bytes - spec.sram.bytes
        if over > 0:
            problems.append(
                f"kernel {kernel.name} is over by {over:,} bytes of SRAM: {_map(kernel, spec.sram.bytes)}"
            )
            help = help or "spread the data over more PEs"
    for colours, depths, way in (
        (program.in_colour, spec.queues.in_depth, "input"),
        (program.out_colour, spec.queues.out_depth, "output"),
    ):
        for queue in np.flatnonzero((np.asarray(colours) >= 0).any(axis=(0, 1))):
            if queue >= len(depths):
                problems.append(f"{way} queue {queue} is used, {spec.name} has queues 0..{len(depths) - 1}")
    for colour in sorted(program.routes):
        if colour in spec.fabric.reserved_colours and np.any(program.routes[colour]):
            free = [c for c in range(24) if c not in spec.fabric.reserved_colours]
            problems.append(f"colour {colour} is reserved on {spec.name}; free are {_ranges(free)}")
    if problems:
        first, *others = problems
        raise Rejected(
            f"the program does not fit {spec.name}: {first}",
            category="capacity" if help else "resource",
            notes=others,
            help=help,
        )


def _map(kernel: Kernel, available: int) -> str:
    code = 4 * len(kernel.code)
    largest = sorted(kernel.symbols.values(), key=lambda s: (-s.nbytes, s.address))[:LARGEST_SHOWN]
    names = ", ".join(f"{s.name} {s.nbytes:,}" for s in largest)
    return f"data {len(kernel.data):,} + code {code:,} = {kernel.sram_bytes:,} of {available:,} bytes" + (
        f"; largest: {names}" if names else ""
    )


def _ranges(values: list[int]) -> str:
    """`0..4, 7` for a sorted list."""
    runs: list[list[int]] = []
    for value in values:
        if runs and runs[-1][1] == value - 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    return ", ".join(f"{a}" if a == b else f"{a}..{b}" for a, b in runs) or "none"
