"""Walking routes: where a colour's channels lead, where edge ports attach, which routes lead nowhere.

Works on a Program alone; never knows a cycle or a machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ..isa.errors import Rejected
from ..isa.program import OPPOSITE, STEP, EdgePort, Port, Program, Route

__all__ = ["channel_step", "check", "lane_places", "neighbour", "of_router", "outputs"]

LINKS = (Port.N, Port.E, Port.S, Port.W)


def neighbour(x: int, y: int, port: Port) -> tuple[int, int]:
    """The place behind a link port; it may be off the grid."""
    dx, dy = STEP[port]
    return x + dx, y + dy


def of_router(program: Program, x: int, y: int) -> dict[int, Route]:
    """Colour -> route of one router."""
    found = {colour: program.route_at(x, y, colour) for colour in sorted(program.routes)}
    return {colour: route for colour, route in found.items() if route is not None}


def outputs(routes: Mapping[int, Route]) -> Iterator[tuple[Port, int]]:
    """(output port, colour behind it) of a router's routes, all switch positions."""
    for colour, route in routes.items():
        for port in sorted({port for position in route.positions for port in position.outputs}):
            yield port, colour ^ 1 if route.swap else colour


def lane_places(program: Program, port: EdgePort) -> list[tuple[int, int]]:
    """(x, y) of the router each lane of an edge port attaches to."""
    fixed = {Port.N: 0, Port.W: 0, Port.S: program.height - 1, Port.E: program.width - 1}[port.side]
    along_x = port.side in (Port.N, Port.S)
    return [(lane, fixed) if along_x else (fixed, lane) for lane in port.lanes]


def channel_step(
    program: Program, x: np.ndarray, y: np.ndarray, port: np.ndarray, colour: int
) -> Iterator[tuple[Port, int, np.ndarray, np.ndarray, np.ndarray]]:
    """Where wavelets of `colour` that stand in routers (x, y) behind input `port` (arrays) can go.

    All switch positions count. Yields (output port, colour behind it, indices into x, x' and y' of the next
    routers); for RAMP x', y' are the PEs themselves, and a place may be off the grid.
    """
    grid = program.routes.get(colour)
    if grid is None:
        return
    index = grid[y, x].astype(np.int64)
    mask = np.zeros((len(program.route_table) + 1, len(Port)), np.uint8)  # (route, input port): output ports
    swap = np.zeros(len(program.route_table) + 1, bool)
    for i, route in enumerate(program.route_table, 1):
        swap[i] = route.swap
        for position in route.positions:
            for entered in position.inputs:
                mask[i, entered] |= sum(1 << left for left in position.outputs)
    leads_to = mask[index, port]
    for left in Port:
        for swapped in (False, True):
            chosen = np.flatnonzero((leads_to >> left & 1).astype(bool) & (swap[index] == swapped))
            if len(chosen):
                dx, dy = STEP.get(left, (0, 0))
                yield left, colour ^ 1 if swapped else colour, chosen, x[chosen] + dx, y[chosen] + dy


def check(program: Program) -> None:
    """Raise Rejected for a route off the grid without an edge port, to a PE without a queue, or for two
    colours that a swap brings onto one link."""
    width, height = program.width, program.height
    attached = {
        (place, port.side, port.colour)
        for port in program.edge_ports.values()
        if port.output
        for place in lane_places(program, port)
    }
    users: dict[tuple[Port, int], np.ndarray] = {}  # (output port, colour behind) -> (H, W) colour before
    for colour, grid in sorted(program.routes.items()):
        y, x = np.nonzero(grid)
        for port in Port:
            for left, behind, which, to_x, to_y in channel_step(program, x, y, np.full(len(x), port), colour):
                user = users.setdefault((left, behind), np.full(grid.shape, -1, np.int8))[y[which], x[which]]
                for bad in np.flatnonzero((user >= 0) & (user != colour))[:1]:
                    raise Rejected(
                        f"colours {user[bad]} and {colour} both leave PE ({x[which][bad]},{y[which][bad]}) "
                        f"to {left.name} as colour {behind}",
                        category="route",
                        help="a colour and the partner that is swapped into it cannot share a link",
                    )
                users[left, behind][y[which], x[which]] = colour
                if left is Port.RAMP:
                    bound = (program.in_colour[to_y, to_x] == behind).any(axis=1)
                    for bad in np.flatnonzero(~bound)[:1]:
                        raise Rejected(
                            f"colour {behind} is delivered to PE ({to_x[bad]},{to_y[bad]}), "
                            "where no input queue is bound to it",
                            category="route",
                        )
                    continue
                off = np.flatnonzero((to_x < 0) | (to_x >= width) | (to_y < 0) | (to_y >= height))
                for i in off.tolist():
                    place = neighbour(int(to_x[i]), int(to_y[i]), OPPOSITE[left])
                    if (place, left, behind) not in attached:
                        raise Rejected(
                            f"colour {behind} leaves the grid at PE ({place[0]},{place[1]}) to {left.name}, "
                            "where no edge port is attached",
                            category="route",
                        )
