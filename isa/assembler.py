"""The assembler: a `.loom` source becomes a `Program`, or one AssemblyError with everything that is wrong.

This file drives the stages: read, name, lay out data, lower code, lay out the grid, check. Each statement that fails
costs one diagnostic; the rest goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .checks import check
from .diagnostics import Diagnostics, Problem, Source, Span, did_you_mean
from .errors import Usage
from .expressions import Scope, evaluate, integer
from .fields import FIELDS
from .instructions import BY_NAME, encode
from .layout import KernelPlan, Layout
from .lowering import Emitted, Lowering, Names, target_address
from .memory import DataSection
from .operands import DESCRIPTOR, REGISTER, QueueName
from .program import COLOURS, QUEUES, TASKS, Kernel, Location, Program, TaskKind
from .program import Task as MachineTask
from .reader import KernelTree, Reader, Unit, load
from .syntax import Align, Code, Data, Definition, If, Instruction, Name, Node, Queues, Repeat, Task, Words

MOST_ROUNDS = 1 << 20  # rounds of one `repeat`


@dataclass
class Assembly:
    """What an assembly gave: the program and the findings (warnings only, else AssemblyError was raised)."""

    program: Program
    diagnostics: Diagnostics


def assemble(
    path_or_source: str | Path,
    *,
    name: str | None = None,
    include_dirs: Sequence[str | Path] = (),
    strict: bool = False,
    **parameters: int,
) -> Program:
    """The program of a file (`-`: standard input) or, if the string has several lines, of a text.

    Keyword arguments set `.param`s. Raises AssemblyError with all diagnostics, Rejected for an unreadable file.
    """
    if isinstance(path_or_source, str) and ("\n" in path_or_source or not path_or_source):
        return assemble_text(
            path_or_source, name=name, include_dirs=include_dirs, strict=strict, **parameters
        )
    return assemble_file(
        path_or_source, name=name, include_dirs=include_dirs, strict=strict, parameters=parameters
    ).program


def assemble_text(
    text: str,
    *,
    name: str | None = None,
    include_dirs: Sequence[str | Path] = (),
    strict: bool = False,
    **parameters: int,
) -> Program:
    """The program of a source text; diagnostics call it `<name>`."""
    source = Source(f"<{name or 'text'}>", text)
    return _assemble(source, name or "text", include_dirs, strict, parameters).program


def assemble_file(
    path: str | Path,
    *,
    name: str | None = None,
    include_dirs: Sequence[str | Path] = (),
    strict: bool = False,
    parameters: dict[str, int] | None = None,
) -> Assembly:
    """As `assemble`, for tools: the program together with its warnings."""
    source = load(path)
    stem = "stdin" if str(path) == "-" else Path(path).stem
    return _assemble(source, name or stem, include_dirs, strict, parameters or {})


def encode_line(text: str, pc: int = 0) -> list[int]:
    """The words of one instruction without symbols, as if it stood at word `pc`. Raises AssemblyError."""
    from .syntax import parse

    source, diagnostics = Source("<line>", text), Diagnostics()
    words: list[int] = []
    try:
        tree = parse("code_line", Span(source, 0, len(source.text)))
        code = CodeSection(DataSection(Scope()), {}, Scope(), diagnostics)
        code.tasks = {f"_{n}": MachineTask(n, f"_{n}", TaskKind.LOCAL, 0) for n in range(TASKS)}
        code.queue_names.update({f"q{n}": QueueName(f"q{n}", True, n, tree.span) for n in range(QUEUES)})
        code.lower([(tree, Scope())], first=pc)
        words = code.encoded
    except Problem as problem:
        diagnostics.add(problem)
    diagnostics.raise_if_rejected({source.name: source.text}, "line")
    return words


def _assemble(
    source: Source,
    name: str,
    include_dirs: Sequence[str | Path],
    strict: bool,
    parameters: dict[str, int],
    values: Mapping[str, Any] | None = None,
) -> Assembly:
    """Assemble one source. `values`: names known beforehand, such as the builder's arrays."""
    diagnostics = Diagnostics()
    unit = Reader(diagnostics, include_dirs).read(source)
    scope = Globals(unit, parameters, diagnostics)
    scope.values.update(values or {})
    plans = [KernelSection(tree, scope, diagnostics).plan() for tree in unit.kernels.values()]
    layout = Layout(plans, scope, scope.colours, diagnostics)
    start = None if unit.unparsed else Span(source, 0, 0)
    layout.run(expand(unit.layout, scope, diagnostics), start)
    program = layout.program(name)
    program.machine = unit.machine.text if unit.machine else None
    program.parameters = {d.name.text: scope.value(d.name.text) for d in unit.params}
    program.colour_names = dict(scope.colours)
    program.sources = dict(unit.sources)
    if not diagnostics.errors:
        for finding in check(program, origins=layout.origins):
            diagnostics.add(finding)
    diagnostics.raise_if_rejected(unit.sources, name, strict)
    return Assembly(program, diagnostics)


