"""The fast engine's interface: load, simulate in slices, and hand back an Outcome.

Same arguments and same result as the reference engine, bit for bit and cycle for cycle (docs/engine.md says
why).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from ...isa.errors import Internal
from ...isa.program import Program
from ..outcome import FaultCode, FaultRecord, LaneOutput, Outcome, Wait, Waits
from ..spec import MachineSpec
from .contention import ATTEMPTS, contended_links, overlapping, with_room
from .graph import Graph
from .jit import jit
from .load import Lane, load
from .main_thread import main_waits, registers_ready
from .memory import read16
from .pipes import RESERVE, is_control, room, visible
from .simulate import advance, settle, start
from .stages import EDGE_IN, EDGE_OUT, LINK, RAMP_DOWN, RAMP_UP
from .state import FABRIC_IN, FABRIC_OUT, FIFO, NEVER
from .state_table import State
from .vectors import fifo_header_inside

SLICE = 1 << 20  # work items between two looks at `interrupted`


def run(
    spec: MachineSpec,
    program: Program,
    sram: np.ndarray,
    inputs: dict[str, list[Lane]],
    max_cycles: int | None = None,
    strict: np.ndarray | None = None,
    interrupted: Callable[[], bool] | None = None,
) -> Outcome:
    """Run `program` from cycle 0 to its end. Arguments and result: fabric/outcome.py."""
    contended = contended_links(program)
    before: tuple[np.ndarray, np.ndarray | None] | None = None
    attempt = 0
    while True:
        state, graph = load(spec, program, sram, inputs, max_cycles, strict, contended)
        if len(state.watches) and before is None:
            before = sram.copy(), None if strict is None else strict.copy()
        attempt += 1
        state, met, stopped = _simulate(state, interrupted)
        if not len(met):
            return _outcome(program, state, graph, max_cycles, stopped)
        if attempt < ATTEMPTS:
            contended.reshape(-1)[met] = True
        else:
            contended |= graph.shared
        assert before is not None  # bursts are noted only where links are watched
        sram[...] = before[0]
        if strict is not None and before[1] is not None:
            strict[...] = before[1]


def _simulate(state: State, interrupted: Callable[[], bool] | None) -> tuple[State, np.ndarray, bool]:
    """Run to the end, or until bursts overlap on a link: (state, those links, did the user stop it)."""
    start(state)
    while True:
        state.run["budget"] = SLICE
        state = with_room(_with_room(state))
        over = bool(advance(state))
        if state.run[0]["trouble"]:
            raise Internal(
                "a control descriptor for an output queue was made at run time; the fast engine must "
                "find it in the initial data (docs/engine.md)"
            )
        stopped = not over and interrupted is not None and interrupted()
        met = overlapping(state)
        if over or stopped or len(met):
            return state, met[:0] if stopped else met, stopped


def _with_room(state: State) -> State:
    """Double the host's side when it is nearly full."""
    used = int(state.run[0]["sunk"])
    capacity = len(state.sunk_word)
    if used + 2 * RESERVE < capacity:
        return state
    grow = lambda a: np.concatenate([a, np.zeros_like(a)])  # noqa: E731
    return state.replace(
        sunk_word=grow(state.sunk_word), sunk_time=grow(state.sunk_time), sunk_lane=grow(state.sunk_lane)
    )


def _outcome(program: Program, state: State, graph: Graph, max_cycles: int | None, stopped: bool) -> Outcome:
    h, w = program.height, program.width
    shape = (h, w)
    run = state.run[0]
    pes = state.pes
    last = max(int(pes["last_issue"].max(initial=-1)), int(run["last"]))
    fault = None
    waiting = _something_waits(program, state)
    if run["fault_code"]:
        end, cycles = "fault", int(run["fault_cycle"]) + 1
        fault = _fault(program, state)
    elif stopped:
        end, cycles = "interrupted", last + 1
    elif run["livelocked"]:
        end, cycles = "hang", last + 1
    elif max_cycles is not None and (run["cut"] or last >= max_cycles):
        end, cycles = "limit", max_cycles
    else:
        end, cycles = ("hang" if waiting else "finished"), last + 1
    settle(state, cycles)
    fill, left = _stage_fill(state, graph)
    outcome = Outcome(
        end=end,
        cycles=cycles,
        counters=state.counters.reshape(*shape, -1),
        link_words=_link_words(state, graph, left, h * w).reshape(*shape, 5),
        registers=state.registers.reshape(*shape, 16),
        instructions=pes["instructions"].reshape(shape).copy(),
        done=pes["done"].reshape(shape).astype(bool),
        outputs=_outputs(program, state, cycles if end in ("limit", "fault") else None),
        last_issue=np.minimum(pes["last_issue"], cycles - 1).reshape(shape),
        fault=fault,
        unread_inputs=_unread(program, state),
    )
    if end != "finished":
        outcome.waits = _waits(program, state, graph, fill, NEVER - 1 if end == "hang" else cycles)
    return outcome


