"""What is left when nothing moves any more: wavelets nobody took, PEs that never said they were done."""

from __future__ import annotations

import numpy as np

from ..isa.instructions import IllegalInstruction, decode
from ..isa.program import Program
from .outcome import Outcome, Wait
from .rectangles import spell
from .waiting import WaitGraph

__all__ = ["never_done", "stuck_wavelets"]

REMARKS_SHOWN = 8


def stuck_wavelets(graph: WaitGraph) -> list[str]:
    """Wavelets in queues that no thread reads, and in routers, by colour and place."""
    waits, program = graph.waits, graph.program
    found: list[str] = []
    fill = np.asarray(waits.in_fill)
    read = np.zeros(fill.shape, bool)
    ys, xs, threads = np.nonzero(waits.state == Wait.RECEIVE)
    read[ys, xs, waits.queue[ys, xs, threads]] = True
    left = np.where(read, 0, fill)
    for queue in range(left.shape[2]):
        for colour in np.unique(program.in_colour[..., queue][left[..., queue] > 0]).tolist():
            mask = (left[..., queue] > 0) & (program.in_colour[..., queue] == colour)
            count = int(left[..., queue][mask].sum())
            found.append(
                f"delivered, never consumed: {_wavelets(count)} of {_colour(graph, colour)} in input queue "
                f"{queue} of {spell(mask)}"
            )
    for colour in sorted(waits.router_fill):
        per_router = np.asarray(waits.router_fill[colour]).sum(axis=2)
        if per_router.any():
            found.append(
                f"stuck on the way: {_wavelets(int(per_router.sum()))} of {_colour(graph, colour)} in the "
                f"routers of {spell(per_router > 0)}{_position(graph, colour, per_router > 0)}"
            )
    unread = {name: sum(words) for name, words in sorted(graph.outcome.unread_inputs.items()) if sum(words)}
    found += [f"still at the host: {words:,} words of input `{name}`" for name, words in unread.items()]
    return _capped(found)


def never_done(program: Program, outcome: Outcome) -> list[str]:
    """PEs whose code has `done` and that never executed it."""
    found = []
    for index, kernel in enumerate(program.kernels):
        places = _done_places(kernel.code.tolist())
        mask = (np.asarray(program.placement) == index) & ~np.asarray(outcome.done)
        if places and mask.any():
            where = next((kernel.locations[pc] for pc in places if pc < len(kernel.locations)), None)
            at = f" (`done` at {where})" if where else ""
            found.append(f"never done: {spell(mask)} of kernel {kernel.name}{at}")
    return _capped(found)


def _done_places(code: list[int]) -> list[int]:
    places, pc = [], 0
    while pc < len(code):
        try:
            found = decode(code, pc)
        except IllegalInstruction:
            pc += 1
            continue
        if found.row.name == "done":
            places.append(pc)
        pc += found.words
    return places


def _position(graph: WaitGraph, colour: int, mask: np.ndarray) -> str:
    positions = graph.waits.position.get(colour)
    if positions is None:
        return ""
    held = np.unique(np.asarray(positions)[mask]).tolist()
    return f", switch in position {', '.join(map(str, held))}"


def _colour(graph: WaitGraph, colour: int) -> str:
    name = graph.colour_names.get(colour)
    return f"colour {colour}" + (f" ({name})" if name else "")


def _wavelets(count: int) -> str:
    return f"{count:,} wavelet{'' if count == 1 else 's'}"


def _capped(lines: list[str]) -> list[str]:
    if len(lines) <= REMARKS_SHOWN:
        return lines
    return [*lines[:REMARKS_SHOWN], f"... and {len(lines) - REMARKS_SHOWN} more of this kind"]
