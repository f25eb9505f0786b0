"""A whole program as source text that assembles to the same program: kernels, data, code, layout.

What the source had and the program has not (comments, loops, expressions, places) is gone; everything else
comes back. `UnwritableProgram` names what source cannot say; programs made by the assembler never need it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np

from .data_text import UnwritableProgram, data_lines, number_text
from .disassembler import code_lines
from .element_types import ElementType
from .instructions import Decoded
from .program import COLOURS, EdgePort, Kernel, Port, Program, Route, Task, TaskKind
from .regions import rectangles, span
from .spelling import Names, Unspeakable

__all__ = ["UnwritableProgram", "disassemble"]


_SIDES = {Port.N: "north", Port.E: "east", Port.S: "south", Port.W: "west"}


def disassemble(program: Program) -> str:
    """Source text of `program`: `assemble(disassemble(p))` equals `p` up to source places."""
    lines = [f"; {program.name}: {program.width} x {program.height} PEs"]
    if program.machine:
        lines.append(f'.machine "{program.machine}"')
    lines += [f".param {name} = {value}" for name, value in program.parameters.items()]
    by_number = sorted(program.colour_names.items(), key=lambda item: (item[1], item[0]))
    lines += [f".colour {name} = {number}" for name, number in by_number]
    for kernel in program.kernels:
        lines += ["", *_kernel(kernel, program.parameters)]
    lines += ["", ".layout", f"  grid {program.width}, {program.height}"]
    lines += [f"  {line}" for line in _placement(program)]
    lines += [f"  {line}" for line in _routes(program)]
    lines += [f"  {_edge_port(port, program)}" for port in program.edge_ports.values()]
    return "\n".join(lines) + "\n"


# --- kernels ---


def _kernel(kernel: Kernel, parameters: Mapping[str, int]) -> Iterator[str]:
    yield f".kernel {kernel.name}"
    queues = [("in", *item) for item in sorted(kernel.in_queues.items())]
    queues += [("out", *item) for item in sorted(kernel.out_queues.items())]
    if queues:
        yield ".queues"
        for direction, number, name in queues:
            yield f"  {direction} {name}: {number}"
    if kernel.symbols or len(kernel.data):
        yield ".data"
        for line in data_lines(kernel):
            yield f"  {line}"
    yield ".code"
    yield from _code(kernel, parameters)


def _code(kernel: Kernel, parameters: Mapping[str, int]) -> Iterator[str]:
    tasks: dict[int, list[Task]] = {}
    for _, task in sorted(kernel.tasks.items()):
        tasks.setdefault(task.pc, []).append(task)
    labels: dict[int, list[str]] = {}
    for name, pc in sorted(kernel.labels.items(), key=lambda item: (item[1], item[0])):
        labels.setdefault(pc, []).append(name)
    names = _names(kernel, labels, parameters)

    def heads(pc: int) -> Iterator[str]:
        for task in tasks.get(pc, []):
            yield f"  {_task(task, kernel)}"
        for name in labels.get(pc, []):
            yield f"  {name}:"

    for line in code_lines(kernel.code, names, frozenset([*tasks, *labels])):
        yield from heads(line.pc)
        yield f"    {line.text}" + (f"  ; {line.remark}" if line.remark else "")
    yield from heads(len(kernel.code))


def _names(kernel: Kernel, labels: Mapping[int, list[str]], parameters: Mapping[str, int]) -> Names:
    """What the kernel's source may call things; what it cannot call anything is unspeakable."""
    end = len(kernel.code)

    def label(pc: int) -> str | None:
        if not 0 <= pc <= end:
            raise Unspeakable("it leads out of the code")
        return labels[pc][0] if pc in labels else None

    def task(number: int, local: bool) -> str:
        found = kernel.tasks.get(number)
        if found is None:
            raise Unspeakable(f"no task has id {number}")
        if local and found.kind is not TaskKind.LOCAL:
            raise Unspeakable(f"task {found.name} is not local")
        return str(number) if found.name in parameters else found.name

    def queue(names: Mapping[int, str], number: int) -> str:
        if number not in names:
            raise Unspeakable(f"queue {number} has no name")
        return names[number]

    def address(number: int, instruction: Decoded) -> str:
        for symbol in sorted(kernel.symbols.values(), key=lambda s: s.name):
            if symbol.address != number or symbol.name in parameters:
                continue
            if instruction.row.name == "ldd":
                if symbol.role == "descriptor":
                    return symbol.name
            elif symbol.role == "data" and symbol.element is instruction.types[0]:
                return symbol.name
        return str(number)

    return Names(
        label,
        task,
        lambda number: queue(kernel.in_queues, number),
        lambda number: queue(kernel.out_queues, number),
        address,
    )


def _task(task: Task, kernel: Kernel) -> str:
    words = ["task", task.name]
    if task.kind is TaskKind.DATA:
        words += ["data", kernel.in_queues.get(task.queue, str(task.queue)), "id", str(task.id)]
    elif task.kind is TaskKind.CONTROL:
        words += ["control", str(task.id)]
    else:
        words += ["id", str(task.id)]
    words += ["entry"] * task.entry + ["blocked"] * task.blocked + ["priority high"] * task.priority
    return " ".join(words)


# --- layout ---


