"""The syntax tree of `.loom` source: one dataclass per construct, each with its span.

It knows no names, no values and no meaning. parser.py makes it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .diagnostics import Span


@dataclass(slots=True)
class Node:
    span: Span


# --- expressions ---
@dataclass(slots=True)
class Number(Node):
    value: int | float


@dataclass(slots=True)
class Name(Node):
    """A name; with dots (`x_in.single`) only where an operand may have a suffix."""

    text: str


@dataclass(slots=True)
class Here(Node):
    """`.`: the word address of the instruction itself."""


@dataclass(slots=True)
class Unary(Node):
    operator: str
    operand: Node


@dataclass(slots=True)
class Binary(Node):
    operator: str
    left: Node
    right: Node


@dataclass(slots=True)
class Choose(Node):
    condition: Node
    yes: Node
    no: Node


@dataclass(slots=True)
class Call(Node):
    function: Name
    arguments: list[Node]


@dataclass(slots=True)
class Index(Node):
    """`symbol[i, j]`, or the length of a queue or FIFO: `west[8]`."""

    base: Name
    indices: list[Node]


@dataclass(slots=True)
class ListOf(Node):
    items: list[Node]


# --- directives ---
@dataclass(slots=True)
class Definition(Node):
    """`name = value` of `.param`, `.const`, `.colour` (value None: lowest free) or a place's braces."""

    name: Name
    value: Node | None


@dataclass(slots=True)
class Directive(Node):
    kind: str  # params, consts, colours, include, machine, kernel, section
    definitions: list[Definition] = field(default_factory=list)
    name: Name | None = None


# --- blocks ---
@dataclass(slots=True)
class Head(Node):
    """Head or end of a block: `repeat`, `if_`, `else_if`, `else_`, `block_end`."""

    kind: str
    variable: Name | None = None
    values: list[Node | None] = field(default_factory=list)


@dataclass(slots=True)
class Repeat(Node):
    variable: Name
    start: Node
    stop: Node
    step: Node | None
    body: list[Node]


@dataclass(slots=True)
class If(Node):
    """Branches in order; the condition of `else` is None."""

    branches: list[tuple[Node | None, list[Node]]]


# --- .queues, .data ---
@dataclass(slots=True)
class Queue(Node):
    direction: str
    name: Name
    number: Node | None


@dataclass(slots=True)
class Queues(Node):
    queues: list[Queue]


@dataclass(slots=True)
class Data(Node):
    """A symbol. `kind`: data, fifo or descriptor; `initial` of a descriptor: its operand or its halfwords."""

    kind: str
    name: Name
    type: Name | None
    shape: list[Node] | None
    modifiers: dict[str, Node]
    initial: Node | None
    over: Over | None = None


@dataclass(slots=True)
class Align(Node):
    value: Node


# --- .code ---
@dataclass(slots=True)
class Option(Node):
    """An option of a task or a suffix of an instruction: kind and its value, if it has one."""

    kind: str
    value: Any = None


@dataclass(slots=True)
class Task(Node):
    name: Name
    options: list[Option]


@dataclass(slots=True)
class Over(Node):
    """`over i:4, j:8`: loops, outermost first."""

    loops: list[tuple[Name, Node]]


@dataclass(slots=True)
class Advanced(Node):
    """`d3+`"""

    number: int


@dataclass(slots=True)
class Memory(Node):
    """`[r1 + 4]`"""

    address: Node


@dataclass(slots=True)
class Instruction(Node):
    mnemonic: Name
    operands: list[Node]
    suffixes: list[Node]


@dataclass(slots=True)
class Words(Node):
    values: list[Node]


@dataclass(slots=True)
class Code(Node):
    labels: list[Name]
    content: Task | Instruction | Words | None


# --- .layout ---
@dataclass(slots=True)
class Range(Node):
    """`*` (start None), a number (stop None) or `start..stop step step`, inclusive."""

    start: Node | None = None
    stop: Node | None = None
    step: Node | None = None


@dataclass(slots=True)
class Region(Node):
    x: Range
    y: Range
    where: Node | None


@dataclass(slots=True)
class Grid(Node):
    width: Node
    height: Node


@dataclass(slots=True)
class Place(Node):
    kernel: Name
    region: Region
    bindings: list[Definition]


@dataclass(slots=True)
class Position(Node):
    inputs: list[Name]
    outputs: list[Name]


@dataclass(slots=True)
class Flag(Node):
    kind: str  # ring, pop, merge, swap
    partner: Name | None = None


@dataclass(slots=True)
class RouteLine(Node):
    colour: Node
    region: Region
    positions: list[Position]
    flags: list[Flag]


@dataclass(slots=True)
class EdgeLine(Node):
    output: bool
    name: Name
    side: Name
    lanes: Node  # Range or ListOf
    colour: Node
    type: Name
    shape: list[Node] | None
    single: bool
