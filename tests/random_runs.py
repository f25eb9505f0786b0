"""Whole random runs: a machine, a program on a small grid, what the host sends, and how the run is cut.

`random_run` takes its decisions from a `Choices`: from a seed, or from hypothesis, which can make a failing
run smaller. `repr` of a run is a listing that a person can read.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from random_kernels import Jobs, KernelBuilder, control_payload
from random_routes import Choices, Flow, SeededChoices, add_routes, random_flow, random_ring
from support import Grid
from waferloom.fabric.outcome import Outcome
from waferloom.fabric.spec import MachineSpec, machine
from waferloom.isa.disassembler import disassemble_kernel
from waferloom.isa.program import QUEUES, Port, Program

LONGEST = 2500  # cycles; the reference engine is slow
Inputs = dict[str, list[tuple]]  # as fabric/outcome.py says


@dataclass
class Run:
    """Everything a run needs, and what to call it."""

    spec: MachineSpec
    program: Program
    inputs: Inputs
    max_cycles: int
    strict: bool

    def execute(self, engine, **options) -> tuple[Outcome, np.ndarray, np.ndarray | None]:
        """(outcome, memory afterwards, bytes written) of a run on fresh memory."""
        program = self.program
        stride = -(-max([1, *(len(k.data) for k in program.kernels)]) // 8) * 8
        sram = np.zeros((program.width * program.height, stride), np.uint8)
        written = np.zeros(sram.shape, bool) if self.strict else None
        for row, index in enumerate(program.placement.ravel()):
            if index >= 0:
                kernel = program.kernels[index]
                sram[row, : len(kernel.data)] = kernel.data
                if written is not None:
                    written[row, : len(kernel.data)] = kernel.initialised
        outcome = engine(
            self.spec, program, sram, self.inputs, max_cycles=self.max_cycles, strict=written, **options
        )
        return outcome, sram, written

    def __repr__(self) -> str:
        return "\n".join(["", *_machine_lines(self.spec), *_program_lines(self.program), *self._host_lines()])

    def _host_lines(self) -> list[str]:
        lines = [f"at most {self.max_cycles} cycles{', strict' if self.strict else ''}"]
        for name, lanes in self.inputs.items():
            for words, control, *times in lanes:
                flags = [False] * len(words) if control is None else control
                sent = " ".join(f"{w:x}{'*' * bool(f)}" for w, f in zip(words, flags, strict=True))
                lines.append(f"host sends to {name}: {sent}   (*: control)")
                lines += [f"  not before {list(map(int, earliest))}" for earliest in times]
        return lines


def _machine_lines(spec: MachineSpec) -> list[str]:
    base, lines = dataclasses.asdict(machine("tiny")), ["machine: tiny, except"]
    for key, value in dataclasses.asdict(spec).items():
        if isinstance(value, dict):
            changed = {k: v for k, v in value.items() if base[key].get(k) != v}
            if changed:
                lines.append(f"  {key}: " + ", ".join(f"{k} = {v}" for k, v in changed.items()))
    return lines


def _program_lines(program: Program) -> list[str]:
    lines = [f"grid {program.width} x {program.height}"]
    for colour, table in sorted(program.routes.items()):
        for y, x in np.argwhere(table):
            route = program.route_at(x, y, colour)
            positions = [
                " -> ".join("/".join(port.name for port in sorted(side)) for side in (r.inputs, r.outputs))
                for r in route.positions
            ]
            options = [name for name in ("ring", "pop", "swap") if getattr(route, name)]
            lines.append(f"  colour {colour} at ({x},{y}): {' | '.join(positions)} {' '.join(options)}")
    for port in program.edge_ports.values():
        kind = "output" if port.output else "input"
        lines.append(f"  {kind} {port.name}: {port.side.name}, colour {port.colour}, lanes {port.lanes}")
    for y, x in np.argwhere(program.placement >= 0):
        bound = [
            f"{name} {queue} = {colour}"
            for name, table in (("in", program.in_colour), ("out", program.out_colour))
            for queue, colour in enumerate(table[y, x])
            if colour >= 0
        ]
        lines.append(f"PE ({x},{y}): kernel {program.placement[y, x]}; queues {', '.join(bound) or 'none'}")
    for number, kernel in enumerate(program.kernels):
        lines.append(f"kernel {number}: {len(kernel.data)} bytes of data")
        tasks = {task.pc: [] for task in kernel.tasks.values()}
        for task in kernel.tasks.values():
            words = [task.kind.name.lower(), f"queue {task.queue}" if task.queue >= 0 else ""]
            words += [name for name in ("priority", "entry", "blocked") if getattr(task, name)]
            tasks[task.pc].append(f" task {task.id} {' '.join(filter(None, words))}")
        for line in disassemble_kernel(kernel):
            lines += [*tasks.pop(int(line.split(":")[0], 16), []), "    " + line]
        lines += [text for here in tasks.values() for text in here]
        lines += _data_lines(kernel.data, kernel.initialised)
    return lines


def _data_lines(data: np.ndarray, initialised: np.ndarray) -> list[str]:
    lines = []
    for at in range(0, len(data), 32):
        row = data[at : at + 32]
        marks = initialised[at : at + 32]
        if row.any() or not marks.all():
            halves = [f"{low | high << 8:04x}" for low, high in row[: len(row) // 2 * 2].reshape(-1, 2)]
            halves = [h if m else "...." for h, m in zip(halves, marks[::2], strict=False)]
            lines.append(f"    data {at:4}: {' '.join(halves)}")
    return lines


# --- machines ---


def random_machine(c: Choices) -> MachineSpec:
    """`tiny`, or one whose every number is another."""
    spec = machine(c.pick(["tiny", "wse3", "wse2"]))
    fabric = {"livelock_cycles": c.pick([300, 1000])}
    if not c.chance(60):
        return dataclasses.replace(spec, fabric=dataclasses.replace(spec.fabric, **fabric))
    for key in ("hop", "ramp_up", "ramp_down"):
        fabric[key] = c.number(1, 4)
    fabric["buffer_depth"] = c.number(2, 4)
    engine = {
        "fp_latency": c.number(1, 5), "writeback": c.number(1, 5), "branch_not_taken": c.number(1, 4),
        "branch_taken": c.number(1, 7), "accumulators": c.number(0, 9),
    }  # fmt: skip
    rates = [8.0, 4.0, 2.0, 1.0, 3.0, 16.0, 0.5, 0.25]
    return dataclasses.replace(
        spec,
        fabric=dataclasses.replace(spec.fabric, **fabric),
        sram=dataclasses.replace(spec.sram, banks=c.pick([8, 4, 2, 1, 16])),
        queues=dataclasses.replace(
            spec.queues,
            in_depth=tuple(c.number(2, 5) for _ in range(QUEUES)),
            out_depth=tuple(c.number(2, 5) for _ in range(QUEUES)),
        ),
        engine=dataclasses.replace(spec.engine, **engine),
        setup={key: engine["writeback"] + c.number(0, 9) for key in spec.setup},
        rate={key: c.pick([value, *rates]) for key, value in spec.rate.items()},
        special={key: c.number(1, 25) for key in spec.special},
    )


# --- programs ---


def random_run(c: Choices) -> Run:
    """A whole run."""
    spec = random_machine(c)
    grid = Grid(c.pick([2, 1, 2, 3, 3, 4, 5]), c.pick([1, 1, 2, 2, 3, 4]))
    inputs: Inputs = {}
    jobs: dict[tuple[int, int], Jobs] = {
        (x, y): Jobs() for y in range(grid.height) for x in range(grid.width)
    }
    bound: dict[tuple[int, int], tuple[dict, dict]] = {place: ({}, {}) for place in jobs}
    wild = c.pick([0, 0, 0, 0, 2, 6])
    pairs = list(range(0, 24, 2))
    busiest = (c.number(0, grid.width - 1), c.number(0, grid.height - 1)) if c.chance(70) else None
    for _ in range(c.pick([1, 2, 3, 4, 5, 6, 7])):
        colour = pairs.pop(c.number(0, len(pairs) - 1)) + c.number(0, 1)
        if grid.width > 1 and grid.height > 1 and c.chance(3):
            flow = random_ring(c, grid, colour)
        else:
            flow = random_flow(c, grid, colour, busiest if c.chance(70) else None)
        stream = _host_stream(c, flow, wild)
        if _bind(c, spec, flow, jobs, bound):
            add_routes(c, grid, flow)
            _edges(grid, flow, inputs, stream)
    _place(c, grid, jobs, bound, wild)
    strict = c.chance(15)
    if strict:
        for kernel in grid.kernels:
            if c.chance(15):
                low = 4 * c.number(0, 20)
                kernel.initialised[low : low + 4 * c.number(1, 8)] = False
    max_cycles = c.number(1, 300) if c.chance(15) else LONGEST
    return Run(spec, grid.program(), inputs, max_cycles, strict)


def _bind(c: Choices, spec: MachineSpec, flow: Flow, jobs, bound) -> bool:
    """Give a flow its queues; False if a PE has none left."""
    wanted = [(place, 1, flow.nodes[place].colour) for place in flow.senders]
    wanted += [(place, 0, flow.nodes[place].out_colour) for place in flow.receivers]
    found = []
    for place, direction, colour in wanted:
        depths = (spec.queues.in_depth, spec.queues.out_depth)[direction]
        free = [q for q in range(len(depths)) if q not in bound[place][direction]]
        if not free:
            return False
        found.append((place, direction, colour, free))
    words = flow.words * len(flow.senders) + flow.host_words
    for place, direction, colour, free in found:
        queue = c.pick(free)
        bound[place][direction][queue] = colour
        if direction:
            jobs[place].sends[queue] = flow.words
            if flow.control:
                jobs[place].control_out.add(queue)
        else:
            jobs[place].receives[queue] = words
    return True


def _host_stream(c: Choices, flow: Flow, wild: int) -> tuple:
    """What the host sends into a flow, and sometimes when."""
    payload, control = _host_words(c, flow, wild)
    if not c.chance(30):
        return payload, control
    return payload, control, np.cumsum([c.pick([0, 1, 2, 9, 60]) for _ in payload], dtype=np.int64)


def _host_words(c: Choices, flow: Flow, wild: int) -> tuple[np.ndarray, np.ndarray | None]:
    if flow.edge_in is None:
        return np.zeros(0, np.uint32), None
    rng = np.random.default_rng(c.number(0, 999))
    payload = rng.integers(0, 1 << 32, flow.words).astype(np.uint32)
    flow.host_words = flow.words
    if not flow.control:
        return payload, None
    control = np.array([c.chance(40) for _ in payload], bool)
    for k in np.flatnonzero(control):
        payload[k] = control_payload(c, wild)
    flow.host_words -= int(control.sum())
    return payload, control


def _edges(grid: Grid, flow: Flow, inputs: Inputs, stream) -> None:
    """Edge ports of a flow."""
    if flow.edge_in is not None:
        name, root = f"in{flow.colour}", flow.nodes[flow.root]
        grid.port(name, False, flow.edge_in, root.colour, (_lane(flow.root, flow.edge_in),))
        inputs[name] = [stream]
    ports: dict[tuple[Port, int], list[int]] = {}
    for place, side in flow.edge_out.items():
        ports.setdefault((side, flow.nodes[place].out_colour), []).append(_lane(place, side))
    for (side, colour), lanes in ports.items():
        grid.port(f"out{colour}{side.name}", True, side, colour, tuple(lanes))


def _lane(place: tuple[int, int], side: Port) -> int:
    return place[0] if side in (Port.N, Port.S) else place[1]


def _place(c: Choices, grid: Grid, jobs, bound, wild: int) -> None:
    """A kernel for every PE that has something to do, and for some others."""
    idle: int | None = None  # a kernel that several PEs share
    for place, job in jobs.items():
        receives, sends = bound[place]
        if not receives and not sends:
            if c.chance(50):
                continue
            if idle is None:
                idle = len(grid.kernels)
                grid.place(KernelBuilder(c, job, wild).build(), place)
            grid.placement[place[1], place[0]] = idle
            continue
        grid.place(KernelBuilder(c, job, wild).build(), place, receives=receives, sends=sends)


# --- sources of decisions ---


def seeded_run(seed: int) -> Run:
    """The run of a seed."""
    return random_run(SeededChoices(seed))


class _DrawnChoices(Choices):
    """Decisions that hypothesis takes and shrinks."""

    def __init__(self, draw) -> None:
        self.draw = draw

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high)) if high > low else low


@st.composite
def runs(draw) -> Run:
    """The hypothesis strategy."""
    return random_run(_DrawnChoices(draw))