def _something_waits(program: Program, state: State) -> bool:
    pes = state.pes
    present = pes["kernel"] >= 0
    busy = (pes["task"] >= 0) | (pes["threads"] != 0) | (pes["synchronous"] != 0)
    if (busy & present).any() or (state.pipes["count"] > 0).any():
        return True
    if (state.sources["next"] < state.sources["stop"]).any():
        return True
    from ...isa.instructions import BY_NAME

    done = BY_NAME["done"].opcode
    for k, kernel in enumerate(state.kernels[: len(program.kernels)]):
        if not ((pes["kernel"] == k) & (pes["done"] == 0)).any():
            continue
        code = state.code[kernel["code"] : kernel["code"] + kernel["code_words"]]
        pc = 0
        while pc < len(code):  # instruction by instruction: a second word may look like one
            if code["op"][pc] == done:
                return True
            pc += max(1, int(code["words"][pc]))
    return False


def _fault(program: Program, state: State) -> FaultRecord:
    run = state.run[0]
    i = int(run["fault_pe"])
    y, x = divmod(i, program.width)
    issued = int(state.pes[i]["instructions"])
    if run["fault_code"] == FaultCode.BAD_COMMAND:  # a router's, which issues nothing
        issued = 0
    recent = tuple(int(state.recent[i, k & 7]) for k in range(max(0, issued - 8), issued))
    return FaultRecord(
        FaultCode(int(run["fault_code"])),
        x,
        y,
        int(run["fault_cycle"]),
        int(run["fault_pc"]),
        int(run["fault_argument"]),
        recent,
    )


@jit
def _fill_stages(first, follows, capacity, count, entered, fill, left):
    """Wavelets that are stuck in a pipe stand in its last stages; `left` gets what entered each stage."""
    for p in range(len(first)):
        stage = first[p]
        inside = np.int64(0)
        while stage >= 0:
            inside += capacity[stage]
            stage = follows[stage]
        stuck = np.int64(count[p])
        out = np.int64(entered[p])
        stage = first[p]
        while stage >= 0:
            inside -= capacity[stage]
            fill[stage] = min(max(stuck - inside, 0), np.int64(capacity[stage]))
            stuck -= fill[stage]
            left[stage] = out  # what entered this stage
            out -= fill[stage]
            stage = follows[stage]


