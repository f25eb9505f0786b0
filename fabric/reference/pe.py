"""One processing element of the reference engine: tasks, threads and registers, one cycle at a time.

Never looks at another PE: it sees only the stages of its own queues.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from ...isa.instructions import Decoded, IllegalInstruction, Unit, decode
from ...isa.program import DESCRIPTORS, REGISTERS, THREADS, Descriptor, DescriptorKind, Kernel, Task, TaskKind
from ..outcome import Cycle, FaultCode, Wait
from ..spec import MachineSpec
from .router import Observer, Stage, Stop
from .semantics import SCALAR
from .vector import Blocked, VectorOperation

COMPLETION_ACTIVATE, COMPLETION_UNBLOCK = 1, 2
RECENT = 8
REGISTER_FIELDS = ("rd", "ra", "rb")


@dataclass
class TaskState:
    """A task of this PE and whether it may be picked."""

    task: Task
    active: bool
    blocked: bool


@dataclass(frozen=True)
class Pick:
    """The task that starts in a cycle, and the input queue whose head starts it (-1: an activation)."""

    task: TaskState
    queue: int


class Code:
    """A kernel's code words, decoded once each."""

    def __init__(self, kernel: Kernel) -> None:
        self.words = kernel.code.tolist()
        self._decoded: dict[int, Decoded | None] = {}

    def at(self, pc: int) -> Decoded | None:
        """The instruction at a word address inside the code; None if it is illegal."""
        if pc not in self._decoded:
            try:
                self._decoded[pc] = decode(self.words, pc)
            except IllegalInstruction:
                self._decoded[pc] = None
        return self._decoded[pc]

    @property
    def contains_done(self) -> bool:
        pc = 0
        while pc < len(self.words):
            decoded = self.at(pc)
            if decoded and decoded.row.name == "done":
                return True
            pc += decoded.words if decoded else 1
        return False


