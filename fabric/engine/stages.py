"""Every stage of a program's fabric (docs/machine.md §3), found with NumPy: links, ramps and edges.

Works on whole grids; never loops over PEs in Python.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ...isa.errors import Rejected
from ...isa.program import OPPOSITE, STEP, Port, Program
from ..spec import MachineSpec

LINK, RAMP_UP, RAMP_DOWN, EDGE_IN, EDGE_OUT = range(5)
UNLIMITED = 1 << 20  # capacity of the host's side; it is drained at once


@dataclass
class Stages:
    """All stages of a program, one row each."""

    kind: np.ndarray  # int8
    source: np.ndarray  # (stages,) int32: router it leaves (or PE, or -1 for the host)
    source_port: np.ndarray  # int8: port of that router, -1 for RAMP_UP and EDGE_IN
    target: np.ndarray  # int32: router (or PE) it enters, -1 for the host
    target_port: np.ndarray  # int8: input port there
    colour: np.ndarray  # int8: on the wire
    latency: np.ndarray  # int32
    capacity: np.ndarray  # int32
    lane: np.ndarray  # int32: host lane of EDGE_IN / EDGE_OUT
    follows: np.ndarray = field(
        default_factory=lambda: np.zeros(0, np.int32)
    )  # next stage of the same pipe, -1 = none


@dataclass(frozen=True)
class RouteBits:
    """The route table as port masks, row 0 = no route."""

    inputs: np.ndarray  # (routes + 1,) uint8: union over positions
    outputs: np.ndarray
    candidates: np.ndarray  # (routes + 1, 5) int8: most inputs at once that use an output
    single: np.ndarray  # bool: one position, one input, one output
    swap: np.ndarray  # bool
    position_inputs: np.ndarray  # (routes + 1, 4) uint8
    position_outputs: np.ndarray


def route_bits(program: Program) -> RouteBits:
    """Port masks of the route table."""
    n = len(program.route_table) + 1
    bits = RouteBits(
        np.zeros(n, np.uint8),
        np.zeros(n, np.uint8),
        np.zeros((n, 5), np.int8),
        np.zeros(n, bool),
        np.zeros(n, bool),
        np.zeros((n, 4), np.uint8),
        np.zeros((n, 4), np.uint8),
    )
    for i, route in enumerate(program.route_table, 1):
        for j, position in enumerate(route.positions):
            bits.position_inputs[i, j] = sum(1 << p for p in position.inputs)
            bits.position_outputs[i, j] = sum(1 << p for p in position.outputs)
            for port in position.outputs:
                bits.candidates[i, port] = max(bits.candidates[i, port], len(position.inputs))
        bits.inputs[i] = np.bitwise_or.reduce(bits.position_inputs[i])
        bits.outputs[i] = np.bitwise_or.reduce(bits.position_outputs[i])
        first = route.positions[0]
        bits.single[i] = len(route.positions) == 1 and len(first.inputs) == 1 and len(first.outputs) == 1
        bits.swap[i] = route.swap
    return bits


class Elaborator:
    """Collects the stages of a program colour by colour."""

    def __init__(self, spec: MachineSpec, program: Program) -> None:
        self.spec, self.program = spec, program
        self.width, self.height = program.width, program.height
        self.n = self.width * self.height
        self.bits = route_bits(program)
        self.grid = {c: g.reshape(-1).astype(np.int64) for c, g in program.routes.items() if g.any()}
        bound = np.unique(np.concatenate([program.in_colour.ravel(), program.out_colour.ravel()]))
        self.colours = sorted(
            set(self.grid)
            | {c ^ 1 for c, g in self.grid.items() if self.bits.swap[g].any()}
            | {int(c) for c in bound if c >= 0}
        )
        self.into = {c: np.full((self.n, 5), -1, np.int32) for c in self.colours}  # stage at each input port
        self.down = {c: np.full(self.n, -1, np.int32) for c in self.colours}
        self.out_of_grid = {c: np.full((self.n, 4), -1, np.int32) for c in self.colours}
        self.rows: list[tuple[np.ndarray, ...]] = []
        self.count = 0
        y, x = np.divmod(np.arange(self.n), self.width)
        self.x, self.y = x, y

    def add(
        self, kind, source, source_port, target, target_port, colour, latency, depth, lane=-1
    ) -> np.ndarray:
        """Append stages; arguments broadcast. Returns their indices."""
        columns = np.broadcast_arrays(source, target, np.asarray(depth), np.asarray(lane))
        size = columns[0].size
        source, target, depth, lane = (np.atleast_1d(c).astype(np.int32) for c in columns)
        full = lambda v, t: np.full(size, v, t)  # noqa: E731
        self.rows.append(
            (
                full(kind, np.int8),
                source,
                full(source_port, np.int8),
                target,
                full(target_port, np.int8),
                full(colour, np.int8),
                full(latency, np.int32),
                (depth + latency - 1).astype(np.int32),
                lane,
            )
        )
        self.count += size
        return np.arange(self.count - size, self.count, dtype=np.int32)

    def neighbour(self, routers: np.ndarray, port: Port) -> tuple[np.ndarray, np.ndarray]:
        """(inside the grid?, index) of the router behind `port`."""
        dx, dy = STEP[port]
        x, y = self.x[routers] + dx, self.y[routers] + dy
        inside = (x >= 0) & (x < self.width) & (y >= 0) & (y < self.height)
        return inside, np.where(inside, y * self.width + x, 0)

    def links(self) -> None:
        """Link stages: wherever a route sends a wavelet to a neighbour."""
        fabric = self.spec.fabric
        for c, grid in self.grid.items():
            outputs, swap = self.bits.outputs[grid], self.bits.swap[grid]
            for port in (Port.N, Port.E, Port.S, Port.W):
                for swapped in (False, True):
                    routers = np.flatnonzero((outputs >> port & 1).astype(bool) & (swap == swapped))
                    if not len(routers):
                        continue
                    wire = c ^ 1 if swapped else c
                    inside, target = self.neighbour(routers, port)
                    routers, target = routers[inside], target[inside]
                    taken = self.into[wire][target, OPPOSITE[port]] >= 0
                    if taken.any():
                        r = routers[np.argmax(taken)]
                        raise Rejected(
                            f"two colours leave PE ({self.x[r]},{self.y[r]}) to the {port.name} "
                            f"as colour {wire}",
                            category="route",
                            help="a swapped colour and its partner cannot share a link",
                        )
                    self.into[wire][target, OPPOSITE[port]] = self.add(
                        LINK, routers, port, target, OPPOSITE[port], wire, fabric.hop, fabric.buffer_depth
                    )

    def ramps(self) -> None:
        """Ramp stages of every bound queue that a route touches."""
        fabric, queues = self.spec.fabric, self.spec.queues
        for direction, bound, depths in (
            (RAMP_UP, self.program.out_colour, queues.out_depth),
            (RAMP_DOWN, self.program.in_colour, queues.in_depth),
        ):
            flat = bound.reshape(self.n, -1)
            for queue in range(flat.shape[1]):
                for c in np.unique(flat[:, queue]):
                    if c < 0 or int(c) not in self.into:
                        continue
                    c = int(c)
                    pes = np.flatnonzero(flat[:, queue] == c)
                    if queue >= len(depths):
                        raise Rejected(
                            f"queue {queue} does not exist on machine {self.spec.name} "
                            f"({len(depths)} queues)",
                            category="resource",
                        )
                    if direction == RAMP_UP:
                        self.into[c][pes, Port.RAMP] = self.add(
                            RAMP_UP, pes, -1, pes, Port.RAMP, c, fabric.ramp_up, depths[queue]
                        )
                    else:
                        self.down[c][pes] = self.add(
                            RAMP_DOWN, pes, Port.RAMP, pes, Port.RAMP, c, fabric.ramp_down, depths[queue]
                        )

    def edges(self) -> tuple[list[int], list[int]]:
        """Edge stages; returns (stages of the input lanes, stages of the output lanes), ports in order."""
        fabric = self.spec.fabric
        ins: list[int] = []
        outs: list[int] = []
        for port in self.program.edge_ports.values():
            lanes = np.asarray(port.lanes, np.int64)
            x, y = {
                Port.N: (lanes, lanes * 0),
                Port.S: (lanes, lanes * 0 + self.height - 1),
                Port.W: (lanes * 0, lanes),
                Port.E: (lanes * 0 + self.width - 1, lanes),
            }[port.side]
            routers = y * self.width + x
            c = port.colour
            if c not in self.into:
                raise Rejected(f"edge port `{port.name}`: colour {c} has no route", category="route")
            if port.output:
                stage = self.add(
                    EDGE_OUT,
                    routers,
                    port.side,
                    -1,
                    -1,
                    c,
                    fabric.hop,
                    UNLIMITED,
                    np.arange(len(outs), len(outs) + len(lanes)),
                )
                self.out_of_grid[c][routers, port.side] = stage
                outs.extend(stage)
            else:
                stage = self.add(
                    EDGE_IN,
                    -1,
                    -1,
                    routers,
                    port.side,
                    c,
                    fabric.hop,
                    fabric.buffer_depth,
                    np.arange(len(ins), len(ins) + len(lanes)),
                )
                self.into[c][routers, port.side] = stage
                ins.extend(stage)
        return ins, outs

    def outputs_of(self, c: int, routers: np.ndarray) -> np.ndarray:
        """(routers, 5) int32: stage behind each output port of colour c's route; -1 where the route has no
        such output."""
        grid = self.grid[c][routers]
        result = np.full((len(routers), 5), -1, np.int32)
        for swapped in (False, True):
            mine = self.bits.swap[grid] == swapped
            if not mine.any():
                continue
            wire = c ^ 1 if swapped else c
            for port in Port:
                uses = mine & (self.bits.outputs[grid] >> port & 1).astype(bool)
                which = np.flatnonzero(uses)
                if not len(which):
                    continue
                r = routers[which]
                if port is Port.RAMP:
                    stage = self.down[wire][r]
                else:
                    inside, target = self.neighbour(r, port)
                    stage = np.where(
                        inside, self.into[wire][target, OPPOSITE[port]], self.out_of_grid[wire][r, port]
                    )
                if (stage < 0).any():
                    bad = r[np.argmax(stage < 0)]
                    where = (
                        "no queue is bound to it there"
                        if port is Port.RAMP
                        else "no edge port is attached there"
                    )
                    raise Rejected(
                        f"colour {wire} leaves the router of PE ({self.x[bad]},{self.y[bad]}) "
                        f"to {port.name}, but {where}",
                        category="route",
                    )
                result[which, port] = stage
        return result
