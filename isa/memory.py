"""The `.data` section: declarations become symbols at addresses, and initial values become bytes.

Symbols are laid out in source order from address 0, each at its natural alignment; descriptors that the
assembler makes follow. Code comes behind and is not this file's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod

import numpy as np

from .dequantise import GROUP_SIZES, q4_group_bytes, q8_group_bytes
from .diagnostics import Problem, Span, did_you_mean
from .element_types import BY_SOURCE_NAME, ElementType
from .expressions import Scope, Value, encode_real, evaluate, integer
from .program import Descriptor, Symbol
from .syntax import Align, Data, ListOf, Name, Node

ADDRESSES = 1 << 16  # bytes that an address or a descriptor's base can name
FIFO_HEADER_BYTES = 4  # head index and fill count
QUANTISED = (ElementType.Q4, ElementType.Q8)


def element_type(name: Name, legal: Iterable[ElementType] = tuple(ElementType)) -> ElementType:
    """The element type that a name in source stands for. Raises Problem with the legal set."""
    known = {t.source_name: t for t in legal}
    if name.text in known:
        return known[name.text]
    if name.text in BY_SOURCE_NAME:
        raise Problem("type", f"`{name.text}` is not possible here; legal: {', '.join(known)}", name.span)
    raise Problem(
        "type",
        f"no element type `{name.text}`",
        name.span,
        help=did_you_mean(name.text, known, "types: " + ", ".join(known)),
    )


def group_bytes(element: ElementType, group: int) -> int:
    """Bytes of one group of quantised weights."""
    return q4_group_bytes(group) if element is ElementType.Q4 else q8_group_bytes(group)


def element_bits(element: ElementType, value: Value, span: Span) -> Value:
    """The bits of a number, or of an array of them, in an element type; nothing is cut off. "
    "Raises Problem."""
    if element.is_float:
        return encode_real(value, element.source_name, span)
    array = np.asarray(value)
    if array.dtype.kind == "f":
        raise Problem("type", f"a {element.source_name} must be an integer", span)
    low, high = -(1 << (element.bits - 1)), (1 << element.bits) - 1
    bad = (array < low) | (array > high)
    if np.any(bad):
        worst = array[bad].flat[0] if array.ndim else value
        raise Problem("range", f"{worst} does not fit in {element.source_name} ({low}..{high})", span)
    return array & high if array.ndim else int(value) & high


