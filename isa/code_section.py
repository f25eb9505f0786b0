"""The `.code` section of a kernel: task ids, labels, and the words of all instructions."""

from __future__ import annotations

from .diagnostics import Diagnostics, Problem, Span, did_you_mean
from .expressions import Scope, integer
from .fields import FIELDS
from .instructions import BY_NAME, encode
from .lowering import Lowering
from .memory import DataSection
from .names import declared_twice, reserved
from .operands import QueueName
from .program import TASKS, Location, TaskKind
from .program import Task as MachineTask
from .scalar_operands import Emitted, Names, target_address
from .syntax import Code, Instruction, Name, Node, Task, Words


class CodeSection:
    """The tasks and the code words of one kernel."""

    def __init__(
        self, data: DataSection, queues: dict[str, QueueName], scope: Scope, diagnostics: Diagnostics
    ) -> None:
        self.scope, self.diagnostics = scope, diagnostics
        self.queue_names, self.data = dict(queues), data
        self.tasks: dict[str, MachineTask] = {}
        self.task_spans: dict[str, Span] = {}
        self.label_spans: dict[str, Span] = {}
        self.addresses: dict[str, int] = {}  # label or task -> word address
        self.encoded: list[int] = []
        self.locations: list[Location | None] = []

    def declare_tasks(self, statements: list[tuple[Code, Scope]]) -> None:
        """Ids of all tasks: those given, then the lowest free in order."""
        ids: dict[int, Name] = {}
        unnumbered: list[MachineTask] = []
        for line, scope in statements:
            if not isinstance(line.content, Task):
                continue
            name = line.content.name
            try:
                if name.text in self.tasks:
                    raise declared_twice(name, self.task_spans[name.text])
                if problem := reserved(name):
                    raise problem
                task = self._task(line.content, scope)
                self.tasks[name.text], self.task_spans[name.text] = task, name.span
                if task.id < 0:
                    unnumbered.append(task)
                elif task.id in ids:
                    raise Problem(
                        "resource",
                        f"task id {task.id} is taken by `{ids[task.id].text}`",
                        name.span,
                        notes=[("taken here", ids[task.id].span)],
                    )
                else:
                    ids[task.id] = name
            except Problem as problem:
                self.diagnostics.add(problem)
                if name.text not in self.tasks:
                    self.diagnostics.poison(name.text)
        for task in unnumbered:
            free = next((n for n in range(TASKS) if n not in ids), None)
            if free is None:
                span = self.task_spans[task.name]
                self.diagnostics.add(Problem("resource", f"more than {TASKS} tasks", span))
                free = 0
            task.id = free
            ids[free] = Name(self.task_spans[task.name], task.name)

    def _task(self, line: Task, scope: Scope) -> MachineTask:
        task = MachineTask(-1, line.name.text, TaskKind.LOCAL, 0, location=line.name.span.location)
        given: dict[str, Span] = {}
        for option in line.options:
            kind = option.kind
            if kind in given or (
                kind in ("data", "control", "local", "entry") and given.keys() & {"data", "control"}
            ):
                raise Problem("syntax", f"option `{kind}` does not fit with the ones before", option.span)
            given[kind] = option.span
            if kind == "entry":
                task.entry = True
            elif kind == "blocked":
                task.blocked = True
            elif kind == "priority":
                task.priority = option.value
            elif kind == "id":
                task.id = integer(option.value, scope, "a task id", 0, TASKS - 1)
            elif kind == "control":
                task.kind = TaskKind.CONTROL
                task.id = integer(option.value, scope, "a task id", 0, TASKS - 1)
            elif kind == "data":
                queue = self.queue_names.get(option.value.text)
                if queue is None or queue.output:
                    inputs = [name for name, q in self.queue_names.items() if not q.output]
                    raise Problem(
                        "name",
                        f"`{option.value.text}` is not an input queue",
                        option.value.span,
                        help=did_you_mean(option.value.text, inputs),
                    )
                task.kind, task.queue = TaskKind.DATA, queue.number
        if "entry" in given and task.kind is not TaskKind.LOCAL:
            raise Problem("type", "only a local task can be an entry task", given["entry"])
        return task

    def lower(self, statements: list[tuple[Code, Scope]], first: int = 0) -> None:
        """Turn all lines into words."""
        for line, _ in statements:
            for label in line.labels:
                self._declare_label(label)
        emitted: list[tuple[Emitted, int, Scope]] = []
        pc = first

        def emit(item: Emitted) -> None:
            nonlocal pc
            emitted.append((item, pc, scope))
            pc += item.words

        names = Names(self.data, self.queue_names, self.tasks, self.task_spans, self.label_spans)
        lowering = Lowering(names, emit)
        for line, scope in statements:
            for label in line.labels:
                self.addresses.setdefault(label.text, pc)
            try:
                if isinstance(line.content, Task):
                    self.addresses[line.content.name.text] = pc
                    if line.content.name.text in self.tasks:
                        self.tasks[line.content.name.text].pc = pc
                elif isinstance(line.content, Words):
                    for node in line.content.values:
                        value = integer(node, scope, "a word", -(1 << 31), (1 << 32) - 1) & 0xFFFFFFFF
                        emit(Emitted(".word", {}, node.span, raw=value))
                elif isinstance(line.content, Instruction):
                    lowering.instruction(line.content, scope)
            except Problem as problem:
                self.diagnostics.add(problem)
        for number, span in lowering.scratch.items():
            if number in lowering.by_hand:
                self.diagnostics.add(
                    Problem(
                        "resource",
                        f"d{number} is used by hand, but operand expressions of this kernel are "
                        "loaded into it",
                        lowering.by_hand[number],
                        notes=[("an operand expression that needs it", span)],
                        help="use d0..d12 by hand",
                    )
                )
        for item, address, scope_ in emitted:
            try:
                self._encode(item, address, scope_)
            except Problem as problem:
                self.diagnostics.add(problem)
                self.encoded += [0] * item.words
            self.locations += [item.span.location] * (len(self.encoded) - len(self.locations))

    def _declare_label(self, label: Name) -> None:
        try:
            if problem := reserved(label):
                raise problem
            first = self.label_spans.get(label.text) or self.task_spans.get(label.text)
            if first:
                raise declared_twice(label, first)
            self.label_spans[label.text] = label.span
        except Problem as problem:
            self.diagnostics.add(problem)

    def _encode(self, item: Emitted, pc: int, scope: Scope) -> None:
        if item.raw is not None:
            self.encoded.append(item.raw)
            return
        if item.target:
            field, node = item.target
            address = target_address(node, self.addresses, pc, scope)
            relative = FIELDS[field].kind == "label"
            value = address - pc if relative else address
            if not FIELDS[field].accepts(value):
                raise self._too_far(item, node, value, FIELDS[field].legal)
            item.values[field] = value
        try:
            self.encoded += encode(item.name, item.values)
        except ValueError as error:  # every field was checked before: a form that the table refuses
            raise Problem("range", str(error), item.span) from None

    def _too_far(self, item: Emitted, node: Node, value: int, legal: str) -> Problem:
        notes: list[tuple[str, Span | None]] = []
        if isinstance(node, Name) and (
            span := self.label_spans.get(node.text) or self.task_spans.get(node.text)
        ):
            notes = [("the target", span)]
        jump = BY_NAME[item.name].latency == "jump"
        return Problem(
            "range",
            f"`{node.span.text}` is {value} words away; `{item.name}` reaches {legal}",
            node.span,
            notes=notes,
            help=None if jump else "branch round a `jmp`, which reaches further",
        )
