"""Puts a program onto the engine: decoded code, task tables, the elaborated fabric and empty PEs as one
State."""

from __future__ import annotations

import numpy as np

from ...isa.instructions import (
    INSTRUCTIONS,
    Decoded,
    IllegalInstruction,
    Unit,
    decode,
    rate_key,
    setup_key,
)
from ...isa.program import DESCRIPTORS, DescriptorKind, Kernel, Program
from ..outcome import Cycle, Lane
from ..spec import MachineSpec
from .contention import watch_arrays
from .dispatch import NOT_LOADED
from .graph import Graph, elaborate
from .pipes import RESERVE
from .stages import EDGE_OUT, RAMP_DOWN, route_bits
from .state import (
    ARBITER,
    CHANNEL,
    CODE,
    COST_ENTRIES,
    COST_FIELDS,
    KERNEL,
    MACHINE,
    NEVER,
    OPERAND,
    PE,
    PIPE,
    ROUTE,
    RUN,
    SOURCE,
    TASK,
    VECTOR,
)
from .state_table import State

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
    by_name = {row.name: row.opcode for row in INSTRUCTIONS}
    for op in ("ldd", "setd", "addd"):
        used.update(int(r) for r in code["rd"][code["op"] == by_name[op]])
    slots = np.zeros(DESCRIPTORS, np.int8)
    for slot, register in enumerate(sorted(used)):
        slots[register] = slot
    return slots


def load(
    spec: MachineSpec,
    program: Program,
    sram: np.ndarray,
    inputs: dict[str, list[Lane]],
    max_cycles: int | None,
    strict: np.ndarray | None,
    contended: np.ndarray,
) -> tuple[State, Graph]:
    """Everything a run needs, as it stands before cycle 0.

    `sram` (n, stride) uint8 is used in place; `contended` (n, 5) bool: links to arbitrate. Raises Rejected
    for routes that lead nowhere.
    """
    control = control_colours(program, inputs)
    graph = elaborate(spec, program, control, contended)
    n = program.width * program.height
    kernels, task_slot, tasks = _task_tables(program)
    code = [decode_kernel(spec, kernel) for kernel in program.kernels] or [np.zeros(1, CODE)]
    starts = np.cumsum([0] + [len(c) for c in code])
    kernels["code"] = starts[:-1][: len(kernels)]
    kernels["code_words"] = [len(c) - 1 for c in code]
    code_all = np.concatenate(code)
    descriptor_slot = _descriptor_slots(code_all)
    descriptor_count = int(descriptor_slot.max()) + 1
    slots = max(1, int(kernels["n_tasks"].max()))
    contexts = 1 + threads_in_use(program)
    source_lanes = [
        lane
        for name, port in program.edge_ports.items()
        if not port.output
        for lane in _lanes(inputs, name, len(port.lanes))
    ]

    machine = np.zeros(1, MACHINE)
    channels = len(graph.channel_router)
    arbiter_of, arbiters = _arbiters(graph)
    items = n + channels + len(arbiters) + len(graph.source_pipe)
    for name, value in {
        "pes": n,
        "contexts": contexts,
        "first_channel": n,
        "first_arbiter": n + channels,
        "first_source": n + channels + len(arbiters),
        "fp_latency": spec.engine.fp_latency,
        "writeback": spec.engine.writeback,
        "branch_not_taken": spec.engine.branch_not_taken,
        "branch_taken": spec.engine.branch_taken,
        "accumulators": spec.engine.accumulators,
        "bytes_per_cycle": spec.sram.bytes_per_cycle,
        "banks": spec.sram.banks,
        "stride": sram.shape[1],
        "strict": strict is not None,
        "descriptors": descriptor_count,
        "slots": slots,
        "livelock": spec.fabric.livelock_cycles,
    }.items():
        machine[name] = value
    run = np.zeros(1, RUN)
    run["limit"] = NEVER if max_cycles is None else max_cycles
    run["fault_cycle"] = NEVER
    run["last"] = run["progress"] = -1

    flat = sram.reshape(-1)
    total_words = sum(len(lane[0]) for lane in source_lanes)
    capacity = 2 * RESERVE + max(1 << 12, total_words)
    pipes, ring_slots = _pipes(graph, program, n, channels, arbiter_of, machine[0])
    state = State(
        machine=machine,
        run=run,
        code=code_all,
        kernels=kernels,
        tasks=tasks,
        task_slot=task_slot,
        sram8=flat,
        sram16=flat.view(np.uint16),
        sram32=flat.view(np.uint32),
        written=strict.reshape(-1) if strict is not None else np.zeros(0, np.bool_),
        pes=_pes(program, kernels, tasks, task_slot, graph, control),
        registers=np.zeros((n, 16), np.uint32),
        ready=np.zeros((n, 16), np.int64),
        descriptors=_blank_descriptors(n * descriptor_count),
        descriptor_slot=descriptor_slot,
        task_time=np.full(n * slots, -1, np.int64),
        counters=np.zeros((n, len(Cycle)), np.int64),
        recent=np.zeros((n, 8), np.uint16),
        pe_in=np.ascontiguousarray(graph.pe_in),
        pe_out=np.ascontiguousarray(graph.pe_out),
        vectors=np.zeros(n * contexts, VECTOR),
        operands=np.zeros(n * contexts * 3, OPERAND),
        costs=np.zeros((COST_ENTRIES, COST_FIELDS), np.int32),
        pipes=pipes,
        ring_value=np.zeros(ring_slots, np.uint32),
        ring_time=np.zeros(ring_slots, np.int64),
        channels=_channels(graph, arbiter_of),
        channel_in=np.ascontiguousarray(graph.channel_in, np.int32),
        channel_out=np.ascontiguousarray(graph.channel_out, np.int32),
        **watch_arrays(graph.channel_watched, graph.channel_router),
        routes=_routes(program),
        arbiters=arbiters,
        sources=_sources(graph, source_lanes),
        source_word=_joined([lane[0] for lane in source_lanes], np.uint32),
        source_control=_joined([_flags(lane[0], lane[1]) for lane in source_lanes], np.bool_),
        source_time=_joined(
            [lane[2] if len(lane) == 3 else np.zeros(len(lane[0]), np.int64) for lane in source_lanes],
            np.int64,
        ),
        sunk_word=np.zeros(capacity, np.uint32),
        sunk_time=np.zeros(capacity, np.int64),
        sunk_lane=np.zeros(capacity, np.int32),
        queued=np.zeros(items, np.bool_),
        event=np.full(items, NEVER, np.int64),
        work=np.zeros(items + 1, np.int32),
        heap_time=np.zeros(2 * items + 64, np.int64),
        heap_item=np.zeros(2 * items + 64, np.int32),
    )
    return state, graph