class Globals(Scope):
    """Parameters, constants and colours: evaluated when asked for, so that their order does not matter."""

    def __init__(self, unit: Unit, parameters: dict[str, int], diagnostics: Diagnostics) -> None:
        super().__init__()
        self.diagnostics = diagnostics
        self.pending: dict[str, Definition] = {}
        self.evaluating: list[str] = []
        self.colours: dict[str, int] = {}
        self._declare(unit)
        known = {d.name.text for d in unit.params}
        for name, value in parameters.items():
            if name not in known:
                raise Usage(f"the program has no parameter `{name}`", help=did_you_mean(name, known))
            if not isinstance(value, (int, np.integer)):
                raise Usage(f"parameter `{name}` must be an integer, not {value!r}")
            self.values[name] = int(value)
            self.pending.pop(name, None)
        for name in list(self.pending):
            self.get(name)
        self._number_colours(unit.colours)

    def _declare(self, unit: Unit) -> None:
        seen: dict[str, Name] = {}
        for definition in (*unit.params, *unit.consts, *unit.colours):
            name = definition.name
            if problem := reserved(name):
                self.diagnostics.add(problem)
            elif name.text in seen:
                self.diagnostics.add(declared_twice(name, seen[name.text].span))
            else:
                seen[name.text] = name
        for definition in (*unit.params, *unit.consts):
            self.pending.setdefault(definition.name.text, definition)

    def get(self, name: str) -> Any:
        if name in self.values:
            return self.values[name]
        definition = self.pending.get(name)
        if definition is None:
            return super().get(name)
        if name in self.evaluating:
            self.values[name] = 0
            chain = " -> ".join([*self.evaluating, name])
            self.diagnostics.add(Problem("name", f"`{name}` is defined by itself: {chain}", definition.span))
            return 0
        self.evaluating.append(name)
        try:
            assert definition.value is not None
            self.values[name] = evaluate(definition.value, self)
        except Problem as problem:
            self.diagnostics.add(problem)
            self.values[name] = 0
        finally:
            self.evaluating.pop()
        return self.values[name]

    def value(self, name: str) -> int:
        return self.values.get(name, 0)

    def names(self) -> set[str]:
        return set(self.values) | set(self.pending)

    def _number_colours(self, definitions: list[Definition]) -> None:
        taken: dict[int, Name] = {}
        for definition in definitions:
            name = definition.name
            if definition.value is None:
                continue
            try:
                number = integer(definition.value, self)
                if not 0 <= number < COLOURS:
                    raise Problem(
                        "range", f"no colour {number}; colours are 0..{COLOURS - 1}", definition.value.span
                    )
                if number in taken:
                    raise Problem(
                        "resource", f"colour {number} has a name already: `{taken[number].text}`", definition.span,
                        notes=[("first named here", taken[number].span)],
                    )  # fmt: skip
                taken[number] = name
                self.colours[name.text] = number
            except Problem as problem:
                self.diagnostics.add(problem)
                self.colours[name.text] = 0
        for definition in definitions:
            if definition.name.text in self.colours:
                continue
            free = next((number for number in range(COLOURS) if number not in taken), None)
            if free is None:
                self.diagnostics.add(
                    Problem("resource", f"more than {COLOURS} colours", definition.span, help="colours can be shared by "
                            "routes that never meet")
                )  # fmt: skip
                free = 0
            taken[free] = definition.name
            self.colours[definition.name.text] = free
        self.values.update(self.colours)


