"""Random legal routes: flows of wavelets through a grid, as trees that gather and trees that spread.

A flow gathers from its sources to a root router and spreads from there to its targets; it crosses each router
at most once, so it needs no more than legal positions. Flows of different colours share links and ramps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from support import Grid
from waferloom.isa.program import OPPOSITE, STEP, Port

LINKS = (Port.N, Port.E, Port.S, Port.W)
Place = tuple[int, int]


class Choices:
    """Where a generator gets its decisions from. Smaller numbers and earlier items are the simpler ones."""

    def number(self, low: int, high: int) -> int:
        """A whole number in low..high."""
        raise NotImplementedError

    def chance(self, percent: int) -> bool:
        return self.number(0, 99) >= 100 - percent

    def pick(self, items: Any) -> Any:
        items = list(items)
        return items[self.number(0, len(items) - 1)]

    def pick_some(self, items: Any, percent: int) -> list:
        return [item for item in items if self.chance(percent)]


class SeededChoices(Choices):
    """Decisions from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def number(self, low: int, high: int) -> int:
        return self.random.randint(low, high)


@dataclass
class Node:
    """A router that a flow crosses."""

    place: Place
    colour: int  # in which its wavelets arrive
    inputs: set[Port] = field(default_factory=set)
    outputs: set[Port] = field(default_factory=set)
    swap: bool = False

    @property
    def out_colour(self) -> int:
        return self.colour ^ 1 if self.swap else self.colour


@dataclass
class Flow:
    """Wavelets on their way: who sends, who receives, and how many words are meant to come."""

    colour: int
    nodes: dict[Place, Node] = field(default_factory=dict)
    senders: list[Place] = field(default_factory=list)  # PEs
    receivers: list[Place] = field(default_factory=list)
    edge_in: Port | None = None  # side of the grid at the root
    edge_out: dict[Place, Port] = field(default_factory=dict)
    words: int = 1  # of each sender
    host_words: int = 0  # data words from the host
    control: bool = False  # control wavelets occur
    root: Place = (0, 0)
    gathering: set[Place] = field(default_factory=set)  # nodes before the root


def neighbours(grid: Grid, place: Place) -> list[tuple[Port, Place]]:
    found = [(port, (place[0] + STEP[port][0], place[1] + STEP[port][1])) for port in LINKS]
    return [(port, (x, y)) for port, (x, y) in found if 0 <= x < grid.width and 0 <= y < grid.height]


def open_sides(grid: Grid, place: Place) -> list[Port]:
    """Ports of a router that lead off the grid."""
    inside = {port for port, _ in neighbours(grid, place)}
    return [port for port in LINKS if port not in inside]


def random_flow(c: Choices, grid: Grid, colour: int, busiest: Place | None) -> Flow:
    """A flow of colours `colour` and, behind swaps, its partner. `busiest`: where it had better pass."""
    root = busiest or (c.number(0, grid.width - 1), c.number(0, grid.height - 1))
    flow = Flow(colour, root=root)
    flow.nodes[root] = Node(root, colour)
    swaps = c.chance(15)
    gather = c.pick([0, 0, 1, 2, 3])
    ends = []
    for _ in range(gather):
        ends.append(_grow(c, grid, flow, root, c.number(1, 3), gathering=True, swaps=swaps))
    sides = open_sides(grid, root)
    if sides and c.chance(30):
        flow.edge_in = c.pick(sides)
        flow.nodes[root].inputs.add(flow.edge_in)
    if not flow.nodes[root].inputs or c.chance(40):
        ends.append(root)
    for place in dict.fromkeys(ends):
        if place != root or Port.RAMP not in flow.nodes[root].inputs:
            flow.nodes[place].inputs.add(Port.RAMP)
            flow.senders.append(place)
    if swaps and c.chance(30):
        flow.nodes[root].swap = True
    targets = []
    for _ in range(c.pick([1, 1, 0, 2, 3])):
        targets.append(_grow(c, grid, flow, root, c.number(1, 4), gathering=False, swaps=swaps))
    if not flow.nodes[root].outputs or c.chance(25):
        targets.append(root)
    for place in dict.fromkeys(targets):
        sides = [p for p in open_sides(grid, place) if p not in flow.nodes[place].inputs]
        if sides and place not in flow.edge_out and c.chance(35):
            flow.edge_out[place] = c.pick(sides)
            flow.nodes[place].outputs.add(flow.edge_out[place])
            if c.chance(50):
                continue
        flow.nodes[place].outputs.add(Port.RAMP)
    spread = [p for p, node in flow.nodes.items() if node.outputs and not node.inputs <= {Port.RAMP}]
    for place in spread:
        if c.chance(15) and not _gathers(flow, place):
            flow.nodes[place].outputs.add(Port.RAMP)
    flow.receivers = [p for p, node in flow.nodes.items() if Port.RAMP in node.outputs]
    flow.words = c.number(1, 12) if c.chance(80) else c.number(10, 40)
    flow.control = c.chance(30)
    return flow


