"""Routers and stages of the reference engine: wavelets in transit, never what a PE does with them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from ...isa.program import COLOURS, Port, Route
from ..outcome import FaultCode

Observer = Callable[..., None]  # observer(event, cycle, x, y, **details)

PAIRS = len(Port) * COLOURS  # (input port, colour), in round-robin order
COMMAND_BITS = 2
COMMANDS = 0xFFFF  # bits 15:0 of a control wavelet: eight commands
ADVANCE, RESET, ILLEGAL_COMMAND = 1, 2, 3
NAMES_TASK = 1 << 29


class Stop(Exception):
    """A fault of one router or PE: it ends the run after the cycle in which it happens."""

    def __init__(self, code: FaultCode, argument: int, pc: int = -1) -> None:
        super().__init__(code.name)
        self.code, self.argument, self.pc = code, argument, pc


@dataclass(frozen=True)
class Wavelet:
    """32 bits of payload and the control bit; the colour is that of the stage it stands in."""

    payload: int
    control: bool = False

    @property
    def names_task(self) -> bool:
        return self.control and bool(self.payload & NAMES_TASK)

    @property
    def task(self) -> int:
        return self.payload >> 24 & 31


class Stage:
    """A FIFO with a latency: room for depth + latency - 1 wavelets, a slot freed at t is filled at t + 1."""

    def __init__(self, latency: int, depth: int) -> None:
        self.latency = latency
        self.capacity = depth + latency - 1
        self.wavelets: deque[tuple[int, Wavelet]] = deque()  # (first cycle in which it may leave, wavelet)
        self.left_at = -1  # cycle in which the last one left

    def __len__(self) -> int:
        return len(self.wavelets)

    def room(self, t: int) -> bool:
        """Whether a wavelet can enter at t: what left in t itself still counts."""
        return len(self.wavelets) + (self.left_at == t) < self.capacity

    def head(self, t: int) -> Wavelet | None:
        """The wavelet that may leave at t; at most one leaves per cycle."""
        if not self.wavelets or self.wavelets[0][0] > t or self.left_at == t:
            return None
        return self.wavelets[0][1]

    def enter(self, t: int, wavelet: Wavelet) -> None:
        assert self.room(t)
        self.wavelets.append((t + self.latency, wavelet))

    def leave(self, t: int) -> Wavelet:
        self.left_at = t
        return self.wavelets.popleft()[1]

    @property
    def ready_at(self) -> int:
        """First cycle in which the head may leave; -1 if empty."""
        return self.wavelets[0][0] if self.wavelets else -1


class EdgeLane:
    """The host's end of one lane of an output edge port: takes everything, notes when it arrived."""

    def __init__(self, latency: int) -> None:
        self.latency = latency
        self.arrived: list[tuple[int, Wavelet]] = []

    def room(self, t: int) -> bool:
        return True

    def enter(self, t: int, wavelet: Wavelet) -> None:
        self.arrived.append((t + self.latency, wavelet))


@dataclass(frozen=True)
class Grant:
    """One wavelet that leaves its stage in a cycle: from where, with which colour, to which outputs."""

    port: Port
    colour: int
    outputs: frozenset[Port]
    out_colour: int


@dataclass
class Router:
    """One router. `stages`: (input port, colour) -> stage; `exits`: (output port, colour) -> what follows."""

    x: int
    y: int
    routes: dict[int, Route]
    stages: dict[tuple[Port, int], Stage] = field(default_factory=dict)
    exits: dict[tuple[Port, int], Stage | EdgeLane] = field(default_factory=dict)
    position: dict[int, int] = field(default_factory=dict)  # colour -> switch position, 0 if absent
    last: list[int] = field(default_factory=lambda: [-1] * 5)  # per output link: pair taken last
    words: list[int] = field(default_factory=lambda: [0] * 5)

    def waiting(self, t: int) -> Iterable[Grant]:
        """The wavelets at the head of their stages that a position names and that have room everywhere."""
        for (port, colour), stage in self.stages.items():
            wavelet = stage.head(t)
            route = self.routes.get(colour)
            if wavelet is None or route is None:
                continue
            position = route.positions[self.position.get(colour, 0)]
            if port not in position.inputs:
                continue
            outputs = position.outputs
            if wavelet.control and not wavelet.names_task:
                outputs = outputs - {Port.RAMP}  # ends here
            out_colour = colour ^ 1 if route.swap else colour
            if all(self.exits[output, out_colour].room(t) for output in outputs):
                yield Grant(port, colour, outputs, out_colour)

    def grants(self, t: int) -> list[Grant]:
        """Arbitrate cycle t. Nothing changes yet."""
        waiting = sorted(self.waiting(t), key=_pair)
        granted: list[Grant] = []
        claimed: set[Port] = set()
        for link in Port:
            able = [g for g in waiting if link in g.outputs and not g.outputs & claimed]
            if able:
                taken = min(able, key=partial(self._turn, link))
                claimed |= taken.outputs
                granted.append(taken)
        for grant in waiting:  # control wavelets that end here: one wavelet per colour and cycle
            if not grant.outputs and all(g.colour != grant.colour for g in granted):
                granted.append(grant)
        return granted

    def _turn(self, link: Port, grant: Grant) -> int:
        """Place in the round-robin order of an output link, 0 first."""
        return (_pair(grant) - self.last[link] - 1) % PAIRS

    def move(self, t: int, grant: Grant, observer: Observer | None) -> None:
        """Let one granted wavelet leave at t. Raises Stop for an illegal switch command."""
        wavelet = self.stages[grant.port, grant.colour].leave(t)
        arrived = wavelet
        route = self.routes[grant.colour]
        if wavelet.control and len(route.positions) > 1:
            self._switch(route, grant.colour, wavelet)
            if route.pop:
                commands = (wavelet.payload & COMMANDS) >> COMMAND_BITS
                wavelet = Wavelet(wavelet.payload & ~COMMANDS | commands, True)
        for output in grant.outputs:
            self.exits[output, grant.out_colour].enter(t, wavelet)
            self.last[output] = _pair(grant)
            self.words[output] += 1
        if observer:
            observer(
                "depart",
                t,
                self.x,
                self.y,
                port=grant.port,
                colour=grant.colour,
                outputs=grant.outputs,
                payload=arrived.payload,
                control=arrived.control,
            )

    def _switch(self, route: Route, colour: int, wavelet: Wavelet) -> None:
        command = wavelet.payload & ((1 << COMMAND_BITS) - 1)
        now = self.position.get(colour, 0)
        if command == ILLEGAL_COMMAND:
            raise Stop(FaultCode.BAD_COMMAND, wavelet.payload)
        if command == RESET:
            self.position[colour] = 0
        elif command == ADVANCE:
            last = len(route.positions) - 1
            self.position[colour] = now + 1 if now < last else (0 if route.ring else last)


def _pair(grant: Grant) -> int:
    return grant.port * COLOURS + grant.colour
