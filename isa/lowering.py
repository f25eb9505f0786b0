"""One source instruction becomes machine instructions, by the instruction table.

Registers, immediates, addresses and types are checked against the table's fields; nothing is masked.
"""

from __future__ import annotations

from .diagnostics import Problem, did_you_mean
from .element_types import ElementType
from .expressions import Scope, evaluate
from .fields import FIELDS
from .instructions import BY_NAME, Unit
from .instructions import Instruction as Row
from .memory import element_bits, element_type
from .operands import Operands
from .program import Descriptor
from .spelling import operand_fields
from .syntax import Binary, Index, Instruction, Memory, Name, Node, Over
from .vectors import VectorLowering

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


class Lowering(VectorLowering):
    """Lowers the instructions of one kernel in order."""

    def instruction(self, line: Instruction, scope: Scope) -> None:
        """Lower one line. Raises Problem."""
        self.at(line, scope)
        name, *suffixes = line.mnemonic.text.split(".")
        if name == "nop":
            self._count(0)
            return self._emit("addi", {"rd": 0, "ra": 0, "imm": 0})
        if name == "mov":
            return self._mov()
        row = BY_NAME.get(name)
        if row is None:
            raise Problem(
                "name",
                f"unknown instruction `{name}`",
                line.mnemonic.span,
                help=did_you_mean(name, [*BY_NAME, *ALIASES], "`waferloom isa` lists all instructions"),
            )
        types = self._types(row, suffixes)
        if row.unit is Unit.VECTOR and types:
            return self.vector(row, types)
        if name == "ldd":
            return self._load_descriptor()
        self._no_suffixes()
        if types and name in ("ld", "st", "ldm", "stm"):
            return self._memory_access(row, types[0])
        if name in ("li", "li32"):
            return self._load_immediate(name)
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
                    "type",
                    f"`{symbol.name}` is {symbol.element.source_name}, the instruction is for "
                    f"{element.source_name}",
                    place.span,
                )
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
            "type",
            f"`[{node.span.text}]` is not a register plus a number",
            node.span,
            help="an address that is known now stands without brackets",
        )

    def _has_register(self, node: Node) -> bool:
        if isinstance(node, Binary):
            return self._has_register(node.left) or self._has_register(node.right)
        return self._is_register(node)

    def _load_descriptor(self) -> None:
        """`ldd d3, X`: X is an operand expression, a stored descriptor, or the address of one."""
        self._count(2)
        over = next((suffix for suffix in self.line.suffixes if isinstance(suffix, Over)), None)
        if over is None or len(self.line.suffixes) > 1:
            self._no_suffixes()
        target, source = self.line.operands
        number, advanced = self._descriptor(target)
        if advanced:
            raise Problem("type", "`ldd` cannot leave a descriptor advanced", target.span)
        symbols = self.names.data.symbols
        base = source.base if isinstance(source, Index) else source
        name = base.text if isinstance(base, Name) else None
        if name in symbols and symbols[name].role == "descriptor" and not over:
            address = self._number(source)
        elif name is None or (name not in symbols and self.scope.get(name) is not None):
            address = self._fits("ldd", "address", self._number(source), source)
        else:
            descriptor = self.explicit_descriptor(source, over)
            address = self.names.data.descriptor(descriptor, source.span).address
        self._emit("ldd", {"dd": number, "address": address})

    def explicit_descriptor(self, node: Node, over: Over | None) -> Descriptor:
        """A descriptor written for itself: `ldd d3, acc[i]` or `d: descriptor acc[i] over i:4`."""
        operands = Operands(self.names.data, self.names.queues, self.scope)
        base = node.base if isinstance(node, Index) else node
        queue = self.names.queues.get(base.text.partition(".")[0]) if isinstance(base, Name) else None
        loops = operands.loops.nest([node], over)
        operand = operands.operand(node, None, loops, output=bool(queue and queue.output))
        return operands.descriptor(operand, operand.count, keep_loops=True)


def _form(row: Row, pair: tuple[ElementType, ElementType]) -> str:
    t, s = pair
    return f"{row.name}.{t.source_name}" + (f".{s.source_name}" if t is not s else "")
