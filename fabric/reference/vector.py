"""Vector instructions of the reference engine: operands, groups and their cost. Never decides who issues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from ...isa import dequantise
from ...isa.element_types import ElementType
from ...isa.instructions import Decoded, rate_key, setup_key
from ...isa.program import Descriptor, DescriptorKind
from ..outcome import Cycle, FaultCode, Wait
from .router import Stop, Wavelet
from .semantics import VECTOR, narrow, widen

if TYPE_CHECKING:
    from .pe import Pe

IN, OUT = FABRIC = (DescriptorKind.FABRIC_IN, DescriptorKind.FABRIC_OUT)
GROUP_SIZES = (32, 16, 8, 4)  # values of the field `group`
FIFO_HEADER = 4  # bytes: head index, fill count
TOO_MANY = 1 << 31  # elements: so many, or more, are an extent fault
UNKNOWN = 1 << 16  # more elements than any FIFO holds


@dataclass(frozen=True)
class Blocked:
    """Why a thread cannot issue in a cycle."""

    reason: Cycle
    wait: Wait = Wait.RUNNING
    queue: int = -1


class Operand:
    """One descriptor operand of an instruction under way, with its own copy of the descriptor."""

    def __init__(self, register: int, descriptor: Descriptor, element: ElementType, quantised: int) -> None:
        self.register = register
        self.descriptor = descriptor
        self.element = element
        self.quantised = quantised  # weights per group of a vdeq source, else 0

    @property
    def kind(self) -> DescriptorKind:
        return self.descriptor.kind

    @property
    def count(self) -> int:
        """Elements."""
        extents = self.descriptor.extents
        return extents[0] if self.kind is DescriptorKind.FIFO else min(prod(extents), TOO_MANY)

    @property
    def per_wavelet(self) -> int:
        return 2 if self.descriptor.packed else 1

    @property
    def capacity(self) -> int:
        """Elements a FIFO can hold."""
        return self.descriptor.extents[1]

    def fill(self, pe: Pe) -> int:
        """Elements in a FIFO; UNKNOWN if its header cannot be read, which is a fault at issue."""
        base = self.descriptor.base
        return pe.load(base + 2, 2) if pe.accessible(base, FIFO_HEADER) else UNKNOWN

    @property
    def bytes_per_group(self) -> int:
        """Bytes of one group of quantised weights with its scale."""
        size = dequantise.q4_group_bytes if self.element is ElementType.Q4 else dequantise.q8_group_bytes
        return size(self.quantised)

    def indices(self, i: int) -> list[int]:
        """Index of element i in each dimension; the last dimension varies fastest."""
        indices = []
        for extent in reversed(self.descriptor.extents):
            i, index = divmod(i, extent)
            indices.append(index)
        return indices[::-1]

    def address(self, i: int) -> int:
        """Byte address of element i of a memory operand."""
        if self.quantised:
            return self.descriptor.base + i // self.quantised * self.bytes_per_group
        strides = self.descriptor.strides
        return self.descriptor.base + sum(n * s for n, s in zip(self.indices(i), strides, strict=True))

    def advanced(self) -> Descriptor:
        """The descriptor, its base behind the outermost extent."""
        d = self.descriptor
        step = d.extents[0] * d.strides[0]
        if self.quantised:
            step = d.extents[0] // self.quantised * self.bytes_per_group
        return Descriptor(
            d.kind, (d.base + step) & 0xFFFF, d.extents, d.strides, d.queue, d.control, d.packed
        )

    def check_shape(self, allowed: Sequence[DescriptorKind]) -> None:
        """Raise Stop unless the instruction can use a descriptor of this kind, packing and shape."""
        d = self.descriptor
        dimensions = len(d.extents)
        good = d.kind in allowed
        if d.kind in FABRIC:
            good = good and dimensions == 1
            if d.packed:
                good = good and self.element.bits == 16 and d.extents[0] % 2 == 0
        elif d.kind is DescriptorKind.FIFO:
            good = good and dimensions == 2 and d.extents[1] > 0
        if self.quantised:
            good = good and dimensions == 1 and d.extents[0] % self.quantised == 0
        if not good:
            raise Stop(FaultCode.DESCRIPTOR, self.register)


class VectorOperation:
    """A vector instruction from its dispatch to its last group."""

    def __init__(self, pe: Pe, decoded: Decoded, t: int) -> None:
        """Check and dispatch at t. Raises Stop before anything has changed."""
        row, v = decoded.row, decoded.values
        self.row, self.pc, self.values = row, pe.pc, v
        self.result, self.source = decoded.types
        self.asynchronous = bool(v.get("asynchronous"))
        self.thread = v["thread"] + 1 if self.asynchronous else 0
        self.priority = v.get("priority", 0)
        if self.asynchronous and pe.threads[self.thread] is not None:
            raise Stop(FaultCode.THREAD_BUSY, v["thread"])

        self.scalar = 0
        names = ["da", "db"][: row.sources]
        if v.get("scalar"):
            register = v[names.pop()]
            self.scalar = narrow(self.source, pe.registers[register])
        quantised = GROUP_SIZES[v["group"]] if row.name == "vdeq" else 0
        self.sources = [self._operand(pe, v[name], self.source, IN, quantised) for name in names]
        self.destination = self._operand(pe, v["dd"], self.result, OUT) if "dd" in v else None
        self.operands = self.sources + ([self.destination] if self.destination else [])
        self.rate = pe.spec.rate[rate_key(row, self.result, self.source)]
        self._check_descriptors()
        self._check_extents()
        self._check_queues(pe)

        self.count = self.operands[-1].count if self.destination else self.sources[0].count
        self.group = self._group_size()
        self.position = 0  # elements done
        setup = setup_key(row, self.result, self.source, bool(v.get("scalar")))
        self.first = self.earliest = t + pe.spec.lead(setup)
        for name, operand in zip([*names, "dd"], self.operands, strict=False):
            if v["advance_" + name[1]]:
                pe.descriptors[operand.register] = operand.advanced()

    # --- dispatch ---

    def _operand(
        self, pe: Pe, register: int, element: ElementType, fabric: DescriptorKind, quantised: int = 0
    ) -> Operand:
        """The descriptor in a register, with a shape the instruction can use."""
        descriptor = pe.descriptors[register]
        if descriptor is None:
            raise Stop(FaultCode.DESCRIPTOR, register)
        operand = Operand(register, descriptor, element, quantised)
        destination = fabric is DescriptorKind.FABRIC_OUT
        memory_only = quantised or (destination and self.row.name == "vmac")
        operand.check_shape(
            (DescriptorKind.MEMORY,) if memory_only else (DescriptorKind.MEMORY, fabric, DescriptorKind.FIFO)
        )
        return operand

    def _check_descriptors(self) -> None:
        fabric = self.fabric
        for operand in fabric[1:]:
            if operand.per_wavelet != fabric[0].per_wavelet:
                raise Stop(FaultCode.DESCRIPTOR, operand.register)
        for operand in self.fifos:
            if fabric and operand.capacity < fabric[0].per_wavelet:
                raise Stop(FaultCode.DESCRIPTOR, operand.register)
        if self.asynchronous and not fabric and not self.fifos:
            raise Stop(FaultCode.DESCRIPTOR, self.values["dd"])

    def _check_extents(self) -> None:
        """The number of elements is the destination's, or without one that of a."""
        wanted = (self.destination or self.sources[0]).count
        for operand in self.sources:
            if operand.count != wanted or wanted == TOO_MANY:
                raise Stop(FaultCode.EXTENT, operand.count)
        if wanted == TOO_MANY:
            raise Stop(FaultCode.EXTENT, wanted)

    def _check_queues(self, pe: Pe) -> None:
        for operand in self.fabric:
            pe.bound_queue(operand.kind, operand.descriptor.queue)
        used: set[tuple[DescriptorKind, int]] = set()
        for operand in self.fabric:
            key = (operand.kind, operand.descriptor.queue)
            if key in used:
                raise Stop(FaultCode.QUEUE_BUSY, operand.descriptor.queue)
            used.add(key)
            pe.usable_queue(*key)

    def _group_size(self) -> int:
        if self.fabric:
            return self.fabric[0].per_wavelet
        return min([max(1, int(self.rate))] + [operand.capacity for operand in self.fifos])

    @property
    def fabric(self) -> list[Operand]:
        return [operand for operand in self.operands if operand.kind in FABRIC]

    @property
    def fifos(self) -> list[Operand]:
        return [operand for operand in self.operands if operand.kind is DescriptorKind.FIFO]

    @property
    def finished(self) -> bool:
        return self.position == self.count

    # --- one group ---

    @property
    def _next(self) -> range:
        """Indices of the next group's elements."""
        return range(self.position, min(self.position + self.group, self.count))

    def blocked(self, pe: Pe, t: int) -> Blocked | None:
        """Why the next group cannot issue at t; None if it can."""
        if t < self.first:
            return Blocked(Cycle.SETUP)
        n = len(self._next)
        for operand in self.sources:
            queue = operand.descriptor.queue
            if operand.kind is DescriptorKind.FABRIC_IN:
                head = pe.in_queues[queue].head(t)
                if head is None or head.control:
                    return Blocked(Cycle.RECEIVE, Wait.RECEIVE, queue)
            if operand.kind is DescriptorKind.FIFO and operand.fill(pe) < n:
                return Blocked(Cycle.RECEIVE, Wait.FIFO)
        if destination := self.destination:
            queue = destination.descriptor.queue
            if destination.kind is DescriptorKind.FABRIC_OUT and not pe.out_queues[queue].room(t):
                return Blocked(Cycle.SEND, Wait.SEND, queue)
            if destination.kind is DescriptorKind.FIFO:
                fill = destination.fill(pe)
                if fill < UNKNOWN and fill + n > destination.capacity:
                    return Blocked(Cycle.SEND, Wait.FIFO)
        return None

    def issue(self, pe: Pe, t: int) -> tuple[int, int]:
        """Execute one group at t: (cycles by its rate, cycles it costs). Raises Stop before any effect."""
        elements = self._next
        reads: list[tuple[Operand, list[int]]] = []
        for operand in self.sources:
            if operand.kind not in FABRIC:
                addresses = self._addresses(pe, operand, elements, push=False)
                size = operand.bytes_per_group if operand.quantised else operand.element.bytes
                for address in addresses:
                    pe.check(address, size, reading=True)
                reads.append((operand, addresses))
        written: list[int] = []
        if self.destination and self.destination.kind not in FABRIC:
            written = self._addresses(pe, self.destination, elements, push=True)
            for address in written:
                pe.check(address, self.result.bytes, reading=self.row.name == "vmac")
        cost = self._cost(pe, elements, reads, written)
        self._compute(pe, t, elements, {id(operand): a for operand, a in reads}, written)
        self.position += len(elements)
        self.earliest = t + cost[1]
        return cost

    def _addresses(self, pe: Pe, operand: Operand, elements: range, push: bool) -> list[int]:
        if operand.kind is DescriptorKind.MEMORY:
            return [operand.address(i) for i in elements]
        base = operand.descriptor.base
        pe.check(base, 2, reading=True)
        pe.check(base + 2, 2, reading=True)
        first = pe.load(base, 2) + (pe.load(base + 2, 2) if push else 0)
        places = [(first + k) % operand.capacity for k in range(len(elements))]
        return [base + FIFO_HEADER + place * operand.element.bytes for place in places]

    def _cost(
        self, pe: Pe, elements: range, reads: list[tuple[Operand, list[int]]], written: list[int]
    ) -> tuple[int, int]:
        """(cycles by rate, cycles in all) of a group, docs/machine.md §2."""
        n = len(elements)
        by_rate = max(1, -(-n // int(self.rate)) if self.rate >= 1 else n * round(1 / self.rate))
        sram = pe.spec.sram
        size = self.result.bytes
        read = [(operand.element.bytes, addresses) for operand, addresses in reads if not operand.quantised]
        slowest = 0
        if self.row.name == "vmac" and self.destination:
            resident = self._resident(pe)
            fetched = written
            if resident:
                accumulators, dimension = resident
                passes = self.destination.descriptor.extents[dimension]
                pass_of = [self.destination.indices(i)[dimension] for i in elements]
                fetched = [a for a, p in zip(written, pass_of, strict=True) if p == 0]
                written = [a for a, p in zip(written, pass_of, strict=True) if p == passes - 1]
                slowest = -(-pe.spec.engine.fp_latency * n // accumulators)
            read.append((size, fetched))
        moved = sum(width * len(set(addresses)) for width, addresses in [*read, (size, written)])
        most_reads = _most_of_one_bank(sram.banks, read)
        most_writes = _most_of_one_bank(sram.banks, [(size, written)])
        cycles = max(by_rate, slowest, -(-moved // sram.bytes_per_cycle), most_reads, most_writes)
        return by_rate, cycles

    def _resident(self, pe: Pe) -> tuple[int, int] | None:
        """(sums kept in the engine, their dimension of stride 0), or None if vmac goes through memory."""
        assert self.destination
        d = self.destination.descriptor
        still = [k for k, stride in enumerate(d.strides) if stride == 0]
        if not still:
            return None
        accumulators = prod(d.extents[still[-1] + 1 :])
        return (accumulators, still[-1]) if accumulators <= pe.spec.engine.accumulators else None

    def _compute(
        self, pe: Pe, t: int, elements: range, addresses: dict[int, list[int]], written: list[int]
    ) -> None:
        """The group's effect, element by element in order."""
        arrived = {}
        for operand in self.sources:
            if operand.kind is DescriptorKind.FABRIC_IN:
                arrived[id(operand)] = pe.in_queues[operand.descriptor.queue].leave(t).payload
        meaning = VECTOR[self.row.name]
        sent: list[int] = []
        for k, i in enumerate(elements):
            values = [0, self.scalar] if self.sources else [self.scalar, 0]  # a, b
            for n, operand in enumerate(self.sources):
                if id(operand) in arrived:
                    values[n] = narrow(self.source, arrived[id(operand)] >> 16 * k)
                elif operand.quantised:
                    values[n] = _weight(pe, operand, i)
                else:
                    values[n] = pe.load(addresses[id(operand)][k], self.source.bytes)
            if self.row.to_register:
                rd = self.values["rd"]
                old = narrow(self.result, pe.registers[rd])
                pe.registers[rd] = widen(self.result, meaning(self.result, self.source, old, *values))
            elif written:
                old = pe.load(written[k], self.result.bytes) if self.row.name == "vmac" else 0
                pe.store(written[k], self.result.bytes, meaning(self.result, self.source, old, *values))
            else:
                sent.append(meaning(self.result, self.source, 0, *values))
        if sent:
            self._send(pe, t, elements, sent)
        for operand in self.fifos:
            pushed = operand is self.destination
            base = operand.descriptor.base
            head, fill = pe.load(base, 2), pe.load(base + 2, 2)
            n = len(elements)
            if not pushed:
                pe.store(base, 2, (head + n) % operand.capacity)
            pe.store(base + 2, 2, (fill + (n if pushed else -n)) & 0xFFFF)

    def _send(self, pe: Pe, t: int, elements: range, sent: list[int]) -> None:
        assert self.destination
        d = self.destination.descriptor
        payload = sent[0]
        if self.result.bits == 16:
            payload |= (sent[1] if d.packed else elements[0] & 0xFFFF) << 16
        pe.out_queues[d.queue].enter(t, Wavelet(payload, d.control))


def _most_of_one_bank(banks: int, operands: list[tuple[int, list[int]]]) -> int:
    """Most distinct 32-bit words that one bank moves, summed over operands (element bytes, addresses)."""
    of_bank: Counter[int] = Counter()
    for size, addresses in operands:
        words = {(address + byte) >> 2 for address in addresses for byte in range(0, size, 2)}
        of_bank.update(word % banks for word in words)
    return max(of_bank.values(), default=0)


def _weight(pe: Pe, operand: Operand, i: int) -> int:
    """f16 bits of weight i of a vdeq source."""
    base = operand.address(i)
    scale = pe.load(base, 2)
    place = i % operand.quantised
    if operand.element is ElementType.Q4:
        byte = int(pe.memory[base + dequantise.Q4_HEADER_BYTES + place // 2])
        return dequantise.q4_weight(scale, pe.load(base + 2, 2), byte >> 4 * (place % 2) & 15)
    byte = int(pe.memory[base + dequantise.Q8_HEADER_BYTES + place])
    return dequantise.q8_weight(scale, byte - 256 if byte > 127 else byte)
