"""The graph that routes span: which ports of which routers a colour enters and leaves, what that reaches.

A node is (colour, input port, router). Everything is arrays over the grid; walks go front by front.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .program import OPPOSITE, STEP, Port, Program

_ALL_LINKS = 1 << Port.N | 1 << Port.E | 1 << Port.S | 1 << Port.W


@dataclass(frozen=True)
class Loop:
    """A colour's route that returns to itself; `switched`: only as some switch position allows."""

    colour: int
    y: int
    x: int
    length: int
    switched: bool


class RouteGraph:
    """Masks of ports per colour and router. `accepts`: input ports; `emits`: ports it leaves by."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.width, self.height = program.width, program.height
        self.colours = sorted(
            {c ^ flip for c, table in program.routes.items() if table.any() for flip in (0, 1)}
        )  # partner colours too: a swap may lead to them
        self.no_route = np.zeros((self.height, self.width), np.uint16)
        size = len(program.route_table) + 1
        self._in = np.zeros(size, np.uint8)
        self._out = np.zeros(size, np.uint8)
        self._swaps = np.zeros(size, bool)
        self._switched = np.zeros(size, bool)
        self._through = np.zeros((5, size), np.uint8)  # (input port, route): output ports
        for number, route in enumerate(program.route_table, 1):
            for position in route.positions:
                outputs = sum(1 << int(port) for port in position.outputs)
                self._out[number] |= outputs
                for port in position.inputs:
                    self._in[number] |= 1 << int(port)
                    self._through[port, number] |= outputs
            self._swaps[number] = route.swap
            self._switched[number] = len(route.positions) > 1
        self._any_swap = bool(self._swaps.any())
        self._accepts: dict[int, np.ndarray] = {}
        self._emits: dict[int, np.ndarray] = {}

    def table(self, colour: int) -> np.ndarray:
        return self.program.routes.get(colour, self.no_route)

    def accepts(self, colour: int) -> np.ndarray:
        """(H, W) uint8: input ports that the router's route names."""
        if colour not in self._accepts:
            self._accepts[colour] = self._in[self.table(colour)]
        return self._accepts[colour]

    def emissions(self, colour: int) -> Iterator[tuple[np.ndarray, int]]:
        """Output ports by which wavelets of `colour` leave, and the colour whose route sends them."""
        for source in (colour, colour ^ 1):
            if source not in self.program.routes or (source != colour and not self._any_swap):
                continue
            table = self.table(source)
            if not self._any_swap:
                yield self._out[table], source
                continue
            swapped = self._swaps[table]
            leaving = np.where(swapped == (source != colour), self._out[table], 0).astype(np.uint8)
            if leaving.any():
                yield leaving, source

    def emits(self, colour: int) -> np.ndarray:
        """(H, W) uint8: output ports by which wavelets of `colour` leave the router."""
        if colour not in self._emits:
            total = np.zeros((self.height, self.width), np.uint8)
            for leaving, _ in self.emissions(colour):
                total |= leaving
            self._emits[colour] = total
        return self._emits[colour]

    def neighbour(self, masks: np.ndarray, port: Port) -> np.ndarray:
        """The array as seen one step through `port`; 0 beyond the grid."""
        result = np.zeros_like(masks)
        if port is Port.N:
            result[1:] = masks[:-1]
        elif port is Port.S:
            result[:-1] = masks[1:]
        elif port is Port.E:
            result[:, :-1] = masks[:, 1:]
        else:
            result[:, 1:] = masks[:, :-1]
        return result

    def edge_mask(self, side: Port) -> np.ndarray:
        """(H, W) bool: routers at one edge of the grid."""
        mask = np.zeros((self.height, self.width), bool)
        mask[_edge_index(side)] = True
        return mask

    def edge_lanes(self, side: Port, colour: int, output: bool) -> np.ndarray:
        """(H, W) bool: routers where an edge port takes (or gives) this colour."""
        mask = np.zeros((self.height, self.width), bool)
        line = mask[_edge_index(side)]
        for port in self.program.edge_ports.values():
            if port.side is side and port.colour == colour and port.output == output:
                line[list(port.lanes)] = True
        return mask

    def entries(self, colour: int) -> np.ndarray:
        """(H, W) uint8: input ports at which some neighbour, PE or edge port can hand over this colour."""
        fed = np.zeros((self.height, self.width), np.uint8)
        emits = self.emits(colour)
        for port in OPPOSITE:
            fed[has(self.neighbour(emits, port), OPPOSITE[port])] |= 1 << int(port)
        return fed | self._sources(colour)

    def _sources(self, colour: int) -> np.ndarray:
        """(H, W) uint8: where the colour is produced: RAMP by an output queue, an edge by the host."""
        made = np.where(
            (self.program.out_colour == colour).any(-1), np.uint8(1 << int(Port.RAMP)), np.uint8(0)
        )
        for port in OPPOSITE:
            made[self.edge_lanes(port, colour, output=False)] |= 1 << int(port)
        return made

    def unfed(self, colour: int) -> np.ndarray:
        """(H, W) bool: routers with a route for the colour that nothing can enter."""
        return (self.table(colour) != 0) & (self.entries(colour) & self.accepts(colour) == 0)

    # --- walks ---
    def _successors(
        self, colour: int, port: Port, nodes: np.ndarray
    ) -> Iterator[tuple[int, Port, np.ndarray]]:
        """Where wavelets go that entered routers `nodes` (flat indices) by `port`: (colour, "
        "port, routers)."""
        routes = self.table(colour).ravel()[nodes]
        leaving = self._through[port][routes]
        swapped = self._swaps[routes]
        for out in OPPOSITE:
            dx, dy = STEP[out]
            for flip in (0, 1) if self._any_swap else (0,):
                some = nodes[has(leaving, out) & (swapped == bool(flip))]
                y, x = some // self.width + dy, some % self.width + dx
                inside = (y >= 0) & (y < self.height) & (x >= 0) & (x < self.width)
                to = y[inside] * self.width + x[inside]
                target, entry = colour ^ flip, OPPOSITE[out]
                to = to[has(self.accepts(target).ravel()[to], entry)]
                if len(to):
                    yield target, entry, to

    def reached(self, colour: int) -> dict[tuple[int, Port], np.ndarray]:
        """(colour, port) -> (H * W,) bool: what wavelets of some producer can enter; partner included."""
        pair = (colour & ~1, colour | 1)
        seen = {(c, port): np.zeros(self.height * self.width, bool) for c in pair for port in Port}
        front: list[tuple[int, Port, np.ndarray]] = []
        for c in pair:
            made = (self._sources(c) & self.accepts(c)).ravel()
            for port in Port:
                start = np.flatnonzero(has(made, port))
                seen[c, port][start] = True
                if len(start):
                    front.append((c, port, start))
        while front:
            following = []
            for c, port, nodes in front:
                for target, entry, to in self._successors(c, port, nodes):
                    new = to[~seen[target, entry][to]]
                    if len(new):
                        seen[target, entry][new] = True
                        following.append((target, entry, new))
            front = following
        return seen

    def arrivals(self, colour: int, reached: dict[tuple[int, Port], np.ndarray]) -> np.ndarray | None:
        """(H, W) bool: PEs that get the colour by RAMP from what is reached; None if nothing has a route."""
        if not has(self.emits(colour), Port.RAMP).any():
            return None
        result = np.zeros(self.height * self.width, bool)
        for source in (colour, colour ^ 1):
            routes = self.table(source).ravel()
            swapped = self._swaps[routes] == (source != colour)
            for port in Port:
                result |= reached[source, port] & swapped & has(self._through[port][routes], Port.RAMP)
        return result.reshape(self.height, self.width)

    def loops(self) -> Iterator[Loop]:
        """One loop of each colour pair that has one."""
        for pair in sorted({c & ~1 for c in self.colours}):
            both = (pair, pair | 1)
            used = 0
            for c in both:
                used |= int(np.bitwise_or.reduce(self.emits(c), axis=None))
            if used & _ALL_LINKS != _ALL_LINKS:
                continue  # a loop goes in all four directions
            remaining = self._unpeeled(both)
            start = next(
                ((c, p, int(np.flatnonzero(m)[0])) for (c, p), m in remaining.items() if m.any()), None
            )
            if start:
                yield self._trace(start, remaining)

    def _unpeeled(self, pair: tuple[int, int]) -> dict[tuple[int, Port], np.ndarray]:
        """Nodes left after removing, again and again, those without successors: loops and what "
        "leads there."""
        count = self.height * self.width
        nodes = {(c, p): has(self.accepts(c).ravel(), p) for c in pair for p in OPPOSITE}
        pending = {key: np.zeros(count, np.int8) for key in nodes}  # successors not yet removed
        front = []
        for (c, p), mask in nodes.items():
            members = np.flatnonzero(mask)
            for _, entry, to in self._successors(c, p, members):
                dx, dy = STEP[entry]
                pending[c, p][to + dy * self.width + dx] += 1
            front.append((c, p, members[pending[c, p][members] == 0]))
        while front:
            following = []
            for c, p, gone in front:
                nodes[c, p][gone] = False
                for source, port, before in self._predecessors(pair, c, p, gone):
                    before = before[nodes[source, port][before]]
                    pending[source, port][before] -= 1
                    free = before[pending[source, port][before] == 0]
                    if len(free):
                        following.append((source, port, free))
            front = following
        return nodes

    def _predecessors(
        self, pair: tuple[int, int], colour: int, port: Port, nodes: np.ndarray
    ) -> Iterator[tuple[int, Port, np.ndarray]]:
        """Nodes from which wavelets enter `nodes` of this colour by `port`."""
        dx, dy = STEP[port]
        y, x = nodes // self.width + dy, nodes % self.width + dx
        inside = (y >= 0) & (y < self.height) & (x >= 0) & (x < self.width)
        routers = y[inside] * self.width + x[inside]
        for source in pair:
            routes = self.table(source).ravel()[routers]
            leads = self._swaps[routes] == (source != colour)
            for entry in OPPOSITE:
                some = routers[leads & has(self._through[entry][routes], OPPOSITE[port])]
                if len(some):
                    yield source, entry, some

    def _trace(self, start: tuple[int, Port, int], nodes: dict[tuple[int, Port], np.ndarray]) -> Loop:
        """Follow remaining nodes until one comes again."""
        path: dict[tuple[int, Port, int], int] = {}
        node = start
        while node not in path:
            path[node] = len(path)
            colour, port, router = node
            node = next(
                (c, p, int(to[0]))
                for c, p, to in self._successors(colour, port, np.array([router]))
                if (c, p) in nodes and nodes[c, p][to[0]]
            )
        members = [n for n, order in path.items() if order >= path[node]]
        switched = any(self._switched[self.table(c).ravel()[router]] for c, _, router in members)
        first = min(members, key=lambda n: n[2])
        return Loop(first[0], first[2] // self.width, first[2] % self.width, len(members), switched)


def has(masks: np.ndarray, port: Port) -> np.ndarray:
    """Where a mask of ports contains one."""
    return (masks & (1 << int(port))) != 0


def _edge_index(side: Port) -> tuple:
    return {Port.N: np.s_[0, :], Port.S: np.s_[-1, :], Port.W: np.s_[:, 0], Port.E: np.s_[:, -1]}[side]
