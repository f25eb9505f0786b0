"""Puts a program onto the engine: its code, the elaborated fabric and empty PEs as one State."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...isa.program import Program
from ..outcome import Cycle, Lane
from ..spec import MachineSpec
from .code import Prepared, control_colours, prepare
from .contention import watch_arrays
from .dispatch import NOT_LOADED
from .graph import Graph, elaborate
from .kept import kept
from .pipes import RESERVE
from .stages import EDGE_OUT, RAMP_DOWN, route_bits
from .state import (
    ARBITER,
    CHANNEL,
    COST_ENTRIES,
    COST_FIELDS,
    MACHINE,
    NEVER,
    OPERAND,
    PE,
    PIPE,
    ROUTE,
    RUN,
    SOURCE,
    VECTOR,
)
from .state_table import State


@dataclass(frozen=True)
class Elaborated:
    """What a run needs of a program's fabric, on one machine, with some links arbitrated."""

    graph: Graph
    arbiters: np.ndarray
    channels: np.ndarray
    pipes: np.ndarray
    ring_slots: int
    pes: np.ndarray


def _elaborate(
    spec: MachineSpec, program: Program, prepared: Prepared, control: frozenset[int], contended: np.ndarray
) -> Elaborated:
    graph = elaborate(spec, program, set(control), contended)
    arbiter_of, arbiters = _arbiters(graph)
    pipes, ring_slots = _pipes(graph, program.width * program.height, arbiter_of, len(arbiters))
    pes = _pes(program, prepared.kernels, prepared.tasks, prepared.task_slot, graph, set(control))
    return Elaborated(graph, arbiters, _channels(graph, arbiter_of), pipes, ring_slots, pes)


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
    n = program.width * program.height
    prepared = kept(program, ("code", spec), lambda: prepare(spec, program))
    # The host's own control wavelets depend on the run, those of the code do not.
    control = kept(program, "control", lambda: frozenset(control_colours(program, {})))
    if any(lane[1] is not None and np.any(lane[1]) for lanes in inputs.values() for lane in lanes):
        control = frozenset(control_colours(program, inputs))
    known = int(contended.sum())  # links are only ever added, so their number says which
    elaborated = kept(
        program,
        ("fabric", spec, control, known),
        lambda: _elaborate(spec, program, prepared, control, contended),
    )
    graph = elaborated.graph
    descriptor_count = int(prepared.descriptor_slot.max()) + 1
    slots = max(1, int(prepared.kernels["n_tasks"].max()))
    contexts = prepared.contexts
    source_lanes = [
        lane
        for name, port in program.edge_ports.items()
        if not port.output
        for lane in _lanes(inputs, name, len(port.lanes))
    ]

    machine = np.zeros(1, MACHINE)
    channels = len(graph.channel_router)
    arbiters = elaborated.arbiters.copy()
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
    state = State(
        machine=machine,
        run=run,
        code=prepared.code,
        kernels=prepared.kernels,
        tasks=prepared.tasks,
        task_slot=prepared.task_slot,
        sram8=flat,
        sram16=flat.view(np.uint16),
        sram32=flat.view(np.uint32),
        written=strict.reshape(-1) if strict is not None else np.zeros(0, np.bool_),
        pes=elaborated.pes.copy(),
        registers=np.zeros((n, 16), np.uint32),
        ready=np.zeros((n, 16), np.int64),
        descriptors=_blank_descriptors(n * descriptor_count),
        descriptor_slot=prepared.descriptor_slot,
        task_time=np.full(n * slots, -1, np.int64),
        counters=np.zeros((n, len(Cycle)), np.int64),
        recent=np.zeros((n, 8), np.uint16),
        pe_in=np.ascontiguousarray(graph.pe_in),
        pe_out=np.ascontiguousarray(graph.pe_out),
        vectors=np.zeros(n * contexts, VECTOR),
        operands=np.zeros(n * contexts * 3, OPERAND),
        costs=np.zeros((COST_ENTRIES, COST_FIELDS), np.int32),
        pipes=elaborated.pipes.copy(),
        ring_value=np.zeros(elaborated.ring_slots, np.uint32),
        ring_time=np.zeros(elaborated.ring_slots, np.int64),
        channels=elaborated.channels.copy(),
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


def _pipes(graph: Graph, n: int, arbiter_of: np.ndarray, arbiters: int) -> tuple[np.ndarray, int]:
    """(PIPE records with consumers and producers, ring slots in all). Work items: see State.machine."""
    stages = graph.stages
    channels = len(graph.channel_router)
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
    item = np.where(arbiter_of >= 0, n + channels + arbiter_of, n + np.arange(channels))
    for port in range(5):
        consumer[graph.channel_in[:, port]] = item
        producer[graph.channel_out[:, port]] = item
    consumer, producer = consumer[:-1], producer[:-1]
    down = stages.kind[last] == RAMP_DOWN
    consumer[down] = stages.target[last[down]]
    consumer[to_host] = stages.lane[last[to_host]]
    up = np.isin(np.arange(count), graph.pe_out)
    producer[up] = stages.source[first[up]]
    producer[graph.source_pipe] = n + channels + arbiters + np.arange(len(graph.source_pipe))
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
