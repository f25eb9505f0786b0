"""SRAM as the engine sees it: elements by byte address, range checks, and what memory operands cost.

Addresses are bytes within the PE; `origin` is the PE's first byte in the arena. Nothing is read or written
before its range was checked, either for a whole instruction or group by group.
"""

from __future__ import annotations

import numpy as np

from ..outcome import FaultCode
from .jit import jit, jit_inline
from .state import CONSTANT, COST_ENTRIES, COST_KEY, FIFO, MEMORY

U1 = np.uint64(
    1
)  # unsigned places: a signed one costs a comparison per access, since it could count from the end
READING, WRITING = np.int64(0), np.int64(1)
BOUNDS, ALIGNMENT, UNINITIALISED = (
    int(FaultCode.BOUNDS),
    int(FaultCode.ALIGNMENT),
    int(FaultCode.UNINITIALISED),
)


@jit_inline
def read16(s, at):
    """16 bits at arena byte `at` (even)."""
    return np.uint32(s.sram16[np.uint64(at) >> U1])


@jit_inline
def read32(s, at):
    """32 bits at arena byte `at` (even)."""
    place = np.uint64(at) >> U1
    return np.uint32(np.uint32(s.sram16[place]) | np.uint32(s.sram16[place + U1]) << np.uint32(16))


@jit_inline
def read(s, at, size):
    """An element of `size` bytes (2 or 4)."""
    return read16(s, at) if size == 2 else read32(s, at)


@jit_inline
def write(s, at, size, value):
    """Write an element of `size` bytes (2 or 4)."""
    place = np.uint64(at) >> U1
    s.sram16[place] = np.uint16(value & np.uint32(0xFFFF))
    if size == 4:
        s.sram16[place + U1] = np.uint16(value >> np.uint32(16))


@jit
def access_fault(s, i, address, size, writing):
    """0, or the fault code of an access of `size` bytes by PE i; marks bytes as written with --strict."""
    data = s.kernels[s.pes[i].kernel].data_bytes
    if address & 1:
        return ALIGNMENT
    if address < 0 or address + size > data:
        return BOUNDS
    if s.machine[0].strict:
        origin = i * s.machine[0].stride
        for k in range(size):
            if writing:
                s.written[origin + address + k] = True
            elif not s.written[origin + address + k]:
                return UNINITIALISED
    return 0


@jit
def step(o):
    """Move an operand's address generator to its next element."""
    o.at3 += 1
    o.address += o.stride3
    if o.at3 == o.extent3:
        o.at3 = 0
        o.address += o.stride2 - o.extent3 * o.stride3
        o.at2 += 1
        if o.at2 == o.extent2:
            o.at2 = 0
            o.address += o.stride1 - o.extent2 * o.stride2
            o.at1 += 1
            if o.at1 == o.extent1:
                o.at1 = 0
                o.address += o.stride0 - o.extent1 * o.stride1
                o.at0 += 1


@jit
def run_length(o, n):
    """Elements that operand `o` of n elements walks with one stride: as many trailing dimensions as are
    dense in each other."""
    if o.kind != MEMORY:
        return n
    length = np.int64(o.extent3)
    if o.extent2 == 1 or o.stride2 == length * o.stride3:
        length *= o.extent2
        if o.extent1 == 1 or o.stride1 == length * o.stride3:
            length *= o.extent1
            if o.extent0 == 1 or o.stride0 == length * o.stride3:
                length *= o.extent0
    return length


@jit
def span(o):
    """(lowest byte, byte behind the highest) of all elements of a memory operand."""
    low = np.int64(o.base)
    high = np.int64(o.base) + o.bytes
    for extent, stride in (
        (o.extent0, o.stride0),
        (o.extent1, o.stride1),
        (o.extent2, o.stride2),
        (o.extent3, o.stride3),
    ):
        reach = np.int64(extent - 1) * stride
        if reach < 0:
            low += reach
        else:
            high += reach
    return low, high


@jit
def inside(o, data_bytes):
    """Whether every element of a memory operand lies at an even address within the data."""
    low, high = span(o)
    odd = o.base & 1
    for extent, stride in (
        (o.extent0, o.stride0),
        (o.extent1, o.stride1),
        (o.extent2, o.stride2),
        (o.extent3, o.stride3),
    ):
        if extent > 1:
            odd |= stride & 1
    return not odd and low >= 0 and high <= data_bytes


@jit
def fifo_address(s, o, origin, index, push):
    """Byte address of the index-th element from now on that is pushed into or popped from a FIFO."""
    place = np.int64(read16(s, origin + o.base)) + index
    if push:
        place += np.int64(read16(s, origin + o.base + 2))
    return np.int64(o.base) + 4 + place % o.extent0 * o.bytes


# --- the bank model, docs/machine.md §2 ---

MAX_GROUP = 64  # elements; spec.py refuses larger rates


@jit
def _first_pass(o, resident):
    """Whether a resident accumulator is read from memory now: its repeating dimension begins."""
    return _repeat_index(o) == 0 if resident else True


@jit
def _last_pass(o, resident):
    """Whether a resident accumulator is written to memory now."""
    return _repeat_index(o) == _repeat_extent(o) - 1 if resident else True


@jit
def _repeat_index(o):
    if o.repeat == 3:
        return o.at3
    if o.repeat == 2:
        return o.at2
    return o.at1 if o.repeat == 1 else o.at0


@jit
def _repeat_extent(o):
    if o.repeat == 3:
        return o.extent3
    if o.repeat == 2:
        return o.extent2
    return o.extent1 if o.repeat == 1 else o.extent0


