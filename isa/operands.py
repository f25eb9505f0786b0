"""Vector operands: `acc[i]`, `w[i, j]`, whole symbols, queues and FIFOs become descriptors.

An index expression is affine in the loop variables; each loop contributes one extent and one stride. Loops
that continue one another in memory are joined, loops of one element vanish, so that the machine gets the
fewest dimensions. A descriptor written for `ldd` or in `.data` keeps its loops as they are written.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from .diagnostics import Problem, Span, did_you_mean
from .element_types import ElementType
from .expressions import Scope, integer
from .loops import LONGEST, Loop, Loops
from .memory import ADDRESSES, QUANTISED, DataSection, group_bytes
from .program import MAX_DIMENSIONS, Descriptor, DescriptorKind, Symbol
from .syntax import Index, Name, Node


@dataclass(frozen=True)
class QueueName:
    """A declared queue."""

    name: str
    output: bool
    number: int
    span: Span


@dataclass
class Operand:
    """What one operand expression means; `descriptor` is made once the common length is known."""

    node: Node
    kind: DescriptorKind
    count: int | None = None  # elements, None: as many as the others
    memory: tuple[int, list[tuple[int, int]]] | None = None  # base, loops of (extent, stride in bytes)
    symbol: Symbol | None = None
    queue: QueueName | None = None
    suffix: str = ""

    @property
    def per_wavelet(self) -> int:
        return 2 if self.suffix == "packed" else 1


class Operands:
    """Turns operand expressions of one kernel into descriptors."""

    def __init__(self, data: DataSection, queues: dict[str, QueueName], scope: Scope) -> None:
        self.data, self.queues, self.scope = data, queues, scope
        self.loops = Loops(data.symbols, scope)

    # --- one operand ---
    def operand(self, node: Node, element: ElementType | None, loops: list[Loop], output: bool) -> Operand:
        """The meaning of an operand of the given element type. Raises Problem.

        `element` None: a descriptor by itself (`ldd`), whose element type is the symbol's.
        """
        base = node.base if isinstance(node, Index) else node
        if not isinstance(base, Name):
            raise Problem(
                "type",
                f"`{node.span.text}` is not a vector operand",
                node.span,
                help="operands are symbols, `symbol[i]`, queues, FIFOs and descriptors d0..d15; "
                "only the last source may be a register r0..r15",
            )
        name, _, suffix = base.text.partition(".")
        if name in self.queues:
            return self._fabric(node, base, self.queues[name], suffix, element, output)
        symbol = self.data.symbols.get(base.text)
        if symbol is None:
            raise Problem(
                "name",
                f"no symbol or queue `{name}`",
                base.span,
                help=did_you_mean(name, [*self.data.symbols, *self.queues]),
            )
        self._check_type(symbol, element, base)
        if symbol.role == "fifo":
            return Operand(node, DescriptorKind.FIFO, self._length(node), symbol=symbol)
        if symbol.role == "descriptor":
            raise Problem(
                "type",
                f"`{symbol.name}` is a stored descriptor",
                base.span,
                help=f"load it first: `ldd d0, {symbol.name}`",
            )
        return self._memory(node, symbol, loops)

    @staticmethod
    def _check_type(symbol: Symbol, element: ElementType | None, base: Name) -> None:
        if element is not None and symbol.element is not element:
            help = None
            if symbol.element.bits == element.bits and symbol.element not in QUANTISED:
                view = f"NAME: {element.source_name}[...] at {symbol.name}"
                help = f"to see the same bits otherwise declare `{view}`"
            raise Problem(
                "type",
                f"`{symbol.name}` is {symbol.element.source_name}, this operand is {element.source_name}",
                base.span,
                help=help,
            )

    def _length(self, node: Node) -> int | None:
        if not isinstance(node, Index):
            return None
        if len(node.indices) != 1:
            raise Problem("type", "a queue or FIFO has one length", node.span)
        return integer(node.indices[0], self.scope, "a length", 0, LONGEST)

    def _fabric(
        self, node: Node, base: Name, queue: QueueName, suffix: str, element: ElementType | None, output: bool
    ) -> Operand:
        if queue.output != output:
            kind = "an output" if queue.output else "an input"
            raise Problem(
                "type",
                f"`{queue.name}` is {kind} queue and cannot be a {'destination' if output else 'source'}",
                base.span,
                notes=[("declared here", queue.span)],
            )
        suffixes = ("single", "packed", "control")
        if suffix and suffix not in suffixes:
            raise Problem(
                "name",
                f"a queue has no suffix `.{suffix}`",
                base.span,
                help=did_you_mean(suffix, suffixes, None),
            )
        if element is None:
            if not suffix:
                raise Problem(
                    "type",
                    "an explicit descriptor must say how many elements a wavelet carries",
                    base.span,
                    help=f"write `{queue.name}.packed[N]` (two of 16 bits) or `{queue.name}.single[N]` (one)",
                )
        else:
            if element in QUANTISED:
                raise Problem("type", f"{element.source_name} weights cannot come from the fabric", base.span)
            if element.bits == 32 and suffix == "packed":
                raise Problem("type", f"two {element.source_name} do not fit in a wavelet", base.span)
            if element.bits == 16 and suffix == "control":
                raise Problem("type", "control wavelets carry 32 bits: use i32", base.span)
            suffix = suffix or ("packed" if element.bits == 16 else "single")
        kind_ = DescriptorKind.FABRIC_OUT if queue.output else DescriptorKind.FABRIC_IN
        return Operand(node, kind_, self._length(node), queue=queue, suffix=suffix)

    def _memory(self, node: Node, symbol: Symbol, loops: list[Loop]) -> Operand:
        shape = symbol.shape
        if not isinstance(node, Index):
            count = prod(shape)
            offset, steps = 0, [(count, 1)]
        else:
            self.loops.check_dimensions(node, symbol)
            offset, total = 0, dict.fromkeys((loop.name for loop in loops), 0)
            stride = prod(shape)
            for extent, index in zip(shape, node.indices, strict=True):
                stride = stride // extent if extent else 0
                constant, factors = self.loops.affine(index, loops)
                self._check_bounds(index, constant, factors, loops, extent, symbol)
                offset += constant * stride
                for name, factor in factors.items():
                    total[name] += factor * stride
            steps = [(loop.extent, total[loop.name]) for loop in loops] or [(1, 1)]
            count = prod(extent for extent, _ in steps)
        if symbol.element in QUANTISED:
            base, steps = self._quantised(node, symbol, offset, steps)
        else:
            base = symbol.address + offset * symbol.element.bytes
            steps = [(extent, factor * symbol.element.bytes) for extent, factor in steps]
        return Operand(node, DescriptorKind.MEMORY, count, (base, steps), symbol)

    def _check_bounds(
        self,
        index: Node,
        constant: int,
        factors: dict[str, int],
        loops: list[Loop],
        extent: int,
        symbol: Symbol,
    ) -> None:
        low = high = constant
        for loop in loops:
            if loop.extent == 0:
                return
            reach = factors.get(loop.name, 0) * (loop.extent - 1)
            low, high = low + min(0, reach), high + max(0, reach)
        if low < 0 or high >= extent:
            worst = high if high >= extent else low
            legal = f"0..{extent - 1}" if extent else "none: it is empty"
            raise Problem(
                "range", f"index reaches {worst}; legal indices of `{symbol.name}` here: {legal}", index.span
            )

    def _quantised(
        self, node: Node, symbol: Symbol, offset: int, steps: list[tuple[int, int]]
    ) -> tuple[int, list[tuple[int, int]]]:
        steps = join(steps)
        if len(steps) > 1 or (steps[0][1] != 1 and steps[0][0] > 1):
            raise Problem("type", "quantised weights must be consecutive", node.span)
        count = steps[0][0]
        if offset % symbol.group or count % symbol.group:
            raise Problem(
                "range",
                f"weights {offset}..{offset + count - 1} of `{symbol.name}` are not whole groups "
                f"of {symbol.group}",
                node.span,
            )
        return symbol.address + offset // symbol.group * group_bytes(symbol.element, symbol.group), [
            (count, 0)
        ]

    # --- descriptors ---
    def descriptor(self, operand: Operand, count: int | None, keep_loops: bool = False) -> Descriptor:
        """The descriptor of an operand that moves `count` elements. Raises Problem if it has none."""
        span = operand.node.span
        if operand.memory is not None:
            base, steps = operand.memory
            steps = steps if keep_loops else join(steps)
            if len(steps) > MAX_DIMENSIONS:
                raise Problem(
                    "range", f"{len(steps)} dimensions; a descriptor has at most {MAX_DIMENSIONS}", span
                )
            for extent, stride in steps:
                if extent > LONGEST:
                    raise Problem("range", f"{extent} elements in one dimension; at most {LONGEST:,}", span)
                if not -0x8000 <= stride <= 0x7FFF:
                    raise Problem("range", f"a stride of {stride} bytes; legal: -32768..32767", span)
            if not 0 <= base < ADDRESSES:
                raise Problem(
                    "capacity", f"address {base} is beyond what a descriptor can name (0..65535)", span
                )
            return Descriptor(operand.kind, base, tuple(e for e, _ in steps), tuple(s for _, s in steps))
        if count is None:
            raise Problem(
                "range",
                f"the length of `{span.text}` is not known: no operand in memory gives it",
                span,
                help=f"name it: `{span.text}[N]`",
            )
        if count > LONGEST:
            raise Problem("range", f"{count} elements; at most {LONGEST:,}", span)
        if operand.kind is DescriptorKind.FIFO:
            assert operand.symbol
            return Descriptor(operand.kind, operand.symbol.address, (count, operand.symbol.shape[0]), (0, 0))
        assert operand.queue
        if operand.suffix == "packed" and count % 2:
            raise Problem(
                "range",
                f"{count} elements in packed wavelets of 2: the count must be even",
                span,
                help=f"send one element per wavelet with `{operand.queue.name}.single`",
            )
        return Descriptor(
            operand.kind,
            0,
            (count,),
            (0,),
            operand.queue.number,
            operand.suffix == "control",
            operand.suffix == "packed",
        )


def join(steps: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The fewest (extent, stride) loops that visit the same elements in the same order."""
    if any(extent == 0 for extent, _ in steps):
        return [(0, 0)]
    joined: list[tuple[int, int]] = []
    for extent, stride in steps:
        if extent == 1:
            continue
        if joined and joined[-1][1] == extent * stride and joined[-1][0] * extent <= LONGEST:
            joined[-1] = (joined[-1][0] * extent, stride)
        else:
            joined.append((extent, stride))
    return joined or [(1, steps[-1][1])]