def _placement(program: Program) -> Iterator[str]:
    """`place` lines; a value per PE is written as an expression of x and y where it is linear in them."""
    classes = _classes(program)
    formulas: dict[tuple[int, str], str] = {}
    split: np.ndarray = classes
    for name, values in sorted(program.pe_values.items()):
        for number in np.unique(classes[classes >= 0]).tolist():
            mask = classes == number
            y, x = (int(i) for i in np.argwhere(mask)[0])
            kernel = program.kernels[int(program.placement[y, x])]
            if not _has_scalar(kernel, name):
                continue
            formula = _linear(values, mask, kernel.symbols[name].element)
            if formula is not None:
                formulas[number, name] = formula
            else:
                _, each = np.unique(values, return_inverse=True)
                finer = np.where(mask, each.reshape(values.shape) + 1, 0)
                _, mixed = np.unique(split * (int(finer.max()) + 1) + finer, return_inverse=True)
                split = mixed.reshape(values.shape)
    split = np.where(program.placement < 0, -1, split)
    for rectangle, _ in rectangles(split, -1):
        x, y = rectangle.x0, rectangle.y0
        kernel = program.kernels[int(program.placement[y, x])]
        bindings = [*_bindings(program, kernel, x, y)]
        for name, values in sorted(program.pe_values.items()):
            if _has_scalar(kernel, name):
                constant = number_text(int(values[y, x]), kernel.symbols[name].element)
                bindings.append(f"{name} = {formulas.get((int(classes[y, x]), name), constant)}")
        braces = f" {{ {', '.join(bindings)} }}" if bindings else ""
        yield f"place {kernel.name} at {rectangle}{braces}"


def _classes(program: Program) -> np.ndarray:
    """(H, W) numbers: equal where kernel and bindings are equal, -1 where there is no kernel."""
    label = program.placement.astype(np.int64)
    for table in (program.in_colour, program.out_colour):
        for queue in range(table.shape[2]):
            colours = table[..., queue]
            if (colours != colours[0, 0]).any():
                _, label = np.unique(label * (COLOURS + 1) + colours + 1, return_inverse=True)
                label = label.reshape(program.placement.shape)
    label[program.placement < 0] = -1
    return label


def _bindings(program: Program, kernel: Kernel, x: int, y: int) -> Iterator[str]:
    for table, queues in ((program.in_colour, kernel.in_queues), (program.out_colour, kernel.out_queues)):
        for queue, colour in enumerate(table[y, x].tolist()):
            if queue in queues:
                yield f"{queues[queue]} = {'none' if colour < 0 else _colour(program, colour)}"
            elif colour >= 0:
                raise UnwritableProgram(f"queue {queue} of kernel `{kernel.name}` is bound but has no name")


def _has_scalar(kernel: Kernel, name: str) -> bool:
    return name in kernel.symbols and kernel.symbols[name].shape == () and kernel.symbols[name].role == "data"


def _linear(values: np.ndarray, mask: np.ndarray, element: ElementType) -> str | None:
    """The values under the mask as text `a + b * x + c * y`, if they are that; None otherwise."""
    ys, xs = np.nonzero(mask)
    here = values[mask].astype(np.int64)
    if (here == here[0]).all():
        return number_text(int(here[0]), element)
    if element.is_float:
        return None
    along_x = _step(xs, ys, here)
    along_y = _step(ys, xs, here)
    start = here[0] - along_x * xs[0] - along_y * ys[0]
    if not (start + along_x * xs + along_y * ys == here).all():
        return None
    terms = [f"{factor} * {name}" for factor, name in ((along_x, "x"), (along_y, "y")) if factor]
    return " + ".join([*terms, str(start)] if start else terms).replace("+ -", "- ")


def _step(along: np.ndarray, across: np.ndarray, values: np.ndarray) -> int:
    """The difference of two PEs that are neighbours in one direction, per step; 0 if there are none."""
    order = np.lexsort((along, across))
    same = np.flatnonzero(across[order][1:] == across[order][:-1])
    if not same.size:
        return 0
    first, second = order[same[0]], order[same[0] + 1]
    return int(values[second] - values[first]) // int(along[second] - along[first])


def _colour(program: Program, number: int) -> str:
    hidden = ("x", "y", "none")  # have another meaning in a layout
    names = sorted(n for n, value in program.colour_names.items() if value == number and n not in hidden)
    return names[0] if names else str(number)


def _routes(program: Program) -> Iterator[str]:
    """Route lines in the order of the route table, so that it comes out in the same order again."""
    found = []
    for colour, table in sorted(program.routes.items()):
        for rectangle, index in rectangles(table.astype(np.int64), 0):
            found.append((index, colour, rectangle))
    for index, colour, rectangle in sorted(found):
        yield f"route {_colour(program, colour)} at {rectangle}: {_route(program.route_table[index - 1])}"


def _route(route: Route) -> str:
    positions = " | ".join(f"{_ports(p.inputs)} -> {_ports(p.outputs)}" for p in route.positions)
    flags = [flag for flag in ("ring", "pop", "merge", "swap") if getattr(route, flag)]
    return " ".join([positions, *flags])


def _ports(ports: frozenset[Port]) -> str:
    return ", ".join(port.name for port in sorted(ports))


def _edge_port(port: EdgePort, program: Program) -> str:
    direction = "output" if port.output else "input"
    shape = f"[{', '.join(map(str, port.shape))}]" if port.shape else ""
    single = " single" if port.element.bits == 16 and not port.packed else ""
    return (
        f"{direction} {port.name} on {_SIDES[port.side]} lanes {_lanes(port.lanes)} "
        f"colour {_colour(program, port.colour)}: {port.element.source_name}{shape}{single}"
    )


def _lanes(lanes: Sequence[int]) -> str:
    steps = {b - a for a, b in pairwise(lanes)}
    if len(lanes) == 1 or (len(steps) == 1 and min(steps) > 0):
        return span(lanes[0], lanes[-1], min(steps, default=1))
    return f"[{', '.join(map(str, lanes))}]"
