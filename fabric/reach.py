"""Who can send to whom: walks a colour's routes backwards to its sources, or forwards to where it is taken.

All switch positions count as possible. Nothing here knows about cycles.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..isa.program import OPPOSITE, Port, Program, Route
from .routes import neighbour

__all__ = ["Reach", "consumers", "producers"]


@dataclass
class Reach:
    """PEs as (x, y, queue), edge ports by name, and routers (x, y) where the colour comes to a dead end."""

    pes: list[tuple[int, int, int]] = field(default_factory=list)
    edges: list[str] = field(default_factory=list)
    dead_ends: list[tuple[int, int]] = field(default_factory=list)


def producers(program: Program, x: int, y: int, colour: int) -> Reach:
    """What may send wavelets that leave router (x, y) for its RAMP as `colour`."""
    found = Reach()
    seen = {(x, y, Port.RAMP, colour)}
    waiting = [(x, y, Port.RAMP, colour)]
    while waiting:
        at_x, at_y, output, leaving = waiting.pop()
        sources = _inputs_of(program, at_x, at_y, output, leaving)
        if not sources:
            found.dead_ends.append((at_x, at_y))
        for port, entering in sources:
            if port is Port.RAMP:
                _add_pe(found, program.out_colour[at_y, at_x], at_x, at_y, entering)
                continue
            state = (*neighbour(at_x, at_y, port), OPPOSITE[port], entering)
            if not _inside(program, state[0], state[1]):
                found.edges.extend(_edge_ports(program, False, at_x, at_y, port, entering))
            elif state not in seen:
                seen.add(state)
                waiting.append(state)
    return _sorted(found)


def consumers(program: Program, x: int, y: int, colour: int) -> Reach:
    """What may take wavelets that enter router (x, y) from its RAMP as `colour`."""
    found = Reach()
    seen = {(x, y, Port.RAMP, colour)}
    waiting = [(x, y, Port.RAMP, colour)]
    while waiting:
        at_x, at_y, port, entering = waiting.pop()
        route = program.route_at(at_x, at_y, entering)
        outputs = _outputs(route, port) if route else set()
        if route is None or not outputs:
            found.dead_ends.append((at_x, at_y))
            continue
        leaving = entering ^ 1 if route.swap else entering
        for output in sorted(outputs):
            if output is Port.RAMP:
                _add_pe(found, program.in_colour[at_y, at_x], at_x, at_y, leaving)
                continue
            state = (*neighbour(at_x, at_y, output), OPPOSITE[output], leaving)
            if not _inside(program, state[0], state[1]):
                found.edges.extend(_edge_ports(program, True, at_x, at_y, output, leaving))
            elif state not in seen:
                seen.add(state)
                waiting.append(state)
    return _sorted(found)


def _inputs_of(program: Program, x: int, y: int, output: Port, leaving: int) -> list[tuple[Port, int]]:
    """(input port, entering colour) of every route of a router that sends `leaving` to `output`."""
    found: set[tuple[Port, int]] = set()
    for entering in (leaving, leaving ^ 1):
        route = program.route_at(x, y, entering)
        if route is None or (entering ^ 1 if route.swap else entering) != leaving:
            continue
        for position in route.positions:
            if output in position.outputs:
                found.update((port, entering) for port in position.inputs)
    return sorted(found)


def _outputs(route: Route, port: Port) -> set[Port]:
    return {out for position in route.positions if port in position.inputs for out in position.outputs}


def _add_pe(found: Reach, bound: np.ndarray, x: int, y: int, colour: int) -> None:
    """Record the queues of PE (x, y) that are bound to `colour`."""
    queues = [queue for queue, c in enumerate(bound.tolist()) if c == colour]
    if queues:
        found.pes.extend((x, y, queue) for queue in queues)
    else:
        found.dead_ends.append((x, y))


def _edge_ports(program: Program, output: bool, x: int, y: int, side: Port, colour: int) -> list[str]:
    lane = x if side in (Port.N, Port.S) else y
    return [
        name
        for name, port in program.edge_ports.items()
        if port.output == output and port.side is side and port.colour == colour and lane in port.lanes
    ]


def _inside(program: Program, x: int, y: int) -> bool:
    return 0 <= x < program.width and 0 <= y < program.height


def _sorted(found: Reach) -> Reach:
    found.pes = sorted(set(found.pes), key=lambda pe: (pe[1], pe[0], pe[2]))
    found.edges = sorted(set(found.edges))
    found.dead_ends = sorted(set(found.dead_ends), key=lambda pe: (pe[1], pe[0]))
    return found
