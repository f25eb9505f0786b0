"""Vector instructions: operand expressions become stored descriptors and `ldd`, then the instruction itself.

d13 takes the descriptor of the destination, d14 of the first source, d15 of the second.
"""

from __future__ import annotations

from .diagnostics import Problem
from .element_types import ElementType
from .expressions import integer
from .fields import FIELDS, LAUNCH_FIELDS
from .instructions import Instruction as Row
from .loops import DESCRIPTOR, Loop
from .operands import Operand, Operands
from .program import THREADS, Descriptor, DescriptorKind, TaskKind
from .scalar_operands import ScalarOperands
from .spelling import operand_fields
from .syntax import Advanced, Name, Number, Option, Over

_SCRATCH = {"dd": 13, "da": 14, "db": 15}
_ADVANCE = {"dd": "advance_d", "da": "advance_a", "db": "advance_b"}


class VectorLowering(ScalarOperands):
    """Lowers vector instructions."""

    def vector(self, row: Row, types: tuple[ElementType, ElementType]) -> None:
        over, options = self._suffixes(row)
        fields = operand_fields(row)
        self._count(len(fields))
        nodes = dict(zip(fields, self.line.operands, strict=True))
        values = {"type": int(types[0]), "source": int(types[1])}
        operands = Operands(self.names.data, self.names.queues, self.scope)
        loops = operands.loops.nest(list(nodes.values()), over)
        last = fields[-1]
        expressions: dict[str, Operand] = {}
        for field, node in nodes.items():
            if field == "rd":
                values["rd"] = self._register(node)
            elif self._is_register(node):
                if field != last or "scalar" not in row.fields:
                    raise Problem(
                        "type",
                        f"register `{node.span.text}` cannot stand here",
                        node.span,
                        help="only the last source of a vector instruction may be a register"
                        if "scalar" in row.fields
                        else f"`{row.name}` takes no register as a source",
                    )
                values[field], values["scalar"] = self._register(node), 1
            elif isinstance(node, Advanced) or (isinstance(node, Name) and DESCRIPTOR.fullmatch(node.text)):
                values[field], advanced = self._descriptor(node)
                values[_ADVANCE[field]] = int(advanced)
            else:
                if field == last and "scalar" in row.fields and isinstance(node, Number):
                    raise Problem(
                        "type",
                        f"the number `{node.span.text}` cannot be an operand",
                        node.span,
                        help=f"load it first: `li r1, {node.span.text}`, then write `r1`",
                    )
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
            kind = "over" if isinstance(suffix, Over) else suffix.kind
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
                    "syntax",
                    f"`{kind}` needs a microthread" if kind == "priority" else "`then` needs a microthread",
                    options[kind].span,
                    help="launch the instruction with `@0`..`@7`",
                )
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
                    "resource",
                    f"`{name}` is used twice by one instruction",
                    operand.node.span,
                    notes=[("the other use", queues[name].node.span)],
                )
            queues[name] = operand
            if operand.queue:
                fabric.append(operand)
        for operand in fabric[1:]:
            if operand.per_wavelet != fabric[0].per_wavelet:
                raise Problem(
                    "type",
                    f"`{operand.node.span.text}` carries {operand.per_wavelet} per wavelet, "
                    f"`{fabric[0].node.span.text}` {fabric[0].per_wavelet}",
                    operand.node.span,
                    help="all fabric operands of an instruction carry equally many: add `.single` to "
                    "the packed one",
                )

    def _common_count(self, operands: dict[str, Operand], loops: list[Loop]) -> int | None:
        """The number of elements all operands agree on; None if no operand tells."""
        first: Operand | None = None
        for operand in operands.values():
            if operand.count is None:
                continue
            if first is None:
                first = operand
            elif operand.count != first.count:
                raise Problem(
                    "range",
                    f"`{operand.node.span.text}` has {_elements(operand.count)}, "
                    f"`{first.node.span.text}` has "
                    f"{first.count}",
                    operand.node.span,
                    notes=[(f"{_elements(first.count or 0)} here", first.node.span)],
                    help="all operands of a vector instruction have equally many elements",
                )
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


def _elements(count: int) -> str:
    return f"{count} element" + "s" * (count != 1)
