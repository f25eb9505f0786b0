"""The reference engine's clock: every router, then every PE, cycle by cycle, until nothing can happen.

Slow and obvious on purpose; never skips a cycle and never looks ahead.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...isa.program import OPPOSITE, QUEUES, THREADS, Port, Program
from .. import routes
from ..outcome import Cycle, FaultCode, FaultRecord, Lane, LaneOutput, Outcome, Wait, Waits
from ..spec import MachineSpec
from .pe import Code, Pe
from .router import EdgeLane, Observer, Router, Stage, Stop, Wavelet

CYCLES_PER_QUESTION = 256  # between two calls of `interrupted`
Inputs = dict[str, list[Lane]]


class HostLane:
    """The host's end of one lane of an input edge port: one wavelet per cycle while the router has room.

    With `earliest`, wavelet i is not there before cycle earliest[i].
    """

    def __init__(
        self,
        stage: Stage,
        payload: np.ndarray,
        control: np.ndarray | None,
        earliest: np.ndarray | None = None,
    ) -> None:
        flags = [False] * len(payload) if control is None else control.tolist()
        self.stage = stage
        self.words = [Wavelet(p, bool(c)) for p, c in zip(payload.tolist(), flags, strict=True)]
        self.earliest = [0] * len(payload) if earliest is None else earliest.tolist()
        self.sent = 0

    def can_send(self, t: int) -> bool:
        return self.sent < len(self.words) and self.earliest[self.sent] <= t and self.stage.room(t)

    def will_send(self, t: int) -> bool:
        """Whether only time keeps the next wavelet back: a later cycle will send it."""
        return (
            self.sent < len(self.words)
            and self.earliest[self.sent] > t
            and len(self.stage) < self.stage.capacity
        )

    def send(self, t: int) -> None:
        self.stage.enter(t, self.words[self.sent])
        self.sent += 1


class Fabric:
    """All routers, PEs and host lanes of one run."""

    def __init__(
        self,
        spec: MachineSpec,
        program: Program,
        sram: np.ndarray,
        inputs: Inputs,
        strict: np.ndarray | None,
        observer: Observer | None,
    ) -> None:
        routes.check(program)
        self.spec, self.program, self.observer = spec, program, observer
        self.routers = {
            (x, y): Router(x, y, routes.of_router(program, x, y))
            for y in range(program.height)
            for x in range(program.width)
        }
        self.pes: dict[tuple[int, int], Pe] = {}
        self._place_pes(sram, strict)
        self._attach_queues()
        self._attach_links()
        self.sources = self._attach_sources(inputs)
        self.sinks = self._attach_sinks()
        self.faults: list[FaultRecord] = []

    # --- building ---

    def _place_pes(self, sram: np.ndarray, strict: np.ndarray | None) -> None:
        codes = [Code(kernel) for kernel in self.program.kernels]
        self.needs_done = [code.contains_done for code in codes]
        for x, y in self.routers:
            index = int(self.program.placement[y, x])
            if index < 0:
                continue
            kernel = self.program.kernels[index]
            row, size = y * self.program.width + x, len(kernel.data)
            written = None if strict is None else strict[row, :size]
            self.pes[x, y] = Pe(
                self.spec, x, y, kernel, codes[index], sram[row, :size], written, self.observer
            )

    def _attach_queues(self) -> None:
        fabric, queues = self.spec.fabric, self.spec.queues
        for (x, y), router in self.routers.items():
            pe = self.pes.get((x, y))
            for queue in range(QUEUES):
                colour = int(self.program.in_colour[y, x, queue])
                if pe and colour >= 0:
                    stage = Stage(fabric.ramp_down, queues.in_depth[queue])
                    router.exits[Port.RAMP, colour] = pe.in_queues[queue] = stage
                colour = int(self.program.out_colour[y, x, queue])
                if pe and colour >= 0:
                    stage = Stage(fabric.ramp_up, queues.out_depth[queue])
                    router.stages[Port.RAMP, colour] = pe.out_queues[queue] = stage

    def _attach_links(self) -> None:
        for (x, y), router in self.routers.items():
            for port, colour in routes.outputs(router.routes):
                if port is Port.RAMP:
                    continue
                neighbour = self.routers.get(routes.neighbour(x, y, port))
                if neighbour:
                    stage = Stage(self.spec.fabric.hop, self.spec.fabric.buffer_depth)
                    stage = neighbour.stages.setdefault((OPPOSITE[port], colour), stage)
                    router.exits[port, colour] = stage

    def _attach_sources(self, inputs: Inputs) -> dict[str, list[HostLane]]:
        sources: dict[str, list[HostLane]] = {}
        for port in self.program.edge_ports.values():
            if port.output:
                continue
            lanes = sources[port.name] = []
            for place, lane in zip(
                routes.lane_places(self.program, port), inputs.get(port.name, ()), strict=False
            ):
                stage = Stage(self.spec.fabric.hop, self.spec.fabric.buffer_depth)
                self.routers[place].stages[port.side, port.colour] = stage
                lanes.append(HostLane(stage, *lane))
        return sources

    def _attach_sinks(self) -> dict[str, list[EdgeLane]]:
        sinks: dict[str, list[EdgeLane]] = {}
        for port in self.program.edge_ports.values():
            if port.output:
                lanes = sinks[port.name] = []
                for place in routes.lane_places(self.program, port):
                    lanes.append(EdgeLane(self.spec.fabric.hop))
                    self.routers[place].exits[port.side, port.colour] = lanes[-1]
        return sinks

    # --- one cycle ---

    def can_change(self, t: int) -> bool:
        """Whether anything at all happens in cycle t; changes nothing."""
        if any(lane.can_send(t) for lanes in self.sources.values() for lane in lanes) or self.active(t):
            return True
        if any(router.grants(t) for router in self.routers.values()):
            return True
        for pe in self.pes.values():
            try:
                if pe.pick(t) or pe.chosen(t) >= 0:
                    return True
            except Stop:
                return True
        return False

    def active(self, t: int) -> bool:
        """Whether a PE's engine is held at t or a wavelet reaches the host: what a run's length counts."""
        if any(t < pe.held_until for pe in self.pes.values()):
            return True
        latest = [lane.arrived[-self.spec.fabric.hop :] for lane in self._sink_lanes]
        return any(cycle == t for arrivals in latest for cycle, _ in arrivals)

    @property
    def _sink_lanes(self) -> list[EdgeLane]:
        return [lane for lanes in self.sinks.values() for lane in lanes]

    def pending(self, t: int) -> bool:
        """Whether something may become possible after t although nothing happens in t."""
        for router in self.routers.values():
            if any(stage.ready_at > t for stage in router.stages.values()):
                return True
        if any(time > t for pe in self.pes.values() for time in pe.timers()) or self.awaits_host(t):
            return True
        return any(lane.arrived and lane.arrived[-1][0] > t for lane in self._sink_lanes)

    def awaits_host(self, t: int) -> bool:
        """Whether a wavelet of the host will come after t although nothing moves until then."""
        return any(lane.will_send(t) for lanes in self.sources.values() for lane in lanes)

    def step(self, t: int) -> bool:
        """Do everything that happens in cycle t. Returns whether the host sent or received anything."""
        traffic = False
        for lanes in self.sources.values():
            for lane in lanes:
                if lane.can_send(t):
                    lane.send(t)
                    traffic = True
        granted = [(router, router.grants(t)) for router in self.routers.values()]
        for router, grants in granted:
            for grant in grants:
                try:
                    router.move(t, grant, self.observer)
                except Stop as stop:
                    self._fault(stop, router.x, router.y, t)
        for pe in self.pes.values():
            try:
                if pick := pe.pick(t):
                    pe.start(pick, t)
                if (thread := pe.chosen(t)) >= 0:
                    pe.issue(thread, t)
            except Stop as stop:
                self._fault(stop, pe.x, pe.y, t)
            pe.account(t)
        return traffic

    def _fault(self, stop: Stop, x: int, y: int, t: int) -> None:
        pe = self.pes.get((x, y))
        recent = tuple(pe.recent) if pe and stop.code is not FaultCode.BAD_COMMAND else ()
        self.faults.append(FaultRecord(stop.code, x, y, t, stop.pc, stop.argument, recent))

    # --- the end ---

    def something_waits(self) -> bool:
        """Whether a run in which nothing can happen any more is a hang."""
        if any(stage.wavelets for router in self.routers.values() for stage in router.stages.values()):
            return True
        for (x, y), pe in self.pes.items():
            if pe.active_threads or any(stage.wavelets for stage in pe.in_queues.values()):
                return True
            if self.needs_done[int(self.program.placement[y, x])] and not pe.done:
                return True
        return False

    def outcome(self, end: str, cycles: int, t: int, livelock: bool = False) -> Outcome:
        """What the run hands back; t is the first cycle that was not executed."""
        shape = (self.program.height, self.program.width)
        out = Outcome(
            end=end,
            cycles=cycles,
            counters=np.zeros((*shape, len(Cycle)), np.int64),
            link_words=np.zeros((*shape, len(Port)), np.int64),
            registers=np.zeros((*shape, 16), np.uint32),
            instructions=np.zeros(shape, np.int64),
            done=np.zeros(shape, bool),
            outputs={
                name: [_lane_output(lane, cycles) for lane in lanes] for name, lanes in self.sinks.items()
            },
            last_issue=np.full(shape, -1, np.int64),
            fault=min(self.faults, key=lambda f: (f.y, f.x)) if self.faults else None,
            waits=None if end == "finished" else self._waits(t, livelock),
            unread_inputs={
                name: [len(lane.words) - lane.sent for lane in lanes] for name, lanes in self.sources.items()
            },
        )
        for (x, y), router in self.routers.items():
            out.link_words[y, x] = router.words
        for (x, y), pe in self.pes.items():
            out.counters[y, x] = pe.counters(cycles)
            out.registers[y, x] = pe.registers
            out.instructions[y, x] = pe.instructions
            out.done[y, x] = pe.done
            out.last_issue[y, x] = pe.last_issue
        return out

    def _waits(self, t: int, livelock: bool) -> Waits:
        shape = (self.program.height, self.program.width)
        threads = (*shape, THREADS + 1)
        waits = Waits(
            state=np.zeros(threads, np.int8),
            pc=np.full(threads, -1, np.int64),
            queue=np.full(threads, -1, np.int8),
            since=np.full(threads, -1, np.int64),
            task=np.full(shape, -1, np.int8),
            in_fill=np.zeros((*shape, QUEUES), np.int32),
            out_fill=np.zeros((*shape, QUEUES), np.int32),
            router_fill={},
            position={},
            livelock=livelock,
        )
        for (x, y), pe in self.pes.items():
            waits.task[y, x] = pe.task
            for thread in range(THREADS + 1):
                operation = pe.threads[thread]
                if operation is None and not (thread == 0 and pe.task >= 0):
                    continue
                blocked = pe.blocked(thread, t)
                at = (y, x, thread)
                waits.state[at] = blocked.wait if blocked else Wait.RUNNING
                waits.queue[at] = blocked.queue if blocked else -1
                waits.pc[at] = operation.pc if operation else pe.pc
                waits.since[at] = pe.waiting_since(thread)
            for queue, stage in pe.in_queues.items():
                waits.in_fill[y, x, queue] = len(stage)
            for queue, stage in pe.out_queues.items():
                waits.out_fill[y, x, queue] = len(stage)
        for (x, y), router in self.routers.items():
            for (port, colour), stage in router.stages.items():
                if port is not Port.RAMP:
                    fill = waits.router_fill.setdefault(colour, np.zeros((*shape, 4), np.int32))
                    fill[y, x, port] = len(stage)
            for colour, route in router.routes.items():
                if len(route.positions) > 1:
                    positions = waits.position.setdefault(colour, np.zeros(shape, np.int8))
                    positions[y, x] = router.position.get(colour, 0)
        return waits


def _lane_output(lane: EdgeLane, cycles: int) -> LaneOutput:
    arrived = [(cycle, wavelet) for cycle, wavelet in lane.arrived if cycle < cycles]
    return LaneOutput(
        payload=np.array([w.payload for _, w in arrived], np.uint32),
        control=np.array([w.control for _, w in arrived], bool),
        cycle=np.array([cycle for cycle, _ in arrived], np.int64),
    )


def run(
    spec: MachineSpec,
    program: Program,
    sram: np.ndarray,
    inputs: Inputs,
    max_cycles: int | None = None,
    strict: np.ndarray | None = None,
    interrupted: Callable[[], bool] | None = None,
    observer: Observer | None = None,
) -> Outcome:
    """Run a program from cycle 0 (interface: outcome.py).

    `observer(event, cycle, x, y, **details)` is told of every `issue` and every router's `depart`.
    """
    fabric = Fabric(spec, program, sram, inputs, strict, observer)
    t = 0
    last = -1  # last cycle with activity: the run's length
    progress = -1  # the same, words that the host sent included: for livelock
    while True:
        if not fabric.can_change(t):
            if not fabric.pending(t):
                end = "hang" if fabric.something_waits() else "finished"
                return fabric.outcome(end, last + 1, t)
        elif max_cycles is not None and t >= max_cycles:
            return fabric.outcome("limit", max_cycles, max_cycles)
        if t - progress > spec.fabric.livelock_cycles:
            return fabric.outcome("hang", last + 1, t, livelock=True)
        if interrupted and t % CYCLES_PER_QUESTION == 0 and interrupted():
            return fabric.outcome("interrupted", t, t)
        traffic = fabric.step(t)
        if fabric.active(t):
            last = t
        if traffic or last == t or fabric.awaits_host(t):
            progress = t
        if fabric.faults:
            return fabric.outcome("fault", t + 1, t + 1)
        t += 1