def _stage_fill(state: State, graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    stages = graph.stages
    fill = np.zeros(len(stages.kind), np.int64)
    entered = np.zeros(len(stages.kind), np.int64)
    _fill_stages(
        graph.pipe_first,
        stages.follows,
        stages.capacity,
        state.pipes["count"].copy(),
        state.pipes["entered"].copy(),
        fill,
        entered,
    )
    return fill, entered


def _link_words(state: State, graph: Graph, entered: np.ndarray, n: int) -> np.ndarray:
    """(n, 5) int64: wavelets that left each router by each port."""
    words = np.zeros((n, 5), np.int64)
    stages = graph.stages
    crossing = np.isin(stages.kind, (LINK, RAMP_DOWN, EDGE_OUT))
    np.add.at(words, (stages.source[crossing], stages.source_port[crossing]), entered[crossing])
    return words


def _outputs(program: Program, state: State, before: int | None) -> dict[str, list[LaneOutput]]:
    """What reached the host, lane by lane; with `before` only what arrived before that cycle."""
    used = int(state.run[0]["sunk"])
    lane, time = state.sunk_lane[:used], state.sunk_time[:used]
    word = state.sunk_word[:used]
    if before is not None:
        kept = time >> 1 < before
        lane, time, word = lane[kept], time[kept], word[kept]
    order = np.argsort(lane, kind="stable")
    lane, time, word = lane[order], time[order], word[order]
    result: dict[str, list[LaneOutput]] = {}
    first = 0
    for name, port in program.edge_ports.items():
        if port.output:
            bounds = np.searchsorted(lane, np.arange(first, first + len(port.lanes) + 1))
            result[name] = [
                LaneOutput(word[a:b].copy(), (time[a:b] & 1).astype(bool), time[a:b] >> 1)
                for a, b in itertools.pairwise(bounds)
            ]
            first += len(port.lanes)
    return result


def _unread(program: Program, state: State) -> dict[str, list[int]]:
    left = state.sources["stop"] - state.sources["next"]
    result: dict[str, list[int]] = {}
    first = 0
    for name, port in program.edge_ports.items():
        if not port.output:
            lanes = [int(n) for n in left[first : first + len(port.lanes)]]
            first += len(port.lanes)
            result[name] = lanes
    return result


RECEIVE, SEND, WAIT_FIFO, RUNNING = int(Wait.RECEIVE), int(Wait.SEND), int(Wait.FIFO), int(Wait.RUNNING)


@jit
def _main_state(s, i, t):
    """(Wait, queue) of the running task's next instruction at t, which is no vector under way."""
    pe = s.pes[i]
    c = s.code[s.kernels[pe.kernel].code + pe.pc]
    latency, receive, send = main_waits(s, i)
    if t < pe.branch_ready or t < latency:
        return RUNNING, -1
    if receive > t:
        return RECEIVE, np.int64(c.queue)
    if send > t:
        return SEND, np.int64(c.queue)
    return RUNNING, -1


@jit
def _vector_state(s, i, context, t):
    """(Wait, queue) of the next group of a vector under way at t; its first lack counts."""
    first = (i * s.machine[0].contexts + context) * 3
    v = s.vectors[i * s.machine[0].contexts + context]
    if t < v.start:
        return RUNNING, -1
    elements = min(v.left, v.group)
    for turn in range(3):
        o = s.operands[first + (turn + 1) % 3]
        if o.kind == FABRIC_IN:
            p = np.int64(o.pipe)
            if visible(s, p) > t or is_control(s, p):
                return RECEIVE, np.int64(o.queue)
        elif o.kind == FABRIC_OUT:
            if room(s, np.int64(o.pipe)) > t:
                return SEND, np.int64(o.queue)
        elif o.kind == FIFO and fifo_header_inside(s, i, o):
            fill = np.int64(read16(s, i * s.machine[0].stride + o.base + 2))
            if (fill + elements > o.extent0) if turn == 2 else (fill < elements):
                return WAIT_FIFO, -1
    return RUNNING, -1


@jit
def _thread_waits(s, t, state, pc, queue, since):
    """State at t of every thread of every PE; see Waits."""
    contexts = s.machine[0].contexts
    for i in range(s.machine[0].pes):
        pe = s.pes[i]
        if pe.kernel < 0:
            continue
        if pe.task >= 0 and not pe.synchronous:
            c = s.code[s.kernels[pe.kernel].code + pe.pc]
            pc[i, 0] = pe.target if c.op < 0 else pe.pc
            since[i, 0] = max(pe.since, registers_ready(s, i, c))
            state[i, 0], queue[i, 0] = _main_state(s, i, t)
        for context in range(contexts):
            if (context == 0 and not pe.synchronous) or (context and not pe.threads >> (context - 1) & 1):
                continue
            v = s.vectors[i * contexts + context]
            pc[i, context] = v.pc
            since[i, context] = v.since
            state[i, context], queue[i, context] = _vector_state(s, i, np.int64(context), t)


def _waits(program: Program, state: State, graph: Graph, fill: np.ndarray, cycles: int) -> Waits:
    n = program.width * program.height
    h, w = program.height, program.width
    kind, pc = np.zeros((n, 9), np.int8), np.full((n, 9), -1, np.int64)
    queue, since = np.full((n, 9), -1, np.int8), np.full((n, 9), -1, np.int64)
    _thread_waits(state, cycles, kind, pc, queue, since)
    slot = state.pes["task"]
    first = state.kernels["first_task"][np.maximum(state.pes["kernel"], 0)]
    running = np.where(
        slot >= 0, state.tasks["id"][np.minimum(first + np.maximum(slot, 0), len(state.tasks) - 1)], -1
    )
    stages = graph.stages
    in_fill, out_fill = np.zeros((n, 8), np.int32), np.zeros((n, 8), np.int32)
    router_fill: dict[int, np.ndarray] = {}
    for bound, target, which in (
        (program.in_colour, in_fill, RAMP_DOWN),
        (program.out_colour, out_fill, RAMP_UP),
    ):
        mine = np.flatnonzero((stages.kind == which) & (fill > 0))
        pe = stages.target[mine]
        hit = bound.reshape(n, -1)[pe] == stages.colour[mine][:, None]
        rows, queues = np.nonzero(hit)
        target[pe[rows], queues] = fill[mine[rows]]
    for stage in np.flatnonzero(((stages.kind == LINK) | (stages.kind == EDGE_IN)) & (fill > 0)):
        colour = int(stages.colour[stage])
        grid = router_fill.setdefault(colour, np.zeros((n, 4), np.int32))
        grid[stages.target[stage], stages.target_port[stage]] = fill[stage]
    position: dict[int, np.ndarray] = {}
    switched = state.routes["positions"][state.channels["route"]] > 1
    for colour in np.unique(state.channels["colour"][switched]):
        mine = switched & (state.channels["colour"] == colour)
        grid = np.zeros(n, np.int8)
        grid[state.channels["router"][mine]] = state.channels["position"][mine]
        position[int(colour)] = grid.reshape(h, w)
    return Waits(
        state=kind.reshape(h, w, 9),
        pc=pc.reshape(h, w, 9),
        queue=queue.reshape(h, w, 9),
        since=since.reshape(h, w, 9),
        task=running.reshape(h, w).astype(np.int8),
        in_fill=in_fill.reshape(h, w, 8),
        out_fill=out_fill.reshape(h, w, 8),
        router_fill={c: g.reshape(h, w, 4) for c, g in router_fill.items()},
        position=position,
        livelock=bool(state.run[0]["livelocked"]),
    )