@jit
def group_cost(s, v, first, origin, elements, rate_cycles):
    """Cycles of the next group: `first` is the index of the vector's operand d; a and b follow. Cursors are
    left in place."""
    machine = s.machine[0]
    banks = machine.banks
    reads = np.zeros(64, np.int32)
    writes = np.zeros(64, np.int32)
    seen = np.empty(MAX_GROUP, np.int64)
    words = np.empty(2 * MAX_GROUP, np.int64)
    total = 0
    for k in range(3):
        o = s.operands[first + k]
        if (o.kind != MEMORY and o.kind != FIFO) or (k == 1 and v.group_weights):
            continue
        for writing in range(2):
            if writing and k != 0:
                continue
            if not writing and k == 0 and not v.accumulates:
                continue
            cursor = (o.address, o.at0, o.at1, o.at2, o.at3)
            n_seen = 0
            n_words = 0
            for index in range(elements):
                moves = True
                if k == 0 and v.resident:
                    moves = _last_pass(o, v.resident) if writing else _first_pass(o, v.resident)
                if moves:
                    address = (
                        np.int64(o.address)
                        if o.kind == MEMORY
                        else fifo_address(s, o, origin, np.int64(index), np.int64(k == 0))
                    )
                    known = False
                    for m in range(n_seen):
                        known = known or seen[m] == address
                    if not known:
                        seen[n_seen] = address
                        n_seen += 1
                        total += o.bytes
                        for word in range(address >> 2, (address + o.bytes - 1 >> 2) + 1):
                            known = False
                            for m in range(n_words):
                                known = known or words[m] == word
                            if not known:
                                words[n_words] = word
                                n_words += 1
                                if writing:
                                    writes[word & banks - 1] += 1
                                else:
                                    reads[word & banks - 1] += 1
                if o.kind == MEMORY:
                    step(o)
            o.address, o.at0, o.at1, o.at2, o.at3 = cursor
    cost = max(rate_cycles, -(-total // machine.bytes_per_cycle))
    if v.resident:
        cost = max(cost, -(-machine.fp_latency * elements // v.resident))
    for bank in range(banks):
        cost = max(cost, reads[bank], writes[bank])
    return cost


@jit
def whole_cost(s, v, first):
    """(cycles, of which bank) of all groups of a memory-only vector that has not begun."""
    key = np.zeros(COST_KEY, np.int32)
    key[0] = v.elements
    key[1] = v.group
    key[2] = v.per_cycle
    key[3] = v.per_element
    key[4] = v.resident
    key[5] = v.accumulates << 1 | (1 if v.group_weights else 0)
    round_mask = s.machine[0].bytes_per_cycle - 1
    at = 6
    for k in range(3):
        o = s.operands[first + k]
        key[at] = o.kind << 8 | o.bytes
        if o.kind == MEMORY and not (k == 1 and v.group_weights):
            key[at + 1] = o.base & round_mask
            # Strides act modulo the round of the banks too, except that equal addresses count once.
            key[at + 2], key[at + 3] = o.extent3, o.stride3
            key[at + 4], key[at + 5] = o.extent2, o.stride2
            key[at + 6] = o.extent1 ^ o.extent0 << 16
            key[at + 7] = o.stride1 ^ o.stride0 << 16
        at += 8
    hashed = np.uint64(14695981039346656037)
    for k in range(COST_KEY):
        hashed = (hashed ^ np.uint64(np.uint32(key[k]))) * np.uint64(1099511628211)
    row = np.int64((hashed ^ hashed >> np.uint64(29)) & np.uint64(COST_ENTRIES - 1))
    entry = s.costs[row]
    same = entry[COST_KEY] != 0 or entry[COST_KEY + 1] != 0
    for k in range(COST_KEY):
        same = same and entry[k] == key[k]
    if not same:
        cycles, bank = _walk_cost(s, v, first)
        for k in range(COST_KEY):
            entry[k] = key[k]
        entry[COST_KEY] = np.int32(cycles & 0x7FFFFFFF)
        entry[COST_KEY + 1] = np.int32(cycles >> 31)
        entry[COST_KEY + 2] = np.int32(bank & 0x7FFFFFFF)
        entry[COST_KEY + 3] = np.int32(bank >> 31)
        return cycles, bank
    return (
        np.int64(entry[COST_KEY]) | np.int64(entry[COST_KEY + 1]) << 31,
        np.int64(entry[COST_KEY + 2]) | np.int64(entry[COST_KEY + 3]) << 31,
    )


@jit
def _walk_cost(s, v, first):
    """The same, group by group; leaves the cursors where they were: at the beginning."""
    cycles = np.int64(0)
    bank = np.int64(0)
    left = np.int64(v.elements)
    while left > 0:
        elements = min(left, np.int64(v.group))
        rate_cycles = rate_cost(s, v, elements)
        cost = group_cost(s, v, first, np.int64(0), elements, rate_cycles)
        cycles += cost
        bank += cost - rate_cycles
        for k in range(3):
            o = s.operands[first + k]
            if o.kind == MEMORY:
                for _ in range(elements):
                    step(o)
        left -= elements
    for k in range(3):
        rewind(s.operands[first + k])
    return cycles, bank


@jit
def rewind(o):
    """Put an address generator at its first element."""
    o.address = o.base
    o.at0 = 0
    o.at1 = 0
    o.at2 = 0
    o.at3 = 0


@jit_inline
def rate_cost(s, v, elements):
    """Cycles of a group by the rate table alone."""
    cost = elements * v.per_element if v.per_element > 1 else -(-elements // v.per_cycle)
    return max(cost, 1)


@jit_inline
def operand_value(s, o, origin):
    """Bits of the current element of a memory or register operand."""
    if o.kind == CONSTANT:
        return o.value
    return read(s, origin + o.address, o.bytes)
