"""Static checks of one kernel's code: control flow, tasks, and queues that two operations use at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .diagnostics import Diagnostic, did_you_mean
from .fields import FIELDS, LAUNCH_FIELDS
from .instructions import Decoded, IllegalInstruction, Unit, decode
from .program import Descriptor, DescriptorKind, Kernel, Location, Task, TaskKind

ENDS_FLOW = ("end", "jmp", "jr", "trap")
_ACTIVATE = LAUNCH_FIELDS["completion"].choices.index("activate")
_UNBLOCK = LAUNCH_FIELDS["completion"].choices.index("unblock")

QueueKey = tuple[bool, int]  # output?, number


@dataclass
class Use:
    """An operation on a queue: at which word, on which microthread (-1: synchronous)."""

    pc: int
    thread: int = -1


def check_code(kernel: Kernel) -> list[Diagnostic]:
    """All findings about one kernel's code."""
    return _CodeCheck(kernel).run()


class _CodeCheck:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.found: list[Diagnostic] = []
        self.code: list[tuple[int, Decoded | None]] = decode_all(kernel.code)

    def run(self) -> list[Diagnostic]:
        self._targets()
        self._flow()
        self._tasks()
        self._queues_of_data_tasks()
        self._simultaneous_use()
        return self.found

    def at(self, pc: int) -> Location | None:
        return self.kernel.locations[pc] if pc < len(self.kernel.locations) else None

    def report(
        self, category: str, text: str, pc: int, notes: list[tuple[str, Location | None]] | None = None,
        help: str | None = None, severity: str = "error",
    ) -> None:  # fmt: skip
        place = self.at(pc)
        if place is None:
            text = f"kernel `{self.kernel.name}`, word {pc}: {text}"
        self.found.append(Diagnostic(category, text, place, notes or [], help, severity))

    # --- control flow ---
    def _targets(self) -> None:
        starts = {pc for pc, _ in self.code}
        self.joins = {task.pc for task in self.kernel.tasks.values()} | set(self.kernel.labels.values())
        for pc, decoded in self.code:
            if decoded is None:
                continue
            for field in ("offset", "jump"):
                if field in decoded.values:
                    target = pc + decoded.values[field]
                    self.joins.add(target)
                    if target not in starts:
                        why = (
                            "outside the code"
                            if not 0 <= target < len(self.kernel.code)
                            else "inside an instruction"
                        )
                        self.report("range", f"`{decoded.row.name}` to word {target}, {why}", pc)

    def _flow(self) -> None:
        tasks = sorted(self.kernel.tasks.values(), key=lambda task: task.pc)
        for task in tasks:
            if task.pc >= len(self.kernel.code):
                self.found.append(
                    Diagnostic(
                        "range",
                        f"task `{task.name}` has no instruction",
                        task.location,
                        help="end it with `end`",
                    )
                )
        if not self.code:
            return
        pc, last = self.code[-1]
        if last is not None and last.row.name not in ENDS_FLOW:
            self.report("range", "control falls off the last instruction", pc, help="end the task with `end`")
        before = {pc + (d.words if d else 1): (pc, d) for pc, d in self.code}
        for task in tasks:
            if task.pc in before and task.pc < len(self.kernel.code):
                pc, previous = before[task.pc]
                if previous is not None and previous.row.name not in ENDS_FLOW:
                    self.report(
                        "range",
                        f"control falls into task `{task.name}`",
                        pc,
                        [("the task starts here", task.location)],
                        "end the task before it with `end`",
                        "warning",
                    )

    # --- tasks ---
    def _tasks(self) -> None:
        tasks = self.kernel.tasks
        activated, unblocked = set(), set()
        for pc, decoded in self.code:
            if decoded is None:
                continue
            name, values = decoded.row.name, decoded.values
            named = values.get("task") if name in ("activate", "block", "unblock") else None
            action = values.get("completion", 0)
            if action:
                named = values["launch_task"]
            if named is None:
                continue
            if named not in tasks:
                known = ", ".join(f"{task.id} `{task.name}`" for task in tasks.values())
                near = did_you_mean(str(named), [str(n) for n in tasks], f"tasks: {known}")
                self.report("name", f"no task has id {named}", pc, help=near)
                continue
            if name == "activate" or action == _ACTIVATE:
                activated.add(named)
                if tasks[named].kind is not TaskKind.LOCAL:
                    self.report(
                        "type",
                        f"task `{tasks[named].name}` is not local and cannot be activated",
                        pc,
                        [("declared here", tasks[named].location)],
                    )
            if name == "unblock" or action == _UNBLOCK:
                unblocked.add(named)
        for task in tasks.values():
            if task.blocked and task.id not in unblocked:
                self.found.append(
                    Diagnostic(
                        "resource",
                        f"task `{task.name}` starts blocked and nothing unblocks it",
                        task.location,
                        help=f"`unblock {task.name}` somewhere, or remove `blocked`",
                    )
                )
            if task.kind is TaskKind.LOCAL and not task.entry and task.id not in activated:
                self.found.append(
                    Diagnostic(
                        "resource",
                        f"task `{task.name}` is never activated",
                        task.location,
                        severity="warning",
                        help=f"`activate {task.name}` somewhere, or make it an `entry` task",
                    )
                )
        if self.code and not any(task.entry or task.kind is not TaskKind.LOCAL for task in tasks.values()):
            self.found.append(
                Diagnostic(
                    "resource",
                    f"nothing starts kernel `{self.kernel.name}`: it has no entry, data or control task",
                    self.kernel.location,
                    severity="warning",
                    help="`task start entry`",
                )
            )

    # --- queues ---
    def stored(self, address: int) -> Descriptor | None:
        """The descriptor whose initial value stands at an address."""
        halfwords = self.kernel.data[address : address + 20]
        if len(halfwords) < 8 or address % 2 or not self.kernel.initialised[address : address + 8].all():
            return None
        padded = np.zeros(20, np.uint8)
        padded[: len(halfwords)] = halfwords
        try:
            return Descriptor.from_halfwords([int(h) for h in padded.view("<u2")])
        except ValueError:
            return None

    def _queue_uses(self, decoded: Decoded, loaded: dict[int, Descriptor]) -> list[QueueKey]:
        """The queues an instruction works on, as far as its descriptor registers are known."""
        values = decoded.values
        if "queue" in values:
            return [(decoded.row.name != "recv", values["queue"])]
        if decoded.row.unit is not Unit.VECTOR:
            return []
        uses = []
        scalar = values.get("scalar", 0)
        last = next((f for f in ("db", "da") if f in decoded.row.fields), None)
        for field in ("dd", "da", "db"):
            if field in values and not (scalar and field == last) and (d := loaded.get(values[field])):
                if d.kind in (DescriptorKind.FABRIC_IN, DescriptorKind.FABRIC_OUT):
                    uses.append((d.kind is DescriptorKind.FABRIC_OUT, d.queue))
        return uses

    def _name(self, key: QueueKey) -> str:
        output, number = key
        return (self.kernel.out_queues if output else self.kernel.in_queues).get(number, f"queue {number}")

    def _queues_of_data_tasks(self) -> None:
        owners: dict[int, Task] = {}
        for task in self.kernel.tasks.values():
            if task.kind is TaskKind.DATA:
                if task.queue in owners:
                    first = owners[task.queue]
                    self.found.append(
                        Diagnostic(
                            "resource",
                            f"queue `{self._name((False, task.queue))}` has two data tasks",
                            task.location,
                            [(f"the first, `{first.name}`", first.location)],
                        )
                    )
                owners[task.queue] = task
        for pc, decoded in self.code:
            number = None
            if decoded is not None and decoded.row.name == "recv":
                number = decoded.values["queue"]
            elif decoded is not None and decoded.row.name == "ldd":
                d = self.stored(decoded.values["address"])
                number = d.queue if d and d.kind is DescriptorKind.FABRIC_IN else None
            if number in owners:
                task = owners[number]
                self.report(
                    "resource",
                    f"queue `{self._name((False, number))}` belongs to data task `{task.name}`: "
                    "no other operation "
                    "may use it",
                    pc,
                    [("the task", task.location)],
                )

    def _simultaneous_use(self) -> None:
        """Operations that meet on one queue or microthread with nothing in between that takes time."""
        loaded: dict[int, Descriptor] = {}
        busy: dict[QueueKey, Use] = {}
        threads: dict[int, int] = {}
        for pc, decoded in self.code:
            if pc in self.joins:
                loaded, busy, threads = {}, {}, {}
            if decoded is None:
                continue
            row, values = decoded.row, decoded.values
            if row.name == "ldd":
                d = self.stored(values["address"])
                loaded.pop(values["dd"], None)
                if d:
                    loaded[values["dd"]] = d
                continue
            if row.name in ("setd", "addd"):
                loaded.pop(values["dd"], None)
                continue
            uses = self._queue_uses(decoded, loaded)
            for key in uses:
                if key in busy:
                    first = busy[key]
                    self.report(
                        "resource",
                        f"queue `{self._name(key)}` is still used by microthread {first.thread}",
                        pc,
                        [("launched here", self.at(first.pc))],
                        "go on in a task that the first operation activates: `then activate T`",
                    )
            if values.get("asynchronous"):
                thread = values["thread"]
                if thread in threads:
                    self.report(
                        "resource",
                        f"microthread {thread} is still busy",
                        pc,
                        [("launched here", self.at(threads[thread]))],
                        "use another microthread, or go on in a task that the first operation activates",
                    )
                threads[thread] = pc
                busy.update({key: Use(pc, thread) for key in uses})
            elif row.unit is Unit.VECTOR or row.name == "recv" or "offset" in values or "jump" in values:
                busy, threads = {}, {}  # time passes: the run decides
            elif row.name in ENDS_FLOW:
                loaded, busy, threads = {}, {}, {}


