"""Lines of `.layout` that make a route or an edge port: ranges, colours, ports, positions, lanes."""

from __future__ import annotations

from math import prod

import numpy as np

from .diagnostics import Problem, did_you_mean
from .element_types import ElementType
from .expressions import Scope, Value, evaluate, integer
from .memory import QUANTISED, element_type
from .program import COLOURS, MAX_SWITCH_POSITIONS, EdgePort, Port, Route, RoutePosition
from .syntax import EdgeLine, ListOf, Name, Node, Position, Range, RouteLine

SIDES = {"north": Port.N, "east": Port.E, "south": Port.S, "west": Port.W}


def range_of(node: Range, limit: int, axis: str, grid: tuple[int, int], scope: Scope) -> np.ndarray:
    """The coordinates that a range names, all inside the grid. Raises Problem."""
    if node.start is None:
        return np.arange(limit)
    start = integer(node.start, scope, f"{axis}")
    stop = integer(node.stop, scope, f"{axis}") if node.stop else start
    step = integer(node.step, scope, "the step", 1) if node.step else 1
    values = np.arange(start, stop + 1, step)
    if len(values) and (values[0] < 0 or values[-1] >= limit):
        bad = start if start < 0 or start >= limit else int(values[-1])
        raise Problem(
            "range",
            f"{axis} = {bad} is outside the grid of {grid[0]} x {grid[1]}; legal: 0..{limit - 1}",
            node.span,
        )
    return values


def colour_value(node: Node, scope: Scope, lowest: int = 0) -> Value:
    """The colour, or the colours of PEs, that an expression names. Raises Problem."""
    value = evaluate(node, scope)
    array = np.asarray(value)
    if array.dtype.kind == "f":
        raise Problem("type", "a colour is an integer", node.span)
    bad = (array < lowest) | (array >= COLOURS)
    if bad.any():
        raise Problem(
            "range", f"no colour {int(array[bad].flat[0])}; colours are 0..{COLOURS - 1}", node.span
        )
    return value


def route_of(line: RouteLine) -> Route:
    """What a route line says a router does. Raises Problem."""
    positions = tuple(position_of(position) for position in line.positions)
    if len(positions) > MAX_SWITCH_POSITIONS:
        raise Problem(
            "range",
            f"{len(positions)} switch positions; at most {MAX_SWITCH_POSITIONS}",
            line.positions[MAX_SWITCH_POSITIONS].span,
        )
    flags = {flag.kind: flag for flag in line.flags}
    route = Route(positions, "ring" in flags, "pop" in flags, "swap" in flags, "merge" in flags)
    for node, position in zip(line.positions, positions, strict=True):
        if len(position.inputs) > 1 and not route.merge:
            raise Problem(
                "route",
                f"{len(position.inputs)} inputs in one position are a merge",
                node.span,
                help="add `merge` at the end if their wavelets may mix in any order",
            )
    return route


def position_of(node: Position) -> RoutePosition:
    """The ports of one switch position. Raises Problem."""
    inputs = _ports(node.inputs)
    outputs = _ports(node.outputs)
    back = (inputs & outputs) - {Port.RAMP}
    if back:
        port = min(back).name
        where = next(name for name in node.outputs if name.text == port)
        raise Problem("route", f"a wavelet from {port} cannot turn back to {port}", where.span)
    return RoutePosition(inputs, outputs)


def _ports(names: list[Name]) -> frozenset[Port]:
    ports: set[Port] = set()
    for name in names:
        if name.text not in Port.__members__:
            raise Problem(
                "name",
                f"no router port `{name.text}`",
                name.span,
                help=did_you_mean(name.text.upper(), Port.__members__, "ports: N, E, S, W, RAMP"),
            )
        if Port[name.text] in ports:
            raise Problem("route", f"port {name.text} stands twice", name.span)
        ports.add(Port[name.text])
    return frozenset(ports)


def edge_port(line: EdgeLine, grid: tuple[int, int], scope: Scope) -> EdgePort:
    """The edge port that a line declares. Raises Problem."""
    side = SIDES.get(line.side.text)
    if side is None:
        raise Problem(
            "name",
            f"no side `{line.side.text}`",
            line.side.span,
            help=did_you_mean(line.side.text, SIDES),
        )
    horizontal = side in (Port.N, Port.S)
    limit, axis = (grid[0], "x") if horizontal else (grid[1], "y")
    lanes = _lanes(line, limit, axis, grid, scope)
    colour = int(colour_value(line.colour, scope))
    element = element_type(line.type, [t for t in ElementType if t not in QUANTISED])
    shape = tuple(integer(node, scope, "an extent", 0, (1 << 31) - 1) for node in line.shape or [])
    packed = element.bits == 16 and not line.single
    if line.single and element.bits == 32:
        raise Problem("type", f"{element.source_name} is always single", line.span, help="remove `single`")
    if packed and prod(shape) % 2:
        raise Problem(
            "range",
            f"{prod(shape)} elements in packed wavelets of 2: the count must be even",
            line.type.span,
            help="add `single` for one element per wavelet",
        )
    return EdgePort(
        line.name.text, line.output, side, colour, lanes, element, shape, packed, line.name.span.location
    )


def _lanes(line: EdgeLine, limit: int, axis: str, grid: tuple[int, int], scope: Scope) -> tuple[int, ...]:
    if isinstance(line.lanes, ListOf):
        lanes = tuple(integer(item, scope, "a lane", 0, limit - 1) for item in line.lanes.items)
        if len(set(lanes)) != len(lanes):
            raise Problem("resource", "a lane stands twice", line.lanes.span)
        return lanes
    assert isinstance(line.lanes, Range)
    return tuple(int(lane) for lane in range_of(line.lanes, limit, axis, grid, scope))