def _gathers(flow: Flow, place: Place) -> bool:
    """Whether a node lies on the gathering side, where a copy would go to somebody who expects nothing."""
    return place in flow.gathering


def _grow(
    c: Choices, grid: Grid, flow: Flow, start: Place, length: int, gathering: bool, swaps: bool
) -> Place:
    """A walk from the root over routers the flow has not crossed; returns where it ends."""
    at = start
    for _ in range(length):
        free = [(port, place) for port, place in neighbours(grid, at) if place not in flow.nodes]
        if not free:
            break
        port, place = c.pick(free)
        here = flow.nodes[at]
        swap = swaps and c.chance(40)
        if gathering:
            node = Node(place, here.colour ^ 1 if swap else here.colour, swap=swap)
            node.outputs.add(OPPOSITE[port])
            here.inputs.add(port)
            flow.gathering.add(place)
        else:
            node = Node(place, here.out_colour, {OPPOSITE[port]}, swap=swap)
            here.outputs.add(port)
        flow.nodes[place] = node
        at = place
    return at


def random_ring(c: Choices, grid: Grid, colour: int) -> Flow:
    """Four routers in a circle that words enter and never leave, or only now and then: a livelock."""
    x, y = c.number(0, grid.width - 2), c.number(0, grid.height - 2)
    flow = Flow(colour, root=(x, y), senders=[(x, y)], words=c.number(1, 6), control=c.chance(60))
    circle = [((x, y), Port.S, Port.E), ((x + 1, y), Port.W, Port.S), ((x + 1, y + 1), Port.N, Port.W)]
    for place, entered, left in [*circle, ((x, y + 1), Port.E, Port.N)]:
        flow.nodes[place] = Node(place, colour, {entered}, {left})
    flow.nodes[x, y].inputs.add(Port.RAMP)
    return flow


def add_routes(c: Choices, grid: Grid, flow: Flow) -> None:
    """Put a flow's routes onto the grid, some of them with switch positions."""
    for place, node in flow.nodes.items():
        inputs, outputs = frozenset(node.inputs), frozenset(node.outputs)
        positions = [(inputs, outputs)]
        if c.chance(60 if flow.control else 5):
            if len(inputs) > 1 and c.chance(50):
                positions = [(frozenset({port}), outputs) for port in sorted(inputs)][:4]
            for _ in range(c.number(0, max(0, min(2, 4 - len(positions))))):
                entered = frozenset(c.pick_some(sorted(inputs), 70)) or inputs
                left = frozenset(c.pick_some(sorted(outputs), 70)) or outputs
                positions.append((entered, left))
        grid.route(
            *place, node.colour, *positions, ring=c.chance(50), pop=c.chance(50), swap=node.swap,
            merge=any(len(entered) > 1 for entered, _ in positions),
        )  # fmt: skip
