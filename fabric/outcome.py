"""What an engine hands back after a run: the same from both engines, compared field by field in the tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np


class Cycle(IntEnum):
    """What a cycle of a PE was spent on (docs/machine.md §8); every cycle is exactly one of these."""

    COMPUTE = 0
    BANK = 1
    SETUP = 2
    BRANCH = 3
    LATENCY = 4
    RECEIVE = 5
    SEND = 6
    IDLE = 7


class FaultCode(IntEnum):
    """Why a PE stopped. `argument` of the Fault is given in brackets."""

    NONE = 0
    ILLEGAL = 1  # no such instruction [the word]
    PC = 2  # execution left the code [the pc]
    BOUNDS = 3  # access outside the PE's data [byte address]
    ALIGNMENT = 4  # odd byte address [byte address]
    UNINITIALISED = 5  # --strict: read of never-written SRAM [byte address]
    EXTENT = 6  # operands of one vector instruction differ in element count [the source's count]
    DESCRIPTOR = 7  # descriptor of a kind, packing or shape the instruction cannot use [descriptor register]
    THREAD_BUSY = 8  # launch on a microthread that is still active [thread 0..7]
    QUEUE_BUSY = 9  # a second operation on a queue [queue]
    QUEUE_UNBOUND = 10  # operation on a queue with no colour bound [queue]
    NO_TASK = 11  # activation of a task the PE does not have [task id]
    NO_CONTROL_TASK = 12  # a control wavelet names a task that is not a control task here [task id]
    BAD_COMMAND = 13  # switch command 3 at a router [payload]
    TRAP = 14  # trap or failed assert [its code]


@dataclass(frozen=True)
class FaultRecord:
    """The earliest fault of a run (ties: lowest y, then lowest x)."""

    code: FaultCode
    x: int
    y: int
    cycle: int
    pc: int  # word address of the instruction, -1 where no instruction is involved
    argument: int
    recent: tuple[int, ...] = ()  # word addresses of the last instructions issued, up to 8, oldest first


@dataclass
class LaneOutput:
    """What one lane of an output edge port received, in order."""

    payload: np.ndarray  # (words,) uint32
    control: np.ndarray  # (words,) bool
    cycle: np.ndarray  # (words,) int64: arrival at the host


class Wait(IntEnum):
    """State of one thread of a PE when the run ended."""

    INACTIVE = 0
    RECEIVE = 1  # an input queue is empty (or its head is a control wavelet)
    SEND = 2  # an output queue is full
    FIFO = 3  # a FIFO in SRAM is empty or full
    RUNNING = 4  # could have gone on (limit, fault, interrupt)


@dataclass
class Waits:
    """Who waited for what at the end of the run. Arrays are (H, W, ...); thread 0 is the main thread."""

    state: np.ndarray  # (H, W, 9) int8, values of Wait
    pc: np.ndarray  # (H, W, 9) int64: word address of the waiting instruction
    queue: np.ndarray  # (H, W, 9) int8: the queue it waits for, -1 = none
    since: np.ndarray  # (H, W, 9) int64: first cycle of the wait
    task: np.ndarray  # (H, W) int8: running task id, -1 = none
    in_fill: np.ndarray  # (H, W, 8) int32: wavelets in each input stage (ramp down and queue)
    out_fill: np.ndarray  # (H, W, 8) int32: wavelets in each output stage (queue and ramp up)
    router_fill: dict[
        int, np.ndarray
    ]  # input colour -> (H, W, 4) int32: wavelets in the stages behind ports N, E, S, W
    position: dict[int, np.ndarray]  # colour -> (H, W) int8 switch position, colours with switches only
    livelock: bool = False


@dataclass
class Outcome:
    """End of one run. `cycles` is the run's length (docs/machine.md §8)."""

    end: str  # finished, hang, limit, fault, interrupted
    cycles: int
    counters: (
        np.ndarray
    )  # (H, W, len(Cycle)) int64, sums to `cycles` for every PE with a kernel; zeros elsewhere
    link_words: np.ndarray  # (H, W, 5) int64: wavelets that left each router by each port
    registers: np.ndarray  # (H, W, 16) uint32
    instructions: np.ndarray  # (H, W) int64: instructions issued
    done: np.ndarray  # (H, W) bool: the PE executed `done`
    outputs: dict[str, list[LaneOutput]]  # output edge port -> one entry per lane
    last_issue: (
        np.ndarray
    )  # (H, W) int64: last cycle a PE's engine was held by an instruction or group, -1 = never
    fault: FaultRecord | None = None
    waits: Waits | None = None  # unless finished
    unread_inputs: dict[str, list[int]] = field(
        default_factory=dict
    )  # input edge port -> words per lane still at the host


# One lane of an input edge port: payloads uint32, control bits bool (None: all data), and perhaps int64
# cycles that never decrease: the cycle before which each wavelet is not on the edge link.
Lane = tuple[np.ndarray, np.ndarray | None] | tuple[np.ndarray, np.ndarray | None, np.ndarray]

# The interface of both engines:
#   run(spec: MachineSpec, program: Program, sram: np.ndarray, inputs, max_cycles=None, strict=None,
#       interrupted=None) -> Outcome
# sram: (H * W, stride) uint8, row y * W + x, changed in place; stride >= the largest kernel's data and a
# multiple of 8.
# inputs: input edge port -> list of Lane, one per lane.
# strict: None, or (H * W, stride) bool array of the bytes written so far, changed in place.
# interrupted: called now and then without arguments; returns True to stop (end = interrupted).
