"""A whole runnable program: what assembler and builder make, what a wafer loads, what an image file holds.

Nothing here decides anything about timing; a `Program` is the same on every machine that it fits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from .element_types import ElementType

COLOURS = 24
QUEUES = 8
TASKS = 32
THREADS = 8
REGISTERS = 16
DESCRIPTORS = 16
MAX_SWITCH_POSITIONS = 4
MAX_DIMENSIONS = 4


class Port(IntEnum):
    """Router ports, in arbitration order."""

    N = 0
    E = 1
    S = 2
    W = 3
    RAMP = 4


OPPOSITE = {Port.N: Port.S, Port.S: Port.N, Port.E: Port.W, Port.W: Port.E}
STEP = {Port.N: (0, -1), Port.E: (1, 0), Port.S: (0, 1), Port.W: (-1, 0)}  # (dx, dy)


class TaskKind(IntEnum):
    LOCAL = 0
    DATA = 1
    CONTROL = 2


class DescriptorKind(IntEnum):
    MEMORY = 0
    FABRIC_IN = 1
    FABRIC_OUT = 2
    FIFO = 3


@dataclass(frozen=True)
class Location:
    """A place in source: file name (or `<name>` for text), 1-based line and column, length in characters."""

    file: str
    line: int
    column: int
    length: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Descriptor:
    """A vector operand as it stands in SRAM and in a descriptor register.

    Stored as 16-bit halfwords: flags (kind 1:0, dimensions - 1 3:2, queue 6:4, control 7, packed 8), base
    in bytes, `dimensions` extents in elements (outermost first, the last one varies fastest), as many
    strides in bytes (signed). Fabric: one extent, the length in elements; base and stride are 0. FIFO: two
    extents, elements moved and capacity; strides 0. Sources of vdeq: one dimension, `base` at the first
    group, stride 0.
    """

    kind: DescriptorKind
    base: int = 0
    extents: tuple[int, ...] = (1,)
    strides: tuple[int, ...] = (0,)
    queue: int = 0
    control: bool = False
    packed: bool = False

    @property
    def halfwords(self) -> list[int]:
        flags = (
            int(self.kind)
            | (len(self.extents) - 1) << 2
            | self.queue << 4
            | int(self.control) << 7
            | int(self.packed) << 8
        )
        return [flags, self.base, *self.extents, *(stride & 0xFFFF for stride in self.strides)]

    @staticmethod
    def from_halfwords(halfwords: list[int]) -> Descriptor:
        """Inverse of `halfwords`; more behind them are ignored. Raises ValueError on reserved flag bits."""
        flags = halfwords[0]
        if flags >> 9:
            raise ValueError(f"descriptor flags {flags:#06x} have reserved bits set")
        n = (flags >> 2 & 3) + 1
        strides = tuple(s - 0x10000 if s & 0x8000 else s for s in halfwords[2 + n : 2 + 2 * n])
        return Descriptor(
            DescriptorKind(flags & 3),
            halfwords[1],
            tuple(halfwords[2 : 2 + n]),
            strides,
            flags >> 4 & 7,
            bool(flags >> 7 & 1),
            bool(flags >> 8 & 1),
        )


@dataclass
class Symbol:
    """Named data of a kernel: `shape` elements of `element` at byte `address`. A scalar has shape ().

    Q4/Q8 symbols: shape counts weights, the last dimension runs along K in groups of `group`; `nbytes` is
    what they occupy. `role`: `data`, `descriptor` (made by the assembler for an operand expression) or
    `fifo`.
    """

    name: str
    element: ElementType
    shape: tuple[int, ...]
    address: int
    nbytes: int
    export: bool = False
    role: str = "data"
    group: int = 32
    location: Location | None = None


@dataclass
class Task:
    """A task of a kernel. `entry`: pending from before cycle 0; `blocked`: blocked from before cycle 0."""

    id: int
    name: str
    kind: TaskKind
    pc: int
    queue: int = -1  # data tasks: the input queue
    priority: int = 0
    entry: bool = False
    blocked: bool = False
    location: Location | None = None


@dataclass
class Kernel:
    """A class of PEs: code, data and tasks."""

    name: str
    code: np.ndarray  # (words,) uint32
    data: np.ndarray  # (data_bytes,) uint8: initial SRAM contents
    initialised: np.ndarray  # (data_bytes,) bool: which of them are written before the run (for --strict)
    symbols: dict[str, Symbol]
    tasks: dict[int, Task]
    labels: dict[str, int] = field(default_factory=dict)  # code label -> word address
    locations: list[Location | None] = field(default_factory=list)  # per code word
    in_queues: dict[int, str] = field(default_factory=dict)  # queues the code uses -> their source name
    out_queues: dict[int, str] = field(default_factory=dict)
    location: Location | None = None

    @property
    def sram_bytes(self) -> int:
        """Bytes of SRAM this class of PEs needs: data, then code."""
        return len(self.data) + 4 * len(self.code)


@dataclass(frozen=True)
class RoutePosition:
    """One switch position: input ports and output ports."""

    inputs: frozenset[Port]
    outputs: frozenset[Port]


@dataclass(frozen=True)
class Route:
    """What a router does with one colour."""

    positions: tuple[RoutePosition, ...]
    ring: bool = False
    pop: bool = False
    swap: bool = False  # leave with the partner colour (colour ^ 1)
    merge: bool = False  # several inputs in one position are meant


@dataclass(frozen=True)
class EdgePort:
    """A named stream between host (or a neighbouring wafer) and one edge.

    `side` N/E/S/W of the grid; lane i attaches to the i-th router of `lanes` along that edge (x for N and
    S, y for E and W). Each lane carries `shape` elements of `element` per run, packed two per wavelet if
    `packed`.
    """

    name: str
    output: bool
    side: Port
    colour: int
    lanes: tuple[int, ...]
    element: ElementType
    shape: tuple[int, ...]
    packed: bool = False
    location: Location | None = None


@dataclass
class Program:
    """Everything a wafer needs to run. Arrays are indexed [y, x]."""

    name: str
    width: int
    height: int
    kernels: list[Kernel]
    placement: np.ndarray  # (H, W) int16: index into kernels, -1 = router only
    in_colour: np.ndarray  # (H, W, 8) int8: colour bound to each input queue, -1 = none
    out_colour: np.ndarray  # (H, W, 8) int8
    route_table: list[Route]
    routes: dict[int, np.ndarray]  # colour -> (H, W) uint16: index into route_table + 1, 0 = no route
    edge_ports: dict[str, EdgePort] = field(default_factory=dict)
    # Per-PE initial values of scalar symbols: symbol name -> (H, W) array of the symbol's bits (uint32); only
    # PEs whose kernel has that symbol are written.
    pe_values: dict[str, np.ndarray] = field(default_factory=dict)
    colour_names: dict[str, int] = field(default_factory=dict)
    parameters: dict[str, int] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)  # file -> text, for excerpts
    machine: str | None = None  # preset the source asks for

    def kernel_at(self, x: int, y: int) -> Kernel | None:
        index = int(self.placement[y, x])
        return None if index < 0 else self.kernels[index]

    def route_at(self, x: int, y: int, colour: int) -> Route | None:
        table = self.routes.get(colour)
        if table is None or table[y, x] == 0:
            return None
        return self.route_table[int(table[y, x]) - 1]
