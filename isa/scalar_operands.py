"""Scalar operands: registers, numbers, addresses, queues, tasks, checked against the table's fields."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .diagnostics import Problem, Span, did_you_mean
from .expressions import Scope, integer, unknown
from .fields import FIELDS
from .instructions import BY_NAME
from .instructions import Instruction as Row
from .loops import DESCRIPTOR, REGISTER
from .memory import DataSection
from .operands import Operands, QueueName
from .program import Task as MachineTask
from .spelling import operand_fields
from .syntax import Advanced, Binary, Here, Index, Instruction, Name, Node, Number, Option, Unary

_OUTPUTS = ("send", "sendc")


@dataclass
class Emitted:
    """A machine instruction; `target` is a field still to be filled with a label's address."""

    name: str
    values: dict[str, int]
    span: Span
    words: int = 1
    target: tuple[str, Node] | None = None
    raw: int | None = None  # `.word`


@dataclass
class Names:
    """What the code of a kernel may name."""

    data: DataSection
    queues: dict[str, QueueName]
    tasks: dict[str, MachineTask]
    task_spans: dict[str, Span]
    labels: dict[str, Span]


class Addresses(Scope):
    """The names that have a number in an operand: symbols are their addresses; queues have none."""

    def __init__(self, names: Names, parent: Scope) -> None:
        super().__init__(parent=parent)
        self.symbols, self.queues = names.data.symbols, names.queues

    def get(self, name: str) -> Any:
        symbol = self.symbols.get(name)
        return super().get(name) if symbol is None else symbol.address

    def names(self) -> set[str]:
        return super().names() | set(self.symbols)

    def why_hidden(self, name: str) -> str | None:
        return f"`{name}` is a queue, not a number" if name in self.queues else super().why_hidden(name)


