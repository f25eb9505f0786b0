"""Random vector instructions and their data: descriptors of every kind, mostly inside one arena."""

from __future__ import annotations

from math import prod

import numpy as np
from random_routes import Choices
from support import Asm
from waferloom.isa.element_types import ElementType as T
from waferloom.isa.instructions import INSTRUCTIONS, Instruction, Unit
from waferloom.isa.program import Descriptor, DescriptorKind

MEMORY, IN, OUT, FIFO = DescriptorKind
VECTORS = [row for row in INSTRUCTIONS if row.unit is Unit.VECTOR]
SLOW = ("special", "divide")  # keys of rates that take many cycles
GROUPS = (32, 16, 8, 4)
SPECIAL_HALVES = [0, 0x8000, 0x3C00, 0x7C00, 0xFC00, 0x7E00, 1, 0x7BFF, 0xBC00, 0x7F80, 0xFFFF]
LAUNCH = ("asynchronous", "thread", "priority", "completion", "launch_task", "scalar", "source")


class VectorBuilder:
    """Code and data under construction, as far as vector instructions go."""

    def __init__(self, c: Choices, wild: int) -> None:
        """`wild`: percentage of operands that pay no heed to any rule."""
        self.c, self.wild = c, wild
        self.asm = Asm()
        self.arena = 4 * c.number(80, 160)
        self.asm.space(self.arena)
        self._fill()
        self.fifos: list[tuple[int, int, T]] = []  # address, capacity, type

    # --- data ---

    def _fill(self) -> None:
        style, seed = self.c.pick(["zero", "small", "special", "any"]), self.c.number(0, 1 << 16)
        rng = np.random.default_rng(seed)
        halves = self.arena // 2
        if style == "zero":
            return
        if style == "small":
            words = rng.normal(size=halves).astype(np.float16).view(np.uint16)
        elif style == "special":
            words = rng.choice(np.array(SPECIAL_HALVES, np.uint16), halves)
        else:
            words = rng.integers(0, 1 << 16, halves).astype(np.uint16)
        self.asm.data[: self.arena] = words.astype("<u2").tobytes()

    def fifo(self, element: T, count: int, source: bool) -> tuple[int, int]:
        """(address, capacity) of a FIFO that exists, or a new one."""
        if self.fifos and self.c.chance(15):
            address, capacity, _ = self.c.pick(self.fifos)
            return address, capacity
        enough = self.c.chance(85)
        capacity = max(2, count if enough else 0) + self.c.number(0, 6)
        address = self.asm.space(4 + capacity * element.bytes)
        fill = min(capacity, count) if source and enough else 0
        head = self.c.number(0, capacity - 1)
        self.asm.data[address : address + 4] = head.to_bytes(2, "little") + fill.to_bytes(2, "little")
        self.fifos.append((address, capacity, element))
        return address, capacity

    # --- descriptors ---

    def load(self, descriptor: Descriptor, used: set[int] | None = None) -> int:
        """A register with the descriptor in it, most of the time; none of those in `used`."""
        register = self.c.pick([r for r in range(16) if r not in (used or ())])
        if self.c.number(0, 999) > 999 - self.wild:
            return register
        self.asm.descriptor(register, descriptor)
        if self.c.chance(8):
            self._move(register, descriptor)
        return register

    def _move(self, register: int, descriptor: Descriptor) -> None:
        """Change a part of a loaded descriptor: within reason, or any part in any way."""
        c = self.c
        if c.chance(self.wild):
            self.asm("li", rd=11, imm=c.number(-600, 600))
            self.asm(c.pick(["addd", "setd"]), dd=register, ra=11, part=c.number(0, 8))
        elif descriptor.kind is MEMORY:
            low, high = _reach(descriptor.extents, descriptor.strides, 4)
            shifts = [n for n in (0, 2, -2, 8, -32) if 0 <= low + n + descriptor.base <= self.arena - high]
            self.asm("li", rd=11, imm=c.pick(shifts or [0]))
            self.asm("addd", dd=register, ra=11, part=0)
        elif descriptor.kind is IN or descriptor.kind is OUT:
            self.asm("li", rd=11, imm=descriptor.extents[0])
            self.asm("setd", dd=register, ra=11, part=1)

    def memory(self, count: int, size: int) -> Descriptor:
        """A memory vector of up to four dimensions that mostly stays inside the arena."""
        c = self.c
        extents = [count]
        while count and len(extents) < 4 and c.chance(35):
            k = c.number(0, len(extents) - 1)
            factors = [f for f in range(1, extents[k] + 1) if extents[k] % f == 0]
            f = c.pick(factors)
            extents[k : k + 1] = [extents[k] // f, f]
        strides = []
        for k in range(len(extents)):
            dense = size * prod(extents[k + 1 :])
            strides.append(c.pick([dense, dense, size, 0, -dense, -size, 2, 6, 2 * size, 32, size * 3]))
        low, high = _reach(extents, strides, size)
        if high - low > self.arena or not count:
            strides = [size * prod(extents[k + 1 :]) for k in range(len(extents))]
            low, high = 0, max(size, size * count)
        room = max(0, self.arena - (high - low))
        step = c.pick([4, 4, 2, 32])
        base = -low + min(room, step * c.number(0, room // step))
        if c.chance(self.wild):
            base = c.pick([base + 1, base + self.arena, base - 64]) & 0xFFFF
        return Descriptor(MEMORY, base & 0xFFFF, tuple(extents), tuple(strides))

    def fabric(self, kind: DescriptorKind, queue: int, count: int, packed: bool, control=False) -> Descriptor:
        return Descriptor(kind, 0, (count,), (0,), queue, control, packed)

    # --- vector instructions ---

    def vector(
        self, count: int, a="memory", b="memory", d="memory", packed=False, control=False, **launch
    ) -> None:
        """One vector instruction of `count` elements with the given kinds of operands.

        Operands: `memory`, `fifo`, a queue number (sources: input, destination: output), or `register` (d: a
        reduction).
        """
        c = self.c
        fabric = [o for o in (a, b, d) if isinstance(o, int)]
        row, (t, s) = self._row(a, b, d, packed, count)
        if row is None:
            return
        values: dict = {"type": t, "source": s}
        shapes: list[tuple[int, Descriptor]] = []
        names = ["da", "db"][: row.sources]
        if row.sources == 1 and b != "memory":
            a = b
        kinds = {"da": a, "db": b}
        group = 0
        if row.name == "vdeq":
            values["group"] = c.pick([g for g in range(4) if count % GROUPS[g] == 0])
            group = GROUPS[values["group"]]
        if "scalar" in row.fields and kinds[names[-1]] == "memory" and c.chance(30):
            values["scalar"] = 1
            values["ra" if len(names) == 1 else "rb"] = register = c.number(0, 11)
            values[names.pop()] = register
        for name in names:
            values[name] = self._operand(kinds[name], s, count, IN, packed, False, shapes, group)
        if row.to_register:
            values["rd"] = c.number(0, 11)
        else:
            values["dd"] = self._operand(d, t, count, OUT, packed, control, shapes)
        for name in ("advance_d", "advance_a", "advance_b"):
            if name in row.fields and c.chance(20):
                values[name] = 1
        if values.get("scalar"):
            values["advance_" + ("b" if row.sources == 2 else "a")] = 0
        if launch and "asynchronous" in row.fields and (fabric or "fifo" in (a, b, d) or c.chance(self.wild)):
            values.update(launch, asynchronous=1)
        values.pop("ra", None), values.pop("rb", None)
        self.asm(row.name, **{k: v for k, v in values.items() if k in row.fields or k in LAUNCH})

    def _row(self, a, b, d, packed: bool, count: int) -> tuple[Instruction | None, tuple[T, T]]:
        """A row and types that suit the operands."""
        rows = []
        for row in VECTORS:
            if row.to_register != (d == "register") or (row.sources == 1 and a != "memory" and b != "memory"):
                continue
            if d != "memory" and row.name == "vmac":
                continue
            if row.name == "vdeq" and (
                a != "memory" or b != "memory" or not count or count % 4 or count > 32
            ):
                continue
            slow = row.rate in SLOW
            if slow and count > 6:
                continue
            types = [
                (t, s)
                for t, s in row.types
                if not (packed and (t.bits != 16 and isinstance(d, int)))
                and not (packed and (s.bits != 16 and (isinstance(a, int) or isinstance(b, int))))
            ]
            if types:
                rows.append((row, types))
        if not rows:
            return None, (T.I16, T.I16)
        row, types = self.c.pick(rows)
        return row, self.c.pick(types)

    def _operand(self, kind, element: T, count, direction, packed, control, shapes, group=0) -> int:
        """A descriptor register for an operand; now and then one that another operand uses, too."""
        c = self.c
        if group:
            size = 4 + group // 2 if element is T.Q4 else 2 + group
            place = 2 * c.number(0, max(0, self.arena - count // group * size) // 2)
            shapes.append((self.load(Descriptor(MEMORY, place, (count,), (0,))), Descriptor(IN)))
            return shapes[-1][0]
        if kind == "memory":
            again = [register for register, d in shapes if d.kind is MEMORY]
            if again and c.chance(15):
                return again[0]
            descriptor = self.memory(count, element.bytes)
        elif kind == "fifo":
            address, capacity = self.fifo(element, count, direction is IN)
            descriptor = Descriptor(FIFO, address, (count, capacity), (0, 0))
        else:
            descriptor = self.fabric(direction, kind, count, packed and element.bits == 16, control)
        register = self.load(descriptor, {register for register, _ in shapes})
        shapes.append((register, descriptor))
        return register


def _reach(extents, strides, size: int) -> tuple[int, int]:
    """(lowest byte, byte behind the highest), seen from the base."""
    reach = [(e - 1) * s for e, s in zip(extents, strides, strict=True)]
    return sum(min(0, r) for r in reach), sum(max(0, r) for r in reach) + size
