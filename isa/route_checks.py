"""Static checks of the grid: every wavelet has somewhere to go, every queue somewhere it comes from.

All checks work on whole (H, W) arrays. A mask of ports has bit `1 << Port`.
"""

from __future__ import annotations

import numpy as np

from .code_checks import queues_used
from .diagnostics import Diagnostic
from .origins import Origins, by_statement, pes
from .program import OPPOSITE, QUEUES, STEP, EdgePort, Location, Port, Program
from .route_graph import RouteGraph, has

_LINKS = (Port.N, Port.E, Port.S, Port.W)
_SIDE_NAMES = {Port.N: "north", Port.E: "east", Port.S: "south", Port.W: "west"}


def check_routes(program: Program, origins: Origins | None = None) -> list[Diagnostic]:
    """All findings about placement, bindings, routes and edge ports."""
    return _GridCheck(program, origins).run()


class _GridCheck:
    def __init__(self, program: Program, origins: Origins | None) -> None:
        self.program, self.origins = program, origins
        self.found: list[Diagnostic] = []
        self.graph = RouteGraph(program)
        self.names = {number: name for name, number in reversed(program.colour_names.items())}
        self.in_bound, self.out_bound = _bound(program.in_colour), _bound(program.out_colour)

    def run(self) -> list[Diagnostic]:
        self._bindings()
        for colour in self.graph.colours:
            self._positions(colour)
            self._links(colour)
            self._ramp(colour)
        self._queues_without_route()
        for port in self.program.edge_ports.values():
            self._edge_port(port)
        for finding in self.found:
            if finding.severity == "error":
                return self.found  # what follows would repeat it
        self._loops()
        self._producers()
        return self.found

    # --- words ---
    def colour(self, number: int) -> str:
        return f"`{self.names[number]}` (colour {number})" if number in self.names else f"colour {number}"

    def report(
        self, category: str, text: str, ys: np.ndarray, xs: np.ndarray, table: np.ndarray | None,
        help: str | None = None, severity: str = "error", what: str = "PE",
    ) -> None:  # fmt: skip
        """One finding per source statement; `{}` in the text becomes the PEs."""
        for some_y, some_x, place in by_statement(ys, xs, table, self.origins):
            self.found.append(
                Diagnostic(category, text.format(pes(some_y, some_x, what)), place, [], help, severity)
            )

    def _route_origin(self, colour: int) -> np.ndarray | None:
        return self.origins.routes.get(colour) if self.origins else None

    @property
    def _place_origin(self) -> np.ndarray | None:
        return self.origins.place if self.origins else None

    # --- bindings ---
    def _bindings(self) -> None:
        program = self.program
        for table, bound, word in (
            (program.in_colour, self.in_bound, "input"), (program.out_colour, self.out_bound, "output")
        ):  # fmt: skip
            twice = (table >= 0).sum(-1) != np.bitwise_count(bound)
            for y, x in zip(*(c[:1] for c in np.nonzero(twice)), strict=True):
                row = [int(c) for c in table[y, x]]
                colour = next(c for c in row if c >= 0 and row.count(c) > 1)
                ys, xs = np.nonzero(twice)
                self.report(
                    "resource",
                    f"two {word} queues are bound to {self.colour(colour)} at {{}}",
                    ys,
                    xs,
                    self._place_origin,
                    "a colour has one queue of each direction per PE",
                )
        for number, kernel in enumerate(program.kernels):
            here = program.placement == number
            if not here.any():
                continue
            for (output, queue), pc in queues_used(kernel).items():
                table = program.out_colour if output else program.in_colour
                missing = here & (table[..., queue] < 0)
                if self.origins is not None:
                    missing &= ~self.origins.unbound[..., int(output), queue]
                if missing.any():
                    name = (kernel.out_queues if output else kernel.in_queues).get(queue, str(queue))
                    place = kernel.locations[pc] if 0 <= pc < len(kernel.locations) else None
                    if pc < 0:  # a data task
                        tasks = kernel.tasks.values()
                        place = next((t.location for t in tasks if not output and t.queue == queue), None)
                    ys, xs = np.nonzero(missing)
                    before = len(self.found)
                    self.report(
                        "resource",
                        f"queue `{name}` of kernel `{kernel.name}` is used but bound to no colour at {{}}",
                        ys,
                        xs,
                        self._place_origin,
                        f"bind it in the braces of `place`: `{name} = COLOUR`, or `{name} = none`",
                        "error" if self.origins is not None else "warning",
                    )
                    for finding in self.found[before:]:
                        finding.notes.append(("used here", place))

    # --- routes ---
    def _positions(self, colour: int) -> None:
        for number, route in enumerate(self.program.route_table):
            faults = []
            if len(route.positions) > 4:
                faults.append(f"{len(route.positions)} switch positions; at most 4")
            for position in route.positions:
                back = (position.inputs & position.outputs) - {Port.RAMP}
                if back:
                    faults.append(f"a wavelet from {min(back).name} cannot turn back")
                if len(position.inputs) > 1 and not route.merge:
                    faults.append("several inputs in one position are a merge and must be declared as one")
            if faults:
                ys, xs = np.nonzero(self.program.routes[colour] == number + 1)
                for fault in faults:
                    self.report(
                        "route", f"{self.colour(colour)} at {{}}: {fault}", ys, xs, self._route_origin(colour)
                    )

    def _links(self, colour: int) -> None:
        """Wavelets that leave a router by a link need a router, or an edge port, that takes them."""
        graph = self.graph
        for leaving, source in graph.emissions(colour):
            for port in _LINKS:
                sends = has(leaving, port)
                if not sends.any():
                    continue
                taken = has(graph.neighbour(graph.accepts(colour), port), OPPOSITE[port])
                edge = graph.edge_mask(port)
                ys, xs = np.nonzero(sends & ~edge & ~taken)
                if len(ys):
                    dx, dy = STEP[port]
                    first = f"({int(xs[0]) + dx}, {int(ys[0]) + dy})"
                    swapped = "" if source == colour else " (after `swap`)"
                    self.report(
                        "route",
                        f"{self.colour(colour)}{swapped} leaves {{}} to {port.name}, but the "
                        "router there does not take it from "
                        f"{OPPOSITE[port].name}",
                        ys,
                        xs,
                        self._route_origin(source),
                        f"add `{OPPOSITE[port].name}` as an input of its route at {first}",
                        what="router",
                    )
                ys, xs = np.nonzero(sends & edge & ~graph.edge_lanes(port, colour, output=True))
                if len(ys):
                    self.report(
                        "range",
                        f"{self.colour(colour)} leaves the grid to {port.name} at {{}}, where no "
                        "edge port takes it",
                        ys,
                        xs,
                        self._route_origin(source),
                        f"end the route before the edge, or add `output NAME on {_SIDE_NAMES[port]} ...`",
                        what="router",
                    )

    def _ramp(self, colour: int) -> None:
        """Wavelets that enter a PE need a queue."""
        bound = self.in_bound & np.uint32(1 << colour) != 0
        for leaving, source in self.graph.emissions(colour):
            ys, xs = np.nonzero(has(leaving, Port.RAMP) & ~bound)
            if len(ys):
                self.report(
                    "route",
                    f"{self.colour(colour)} is delivered to {{}}, where no input queue is bound to it",
                    ys,
                    xs,
                    self._route_origin(source),
                    "bind a queue in the braces of `place`, or remove `RAMP` from the outputs",
                )

    def _queues_without_route(self) -> None:
        program, graph = self.program, self.graph
        for output, table in ((False, program.in_colour), (True, program.out_colour)):
            for queue in range(QUEUES):
                for colour in (int(c) for c in np.unique(table[..., queue]) if c >= 0):
                    served = graph.accepts(colour) if output else graph.emits(colour)
                    ys, xs = np.nonzero((table[..., queue] == colour) & ~has(served, Port.RAMP))
                    if not len(ys):
                        continue
                    kernel = program.kernel_at(int(xs[0]), int(ys[0]))
                    names = {} if kernel is None else kernel.out_queues if output else kernel.in_queues
                    name = names.get(queue, str(queue))
                    what = self.colour(colour)
                    if output:
                        text = (
                            f"output queue `{name}` sends {what} at {{}}, where no route takes it from RAMP"
                        )
                        help = f"route it: `route ... at ...: RAMP -> ...` for {what}"
                    else:
                        text = f"input queue `{name}` waits for {what} at {{}}, where no route leads to RAMP"
                        help = f"route it: `route ... at ...: ... -> RAMP` for {what}"
                    self.report("route", text, ys, xs, self._place_origin, help)

    def _edge_port(self, port: EdgePort) -> None:
        graph = self.graph
        lanes = np.array(port.lanes, np.int64)
        fixed = np.full_like(
            lanes, {Port.N: 0, Port.W: 0, Port.S: graph.height - 1, Port.E: graph.width - 1}[port.side]
        )
        ys, xs = (fixed, lanes) if port.side in (Port.N, Port.S) else (lanes, fixed)
        masks = graph.emits(port.colour) if port.output else graph.accepts(port.colour)
        bad = ~has(masks[ys, xs], port.side)
        if bad.any():
            what = "sends it there" if port.output else "takes it"
            where = pes(ys[bad], xs[bad], "router")
            direction = f"to {port.side.name}" if port.output else f"from {port.side.name}"
            self.found.append(
                Diagnostic(
                    "route",
                    f"edge port `{port.name}`: no route for {self.colour(port.colour)} {what} "
                    f"{direction} at {where}",
                    port.location,
                    help="add the route, or leave these lanes out",
                )
            )
        for other in self.program.edge_ports.values():
            if other is port:
                break
            same = (other.side, other.colour, other.output) == (port.side, port.colour, port.output)
            if same and (both := sorted(set(other.lanes) & set(port.lanes))):
                self.found.append(
                    Diagnostic(
                        "resource",
                        f"edge ports `{other.name}` and `{port.name}` share lane {both[0]} of "
                        f"{self.colour(port.colour)}",
                        port.location,
                        [(f"`{other.name}`", other.location)],
                    )
                )

    # --- what needs the whole graph ---
    def _loops(self) -> None:
        for cycle in self.graph.loops():
            y, x, colour = cycle.y, cycle.x, cycle.colour
            table = self._route_origin(colour)
            place: Location | None = None
            if table is not None and self.origins and table[y, x] >= 0:
                place = self.origins.spans[table[y, x]].location
            self.found.append(
                Diagnostic(
                    "route",
                    f"the route of {self.colour(colour)} is a loop of {cycle.length} routers "
                    f"through ({x}, {y})",
                    place,
                    [],
                    "wavelets would circle for ever: end the route at one of these routers",
                    "warning" if cycle.switched else "error",
                )
            )

    def _producers(self) -> None:
        """Queues and edge lanes that no producer reaches."""
        for colour in self.graph.colours:
            dead = self.graph.unfed(colour)
            if not dead.any():
                continue
            ys, xs = np.nonzero(dead)
            inputs = int(self.graph.accepts(colour)[ys[0], xs[0]])
            ports = ", ".join(port.name for port in Port if inputs >> port & 1)
            root = f"nothing enters {self.colour(colour)} from {ports} at {{}}"
            alive = self.graph.reached(colour)
            before = len(self.found)
            for c in (colour, colour ^ 1):
                arriving = self.graph.arrivals(c, alive)
                if arriving is None:
                    continue
                for queue in range(QUEUES):
                    qy, qx = np.nonzero((self.program.in_colour[..., queue] == c) & ~arriving)
                    if len(qy):
                        kernel = self.program.kernel_at(int(qx[0]), int(qy[0]))
                        name = kernel.in_queues.get(queue, str(queue)) if kernel else str(queue)
                        self.report(
                            "route",
                            f"input queue `{name}` waits for {self.colour(c)} at {{}}, but no "
                            "producer reaches it",
                            qy,
                            qx,
                            self._place_origin,
                        )
            for finding in self.found[before:]:
                for _, _, place in by_statement(ys[:1], xs[:1], self._route_origin(colour), self.origins):
                    finding.notes.append((root.format(pes(ys, xs, "router")), place))
            if len(self.found) == before:
                self.report(
                    "route",
                    root,
                    ys,
                    xs,
                    self._route_origin(colour),
                    "no wavelet can use this route; remove it, or bind an output queue or an edge port",
                    "warning",
                )


def _bound(table: np.ndarray) -> np.ndarray:
    """(H, W) uint32: bit c is set if a queue is bound to colour c."""
    bits = np.zeros(table.shape[:2], np.uint32)
    for queue in range(table.shape[2]):
        colours = table[..., queue]
        bits |= np.where(colours >= 0, np.uint32(1) << np.maximum(colours, 0).astype(np.uint32), np.uint32(0))
    return bits
