"""A program's code as the engine runs it: decoded words, task tables, registers and microthreads in use."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...isa.instructions import (
    Decoded,
    IllegalInstruction,
    Unit,
    decode,
    rate_key,
    setup_key,
)
from ...isa.program import DESCRIPTORS, DescriptorKind, Kernel, Program
from ..outcome import Lane
from ..spec import MachineSpec
from .opcodes import ADDD, LDD, SETD
from .state import CODE, KERNEL, TASK

END_OF_CODE = -1


def decode_kernel(spec: MachineSpec, kernel: Kernel) -> np.ndarray:
    """(code words + 1,) CODE: every word decoded as the beginning of an instruction; the last entry is the
    end of the code."""
    words = [int(w) for w in kernel.code]
    out = np.zeros(len(words) + 1, CODE)
    known: dict[tuple[int, ...], np.ndarray] = {}
    for pc in range(len(words)):
        key = tuple(words[pc : pc + 2])
        if key not in known:
            known[key] = _decoded(spec, words, pc)
        out[pc] = known[key]
    out[-1]["op"] = END_OF_CODE
    return out


def _decoded(spec: MachineSpec, words: list[int], pc: int) -> np.ndarray:
    c = np.zeros((), CODE)
    c["word"] = words[pc]
    try:
        instruction = decode(words, pc)
    except IllegalInstruction:
        return c
    row, v = instruction.row, instruction.values
    c["op"], c["words"] = row.opcode, instruction.words
    c["rd"] = v.get("rd", v.get("dd", 0))
    c["ra"] = v.get("ra", v.get("da", 0))
    c["rb"] = v.get("rb", v.get("db", 0))
    for name in (
        "scalar",
        "advance_d",
        "advance_a",
        "advance_b",
        "asynchronous",
        "thread",
        "priority",
        "completion",
        "queue",
    ):
        c[name] = v.get(name, 0)
    c["task"] = v.get("launch_task", v.get("task", 0))
    for name in ("imm", "shift", "offset", "jump", "disp", "address", "part", "trap_code"):
        if name in v:
            c["imm"] = v[name]
    if "value" in v:
        c["imm"] = np.int64(v["value"]).astype(np.int32)
    if row.types:
        c["t"], c["s"] = instruction.types
    c["latency"] = {"floating": spec.engine.fp_latency, "integer": 1, "load": 1}.get(
        row.latency, spec.special.get(row.latency, 1)
    )
    if row.unit is Unit.VECTOR:
        _decode_vector(spec, instruction, c)
    return c


def _decode_vector(spec: MachineSpec, instruction: Decoded, c: np.ndarray) -> None:
    row, v = instruction.row, instruction.values
    t, s = instruction.types
    c["vector"], c["sources"], c["to_register"] = 1, row.sources, row.to_register
    c["lead"] = spec.lead(setup_key(row, t, s, bool(v.get("scalar", 0))))
    rate = spec.rate[rate_key(row, t, s)]
    c["per_cycle"] = max(1, round(rate))
    c["per_element"] = max(1, round(1 / rate))
    if "group" in v:
        c["group"] = (32, 16, 8, 4)[v["group"]]


def threads_in_use(program: Program) -> int:
    """Highest microthread number that any code word could name, plus one."""
    top = 0
    for kernel in program.kernels:
        words = [int(w) for w in kernel.code]
        for pc in range(len(words)):
            try:
                top = max(top, decode(words, pc).values.get("thread", -1) + 1)
            except IllegalInstruction:
                continue
    return top


def control_queues(kernel: Kernel) -> set[int]:
    """Output queues that may send control wavelets: named by `sendc`, or by a descriptor that `ldd` finds in
    the initial data. One that is made at run time stops the engine when it is loaded (scalars.py)."""
    queues: set[int] = set()
    words = [int(w) for w in kernel.code]
    for pc in range(len(words)):
        try:
            instruction = decode(words, pc)
        except IllegalInstruction:
            continue
        if instruction.row.name == "sendc":
            queues.add(instruction.values["queue"])
        if instruction.row.name == "ldd":
            address = instruction.values["address"]
            flags = int.from_bytes(kernel.data[address : address + 2].tobytes(), "little")
            if flags & 3 == DescriptorKind.FABRIC_OUT and flags >> 7 & 1 and not flags >> 9:
                queues.add(flags >> 4 & 7)
    return queues


def control_colours(program: Program, inputs: dict[str, list[Lane]]) -> set[int]:
    """Colours that can carry control wavelets: bound to a queue that `sendc` or a control descriptor uses,
    or fed by the host."""
    colours: set[int] = set()
    for index, kernel in enumerate(program.kernels):
        for queue in control_queues(kernel):
            bound = program.out_colour[program.placement == index][:, queue]
            colours.update(int(c) for c in np.unique(bound) if c >= 0)
    for name, lanes in inputs.items():
        if any(lane[1] is not None and np.any(lane[1]) for lane in lanes):
            colours.add(program.edge_ports[name].colour)
    if colours and any(route.swap for route in program.route_table):
        colours |= {c ^ 1 for c in colours}
    return colours


def _task_tables(program: Program) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    kernels = np.zeros(max(1, len(program.kernels)), KERNEL)
    slots = np.full((len(kernels), 40), -1, np.int8)
    rows = []
    for k, kernel in enumerate(program.kernels):
        kernels[k]["first_task"] = len(rows)
        kernels[k]["n_tasks"] = len(kernel.tasks)
        kernels[k]["data_bytes"] = len(kernel.data)
        kernels[k]["control_queues"] = sum(1 << queue for queue in control_queues(kernel))
        for slot, task in enumerate(sorted(kernel.tasks.values(), key=lambda task: task.id)):
            slots[k, task.id] = slot
            if task.queue >= 0:
                slots[k, 32 + task.queue] = slot
                kernels[k]["data_queues"] |= 1 << task.queue
            rows.append((task.id, task.kind, task.queue, task.priority, task.entry, task.blocked, task.pc))
    return kernels, slots, np.array(rows, TASK) if rows else np.zeros(1, TASK)


def _descriptor_slots(code: np.ndarray) -> np.ndarray:
    """(16,) int8: descriptor registers that occur in the code, numbered densely."""
    used: set[int] = set()
    vector = code[code["vector"] == 1]
    for name in ("rd", "ra", "rb"):
        used.update(int(r) for r in vector[name])
    for op in (LDD, SETD, ADDD):
        used.update(int(r) for r in code["rd"][code["op"] == op])
    slots = np.zeros(DESCRIPTORS, np.int8)
    for slot, register in enumerate(sorted(used)):
        slots[register] = slot
    return slots


@dataclass(frozen=True)
class Prepared:
    """What a run needs of a program's code, on one machine."""

    code: np.ndarray  # (words,) CODE
    kernels: np.ndarray  # (kernels,) KERNEL
    tasks: np.ndarray  # (tasks,) TASK
    task_slot: np.ndarray  # (kernels, 40)
    descriptor_slot: np.ndarray  # (16,)
    contexts: int


def prepare(spec: MachineSpec, program: Program) -> Prepared:
    """Decode and number everything that belongs to the code of a program."""
    kernels, task_slot, tasks = _task_tables(program)
    code = [decode_kernel(spec, kernel) for kernel in program.kernels] or [np.zeros(1, CODE)]
    starts = np.cumsum([0] + [len(c) for c in code])
    kernels["code"] = starts[:-1][: len(kernels)]
    kernels["code_words"] = [len(c) - 1 for c in code]
    code_all = np.concatenate(code)
    contexts = 1 + threads_in_use(program)
    return Prepared(code_all, kernels, tasks, task_slot, _descriptor_slots(code_all), contexts)
