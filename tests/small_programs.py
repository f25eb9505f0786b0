"""Programs and outcomes put together by hand, for tests that need no assembler and no engine."""

from __future__ import annotations

import numpy as np
from waferloom.fabric.outcome import Cycle, Outcome, Wait, Waits
from waferloom.isa.element_types import ElementType
from waferloom.isa.instructions import encode
from waferloom.isa.program import (
    Kernel,
    Location,
    Port,
    Program,
    Route,
    RoutePosition,
    Symbol,
    Task,
    TaskKind,
)

SOURCE = "one\n    recv 0, r1\n    send 0, r1\nfour\n"
FILE = "ring.loom"


def kernel(*instructions, symbols=(), data_bytes=0, name="k", tasks=None) -> Kernel:
    """A kernel of (mnemonic, fields, line) rows; `line` is where it stands in `SOURCE`."""
    code, places = [], []
    for mnemonic, values, line in instructions:
        words = encode(mnemonic, values)
        code += words
        places += [Location(FILE, line, 5, 4)] * len(words)
    start = Task(0, "start", TaskKind.LOCAL, 0, entry=True)
    return Kernel(
        name,
        np.array(code, np.uint32),
        np.zeros(data_bytes, np.uint8),
        np.zeros(data_bytes, bool),
        {s.name: s for s in symbols},
        {0: start} if tasks is None else tasks,
        locations=places,
    )


def symbol(name: str, element: str, shape: tuple[int, ...], address: int = 0, group: int = 32) -> Symbol:
    """A data symbol; its bytes follow from type and shape."""
    kind = ElementType[element.upper()]
    elements = int(np.prod(shape, dtype=int))
    if kind in (ElementType.Q4, ElementType.Q8):
        nbytes = elements // group * (4 + group // 2 if kind is ElementType.Q4 else 2 + group)
    else:
        nbytes = elements * kind.bytes
    return Symbol(name, kind, shape, address, nbytes, group=group)


def program(width: int, height: int, kernels: list[Kernel], placement=None, **more) -> Program:
    """A grid of kernel 0 everywhere unless `placement` says otherwise; nothing bound, nothing routed."""
    grid = (height, width)
    return Program(
        "by hand",
        width,
        height,
        kernels,
        np.zeros(grid, np.int16) if placement is None else np.asarray(placement, np.int16),
        np.full((*grid, 8), -1, np.int8),
        np.full((*grid, 8), -1, np.int8),
        [],
        {},
        sources={FILE: SOURCE},
        **more,
    )


def route(made: Program, x: int, y: int, colour: int, inputs: str, outputs: str) -> None:
    """Add a route of one position; ports as letters N E S W R."""
    ports = {"N": Port.N, "E": Port.E, "S": Port.S, "W": Port.W, "R": Port.RAMP}
    position = RoutePosition(frozenset(ports[c] for c in inputs), frozenset(ports[c] for c in outputs))
    made.route_table.append(Route((position,)))
    table = made.routes.setdefault(colour, np.zeros((made.height, made.width), np.uint16))
    table[y, x] = len(made.route_table)


def two_pes_that_receive_first() -> Program:
    """2 x 1: each PE receives from the other (colours 0 east, 1 west) and would then send."""
    made = program(
        2, 1, [kernel(("recv", {"queue": 0, "ra": 1}, 2), ("send", {"queue": 0, "ra": 1}, 3), ("end", {}, 4))]
    )
    made.colour_names.update(east=0, west=1)
    made.out_colour[0, 0, 0], made.in_colour[0, 1, 0] = 0, 0
    made.out_colour[0, 1, 0], made.in_colour[0, 0, 0] = 1, 1
    route(made, 0, 0, 0, "R", "E")
    route(made, 1, 0, 0, "W", "R")
    route(made, 1, 0, 1, "R", "W")
    route(made, 0, 0, 1, "E", "R")
    return made


def outcome(
    made: Program, end: str = "hang", cycles: int = 100, waits: Waits | None = None, **more
) -> Outcome:
    """An outcome in which nothing was counted but idle cycles."""
    grid = (made.height, made.width)
    counters = np.zeros((*grid, len(Cycle)), np.int64)
    counters[..., Cycle.IDLE] = np.where(made.placement >= 0, cycles, 0)
    values = {
        "link_words": np.zeros((*grid, 5), np.int64),
        "registers": np.zeros((*grid, 16), np.uint32),
        "instructions": np.zeros(grid, np.int64),
        "done": np.zeros(grid, bool),
        "outputs": {},
        "last_issue": np.full(grid, -1, np.int64),
        **more,
    }
    if waits is None and end != "finished":
        waits = nobody_waits(made)
    return Outcome(end, cycles, counters, waits=waits, **values)


def nobody_waits(made: Program, **more) -> Waits:
    """All threads inactive, all queues empty."""
    grid = (made.height, made.width)
    return Waits(
        np.zeros((*grid, 9), np.int8),
        np.zeros((*grid, 9), np.int32),
        np.full((*grid, 9), -1, np.int8),
        np.zeros((*grid, 9), np.int64),
        np.full(grid, -1, np.int8),
        np.zeros((*grid, 8), np.int32),
        np.zeros((*grid, 8), np.int32),
        {},
        {},
        **more,
    )


def wait(waits: Waits, where, thread: int, state: Wait, pc: int, queue: int = 0, since: int = 7) -> None:
    """Let a thread of the PEs `where` (an index of an (H, W) array) wait."""
    for array, value in (
        (waits.state, state),
        (waits.pc, pc),
        (waits.queue, queue),
        (waits.since, since),
    ):
        array[..., thread][where] = value
    if thread == 0:
        waits.task[where] = 0
