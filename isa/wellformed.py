"""What makes a `Program` well-formed: shapes, types and ranges of everything it holds, whoever made it.

These are the rules that let an engine index its tables without looking. Whether a well-formed program makes
sense (routes that lead somewhere, queues that are bound) is checked elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from .program import (
    COLOURS,
    MAX_SWITCH_POSITIONS,
    QUEUES,
    TASKS,
    EdgePort,
    Kernel,
    Port,
    Program,
    Route,
    TaskKind,
)

MAX_SIDE = 1 << 15
SRAM_LIMIT = 1 << 16  # addresses have 16 bits

Violation = tuple[str, str]  # (key, violated rule)


def violations(program: Program) -> Iterator[Violation]:
    """Every violated rule with the key it concerns; nothing if the program is well-formed."""
    for key in ("width", "height"):
        if not 1 <= getattr(program, key) <= MAX_SIDE:
            yield key, f"{getattr(program, key)} is outside 1..{MAX_SIDE}"
            return
    grid = (program.height, program.width)
    yield from _array("placement", program.placement, np.int16, grid, -1, len(program.kernels) - 1)
    for key in ("in_colour", "out_colour"):
        yield from _array(key, getattr(program, key), np.int8, (*grid, QUEUES), -1, COLOURS - 1)
    for colour, table in program.routes.items():
        yield from _range("routes", colour, 0, COLOURS - 1)
        yield from _array(f"routes.{colour}", table, np.uint16, grid, 0, len(program.route_table))
    for i, route in enumerate(program.route_table):
        yield from _route(f"route_table.{i}", route)
    for name, port in program.edge_ports.items():
        yield from _edge_port(f"edge_ports.{name}", name, port, program)
    for name, values in program.pe_values.items():
        yield from _array(f"pe_values.{name}", values, np.uint32, grid, 0, (1 << 32) - 1)
    for name, colour in program.colour_names.items():
        yield from _range(f"colour_names.{name}", colour, 0, COLOURS - 1)
    for name, value in program.parameters.items():
        if type(value) is not int:
            yield f"parameters.{name}", f"{value!r} is not a whole number"
    for i, kernel in enumerate(program.kernels):
        yield from _kernel(f"kernels.{i}", kernel)


def _range(key: str, value: int, low: int, high: int) -> Iterator[Violation]:
    if not low <= value <= high:
        yield key, f"{value} is outside {low}..{high}"


def _array(
    key: str,
    array: np.ndarray,
    dtype: type,
    shape: Sequence[int],
    low: int | None = None,
    high: int | None = None,
) -> Iterator[Violation]:
    """Type, shape and, if given, the legal range of an array's elements."""
    if array.dtype != dtype:
        yield key, f"elements are {array.dtype}, not {np.dtype(dtype)}"
    elif array.shape != tuple(shape):
        yield key, f"shape {list(array.shape)} is not {list(shape)}"
    elif low is not None and high is not None and array.size:
        least, most = int(array.min()), int(array.max())
        if least < low or most > high:
            yield key, f"holds {least if least < low else most}, outside {low}..{high}"


def _route(key: str, route: Route) -> Iterator[Violation]:
    count = len(route.positions)
    if not 1 <= count <= MAX_SWITCH_POSITIONS:
        yield f"{key}.positions", f"{count} positions: 1..{MAX_SWITCH_POSITIONS} are possible"
    for i, position in enumerate(route.positions):
        if not position.inputs:
            yield f"{key}.positions.{i}", "no input port"


def _edge_port(key: str, name: str, port: EdgePort, program: Program) -> Iterator[Violation]:
    if port.name != name:
        yield f"{key}.name", f"`{port.name}` is not `{name}`"
    yield from _range(f"{key}.colour", port.colour, 0, COLOURS - 1)
    if port.side is Port.RAMP:
        yield f"{key}.side", "RAMP is not a side of the grid"
    length = program.width if port.side in (Port.N, Port.S) else program.height
    for lane in port.lanes:
        yield from _range(f"{key}.lanes", lane, 0, length - 1)
    if len(set(port.lanes)) != len(port.lanes):
        yield f"{key}.lanes", "a router occurs twice"
    for extent in port.shape:
        yield from _range(f"{key}.shape", extent, 0, (1 << 31) - 1)


def _kernel(key: str, kernel: Kernel) -> Iterator[Violation]:
    for field in ("code", "data", "initialised"):
        if getattr(kernel, field).ndim != 1:
            yield f"{key}.{field}", f"shape {list(getattr(kernel, field).shape)} is not one dimension"
            return
    words, data_bytes = len(kernel.code), len(kernel.data)
    yield from _array(f"{key}.code", kernel.code, np.uint32, (words,))
    yield from _array(f"{key}.data", kernel.data, np.uint8, (data_bytes,))
    yield from _array(f"{key}.initialised", kernel.initialised, np.bool_, (data_bytes,))
    if kernel.sram_bytes > SRAM_LIMIT:
        yield f"{key}", f"{kernel.sram_bytes} bytes of data and code do not fit in 16-bit addresses"
    if len(kernel.locations) not in (0, words):
        yield f"{key}.locations", f"{len(kernel.locations)} places for {words} words of code"
    for name, symbol in kernel.symbols.items():
        if symbol.name != name:
            yield f"{key}.symbols.{name}.name", f"`{symbol.name}` is not `{name}`"
        if symbol.address < 0 or symbol.nbytes < 0 or symbol.address + symbol.nbytes > data_bytes:
            rule = f"{symbol.nbytes} bytes at address {symbol.address} are outside {data_bytes} bytes of data"
            yield f"{key}.symbols.{name}", rule
        for extent in symbol.shape:
            yield from _range(f"{key}.symbols.{name}.shape", extent, 0, SRAM_LIMIT)
    for number, task in kernel.tasks.items():
        where = f"{key}.tasks.{number}"
        if task.id != number:
            yield f"{where}.id", f"{task.id} is not {number}"
        yield from _range(f"{where}.id", task.id, 0, TASKS - 1)
        yield from _range(f"{where}.pc", task.pc, 0, words)  # at the end: a fault when it runs
        yield from _range(f"{where}.priority", task.priority, 0, 1)
        data = task.kind is TaskKind.DATA
        yield from _range(f"{where}.queue", task.queue, 0 if data else -1, QUEUES - 1 if data else -1)
    for name, pc in kernel.labels.items():
        yield from _range(f"{key}.labels.{name}", pc, 0, words)
    for field in ("in_queues", "out_queues"):
        for queue in getattr(kernel, field):
            yield from _range(f"{key}.{field}", queue, 0, QUEUES - 1)