def decode_all(code: np.ndarray) -> list[tuple[int, Decoded | None]]:
    """Every instruction with its word address; None for a word that is none."""
    words = [int(word) for word in code]
    result: list[tuple[int, Decoded | None]] = []
    pc = 0
    while pc < len(words):
        try:
            decoded = decode(words, pc)
        except IllegalInstruction:
            decoded = None
        result.append((pc, decoded))
        pc += decoded.words if decoded else 1
    return result


def queues_used(kernel: Kernel) -> dict[QueueKey, int]:
    """Queues that the code works on or that belong to a data task -> word of the first use (-1: a task)."""
    check = _CodeCheck(kernel)
    uses: dict[QueueKey, int] = {}
    for task in kernel.tasks.values():
        if task.kind is TaskKind.DATA:
            uses.setdefault((False, task.queue), -1)
    for pc, decoded in check.code:
        if decoded is None:
            continue
        if "queue" in decoded.values:
            uses.setdefault((decoded.row.name != "recv", decoded.values["queue"]), pc)
        elif decoded.row.name == "ldd":
            d = check.stored(decoded.values["address"])
            if d and d.kind in (DescriptorKind.FABRIC_IN, DescriptorKind.FABRIC_OUT):
                uses.setdefault((d.kind is DescriptorKind.FABRIC_OUT, d.queue), pc)
    return uses


_ = FIELDS
