"""The `.layout` section: grid, placement, bindings, routes and edge ports become the program's tables.

Expressions are evaluated once per statement, over all PEs of its region at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from .diagnostics import Diagnostics, Problem, Span, did_you_mean
from .expressions import Scope, Value, evaluate, integer
from .memory import element_bits
from .operands import QueueName
from .origins import Origins
from .program import (
    QUEUES,
    EdgePort,
    Kernel,
    Program,
    Route,
)  # fmt: skip
from .route_lines import colour_value, edge_port, range_of, route_of
from .syntax import Definition, EdgeLine, Grid, Node, Place, Region, RouteLine

LARGEST_SIDE = 32_767
MOST_PES = 1 << 22  # of a grid: several times the largest wafer
NONE = -1  # the value of `none`: a queue that is left unbound on purpose


@dataclass
class KernelPlan:
    """A kernel and the names the layout may bind."""

    kernel: Kernel
    queues: dict[str, QueueName]
    span: Span


class Pes:
    """The PEs that a region names, in row-major order."""

    def __init__(self, xs: np.ndarray, ys: np.ndarray) -> None:
        self.x = np.tile(xs, len(ys))
        self.y = np.repeat(ys, len(xs))

    def __len__(self) -> int:
        return len(self.x)

    def keep(self, mask: np.ndarray) -> None:
        self.x, self.y = self.x[mask], self.y[mask]

    def spread(self, value: Value) -> np.ndarray:
        """A value per PE."""
        return np.broadcast_to(value, self.x.shape)


class Layout:
    """Carries out the statements of `.layout`."""

    def __init__(
        self, plans: list[KernelPlan], scope: Scope, colours: dict[str, int], diagnostics: Diagnostics
    ) -> None:
        self.plans = {plan.kernel.name: plan for plan in plans}
        self.kernel_numbers = {name: number for number, name in enumerate(self.plans)}
        self.scope, self.colours, self.diagnostics = scope, colours, diagnostics
        self.width = self.height = 0
        self.route_numbers: dict[Route, int] = {}
        self.routes: dict[int, np.ndarray] = {}
        self.edge_ports: dict[str, EdgePort] = {}
        self.edge_spans: dict[str, Span] = {}
        self.pe_values: dict[str, np.ndarray] = {}
        self.origins = Origins()
        self._allocate(1, 1)

    def _allocate(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.placement = np.full((height, width), -1, np.int16)
        self.in_colour = np.full((height, width, QUEUES), -1, np.int8)
        self.out_colour = np.full((height, width, QUEUES), -1, np.int8)
        self.origins.place = np.full((height, width), -1, np.int32)
        self.origins.unbound = np.zeros((height, width, 2, QUEUES), bool)

    def run(self, statements: Iterable[tuple[Node, Scope]], start: Span | None) -> None:
        """Carry out all statements, the grid first. A missing grid is reported at `start`."""
        lines = list(statements)
        grids = [(line, scope) for line, scope in lines if isinstance(line, Grid)]
        if not grids:
            if start is not None:
                help = "add `.layout` with `grid WIDTH, HEIGHT`"
                self.diagnostics.add(Problem("syntax", "the program declares no grid", start, help=help))
            return
        try:
            self._grid(*grids[0])
            for other, _ in grids[1:]:
                raise Problem(
                    "syntax", "a second `grid`", other.span, notes=[("the first", grids[0][0].span)]
                )
        except Problem as problem:
            self.diagnostics.add(problem)
            return
        placed: list[tuple[Place, Pes, Scope]] = []
        for line, scope in lines:
            try:
                if isinstance(line, Place):
                    placed.append((line, *self._place(line, scope)))
                elif isinstance(line, RouteLine):
                    self._route(line, scope)
                elif isinstance(line, EdgeLine):
                    self._edge(line, scope)
            except Problem as problem:
                self.diagnostics.add(problem)
        for place, pes, inner in placed:
            self._bindings(place, pes, inner)
        for plan in self.plans.values() if start else ():  # unless a line is missing
            if not any(line.kernel.text == plan.kernel.name for line, _ in lines if isinstance(line, Place)):
                text = f"kernel `{plan.kernel.name}` is placed nowhere"
                self.diagnostics.add(Problem("resource", text, plan.span, severity="warning"))

    def program(self, name: str) -> Program:
        """The tables as a program."""
        return Program(
            name,
            self.width,
            self.height,
            [plan.kernel for plan in self.plans.values()],
            self.placement,
            self.in_colour,
            self.out_colour,
            list(self.route_numbers),
            self.routes,
            self.edge_ports,
            self.pe_values,
        )

    def _grid(self, line: Grid, scope: Scope) -> None:
        width = integer(line.width, scope, "the grid's width")
        height = integer(line.height, scope, "the grid's height")
        for node, size in ((line.width, width), (line.height, height)):
            if not 1 <= size <= LARGEST_SIDE:
                raise Problem(
                    "range", f"a grid of {width} x {height} PEs; each side is 1..{LARGEST_SIDE}", node.span
                )
        if width * height > MOST_PES:
            raise Problem(
                "range", f"a grid of {width} x {height} PEs; at most {MOST_PES:,} PEs", line.width.span
            )
        self._allocate(width, height)

    # --- regions ---
    def _region(self, region: Region, scope: Scope) -> tuple[Pes, Scope]:
        grid = (self.width, self.height)
        xs = range_of(region.x, self.width, "x", grid, scope)
        ys = range_of(region.y, self.height, "y", grid, scope)
        pes = Pes(xs, ys)
        inner = Scope({"x": pes.x, "y": pes.y, "none": NONE}, scope)
        if region.where is not None:
            pes.keep(pes.spread(evaluate(region.where, inner)) != 0)
            inner = Scope({"x": pes.x, "y": pes.y, "none": NONE}, scope)
        return pes, inner

    # --- placement ---
    def _place(self, line: Place, scope: Scope) -> tuple[Pes, Scope]:
        plan = self.plans.get(line.kernel.text)
        if plan is None:
            raise Problem(
                "name",
                f"no kernel `{line.kernel.text}`",
                line.kernel.span,
                help=did_you_mean(line.kernel.text, self.plans),
            )
        pes, inner = self._region(line.region, scope)
        taken = self.placement[pes.y, pes.x] >= 0
        if taken.any():
            first = int(np.argmax(taken))
            x, y = int(pes.x[first]), int(pes.y[first])
            raise Problem(
                "resource",
                f"PE ({x}, {y}) has a kernel already" + _others(taken),
                line.span,
                notes=[("placed here", self.origins.spans[self.origins.place[y, x]])],
            )
        self.placement[pes.y, pes.x] = self.kernel_numbers[line.kernel.text]
        self.origins.place[pes.y, pes.x] = self.origins.number(line.span)
        return pes, inner

    def _bindings(self, line: Place, pes: Pes, inner: Scope) -> None:
        plan = self.plans[line.kernel.text]
        seen: dict[str, Span] = {}
        for binding in line.bindings:
            try:
                if binding.name.text in seen:
                    raise Problem(
                        "resource",
                        f"`{binding.name.text}` is bound twice",
                        binding.name.span,
                        notes=[("first bound here", seen[binding.name.text])],
                    )
                seen[binding.name.text] = binding.name.span
                self._bind(binding, plan, pes, inner)
            except Problem as problem:
                self.diagnostics.add(problem)

    def _bind(self, binding: Definition, plan: KernelPlan, pes: Pes, scope: Scope) -> None:
        name, node = binding.name.text, binding.value
        assert node is not None
        if queue := plan.queues.get(name):
            colours = pes.spread(colour_value(node, scope, lowest=NONE))
            table = self.out_colour if queue.output else self.in_colour
            table[pes.y, pes.x, queue.number] = colours
            self.origins.unbound[pes.y, pes.x, int(queue.output), queue.number] = colours == NONE
            return
        symbol = plan.kernel.symbols.get(name)
        if symbol is None:
            names = [
                *plan.queues,
                *(s.name for s in plan.kernel.symbols.values() if s.shape == () and s.role == "data"),
            ]
            raise Problem(
                "name",
                f"kernel `{plan.kernel.name}` has no queue or scalar `{name}`",
                binding.name.span,
                help=did_you_mean(name, names),
            )
        if symbol.shape != () or symbol.role != "data":
            raise Problem(
                "type",
                f"`{name}` is no scalar; only scalars take a value per PE",
                binding.name.span,
                help="the host writes whole symbols before the run",
            )
        bits = element_bits(symbol.element, evaluate(node, scope), node.span)
        if name not in self.pe_values:
            self.pe_values[name] = self._initial_values(name)
        self.pe_values[name][pes.y, pes.x] = bits

    def _initial_values(self, name: str) -> np.ndarray:
        """(H, W) bits of a scalar as its kernels declare it: what PEs without a value of their own keep."""
        values = np.zeros((self.height, self.width), np.uint32)
        for plan in self.plans.values():
            symbol = plan.kernel.symbols.get(name)
            if symbol is not None and symbol.shape == () and symbol.role == "data":
                stored = plan.kernel.data[symbol.address : symbol.address + symbol.nbytes].tobytes()
                values[self.placement == self.kernel_numbers[plan.kernel.name]] = int.from_bytes(
                    stored, "little"
                )
        return values

    # --- routes ---
    def _route(self, line: RouteLine, scope: Scope) -> None:
        pes, inner = self._region(line.region, scope)
        colours = colour_value(line.colour, inner)
        route = route_of(line)
        if not len(pes):
            return  # an empty region: no table entry either
        flags = {flag.kind: flag for flag in line.flags}
        number = self.route_numbers.setdefault(route, len(self.route_numbers)) + 1
        origin = self.origins.number(line.span)
        for colour in np.unique(colours):
            if (swap := flags.get("swap")) and swap.partner:
                partner = integer(swap.partner, inner, "a partner colour")
                if partner != colour ^ 1:
                    raise Problem(
                        "range",
                        f"colour {colour} swaps with {colour ^ 1}, not with {partner}",
                        swap.partner.span,
                        help="number the pair in `.colour`: an even number and the next one",
                    )
            mask = pes.spread(colours) == colour
            self._set_route(int(colour), pes.x[mask], pes.y[mask], number, origin, line)

    def _set_route(
        self, colour: int, x: np.ndarray, y: np.ndarray, number: int, origin: int, line: RouteLine
    ) -> None:
        if colour not in self.routes:
            self.routes[colour] = np.zeros((self.height, self.width), np.uint16)
            self.origins.routes[colour] = np.full((self.height, self.width), -1, np.int32)
        table, origins = self.routes[colour], self.origins.routes[colour]
        before = table[y, x]
        clash = (before != 0) & (before != number)
        if clash.any():
            first = int(np.argmax(clash))
            px, py = int(x[first]), int(y[first])
            raise Problem(
                "resource",
                f"{self.colour_name(colour)} has another route at ({px}, {py})" + _others(clash),
                line.span,
                notes=[("the other route", self.origins.spans[origins[py, px]])],
            )
        table[y, x] = number
        origins[y, x] = origin

    def colour_name(self, colour: int) -> str:
        name = next((name for name, number in self.colours.items() if number == colour), None)
        return f"colour {colour}" + (f" (`{name}`)" if name else "")

    # --- edge ports ---
    def _edge(self, line: EdgeLine, scope: Scope) -> None:
        name = line.name.text
        if name in self.edge_ports:
            raise Problem(
                "name",
                f"edge port `{name}` is declared twice",
                line.name.span,
                notes=[("first declared here", self.edge_spans[name])],
            )
        self.edge_ports[name] = edge_port(line, (self.width, self.height), scope)
        self.edge_spans[name] = line.name.span


def _others(mask: np.ndarray) -> str:
    count = int(np.count_nonzero(mask)) - 1
    return f" (and {count} more)" if count else ""
