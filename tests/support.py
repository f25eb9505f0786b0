"""A small builder of programs for tests that look at one rule of the machine; never part of it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import numpy as np
from waferloom.fabric.compare import outcome_differences
from waferloom.fabric.outcome import Outcome
from waferloom.fabric.reference import run as reference
from waferloom.fabric.spec import MachineSpec, machine
from waferloom.isa.element_types import ElementType
from waferloom.isa.instructions import BY_NAME, encode
from waferloom.isa.program import (
    Descriptor,
    DescriptorKind,
    EdgePort,
    Kernel,
    Port,
    Program,
    Route,
    RoutePosition,
    Task,
    TaskKind,
)

T = ElementType
N, E, S, W, RAMP = Port
NAMES_TASK = 1 << 29
BOTH_ENGINES = bool(os.environ.get("WAFERLOOM_BOTH_ENGINES"))  # compare every run with the fast engine


@dataclass
class Asm:
    """Code and data of one kernel: methods append instructions and data, and return addresses."""

    name: str = "k"
    words: list[int] = field(default_factory=list)
    data: bytearray = field(default_factory=bytearray)
    tasks: dict[int, Task] = field(default_factory=dict)

    def __call__(self, name: str, /, **values: int) -> int:
        """Append an instruction. Types default to f16 with equal source; returns its word address."""
        row = BY_NAME[name]
        pc = len(self.words)
        if "type" in row.fields:
            values.setdefault("type", T.F16)
        if "source" in row.fields:
            values.setdefault("source", values["type"])
        if "group" in row.fields:
            values.setdefault("group", 0)
        if values.get("asynchronous"):
            for name_, default in (("thread", 0), ("priority", 0), ("completion", 0), ("launch_task", 0)):
                values.setdefault(name_, default)
        self.words += encode(name, values)
        return pc

    def task(self, number: int, kind: TaskKind = TaskKind.LOCAL, **options: int) -> None:
        """The code that follows is a task."""
        self.tasks[number] = Task(number, f"t{number}", kind, len(self.words), **options)

    def space(self, size: int, at: int | None = None) -> int:
        """Bytes of zeroed data, aligned to 4 (or from `at` on)."""
        start = -(-len(self.data) // 4) * 4 if at is None else at
        self.data.extend(bytes(start + size - len(self.data)))
        return start

    def values(self, dtype: str, values: list[int] | list[float] | np.ndarray) -> int:
        """Data with the given contents; returns its address."""
        raw = np.asarray(values, dtype).tobytes()
        start = self.space(len(raw))
        self.data[start : start + len(raw)] = raw
        return start

    def descriptor(self, register: int, descriptor: Descriptor) -> None:
        """Store a descriptor in data and load it."""
        self("ldd", dd=register, address=self.values("<u2", descriptor.halfwords))

    def memory(self, register: int, base: int, count: int, size: int = 2) -> None:
        """Load a descriptor of a dense memory vector."""
        self.descriptor(register, Descriptor(DescriptorKind.MEMORY, base, (count,), (size,)))

    def receive(self, register: int, queue: int, count: int, packed: bool = False) -> None:
        """Load a descriptor of an input queue."""
        kind = DescriptorKind.FABRIC_IN
        self.descriptor(register, Descriptor(kind, 0, (count,), (0,), queue, packed=packed))

    def transmit(
        self, register: int, queue: int, count: int, packed: bool = False, control: bool = False
    ) -> None:
        """Load a descriptor of an output queue."""
        kind = DescriptorKind.FABRIC_OUT
        self.descriptor(register, Descriptor(kind, 0, (count,), (0,), queue, control, packed))

    def kernel(self) -> Kernel:
        data = np.frombuffer(bytes(self.data), np.uint8).copy()
        return Kernel(
            self.name, np.array(self.words, np.uint32), data, np.ones(len(data), bool), {}, dict(self.tasks)
        )


@dataclass
class Grid:
    """A grid under construction: kernels at places, queues bound to colours, routes."""

    width: int
    height: int = 1
    kernels: list[Kernel] = field(default_factory=list)
    route_table: list[Route] = field(default_factory=list)
    routes: dict[int, np.ndarray] = field(default_factory=dict)
    edge_ports: dict[str, EdgePort] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shape = (self.height, self.width)
        self.placement = np.full(shape, -1, np.int16)
        self.in_colour = np.full((*shape, 8), -1, np.int8)
        self.out_colour = np.full((*shape, 8), -1, np.int8)

    def place(
        self,
        asm: Asm,
        *places: tuple[int, int],
        receives: dict[int, int] | None = None,
        sends: dict[int, int] | None = None,
    ) -> Grid:
        """Put a kernel on PEs; `receives`, `sends`: queue -> colour."""
        self.kernels.append(asm.kernel())
        for x, y in places:
            self.placement[y, x] = len(self.kernels) - 1
            for queue, colour in (receives or {}).items():
                self.in_colour[y, x, queue] = colour
            for queue, colour in (sends or {}).items():
                self.out_colour[y, x, queue] = colour
        return self

    def route(
        self, x: int, y: int, colour: int, *positions: tuple[set[Port], set[Port]], **options: bool
    ) -> Grid:
        """Add a route: positions as (inputs, outputs)."""
        self.route_table.append(
            Route(tuple(RoutePosition(frozenset(i), frozenset(o)) for i, o in positions), **options)
        )
        grid = self.routes.setdefault(colour, np.zeros((self.height, self.width), np.uint16))
        grid[y, x] = len(self.route_table)
        return self

    def port(
        self, name: str, output: bool, side: Port, colour: int, lanes: tuple[int, ...], words: int = 1
    ) -> Grid:
        """Attach an edge port of 32-bit words."""
        self.edge_ports[name] = EdgePort(name, output, side, colour, lanes, T.I32, (words,))
        return self

    def program(self) -> Program:
        return Program(
            "test",
            self.width,
            self.height,
            self.kernels,
            self.placement,
            self.in_colour,
            self.out_colour,
            self.route_table,
            self.routes,
            self.edge_ports,
        )


@dataclass
class Ran:
    """A run and its memory."""

    outcome: Outcome
    sram: np.ndarray
    width: int
    events: list[tuple]

    def memory(self, dtype: str, address: int, count: int, x: int = 0, y: int = 0) -> list:
        size = np.dtype(dtype).itemsize * count
        return self.sram[y * self.width + x, address : address + size].view(dtype).tolist()

    def issues(self, x: int = 0, y: int = 0) -> list[int]:
        """Cycles in which a PE issued."""
        return [t for event, t, *place, _ in self.events if event == "issue" and place == [x, y]]

    def departures(self, x: int = 0, y: int = 0) -> list[int]:
        """Cycles in which wavelets left a router."""
        return [t for event, t, *place, _ in self.events if event == "depart" and place == [x, y]]


def execute(
    grid: Grid | Program,
    spec: str | MachineSpec = "wse3",
    inputs: dict | None = None,
    strict: bool = False,
    engine=reference,
    **options,
) -> Ran:
    """Load a program and run it on an engine."""
    program = grid.program() if isinstance(grid, Grid) else grid
    spec = machine(spec) if isinstance(spec, str) else spec
    stride = -(-max([1, *(len(k.data) for k in program.kernels)]) // 8) * 8
    sram = np.zeros((program.width * program.height, stride), np.uint8)
    written = np.zeros(sram.shape, bool) if strict else None
    for y in range(program.height):
        for x in range(program.width):
            if kernel := program.kernel_at(x, y):
                row = y * program.width + x
                sram[row, : len(kernel.data)] = kernel.data
                if written is not None:
                    written[row, : len(kernel.data)] = kernel.initialised
    streams = {
        name: [lane if isinstance(lane, tuple) else (np.array(lane, np.uint32), None) for lane in lanes]
        for name, lanes in (inputs or {}).items()
    }
    events: list[tuple] = []
    before = sram.copy(), None if written is None else written.copy()
    if engine is reference:
        options["observer"] = lambda event, t, x, y, **details: events.append((event, t, x, y, details))
    outcome = engine(spec, program, sram, streams, strict=written, **options)
    if BOTH_ENGINES and engine is reference:
        del options["observer"]
        other = fast_engine()(spec, program, before[0], streams, strict=before[1], **options)
        differences = outcome_differences(outcome, other)
        assert not differences, "reference and fast engine differ: " + "\n".join(differences)
        assert np.array_equal(sram, before[0]), "the engines leave different memory"
    return Ran(outcome, sram, program.width, events)


def fast_engine():
    """The other engine's `run`."""
    from waferloom.fabric.wafer import _engine

    return _engine("fast")


def alone(asm: Asm, spec: str | MachineSpec = "wse3", **options) -> Ran:
    """Run one kernel on a grid of one PE, its first task an entry task."""
    for task in list(asm.tasks.values())[:1]:
        task.entry = True
    return execute(Grid(1).place(asm, (0, 0)), spec, **options)