class ScalarOperands:
    """The operands of the line at hand. `emit` receives machine instructions."""

    def __init__(self, names: Names, emit: Callable[[Emitted], None]) -> None:
        self.names, self.emit = names, emit
        self.line: Any = None  # the source instruction
        self.scope: Scope = Scope()
        self.numbers: Scope = self.scope
        self.by_hand: dict[int, Span] = {}  # descriptor registers the source names
        self.scratch: dict[int, Span] = {}  # and those that operand expressions use

    def at(self, line: Instruction, scope: Scope) -> None:
        """Go to a line, with the names it sees."""
        self.line, self.scope = line, scope
        self.numbers = Addresses(self.names, scope)

    def _emit(
        self, name: str, values: dict[str, int], words: int = 1, target: tuple[str, Node] | None = None
    ) -> None:
        self.emit(Emitted(name, values, self.line.span, words, target))

    def _count(self, *legal: int) -> None:
        count = len(self.line.operands)
        if count not in legal:
            name = self.line.mnemonic.text
            row = BY_NAME.get(name.split(".")[0])
            help = f"`{row.name}`: {', '.join(operand_fields(row))}; {row.meaning}" if row else None
            wanted = " or ".join(map(str, legal))
            last = self.line.operands[-1].span if count > max(legal) else self.line.mnemonic.span
            raise Problem("syntax", f"`{name}` takes {wanted} operands, not {count}", last, help=help)

    def _no_suffixes(self) -> None:
        for suffix in self.line.suffixes:
            what = suffix.kind if isinstance(suffix, Option) else "over"
            raise Problem(
                "syntax", f"`{self.line.mnemonic.text}` is no vector instruction: no `{what}`", suffix.span
            )

    def _is_register(self, node: Node) -> bool:
        return isinstance(node, Name) and bool(REGISTER.fullmatch(node.text))

    def _register(self, node: Node) -> int:
        if not self._is_register(node):
            help = (
                did_you_mean(node.text, [f"r{n}" for n in range(16)], "") if isinstance(node, Name) else None
            )
            raise Problem("type", f"`{node.span.text}` is not a register r0..r15", node.span, help=help)
        assert isinstance(node, Name)
        return int(node.text[1:])

    def _descriptor(self, node: Node) -> tuple[int, bool]:
        if isinstance(node, Advanced):
            self.by_hand.setdefault(node.number, node.span)
            return node.number, True
        if not (isinstance(node, Name) and DESCRIPTOR.fullmatch(node.text)):
            raise Problem("type", f"`{node.span.text}` is not a descriptor d0..d15", node.span)
        self.by_hand.setdefault(int(node.text[1:]), node.span)
        return int(node.text[1:]), False

    def _field(self, row: Row, field: str, node: Node) -> int:
        kind = FIELDS[field].kind
        if kind == "register":
            return self._register(node)
        if kind == "descriptor":
            number, advanced = self._descriptor(node)
            if advanced:
                raise Problem("type", f"`{row.name}` cannot leave a descriptor advanced", node.span)
            return number
        if kind == "queue":
            return self._queue(node, output=row.name in _OUTPUTS)
        if kind == "task":
            return self._task(node)
        if kind == "choice":
            choices = FIELDS[field].choices
            if not isinstance(node, Name) or node.text not in choices:
                text = node.span.text
                raise Problem(
                    "name",
                    f"`{text}` is no part of a descriptor",
                    node.span,
                    help=did_you_mean(text, choices, "parts: " + ", ".join(choices)),
                )
            return choices.index(node.text)
        return self._fits(row.name, field, self._number(node), node)

    def _fits(self, name: str, field: str, value: int, node: Node) -> int:
        f = FIELDS[field]
        if not f.accepts(value):
            raise Problem(
                "range",
                f"{value} does not fit in field `{field}` of `{name}` ({f.legal})",
                node.span,
                help="load it into a register with `li`" if field in ("imm", "disp") else None,
            )
        return value

    def _number(self, node: Node) -> int:
        """An integer expression in which symbols stand for their addresses."""
        return integer(self._addresses(node), self.numbers, "this operand")

    def _addresses(self, node: Node) -> Node:
        """The expression with every `symbol[i, j]` replaced by its address."""
        if isinstance(node, Index):
            symbol = self.names.data.symbols.get(node.base.text)
            if symbol is not None:
                operands = Operands(self.names.data, self.names.queues, self.scope)
                operand = operands.operand(node, symbol.element, [], False)
                if operand.memory is not None:
                    return Number(node.span, operand.memory[0])
        if isinstance(node, Binary):
            return Binary(node.span, node.operator, self._addresses(node.left), self._addresses(node.right))
        if isinstance(node, Unary):
            return Unary(node.span, node.operator, self._addresses(node.operand))
        return node

    def _queue(self, node: Node, output: bool) -> int:
        queue = self.names.queues.get(node.text) if isinstance(node, Name) else None
        wanted = "an output" if output else "an input"
        if queue is None:
            fits = [name for name, q in self.names.queues.items() if q.output == output]
            raise Problem(
                "name",
                f"`{node.span.text}` is not {wanted} queue",
                node.span,
                help=did_you_mean(node.span.text, fits),
            )
        if queue.output != output:
            raise Problem(
                "type",
                f"`{queue.name}` is not {wanted} queue",
                node.span,
                notes=[("declared here", queue.span)],
            )
        return queue.number

    def _task(self, node: Node) -> int:
        tasks = self.names.tasks
        if isinstance(node, Name) and self.scope.get(node.text) is None:
            if node.text not in tasks:
                raise Problem(
                    "name", f"no task `{node.text}`", node.span, help=did_you_mean(node.text, tasks)
                )
            return tasks[node.text].id
        number = integer(node, self.scope, "a task id", 0, FIELDS["task"].maximum)
        if all(task.id != number for task in tasks.values()):
            known = ", ".join(f"{t.id} `{t.name}`" for t in sorted(tasks.values(), key=lambda t: t.id))
            raise Problem("name", f"no task has id {number}", node.span, help=f"tasks: {known}")
        return number


def target_address(node: Node, labels: dict[str, int], here: int, scope: Scope) -> int:
    """Word address of a branch target: a label, a task, a number, `. + 4` or `loop + 1`."""
    if isinstance(node, Here):
        return here
    if isinstance(node, Name) and node.text in labels:
        return labels[node.text]
    if isinstance(node, Name) and scope.get(node.text) is None:
        if REGISTER.fullmatch(node.text):
            raise Problem(
                "type",
                "a branch target is a label",
                node.span,
                help="to jump to an address in a register use `jr`",
            )
        problem = unknown(node, scope)
        if problem.diagnostic.category == "name":
            raise Problem("name", f"no label `{node.text}`", node.span, help=did_you_mean(node.text, labels))
        raise problem
    if isinstance(node, Binary) and node.operator in ("+", "-"):
        left = target_address(node.left, labels, here, scope)
        right = target_address(node.right, labels, here, scope)
        return left + right if node.operator == "+" else left - right
    return integer(node, scope, "a branch target")