class Pe:
    """Compute engine and SRAM of one PE."""

    def __init__(
        self,
        spec: MachineSpec,
        x: int,
        y: int,
        kernel: Kernel,
        code: Code,
        memory: np.ndarray,
        written: np.ndarray | None,
        observer: Observer | None = None,
    ) -> None:
        """memory, written: (data bytes,) views into the wafer's SRAM; the queues are attached afterwards."""
        self.spec, self.x, self.y, self.code = spec, x, y, code
        self.memory, self.written = memory, written
        self.observer = observer
        self.in_queues: dict[int, Stage] = {}
        self.out_queues: dict[int, Stage] = {}
        self.tasks = {i: TaskState(task, task.entry, task.blocked) for i, task in kernel.tasks.items()}
        self.data_tasks = {s.task.queue: s for s in self.tasks.values() if s.task.kind is TaskKind.DATA}
        self.registers: list[int] = [0] * REGISTERS
        self.ready = [0] * REGISTERS  # first cycle in which each register can be used
        self.descriptors: list[Descriptor | None] = [None] * DESCRIPTORS
        self.threads: list[VectorOperation | None] = [None] * (THREADS + 1)  # 0: the task's synchronous one
        self.last_thread = THREADS
        self.task = -1  # id of the running task
        self.pc: int = 0
        self.following = 0  # where the instruction being issued goes on
        self.next_issue = 0  # a branch keeps the task's next instruction back until then
        self.earliest = 0  # first cycle in which the task's next instruction could issue otherwise
        self.held_until = 0  # first cycle in which the engine is free again
        self.compute_until = 0  # cycles of the current group from here on are bank cycles
        self.done = False
        self.instructions = 0
        self.last_issue = -1
        self.recent: deque[int] = deque(maxlen=RECENT)
        self.history: list[tuple[int, Cycle]] = []  # (first cycle, what it and the next ones were spent on)

    # --- what instructions do to the PE (called by semantics.py and vector.py) ---

    def write(self, register: int, bits: int, ready: int) -> None:
        self.registers[register] = bits
        self.ready[register] = ready

    def jump(self, target: int, t: int) -> None:
        """Go to `target` with the delay of a taken branch."""
        self.following = target
        self.next_issue = t + self.spec.engine.branch_taken

    def accessible(self, address: int, size: int) -> bool:
        return address % 2 == 0 and 0 <= address and address + size <= len(self.memory)

    def check(self, address: int, size: int, reading: bool) -> None:
        """Raise Stop unless the bytes may be accessed."""
        if address % 2:
            raise Stop(FaultCode.ALIGNMENT, address)
        if not self.accessible(address, size):
            raise Stop(FaultCode.BOUNDS, address)
        if reading and self.written is not None and not self.written[address : address + size].all():
            raise Stop(FaultCode.UNINITIALISED, address)

    def load(self, address: int, size: int) -> int:
        return int.from_bytes(self.memory[address : address + size].tobytes(), "little")

    def store(self, address: int, size: int, bits: int) -> None:
        self.memory[address : address + size] = np.frombuffer(bits.to_bytes(size, "little"), np.uint8)
        if self.written is not None:
            self.written[address : address + size] = True

    def bound_queue(self, kind: DescriptorKind, queue: int) -> Stage:
        """The stage of a queue. Raises Stop if no colour is bound to it."""
        queues = self.in_queues if kind is DescriptorKind.FABRIC_IN else self.out_queues
        if queue not in queues:
            raise Stop(FaultCode.QUEUE_UNBOUND, queue)
        return queues[queue]

    def usable_queue(self, kind: DescriptorKind, queue: int) -> Stage:
        """The stage of a queue. Raises Stop if it is unbound or something else uses it."""
        stage = self.bound_queue(kind, queue)
        in_use = any(
            operand.kind is kind and operand.descriptor.queue == queue
            for operation in self.threads
            if operation
            for operand in operation.fabric
        )
        if in_use or (kind is DescriptorKind.FABRIC_IN and queue in self.data_tasks):
            raise Stop(FaultCode.QUEUE_BUSY, queue)
        return stage

    def known_task(self, task: int) -> TaskState:
        if task not in self.tasks:
            raise Stop(FaultCode.NO_TASK, task)
        return self.tasks[task]

    def activate(self, task: int) -> None:
        state = self.known_task(task)
        if state.task.kind is not TaskKind.LOCAL:
            raise Stop(FaultCode.NO_TASK, task)
        state.active = True

    def unblock(self, task: int) -> None:
        self.known_task(task).blocked = False

    # --- tasks ---

    def pick(self, t: int) -> Pick | None:
        """The task that starts at t; nothing changes yet. Raises Stop for a control wavelet naming none."""
        if self.task >= 0 or t < self.held_until:
            return None
        able = [Pick(s, -1) for s in self.tasks.values() if s.active and not s.blocked]
        for queue, stage in sorted(self.in_queues.items()):
            wavelet = stage.head(t - 1)
            if wavelet is None:
                continue
            state = self.data_tasks.get(queue)
            if wavelet.control:
                state = self.tasks.get(wavelet.task)
                if state is None or state.task.kind is not TaskKind.CONTROL:
                    raise Stop(FaultCode.NO_CONTROL_TASK, wavelet.task)
            if state and not state.blocked:
                able.append(Pick(state, queue))
        return min(able, key=lambda p: (-p.task.task.priority, p.task.task.id, p.queue), default=None)

    def start(self, pick: Pick, t: int) -> None:
        """Start a picked task at t."""
        self.task, self.pc = pick.task.task.id, pick.task.task.pc
        self.next_issue = self.earliest = t
        if pick.queue < 0:
            pick.task.active = False
        else:
            self.write(0, self.in_queues[pick.queue].leave(t).payload, t)

    # --- issue ---

    def blocked(self, thread: int, t: int) -> Blocked | None:
        """Why an active thread cannot issue at t; None if it can."""
        operation = self.threads[thread]
        if operation:
            return operation.blocked(self, t)
        if t < self.next_issue:
            return Blocked(Cycle.BRANCH)
        decoded = self.code.at(self.pc) if 0 <= self.pc < len(self.code.words) else None
        if decoded is None:
            return None  # issues, and is a fault
        if any(self.ready[r] > t for r in self.registers_of(decoded)):
            return Blocked(Cycle.LATENCY)
        name, queue = decoded.row.name, decoded.values.get("queue", -1)
        try:
            if name == "recv":
                head = self.usable_queue(DescriptorKind.FABRIC_IN, queue).head(t)
                if head is None or head.control:
                    return Blocked(Cycle.RECEIVE, Wait.RECEIVE, queue)
            if name in ("send", "sendc") and not self.usable_queue(DescriptorKind.FABRIC_OUT, queue).room(t):
                return Blocked(Cycle.SEND, Wait.SEND, queue)
        except Stop:
            pass  # issues, and is a fault
        return None

    @staticmethod
    def registers_of(decoded: Decoded) -> list[int]:
        """The registers an instruction waits for: all it names."""
        v = decoded.values
        names = [name for name in REGISTER_FIELDS if name in v]
        if v.get("scalar"):
            names.append(("da", "db")[decoded.row.sources - 1])
        return [v[name] for name in names]

    @property
    def active_threads(self) -> list[int]:
        """Threads with something to issue, in order; a synchronous vector instruction keeps others out."""
        if self.threads[0]:
            return [0]
        return [n for n in range(THREADS + 1) if self.threads[n] or (n == 0 and self.task >= 0)]

    def chosen(self, t: int) -> int:
        """The thread that issues at t, -1 for none. Nothing changes yet."""
        if t < self.held_until:
            return -1
        able = [n for n in self.active_threads if self.blocked(n, t) is None]
        after = self.last_thread + 1
        return min(able, key=lambda n: (-self._priority(n), (n - after) % (THREADS + 1)), default=-1)

    def _priority(self, thread: int) -> int:
        operation = self.threads[thread]
        return operation.priority if thread and operation else self.tasks[self.task].task.priority

    def issue(self, thread: int, t: int) -> None:
        """Issue from a thread at t. Raises Stop for a fault."""
        self.last_thread = thread
        self.held_until = self.compute_until = t + 1
        operation = self.threads[thread]
        try:
            if operation:
                pc = operation.pc
                self._issue_group(operation, t)
            else:
                pc = self.pc
                self._issue_instruction(t)
        except Stop as stop:
            stop.pc = pc
            raise
        if self.observer:
            self.observer("issue", t, self.x, self.y, thread=thread, pc=pc, held=self.held_until - t)

    def _issue_group(self, operation: VectorOperation, t: int) -> None:
        by_rate, cost = operation.issue(self, t)
        self.compute_until, self.held_until = t + by_rate, t + cost
        if not operation.finished:
            return
        self.threads[operation.thread] = None
        if operation.row.to_register:
            self.ready[operation.values["rd"]] = self.held_until - 1 + self.spec.engine.writeback
        if not operation.asynchronous:
            self.earliest = self.held_until
        self._complete(operation)

    def _complete(self, operation: VectorOperation) -> None:
        completion = operation.values.get("completion", 0)
        if completion == COMPLETION_ACTIVATE:
            self.activate(operation.values["launch_task"])
        elif completion == COMPLETION_UNBLOCK:
            self.unblock(operation.values["launch_task"])

    def _issue_instruction(self, t: int) -> None:
        if not 0 <= self.pc < len(self.code.words):
            raise Stop(FaultCode.PC, self.pc)
        decoded = self.code.at(self.pc)
        if decoded is None:
            raise Stop(FaultCode.ILLEGAL, self.code.words[self.pc])
        self.instructions += 1
        self.recent.append(self.pc)
        self.earliest = t + 1
        self.following = self.pc + decoded.words
        if decoded.row.unit is Unit.SCALAR:
            SCALAR[decoded.row.name](self, decoded.values, t)
            self.earliest = max(self.earliest, self.next_issue)
        else:
            operation = VectorOperation(self, decoded, t)
            if operation.finished:
                self._complete(operation)
            else:
                self.threads[operation.thread] = operation
        self.pc = self.following

    # --- accounts ---

    def account(self, t: int) -> None:
        """Note what cycle t was spent on; called after the cycle's issue."""
        spent = self._spent(t)
        if not self.history or self.history[-1][1] is not spent:
            self.history.append((t, spent))
        if t < self.held_until:
            self.last_issue = t

    def _spent(self, t: int) -> Cycle:
        if t < self.held_until:
            return Cycle.COMPUTE if t < self.compute_until else Cycle.BANK
        threads = self.active_threads
        blocked = self.blocked(threads[0], t) if threads else None
        return blocked.reason if blocked else Cycle.IDLE

    def counters(self, cycles: int) -> list[int]:
        """Cycles by reason over the first `cycles` cycles."""
        counts = [0] * len(Cycle)
        ends = [*[start for start, _ in self.history[1:]], cycles][: len(self.history)]
        for (start, spent), end in zip(self.history, ends, strict=True):
            counts[spent] += max(0, min(end, cycles) - start)
        return counts

    def timers(self) -> list[int]:
        """Cycles in which something may become possible without anything else happening."""
        times = [self.held_until]
        times += [operation.first for operation in self.threads if operation]
        if self.task >= 0:
            times += [self.next_issue, *self.ready]
        for stage in self.in_queues.values():
            times += [stage.ready_at, stage.ready_at + 1, stage.left_at + 2]
        return times

    def waiting_since(self, thread: int) -> int:
        """First cycle in which a thread could have issued, had it waited for nothing."""
        operation = self.threads[thread]
        if operation:
            return operation.earliest
        decoded = self.code.at(self.pc) if 0 <= self.pc < len(self.code.words) else None
        ready = [self.ready[r] for r in self.registers_of(decoded)] if decoded else []
        return max([self.earliest, *ready])