def reserved(name: Name) -> Problem | None:
    """A problem if a name cannot be declared because the machine has it."""
    if REGISTER.fullmatch(name.text) or DESCRIPTOR.fullmatch(name.text):
        return Problem("name", f"`{name.text}` is a register and cannot be declared", name.span)
    return None


def declared_twice(name: Name, first: Span) -> Problem:
    return Problem(
        "name", f"`{name.text}` is declared twice", name.span, notes=[("first declared here", first)]
    )


def expand(nodes: Iterable[Node], scope: Scope, diagnostics: Diagnostics) -> Iterator[tuple[Node, Scope]]:
    """The statements of a section with blocks carried out, each with the names it sees."""
    for node in nodes:
        try:
            if isinstance(node, Repeat):
                start = integer(node.start, scope, "the start")
                stop = integer(node.stop, scope, "the end")
                step = integer(node.step, scope, "the step", 1) if node.step else 1
                if scope.get(node.variable.text) is not None or reserved(node.variable):
                    raise Problem("name", f"`{node.variable.text}` has a meaning already", node.variable.span)
                if (stop - start) // step >= MOST_ROUNDS:
                    raise Problem(
                        "range", f"{(stop - start) // step + 1} rounds; at most {MOST_ROUNDS}", node.span
                    )
                for value in range(start, stop + 1, step):
                    yield from expand(node.body, Scope({node.variable.text: value}, scope), diagnostics)
            elif isinstance(node, If):
                for condition, body in node.branches:
                    if condition is None or integer(condition, scope, "a condition"):
                        yield from expand(body, scope, diagnostics)
                        break
            else:
                yield node, scope
        except Problem as problem:
            diagnostics.add(problem)


