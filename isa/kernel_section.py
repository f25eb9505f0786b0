"""One kernel of a source: its queues and data are declared, its code assembled, and a `Kernel` comes out."""

from __future__ import annotations

from typing import Any

import numpy as np

from .code_section import CodeSection
from .diagnostics import Diagnostics, Problem
from .expressions import Scope, integer
from .layout import KernelPlan
from .lowering import Lowering
from .memory import DataSection
from .names import declared_twice, expand, reserved
from .operands import QueueName
from .program import QUEUES, Kernel
from .reader import KernelTree
from .scalar_operands import Names
from .syntax import Align, Data, ListOf, Name, Queues


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
                        "resource",
                        f"{queue.direction}put queue {number} is taken by `{first.text}`",
                        queue.number.span,
                        notes=[("taken here", first.span)],
                    )
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