def _lanes(inputs: dict[str, list[Lane]], name: str, count: int) -> list[Lane]:
    return inputs.get(name) or [(np.zeros(0, np.uint32), None)] * count


def _flags(payload: np.ndarray, control: np.ndarray | None) -> np.ndarray:
    return np.zeros(len(payload), np.bool_) if control is None else np.asarray(control, np.bool_)


def _joined(parts: list[np.ndarray], dtype: type) -> np.ndarray:
    return np.concatenate(parts).astype(dtype) if parts else np.zeros(0, dtype)


def _blank_descriptors(count: int) -> np.ndarray:
    descriptors = np.zeros((count, 10), np.uint16)
    descriptors[:, 0] = NOT_LOADED
    return descriptors


def _arbiters(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """(arbiter of each channel or -1, ARBITER records): one per router with contended links."""
    of = np.full(len(graph.channel_router), -1, np.int32)
    contended = np.flatnonzero(graph.channel_arbitrated)
    if not len(contended):
        return of, np.zeros(0, ARBITER)
    routers, first, inverse, count = np.unique(
        graph.channel_router[contended], return_index=True, return_inverse=True, return_counts=True
    )
    of[contended] = inverse
    arbiters = np.zeros(len(routers), ARBITER)
    arbiters["first"] = contended[first]
    arbiters["count"] = count
    arbiters["last"] = -1
    return of, arbiters


def _pipes(
    graph: Graph, program: Program, n: int, channels: int, arbiter_of: np.ndarray, machine: np.ndarray
) -> tuple[np.ndarray, int]:
    """(PIPE records with consumers and producers, ring slots in all)."""
    stages = graph.stages
    count = len(graph.pipe_first)
    pipes = np.zeros(count, PIPE)
    last, first = graph.pipe_last, graph.pipe_first
    to_host = stages.kind[last] == EDGE_OUT
    pipes["to_host"] = to_host
    pipes["capacity"] = np.where(to_host, 1, graph.pipe_capacity)
    pipes["latency"] = graph.pipe_latency
    pipes["reverse"] = graph.pipe_reverse
    pipes["last_stage"] = last
    pipes["base"] = np.concatenate([[0], np.cumsum(pipes["capacity"].astype(np.int64))[:-1]]) if count else 0
    consumer = np.full(count + 1, -1, np.int64)
    producer = np.full(count + 1, -1, np.int64)
    item = np.where(
        arbiter_of >= 0, machine["first_arbiter"] + arbiter_of, machine["first_channel"] + np.arange(channels)
    )
    for port in range(5):
        consumer[graph.channel_in[:, port]] = item
        producer[graph.channel_out[:, port]] = item
    consumer, producer = consumer[:-1], producer[:-1]
    down = stages.kind[last] == RAMP_DOWN
    consumer[down] = stages.target[last[down]]
    consumer[to_host] = stages.lane[last[to_host]]
    up = np.isin(np.arange(count), graph.pe_out)
    producer[up] = stages.source[first[up]]
    producer[graph.source_pipe] = machine["first_source"] + np.arange(len(graph.source_pipe))
    pipes["consumer"], pipes["producer"] = consumer, producer
    pipes["consumer_waits"] = (consumer >= n) & ~to_host  # channels have nothing to do before a wavelet comes
    return pipes, int(pipes["capacity"].sum(dtype=np.int64)) + 1


def _channels(graph: Graph, arbiter_of: np.ndarray) -> np.ndarray:
    channels = np.zeros(len(graph.channel_router), CHANNEL)
    channels["route"] = graph.channel_route
    channels["router"] = graph.channel_router
    channels["colour"] = graph.channel_colour
    channels["arbiter"] = arbiter_of
    return channels


def _routes(program: Program) -> np.ndarray:
    bits = route_bits(program)
    routes = np.zeros(len(program.route_table) + 1, ROUTE)
    for k, route in enumerate(program.route_table, 1):
        routes[k]["positions"] = len(route.positions)
        routes[k]["ring"], routes[k]["pop"] = route.ring, route.pop
    routes["inputs"], routes["outputs"] = bits.position_inputs, bits.position_outputs
    return routes


def _sources(graph: Graph, lanes: list[Lane]) -> np.ndarray:
    sources = np.zeros(len(graph.source_pipe), SOURCE)
    lengths = np.array([len(lane[0]) for lane in lanes], np.int64)
    sources["stop"] = np.cumsum(lengths)
    sources["next"] = sources["stop"] - lengths
    sources["pipe"] = graph.source_pipe
    return sources


def _pes(
    program: Program,
    kernels: np.ndarray,
    tasks: np.ndarray,
    task_slot: np.ndarray,
    graph: Graph,
    control: set[int],
) -> np.ndarray:
    n = program.width * program.height
    pes = np.zeros(n, PE)
    pes["kernel"] = program.placement.reshape(-1)
    pes["task"] = -1
    pes["last_issue"] = -1
    pes["last_thread"] = 8
    pes["stopped"] = pes["kernel"] < 0
    may_control = np.isin(program.in_colour.reshape(n, -1), list(control))
    bits = 1 << np.arange(may_control.shape[1])
    arrivals = (may_control * bits).sum(axis=1)
    for k in range(len(program.kernels)):
        row = kernels[k]
        mine = tasks[row["first_task"] : row["first_task"] + row["n_tasks"]]
        at = pes["kernel"] == k
        entry = sum(1 << slot for slot in range(len(mine)) if mine[slot]["entry"])
        blocked = sum(1 << slot for slot in range(len(mine)) if mine[slot]["blocked"])
        pes["pending"][at] = entry
        pes["blocked"][at] = blocked
        arrivals[at] |= row["data_queues"]
    connected = ((graph.pe_in >= 0) * bits).sum(axis=1)
    pes["arrivals"] = arrivals & connected
    return pes