class KernelSection:
    """Assembles one kernel."""

    def __init__(self, tree: KernelTree, scope: Scope, diagnostics: Diagnostics) -> None:
        self.tree, self.scope, self.diagnostics = tree, scope, diagnostics
        self.queues: dict[str, QueueName] = {}
        self.data = DataSection(scope)

    def _expanded(self, section: str) -> list[tuple[Any, Scope]]:
        return list(expand(self.tree.sections[section], self.scope, self.diagnostics))

    def plan(self) -> KernelPlan:
        """The kernel, with what the layout needs to know about its source."""
        self._declare_queues()
        self._declare_data()
        code = CodeSection(self.data, self.queues, self.scope, self.diagnostics)
        statements = self._expanded("code")
        code.declare_tasks(statements)
        code.lower(statements)
        data, written = self.data.image()
        kernel = Kernel(
            self.tree.name.text,
            np.array(code.encoded, np.uint32),
            data,
            written,
            self.data.symbols,
            {task.id: task for task in sorted(code.tasks.values(), key=lambda task: task.id)},
            {name: pc for name, pc in code.addresses.items() if name not in code.tasks},
            code.locations,
            {q.number: q.name for q in self.queues.values() if not q.output},
            {q.number: q.name for q in self.queues.values() if q.output},
            self.tree.name.span.location,
        )
        return KernelPlan(kernel, self.queues, self.tree.name.span)

    def _declare_queues(self) -> None:
        lines = [
            queue for line, _ in self._expanded("queues") for queue in line.queues if isinstance(line, Queues)
        ]
        taken: dict[bool, dict[int, Name]] = {False: {}, True: {}}
        numbers: dict[str, int] = {}
        for queue in lines:
            if queue.number is None:
                continue
            try:
                number = integer(queue.number, self.scope, "a queue number", 0, QUEUES - 1)
                if first := taken[queue.direction == "out"].get(number):
                    raise Problem(
                        "resource", f"{queue.direction}put queue {number} is taken by `{first.text}`", queue.number.span,
                        notes=[("taken here", first.span)],
                    )  # fmt: skip
                taken[queue.direction == "out"][number] = queue.name
                numbers[queue.name.text] = number
            except Problem as problem:
                self.diagnostics.add(problem)
                numbers[queue.name.text] = 0
        for queue in lines:
            name, output = queue.name, queue.direction == "out"
            if problem_ := self._clash(name):
                self.diagnostics.add(problem_)
                continue
            if name.text not in numbers:
                free = next((n for n in range(QUEUES) if n not in taken[output]), None)
                if free is None:
                    self.diagnostics.add(
                        Problem("resource", f"more than {QUEUES} {queue.direction}put queues", name.span)
                    )
                    free = 0
                taken[output][free] = name
                numbers[name.text] = free
            self.queues[name.text] = QueueName(name.text, output, numbers[name.text], name.span)

    def _clash(self, name: Name) -> Problem | None:
        if problem := reserved(name):
            return problem
        if name.text in self.queues:
            return declared_twice(name, self.queues[name.text].span)
        if name.text in self.data.spans:
            return declared_twice(name, self.data.spans[name.text])
        if self.scope.get(name.text) is not None:
            return Problem("name", f"`{name.text}` is a parameter, constant or colour already", name.span)
        return None

    def _declare_data(self) -> None:
        statements = self._expanded("data")
        for line, _ in statements:
            if isinstance(line, Data):
                try:
                    if problem := self._clash(line.name):
                        raise problem
                    self.data.spans[line.name.text] = line.name.span
                    self.data.symbols[line.name.text] = self.data.declare(line)
                except Problem as problem:
                    self.diagnostics.add(problem)
                    if line.name.text not in self.data.symbols:
                        self.diagnostics.poison(line.name.text)
        stored = [line for line, _ in statements if isinstance(line, Data) and line.kind == "descriptor"]
        self._store_descriptors(stored, final=False)
        self.data.layout(
            [line for line, _ in statements if isinstance(line, (Data, Align))], self.diagnostics.add
        )
        self._store_descriptors(stored, final=True)
        for line, _ in statements:
            if isinstance(line, Data) and (symbol := self.data.symbols.get(line.name.text)):
                try:
                    self.data.initialise(line, symbol)
                except Problem as problem:
                    self.diagnostics.add(problem)

    def _store_descriptors(self, lines: list[Data], final: bool) -> None:
        """Sizes (before addresses are known), then values, of `NAME: descriptor ...`."""
        from .syntax import ListOf

        lowering = Lowering(Names(self.data, self.queues, {}, {}, {}), lambda emitted: None)
        lowering.scope = self.scope
        for line in lines:
            symbol = self.data.symbols.get(line.name.text)
            if symbol is None or line.initial is None:
                continue
            try:
                if isinstance(line.initial, ListOf):
                    halfwords = [
                        integer(item, self.scope, "a halfword", -0x8000, 0xFFFF) & 0xFFFF
                        for item in line.initial.items
                    ]
                else:
                    halfwords = lowering.explicit_descriptor(line.initial, line.over).halfwords
            except Problem as problem:
                self.diagnostics.add(problem)
                halfwords = [0, 0, 0, 0]
            symbol.shape, symbol.nbytes = (len(halfwords),), 2 * len(halfwords)
            if final:
                self.data.store(symbol.address, np.array(halfwords, "<u2").tobytes())


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
                        "resource", f"task id {task.id} is taken by `{ids[task.id].text}`", name.span,
                        notes=[("taken here", ids[task.id].span)],
                    )  # fmt: skip
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
                        "name", f"`{option.value.text}` is not an input queue", option.value.span,
                        help=did_you_mean(option.value.text, inputs),
                    )  # fmt: skip
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
                self.diagnostics.add(Problem(
                    "resource", f"d{number} is used by hand, but operand expressions of this kernel are loaded into it",
                    lowering.by_hand[number], notes=[("an operand expression that needs it", span)],
                    help="use d0..d12 by hand",
                ))  # fmt: skip
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
            "range", f"`{node.span.text}` is {value} words away; `{item.name}` reaches {legal}", node.span, notes=notes,
            help=None if jump else "branch round a `jmp`, which reaches further",
        )  # fmt: skip
