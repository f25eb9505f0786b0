"""Does a program fit a machine: grid, SRAM, queues, colours. Asked before anything is loaded."""

from __future__ import annotations

from ..isa.checks import check_fits
from ..isa.errors import Rejected
from ..isa.program import Program
from .spec import MachineSpec

__all__ = ["check_fit"]


def check_fit(spec: MachineSpec, program: Program) -> None:
    """Raise Rejected with every way in which the program does not fit; do nothing if it does."""
    if program.width < 1 or program.height < 1:
        raise Rejected(
            f"the grid is {program.width} x {program.height} PEs: at least 1 x 1", category="range"
        )
    check_fits(
        program,
        spec.sram.bytes,
        grid=(spec.grid.width, spec.grid.height),
        reserved_colours=spec.fabric.reserved_colours,
        in_queues=len(spec.queues.in_depth),
        out_queues=len(spec.queues.out_depth),
        machine=spec.name,
    )
