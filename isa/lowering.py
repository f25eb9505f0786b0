"""One source instruction becomes machine instructions: operands by the instruction table, vectors by way of `ldd`.

Registers, immediates, addresses and types are checked against the table's fields; nothing is masked. A vector
operand expression is stored as a descriptor and loaded into d13 (destination), d14 (first source) or d15 (second
source) just before the instruction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .diagnostics import Problem, Span, did_you_mean
from .element_types import ElementType
from .expressions import Scope, evaluate, integer, unknown
from .fields import FIELDS, LAUNCH_FIELDS
from .instructions import BY_NAME, INSTRUCTIONS, Unit
from .instructions import Instruction as Row
from .memory import DataSection, element_bits, element_type
from .operands import DESCRIPTOR, REGISTER, Operand, Operands, QueueName
from .program import THREADS, Descriptor, DescriptorKind, TaskKind
from .program import Task as MachineTask
from .syntax import (
    Advanced,
    Binary,
    Here,
    Index,
    Instruction,
    Memory,
    Name,
    Node,
    Number,
    Option,
    Over,
    Unary,
)  # fmt: skip

# The immediate form that a register form stands for when its last operand is no register.
IMMEDIATE_FORMS = {
    "add": "addi",
    "sub": "addi",
    "mul": "muli",
    "and": "andi",
    "shl": "shli",
    "shr": "shri",
    "sar": "sari",
}
ALIASES = ("mov", "nop")
# Operands in source order where it differs from the table's field order: the destination comes first.
SOURCE_ORDER = {"recv": ("ra", "queue")}
_HIDDEN_FIELDS = ("type", "source", "scalar", "advance_d", "advance_a", "advance_b", "asynchronous", "group")
_SCRATCH = {"dd": 13, "da": 14, "db": 15}
_ADVANCE = {"dd": "advance_d", "da": "advance_a", "db": "advance_b"}
_OUTPUTS = ("send", "sendc")


def operand_fields(row: Row) -> tuple[str, ...]:
    """The fields that stand as operands in source, in source order."""
    return SOURCE_ORDER.get(row.name) or tuple(f for f in row.fields if f not in _HIDDEN_FIELDS)


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


class Lowering:
    """Lowers the instructions of one kernel in order. `emit` receives the machine instructions."""

    def __init__(self, names: Names, emit: Callable[[Emitted], None]) -> None:
        self.names, self.emit = names, emit
        self.by_hand: dict[int, Span] = {}  # descriptor registers the source names
        self.scratch: dict[int, Span] = {}  # and those that operand expressions use

    def instruction(self, line: Instruction, scope: Scope) -> None:
        """Lower one line. Raises Problem."""
        self.line, self.scope = line, scope
        self.numbers = Scope({s.name: s.address for s in self.names.data.symbols.values()}, scope)
        self.numbers.hidden = {name: f"`{name}` is a queue, not a number" for name in self.names.queues}
        name, *suffixes = line.mnemonic.text.split(".")
        if name == "nop":
            self._count(0)
            return self._emit("addi", {"rd": 0, "ra": 0, "imm": 0})
        if name == "mov":
            return self._mov()
        row = BY_NAME.get(name)
        if row is None:
            raise Problem(
                "name", f"unknown instruction `{name}`", line.mnemonic.span,
                help=did_you_mean(name, [*BY_NAME, *ALIASES], "`waferloom isa` lists all instructions"),
            )  # fmt: skip
        types = self._types(row, suffixes)
        if row.unit is Unit.VECTOR:
            return self._vector(row, types)
        self._no_suffixes()
        if name in ("ld", "st", "ldm", "stm"):
            return self._memory_access(row, types[0])
        if name in ("li", "li32"):
            return self._load_immediate(name)
        if name == "ldd":
            return self._load_descriptor()
        fields = operand_fields(row)
        self._count(len(fields))
        if name in IMMEDIATE_FORMS and not self._is_register(line.operands[-1]):
            return self._immediate_form(name)
        if name in ("or", "xor") and not self._is_register(line.operands[-1]):
            raise Problem(
                "type",
                f"`{name}` has no immediate form",
                line.operands[-1].span,
                help="load the value with `li` first",
            )
        values = {"type": int(types[0]), "source": int(types[1])} if types else {}
        target = None
        for field, node in zip(fields, line.operands, strict=True):
            if FIELDS[field].kind == "label":
                target, values[field] = (field, node), 0
            else:
                values[field] = self._field(row, field, node)
        self._emit(name, values, target=target)

    def _emit(
        self, name: str, values: dict[str, int], words: int = 1, target: tuple[str, Node] | None = None
    ) -> None:
        self.emit(Emitted(name, values, self.line.span, words, target))

    # --- types ---
    def _types(self, row: Row, suffixes: list[str]) -> tuple[ElementType, ElementType] | tuple[()]:
        mnemonic = self.line.mnemonic
        if not row.types:
            if suffixes:
                raise Problem(
                    "type", f"`{row.name}` has no element type", mnemonic.span, help=f"write `{row.name}`"
                )
            return ()
        forms = [_form(row, pair) for pair in row.types]
        listed = ", ".join(dict.fromkeys(forms))
        if not suffixes or len(suffixes) > 2:
            raise Problem(
                "type", f"`{mnemonic.text}` needs an element type", mnemonic.span, help=f"forms: {listed}"
            )
        pair = [element_type(Name(mnemonic.span, suffix)) for suffix in suffixes]
        types = (pair[0], pair[-1])
        if types not in row.types or (len(suffixes) == 2 and not row.has_source_type):
            raise Problem("type", f"there is no `{mnemonic.text}`", mnemonic.span, help=f"forms: {listed}")
        return types

    # --- scalar operands ---
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
                    "name", f"`{text}` is no part of a descriptor", node.span,
                    help=did_you_mean(text, choices, "parts: " + ", ".join(choices)),
                )  # fmt: skip
            return choices.index(node.text)
        return self._fits(row.name, field, self._number(node), node)

    def _fits(self, name: str, field: str, value: int, node: Node) -> int:
        f = FIELDS[field]
        if not f.accepts(value):
            raise Problem(
                "range", f"{value} does not fit in field `{field}` of `{name}` ({f.legal})", node.span,
                help="load it into a register with `li`" if field in ("imm", "disp") else None,
            )  # fmt: skip
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

    # --- special scalar lines ---
    def _mov(self) -> None:
        self._no_suffixes()
        self._count(2)
        destination, source = self.line.operands
        if self._is_register(source):
            return self._emit(
                "addi", {"rd": self._register(destination), "ra": self._register(source), "imm": 0}
            )
        self._load_immediate("li")

    def _immediate_form(self, name: str) -> None:
        rd, ra, value = self.line.operands
        short = IMMEDIATE_FORMS[name]
        field = BY_NAME[short].fields[2]
        number = self._number(value)
        values = {"rd": self._register(rd), "ra": self._register(ra)}
        if name == "sub":
            if not FIELDS["imm"].accepts(-number):
                self._fits(f"addi` (for `{name}", field, -number, value)
            number = -number
        self._emit(short, {**values, field: self._fits(short, field, number, value)})

    def _load_immediate(self, name: str) -> None:
        self._count(2)
        destination, source = self.line.operands
        register = self._register(destination)
        if (
            isinstance(source, Name)
            and self.numbers.get(source.text) is None
            and source.text in self.names.labels
        ):
            return self._emit("li", {"rd": register, "imm": 0}, target=("imm", source))
        node = self._addresses(source)
        value = evaluate(node, self.numbers)
        if isinstance(value, float):
            value = element_bits(ElementType.F32, value, source.span)
        if not -(1 << 31) <= value < 1 << 32:
            raise Problem("range", f"{value} does not fit in 32 bits (-2147483648..4294967295)", source.span)
        signed = value - (1 << 32) if value >> 31 == 1 else value
        if name == "li" and FIELDS["imm"].accepts(signed):
            return self._emit("li", {"rd": register, "imm": signed})
        self._emit("li32", {"rd": register, "value": value & 0xFFFFFFFF}, words=2)

    def _memory_access(self, row: Row, element: ElementType) -> None:
        self._count(2)
        register = self._register(self.line.operands[0])
        place = self.line.operands[1]
        short, absolute = ("ld", "ldm") if row.name in ("ld", "ldm") else ("st", "stm")
        values = {"rd": register, "type": int(element)}
        if isinstance(place, Memory):
            if row.name == absolute:
                raise Problem("type", f"`{absolute}` takes an address", place.span, help=f"write `{short}`")
            base, offset = self._register_and_offset(place.address)
            return self._emit(
                short, {**values, "ra": base, "disp": self._fits(short, "disp", offset, place.address)}
            )
        if self._is_register(place):
            raise Problem(
                "type",
                "an address in a register stands in brackets",
                place.span,
                help=f"`[{place.span.text}]`",
            )
        if isinstance(place, (Name, Index)):
            base_name = place.text if isinstance(place, Name) else place.base.text
            symbol = self.names.data.symbols.get(base_name)
            if symbol and symbol.role == "data" and symbol.element is not element:
                raise Problem(
                    "type", f"`{symbol.name}` is {symbol.element.source_name}, the instruction is for "
                    f"{element.source_name}", place.span,
                )  # fmt: skip
            if symbol is None and self.numbers.get(base_name) is None:
                symbols = self.names.data.symbols
                raise Problem(
                    "name", f"no symbol `{base_name}`", place.span, help=did_you_mean(base_name, symbols)
                )
        address = self._fits(absolute, "address", self._number(place), place)
        self._emit(absolute, {**values, "address": address})

    def _register_and_offset(self, node: Node) -> tuple[int, int]:
        """`r1`, `r1 + 4`, `4 + r1`, `r1 - 4`: the register and the number of bytes."""
        if self._is_register(node):
            return self._register(node), 0
        if isinstance(node, Binary) and node.operator in ("+", "-"):
            if self._has_register(node.left):
                base, offset = self._register_and_offset(node.left)
                number = self._number(node.right)
                return base, offset + (number if node.operator == "+" else -number)
            if node.operator == "+" and self._has_register(node.right):
                base, offset = self._register_and_offset(node.right)
                return base, offset + self._number(node.left)
        raise Problem(
            "type", f"`[{node.span.text}]` is not a register plus a number", node.span,
            help="an address that is known now stands without brackets",
        )  # fmt: skip

    def _has_register(self, node: Node) -> bool:
        if isinstance(node, Binary):
            return self._has_register(node.left) or self._has_register(node.right)
        return self._is_register(node)

    def _load_descriptor(self) -> None:
        self._count(2)
        target, source = self.line.operands
        number, advanced = self._descriptor(target)
        if advanced:
            raise Problem("type", "`ldd` cannot leave a descriptor advanced", target.span)
        symbols = self.names.data.symbols
        if isinstance(source, Name) and source.text in symbols and symbols[source.text].role == "descriptor":
            return self._emit("ldd", {"dd": number, "address": symbols[source.text].address})
        base = source.base if isinstance(source, Index) else source
        known = isinstance(base, Name) and (
            base.text in symbols or base.text.partition(".")[0] in self.names.queues
        )
        if not known and not isinstance(base, Name):
            return self._emit(
                "ldd", {"dd": number, "address": self._fits("ldd", "address", self._number(source), source)}
            )
        descriptor = self.explicit_descriptor(source, None)
        address = self.names.data.descriptor(descriptor, source.span).address
        self._emit("ldd", {"dd": number, "address": address})

    def explicit_descriptor(self, node: Node, over: Over | None) -> Descriptor:
        """A descriptor written for itself: `ldd d3, acc[i]` or `d: descriptor acc[i] over i:4`."""
        operands = Operands(self.names.data, self.names.queues, self.scope)
        base = node.base if isinstance(node, Index) else node
        queue = self.names.queues.get(base.text.partition(".")[0]) if isinstance(base, Name) else None
        loops = operands.nest([node], over)
        operand = operands.operand(node, None, loops, output=bool(queue and queue.output))
        return operands.descriptor(operand, operand.count, keep_loops=True)

    # --- vectors ---
    def _vector(self, row: Row, types: tuple[ElementType, ElementType]) -> None:
        over, options = self._suffixes(row)
        if row.name == "ldd":
            raise AssertionError
        fields = operand_fields(row)
        self._count(len(fields))
        nodes = dict(zip(fields, self.line.operands, strict=True))
        values = {"type": int(types[0]), "source": int(types[1])}
        operands = Operands(self.names.data, self.names.queues, self.scope)
        loops = operands.nest(list(nodes.values()), over)
        last = fields[-1]
        expressions: dict[str, Operand] = {}
        for field, node in nodes.items():
            if field == "rd":
                values["rd"] = self._register(node)
            elif self._is_register(node):
                if field != last or "scalar" not in row.fields:
                    raise Problem(
                        "type", f"register `{node.span.text}` cannot stand here", node.span,
                        help="only the last source of a vector instruction may be a register"
                        if "scalar" in row.fields else f"`{row.name}` takes no register as a source",
                    )  # fmt: skip
                values[field], values["scalar"] = self._register(node), 1
            elif isinstance(node, Advanced) or (isinstance(node, Name) and DESCRIPTOR.fullmatch(node.text)):
                values[field], advanced = self._descriptor(node)
                values[_ADVANCE[field]] = int(advanced)
            else:
                if field == last and "scalar" in row.fields and isinstance(node, Number):
                    raise Problem(
                        "type", f"the number `{node.span.text}` cannot be an operand", node.span,
                        help=f"load it first: `li r1, {node.span.text}`, then write `r1`",
                    )  # fmt: skip
                element = types[0] if field == "dd" else types[1] if row.has_source_type else types[0]
                expressions[field] = operands.operand(node, element, loops, output=field == "dd")
        self._check_expressions(row, expressions, over)
        count = self._common_count(expressions, loops)
        if row.name == "vdeq":
            values["group"] = self._group(expressions, options)
        emitted: dict[Descriptor, int] = {}
        for field, operand in expressions.items():
            descriptor = operands.descriptor(operand, count)
            if descriptor not in emitted:
                emitted[descriptor] = register = _SCRATCH[field]
                self.scratch.setdefault(register, operand.node.span)
                address = self.names.data.descriptor(descriptor, operand.node.span).address
                self._emit("ldd", {"dd": register, "address": address})
            values[field] = emitted[descriptor]
        words = 1
        if "thread" in options:
            self._launch(row, values, expressions, options)
            words = 2
        self._emit(row.name, values, words)

    def _suffixes(self, row: Row) -> tuple[Over | None, dict[str, Option]]:
        over, options = None, {}
        for suffix in self.line.suffixes:
            kind = "over" if isinstance(suffix, Over) else suffix.kind  # type: ignore[attr-defined]
            if kind in options or (kind == "over" and over):
                raise Problem("syntax", f"`{kind}` stands twice", suffix.span)
            if isinstance(suffix, Over):
                over = suffix
            else:
                assert isinstance(suffix, Option)
                options[kind] = suffix
        for kind in ("priority", "completion"):
            if kind in options and "thread" not in options:
                raise Problem(
                    "syntax", f"`{kind}` needs a microthread" if kind == "priority" else "`then` needs a microthread",
                    options[kind].span, help="launch the instruction with `@0`..`@7`",
                )  # fmt: skip
        if "thread" in options and "asynchronous" not in row.fields:
            why = "its result is a register" if row.to_register else "it has no fabric operand"
            raise Problem("type", f"`{row.name}` cannot run on a microthread: {why}", options["thread"].span)
        if "group" in options and row.name != "vdeq":
            raise Problem("syntax", f"`{row.name}` has no group size", options["group"].span)
        return over, options

    def _check_expressions(self, row: Row, operands: dict[str, Operand], over: Over | None) -> None:
        destination = operands.get("dd")
        if row.name == "vmac" and destination and destination.kind is not DescriptorKind.MEMORY:
            raise Problem(
                "type",
                "the destination of `vmac` is read and written: it must be in memory",
                destination.node.span,
            )
        queues: dict[str, Operand] = {}
        fabric: list[Operand] = []
        for operand in operands.values():
            name = operand.queue.name if operand.queue else operand.symbol.name if operand.symbol else ""
            if operand.kind is DescriptorKind.MEMORY:
                continue
            if name in queues:
                raise Problem(
                    "resource", f"`{name}` is used twice by one instruction", operand.node.span,
                    notes=[("the other use", queues[name].node.span)],
                )  # fmt: skip
            queues[name] = operand
            if operand.queue:
                fabric.append(operand)
        for operand in fabric[1:]:
            if operand.per_wavelet != fabric[0].per_wavelet:
                raise Problem(
                    "type", f"`{operand.node.span.text}` carries {operand.per_wavelet} per wavelet, "
                    f"`{fabric[0].node.span.text}` {fabric[0].per_wavelet}", operand.node.span,
                    help="all fabric operands of an instruction carry equally many: add `.single` to the packed one",
                )  # fmt: skip

    def _common_count(self, operands: dict[str, Operand], loops: list) -> int | None:
        """The number of elements all operands agree on; None if no operand tells."""
        first: Operand | None = None
        for operand in operands.values():
            if operand.count is None:
                continue
            if first is None:
                first = operand
            elif operand.count != first.count:
                raise Problem(
                    "range", f"`{operand.node.span.text}` has {_elements(operand.count)}, `{first.node.span.text}` has "
                    f"{first.count}", operand.node.span,
                    notes=[(f"{_elements(first.count or 0)} here", first.node.span)],
                    help="all operands of a vector instruction have equally many elements",
                )  # fmt: skip
        return first.count if first else None

    def _group(self, operands: dict[str, Operand], options: dict[str, Option]) -> int:
        choices = FIELDS["group"].choices
        source = operands.get("da")
        declared = source.symbol.group if source and source.symbol else None
        if "group" in options:
            node = options["group"].value
            size = integer(node, self.scope, "the group size")
            if str(size) not in choices:
                raise Problem("range", f"group size {size}; legal: {', '.join(choices)}", node.span)
            if declared not in (None, size):
                raise Problem(
                    "type", f"group {size}, but the symbol is declared with group {declared}", node.span
                )
            return choices.index(str(size))
        if declared is None:
            raise Problem(
                "type",
                "the group size of a descriptor's weights is not known",
                self.line.span,
                help="add `group 32`",
            )
        return choices.index(str(declared))

    def _launch(
        self, row: Row, values: dict[str, int], operands: dict[str, Operand], options: dict[str, Option]
    ) -> None:
        known = {
            f
            for f in ("dd", "da", "db")
            if f in values and not (f == operand_fields(row)[-1] and values.get("scalar"))
        }
        if known == set(operands) and all(o.kind is DescriptorKind.MEMORY for o in operands.values()):
            raise Problem(
                "type",
                "only an instruction with a fabric or FIFO operand may run on a microthread",
                options["thread"].span,
            )
        values["asynchronous"] = 1
        values["thread"] = integer(options["thread"].value, self.scope, "the microthread", 0, THREADS - 1)
        values["priority"] = options["priority"].value if "priority" in options else 0
        values["completion"] = values["launch_task"] = 0
        if "completion" in options:
            action, node = options["completion"].value
            values["completion"] = LAUNCH_FIELDS["completion"].choices.index(action)
            values["launch_task"] = self._task(node)
            task = next(t for t in self.names.tasks.values() if t.id == values["launch_task"])
            if action == "activate" and task.kind is not TaskKind.LOCAL:
                raise Problem("type", f"task `{task.name}` is not local and cannot be activated", node.span)


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


def _form(row: Row, pair: tuple[ElementType, ElementType]) -> str:
    t, s = pair
    return f"{row.name}.{t.source_name}" + (f".{s.source_name}" if t is not s else "")


def _elements(count: int) -> str:
    return f"{count} element" + "s" * (count != 1)


_ = INSTRUCTIONS