class DataSection:
    """Symbols and initial bytes of one kernel."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.symbols: dict[str, Symbol] = {}
        self.spans: dict[str, Span] = {}
        self.end = 0  # first free byte
        self._values: list[tuple[int, bytes]] = []
        self._descriptors: dict[Descriptor, Symbol] = {}

    # --- declarations ---
    def declare(self, line: Data) -> Symbol:
        """A symbol with its shape and size, not yet at an address."""
        if line.kind == "descriptor":
            return Symbol(
                line.name.text,
                ElementType.I16,
                (0,),
                0,
                0,
                role="descriptor",
                location=line.name.span.location,
            )
        assert line.type is not None
        if "group" in line.modifiers or line.type.text in ("q4", "q8"):
            return self._quantised(line)
        element = element_type(line.type, [t for t in ElementType if t not in QUANTISED])
        shape = self._shape(line)
        count = prod(shape)
        nbytes = count * element.bytes
        if line.kind == "fifo":
            if len(shape) != 1 or count == 0:
                raise Problem("type", "a FIFO has one dimension, its capacity in elements", line.span)
            nbytes += FIFO_HEADER_BYTES
        return Symbol(
            line.name.text,
            element,
            shape,
            0,
            nbytes,
            "export" in line.modifiers,
            "fifo" if line.kind == "fifo" else "data",
            location=line.name.span.location,
        )

    def _shape(self, line: Data) -> tuple[int, ...]:
        nodes = line.shape or []
        if len(nodes) > 8:
            raise Problem("type", f"{len(nodes)} dimensions; at most 8", line.span)
        shape = tuple(integer(node, self.scope, "an extent", 0, ADDRESSES - 1) for node in nodes)
        if prod(shape) >= ADDRESSES:
            raise Problem(
                "range",
                f"{' * '.join(map(str, shape))} = {prod(shape)} elements; at most {ADDRESSES - 1}",
                line.span,
            )
        return shape

    def _quantised(self, line: Data) -> Symbol:
        assert line.type is not None
        element = element_type(line.type, QUANTISED)
        if line.kind == "fifo":
            raise Problem("type", f"a FIFO of {element.source_name} is not possible", line.type.span)
        shape = self._shape(line)
        group = 32
        if node := line.modifiers.get("group"):
            group = integer(node, self.scope, "the group size")
            if group not in GROUP_SIZES:
                raise Problem(
                    "range", f"group size {group}; legal: {', '.join(map(str, GROUP_SIZES))}", node.span
                )
        if not shape:
            raise Problem(
                "type", f"`{line.name.text}` needs a shape: {element.source_name} comes in groups", line.span
            )
        if shape[-1] % group:
            assert line.shape
            raise Problem(
                "range",
                f"the last extent {shape[-1]} is not a multiple of the group size {group}",
                line.shape[-1].span,
            )
        if line.initial is not None:
            raise Problem(
                "type",
                "quantised weights have no initial value in source; the host writes them",
                line.initial.span,
            )
        nbytes = prod(shape) // group * group_bytes(element, group)
        return Symbol(
            line.name.text,
            element,
            shape,
            0,
            nbytes,
            "export" in line.modifiers,
            group=group,
            location=line.name.span.location,
        )

    def layout(self, lines: list[Data | Align], report: Callable[[Problem], None]) -> None:
        """Give every declared symbol its address, in source order."""
        for line in lines:
            try:
                if isinstance(line, Align):
                    self.align(self._alignment(line.value))
                elif line.name.text in self.symbols:
                    self._place(line, self.symbols[line.name.text])
            except Problem as problem:
                report(problem)

    def _alignment(self, node: Node) -> int:
        value = integer(node, self.scope, "an alignment", 1, 4096)
        if value & (value - 1) or value < 2:
            raise Problem("range", f"alignment {value} is not a power of two from 2 to 4096", node.span)
        return value

    def _place(self, line: Data, symbol: Symbol) -> None:
        if node := line.modifiers.get("at"):
            symbol.address = self._overlay(node, symbol)
            return
        # A FIFO's elements stand behind a 4-byte header, quantised groups are 2-byte aligned.
        natural = 2 if symbol.element in QUANTISED else max(2, symbol.element.bytes)
        if align := line.modifiers.get("align"):
            natural = max(natural, self._alignment(align))
        self.align(natural)
        symbol.address = self.end
        self.end += symbol.nbytes

    def _overlay(self, node: Node, symbol: Symbol) -> int:
        """Address of `at w + 16`: inside the bytes of another symbol."""
        inner = Scope({s.name: s.address for s in self.symbols.values() if s is not symbol}, self.scope)
        address = integer(node, inner, "the address", 0, ADDRESSES - 1)
        if address % max(2, 2 if symbol.element in QUANTISED else symbol.element.bytes):
            raise Problem(
                "range", f"address {address} is not aligned for {symbol.element.source_name}", node.span
            )
        if address + symbol.nbytes > self.end:
            raise Problem(
                "range",
                f"bytes {address}..{address + symbol.nbytes - 1} reach beyond the symbols declared so far "
                f"(0..{self.end - 1})",
                node.span,
                help="declare the symbol it lies in before it",
            )
        return address

    def align(self, to: int) -> None:
        self.end = -(-self.end // to) * to

    # --- values ---
    def initialise(self, line: Data, symbol: Symbol) -> None:
        """Record the initial bytes that a declaration names."""
        if symbol.role == "fifo":
            self._values.append((symbol.address, bytes(FIFO_HEADER_BYTES)))
        elif line.initial is not None and symbol.role == "data":
            self._values.append((symbol.address, self._bytes(line.initial, symbol)))

    def _bytes(self, node: Node, symbol: Symbol) -> bytes:
        count = prod(symbol.shape)
        kind = np.dtype(np.uint32 if symbol.element.bits == 32 else np.uint16).newbyteorder("<")
        if not isinstance(node, ListOf):
            value = self._number(node, symbol.element)
            return np.full(count, value, kind).tobytes()
        if len(node.items) != count:
            raise Problem(
                "range",
                f"{len(node.items)} values for {count} elements of `{symbol.name}`",
                node.span,
                help="one value without brackets fills the symbol",
            )
        return np.array([self._number(item, symbol.element) for item in node.items], kind).tobytes()

    def _number(self, node: Node, element: ElementType) -> int:
        return element_bits(element, evaluate(node, self.scope), node.span)

    def store(self, address: int, data: bytes) -> None:
        self._values.append((address, data))

    # --- descriptors ---
    def descriptor(self, wanted: Descriptor, span: Span) -> Symbol:
        """The stored descriptor with this value; made behind the data at first use."""
        symbol = self._descriptors.get(wanted)
        if symbol is None:
            number = len(self._descriptors)
            while f"_d{number}" in self.symbols:
                number += 1
            halfwords = wanted.halfwords
            self.align(2)
            symbol = Symbol(
                f"_d{number}",
                ElementType.I16,
                (len(halfwords),),
                self.end,
                2 * len(halfwords),
                role="descriptor",
                location=span.location,
            )
            self.end += symbol.nbytes
            self.symbols[symbol.name] = self._descriptors[wanted] = symbol
            self.store(symbol.address, np.array(halfwords, "<u2").tobytes())
        return symbol

    def image(self) -> tuple[np.ndarray, np.ndarray]:
        """Initial bytes and which of them were written; padded to whole words, since code follows."""
        size = -(-self.end // 4) * 4
        data, written = np.zeros(size, np.uint8), np.zeros(size, bool)
        for address, values in self._values:
            data[address : address + len(values)] = np.frombuffer(values, np.uint8)
            written[address : address + len(values)] = True
        return data, written
