"""Elaboration: routes become pipes, channels and arbiters.

A stage (docs/machine.md §3) that only feeds a router which can do nothing but pass its wavelets on is joined
with the
next one; a maximal run of joined stages is one pipe. A router's colour that forks, switches, merges or shares
a link
stays as a channel. Works on whole grids with NumPy; never loops over PEs in Python.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ...isa.errors import Rejected
from ...isa.program import OPPOSITE, STEP, Port, Program
from ..spec import MachineSpec
from .jit import jit

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


@dataclass
class Graph:
    """What graph elaboration hands to the loader."""

    stages: Stages
    pipe_first: np.ndarray  # (pipes,) int32 stage
    pipe_last: np.ndarray
    pipe_latency: np.ndarray
    pipe_capacity: np.ndarray
    pipe_reverse: np.ndarray
    pipe_of_last: np.ndarray  # (stages,) int32: pipe that ends with this stage, -1
    pipe_of_first: np.ndarray  # (stages,) int32
    channel_router: np.ndarray  # (channels,) int32, sorted by router
    channel_colour: np.ndarray
    channel_route: np.ndarray
    channel_arbitrated: np.ndarray  # bool
    channel_watched: (
        np.ndarray
    )  # (channels, 5) bool: output links that other channels use too, not arbitrated
    shared: np.ndarray  # (n, 5) bool: output links that several channels, or several inputs of one, can want
    channel_in: np.ndarray  # (channels, 5) int32 pipes
    channel_out: np.ndarray
    pe_in: np.ndarray  # (n, 8) int32 pipes
    pe_out: np.ndarray
    source_pipe: np.ndarray  # (input lanes,) int32
    sink_pipe: np.ndarray  # (output lanes,) int32


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


class _Elaborator:
    """Collects stages colour by colour, then joins them."""

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


def elaborate(spec: MachineSpec, program: Program, control: set[int], contended: np.ndarray) -> Graph:
    """Build the graph. `control`: colours that can carry control wavelets (those keep a channel before the
    ramp).

    `contended` (n, 5) bool: shared output links that are arbitrated wavelet by wavelet. The other shared
    links are
    watched: no channel that uses one is joined into a pipe, and the engine notes when each of them crosses
    it.

    Raises Rejected (category route) for a route that leads nowhere.
    """
    e = _Elaborator(spec, program)
    e.links()
    e.ramps()
    ins, outs = e.edges()
    stages = (
        Stages(*(np.concatenate(c) if e.rows else np.zeros(0, np.int32) for c in zip(*e.rows, strict=True)))
        if e.rows
        else _no_stages()
    )

    # A link is shared if several colours, or several inputs of one (a merge), can want it.
    wants = np.zeros((e.n, 5), np.int16)
    merged = np.zeros((e.n, 5), bool)
    for grid in e.grid.values():
        wants += e.bits.candidates[grid]
        merged |= e.bits.candidates[grid] > 1
    shared = wants > 1
    arbitrated_link = shared & (contended | merged)
    shared_mask, arbitrated_mask = _port_masks(shared), _port_masks(arbitrated_link)

    follows = np.full(e.count, -1, np.int32)
    channels: list[tuple[np.ndarray, ...]] = []
    for c, grid in e.grid.items():
        into = e.into[c]
        routers = np.flatnonzero((grid > 0) & (into >= 0).any(axis=1))
        if not len(routers):
            continue
        rid = grid[routers]
        after = e.outputs_of(c, routers)
        arbitrated = (e.bits.outputs[rid] & arbitrated_mask[routers]) != 0
        alone = (e.bits.outputs[rid] & shared_mask[routers]) == 0
        to_ramp = (e.bits.outputs[rid] >> Port.RAMP & 1).astype(bool)
        joins = e.bits.single[rid] & alone & ~(to_ramp & (c in control))
        j = np.flatnonzero(joins)
        in_port = np.log2(np.maximum(e.bits.inputs[rid[j]], 1)).astype(np.int64)
        before = into[routers[j], in_port]
        fed = before >= 0
        follows[before[fed]] = after[j].max(axis=1)[fed]
        k = np.flatnonzero(~joins)
        allowed = (e.bits.inputs[rid[k]][:, None] >> np.arange(5) & 1).astype(bool)
        channels.append(
            (
                routers[k].astype(np.int32),
                np.full(len(k), c, np.int8),
                rid[k].astype(np.int32),
                arbitrated[k],
                np.where(allowed, into[routers[k]], -1),
                after[k],
            )
        )
    stages.follows = follows
    first, last, latency, capacity, reverse = _join(follows, stages.latency, stages.capacity)
    of_last = np.full(e.count + 1, -1, np.int32)
    of_first = np.full(e.count + 1, -1, np.int32)
    of_last[last] = np.arange(len(last))
    of_first[first] = np.arange(len(first))
    if channels:
        router, colour, route, arb, chan_in, chan_out = (
            np.concatenate(c) for c in zip(*channels, strict=True)
        )
        order = np.lexsort(
            (colour, ~arb, router)
        )  # arbitrated channels of a router stand together, by colour
        router, colour, route, arb, chan_in, chan_out = (
            a[order] for a in (router, colour, route, arb, chan_in, chan_out)
        )
    else:
        router, colour, route, arb = (
            np.zeros(0, np.int32),
            np.zeros(0, np.int8),
            np.zeros(0, np.int32),
            np.zeros(0, bool),
        )
        chan_in = chan_out = np.zeros((0, 5), np.int32)
    pe_in = _queue_pipes(e, program.in_colour, e.down, of_last)
    pe_out = _queue_pipes(e, program.out_colour, {c: a[:, Port.RAMP] for c, a in e.into.items()}, of_first)
    watched = (e.bits.outputs[route][:, None] >> np.arange(5) & 1).astype(bool) & (shared & ~arbitrated_link)[
        router
    ]
    return Graph(
        stages,
        first,
        last,
        latency,
        capacity,
        reverse,
        of_last,
        of_first,
        router,
        colour,
        route,
        arb,
        watched,
        shared,
        of_last[chan_in],
        of_first[chan_out],
        pe_in,
        pe_out,
        of_first[np.asarray(ins, np.int64)],
        of_last[np.asarray(outs, np.int64)],
    )


def _port_masks(links: np.ndarray) -> np.ndarray:
    """(n,) uint8: bit p set where links[:, p]."""
    return (links * (1 << np.arange(5))).sum(axis=1).astype(np.uint8)


def _no_stages() -> Stages:
    return Stages(*(np.zeros(0, np.int32) for _ in range(9)))


def _queue_pipes(
    e: _Elaborator, bound: np.ndarray, stage_of: dict[int, np.ndarray], pipe_of: np.ndarray
) -> np.ndarray:
    """(n, 8) int32: pipe behind each queue, -1 where it is not bound or no route touches it."""
    flat = bound.reshape(e.n, -1)
    result = np.full(flat.shape, -1, np.int32)
    for c, stages in stage_of.items():
        pe, queue = np.nonzero(flat == c)
        result[pe, queue] = pipe_of[stages[pe]]  # index -1 is the spare last entry: -1
    return result


@jit
def _join(follows, latency, capacity):
    """Walk every run of joined stages once. A ring of joined stages has no beginning: nothing can enter
    it."""
    n = len(follows)
    has_before = np.zeros(n, np.bool_)
    for i in range(n):
        if follows[i] >= 0:
            has_before[follows[i]] = True
    count = 0
    for i in range(n):
        if not has_before[i]:
            count += 1
    first = np.empty(count, np.int32)
    last = np.empty(count, np.int32)
    total = np.zeros(count, np.int32)
    room = np.zeros(count, np.int32)
    steps = np.zeros(count, np.int32)
    k = 0
    for i in range(n):
        if has_before[i]:
            continue
        first[k] = i
        stage = np.int32(i)
        while True:
            total[k] += latency[stage]
            room[k] += capacity[stage]
            steps[k] += 1
            last[k] = stage
            if follows[stage] < 0:
                break
            stage = follows[stage]
        k += 1
    return first, last, total, room, steps
