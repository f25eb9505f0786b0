"""Vector instructions of the reference engine: dispatch, groups, banks, accumulators, microthreads."""

import numpy as np
import pytest
from support import RAMP, Asm, E, Grid, W, alone, execute
from waferloom.fabric.outcome import Cycle
from waferloom.isa.element_types import ElementType as T
from waferloom.isa.program import Descriptor, DescriptorKind

MEMORY, FIFO = DescriptorKind.MEMORY, DescriptorKind.FIFO


def begin() -> Asm:
    asm = Asm()
    asm.task(0)
    return asm


def dispatched(run, after: int) -> list[int]:
    """Issues relative to that number `after`."""
    issues = run.issues()
    return [t - issues[after] for t in issues[after:]]


def arithmetic(name: str, n: int, t: T = T.F16, apart: int = 0, spec="wse3", sources: int = 2, **values):
    """Operands a, b, d of n elements, then the instruction; `apart`: bytes between the operands' banks."""
    asm = begin()
    size = t.bytes * n
    places = []
    for k in range(sources + 1):
        at = -(-len(asm.data) // 32) * 32 + k * apart
        places.append(asm.space(size, at))
    for register, base in enumerate(places):
        asm.memory(register, base, n, t.bytes)
    fields = {"dd": sources, "da": 0} | ({"db": 1} if sources == 2 else {})
    start = asm(name, **fields, type=t, **values)
    asm("end")
    return dispatched(alone(asm, spec), start)


@pytest.mark.parametrize(("n", "following"), [(8, 8), (16, 10), (64, 22)])
def test_f16_add_next_dispatch(n, following):
    # lead 9 - 3 = 6, then groups of 8 elements, 48 bytes each: 2 cycles
    assert arithmetic("vadd", n)[-1] == following


@pytest.mark.parametrize(("name", "t", "cycles"), [("vmov", T.F16, 8), ("vmov", T.F32, 16)])
def test_copy_runs_at_its_rate(name, t, cycles):
    assert arithmetic(name, 64, t, sources=1)[-1] == 5 + cycles  # lead 8 - 3


def test_clashing_f32_multiply_takes_twice_the_cycles():
    assert arithmetic("vmul", 40, T.F32, apart=4)[-1] == 6 + 40
    assert arithmetic("vmul", 40, T.F32, apart=0)[-1] == 6 + 80


def test_bank_cycles_are_counted_apart():
    asm = begin()
    for register in range(3):
        asm.memory(register, 64 * register, 8, 4)
    asm.space(200)
    asm("vmul", dd=2, da=0, db=1, type=T.F32)
    asm("end")
    counters = alone(asm).outcome.counters[0, 0]
    assert counters[Cycle.BANK] == 8
    assert counters[Cycle.SETUP] == 5


def test_reduction_takes_two_cycles_an_element_and_its_result_four_more():
    asm = begin()
    a = asm.values("<f4", np.arange(10))
    asm.memory(0, a, 10, 4)
    asm("li", rd=1, imm=0)
    start = asm("vred", rd=1, da=0, type=T.F32)
    asm("tsc", rd=2)
    asm("add", rd=3, ra=1, rb=2)
    asm("end")
    run = alone(asm)
    # lead 5, 10 groups of 2 cycles: 5..24; the result is ready at 24 + 4
    assert dispatched(run, start)[-3:] == [25, 28, 29]
    assert run.outcome.registers[0, 0, 1] == 0x42340000  # 45.0


@pytest.mark.parametrize(("operations", "cycles"), [(1, 514), (2, 1027)])
def test_synchronous_operations_follow_each_other(operations, cycles):
    asm = begin()
    asm.space(2 * 2032 * 4)
    asm.memory(0, 0, 2032, 4)
    asm.memory(1, 2032 * 4, 2032, 4)
    asm("tsc", rd=1)
    for _ in range(operations):
        asm("vmov", dd=1, da=0, type=T.F32)  # lead 5, 508 groups
    asm("tsc", rd=2)
    asm("end")
    registers = alone(asm).outcome.registers[0, 0].tolist()
    assert registers[2] - registers[1] == cycles


def accumulate(strides, extents, n_sums: int):
    asm = begin()
    a = asm.values("<f2", np.ones(64))
    asm.space(8)  # b two banks behind a, d two banks behind b
    b = asm.values("<f2", np.ones(64))
    asm.space(8)
    d = asm.space(4 * n_sums)
    asm.memory(0, a, 64)
    asm.memory(1, b, 64)
    asm.descriptor(0, Descriptor(MEMORY, a, extents, (2 * extents[1], 2)))
    asm.descriptor(1, Descriptor(MEMORY, b, extents, (2 * extents[1], 2)))
    asm.descriptor(2, Descriptor(MEMORY, d, extents, strides))
    start = asm("vmac", dd=2, da=0, db=1, source=T.F16, type=T.F32)
    asm("end")
    run = alone(asm)
    return dispatched(run, start)[-1], run.memory("<f4", d, n_sums)


def test_resident_accumulators_reach_four_elements_a_cycle():
    # 16 passes over 4 sums: a group of 4 elements costs ceil(2 * 4 / 4) = 2 cycles; over 8 sums 1 cycle.
    # The first and the last pass also move the sums: 8 + 8 + 16 bytes still fit in a cycle. Over 8 sums, the
    # second group of the first pass reads two words of a bank, of a and of the sums: one cycle more.
    assert accumulate((0, 4), (16, 4), 4) == (13 + 32, [16.0] * 4)
    assert accumulate((0, 4), (8, 8), 8) == (13 + 16 + 1, [8.0] * 8)


def test_one_sum_waits_for_each_addition():
    assert accumulate((0, 0), (1, 64), 1) == (13 + 16 * 8, [64.0])


def test_sums_beyond_the_accumulators_go_through_memory():
    # 8 + 8 + 16 + 16 bytes per group of 4: 2 cycles
    assert accumulate((0, 4), (4, 16), 16) == (13 + 32, [4.0] * 16)


def test_zero_elements_complete_at_dispatch():
    asm = begin()
    asm.space(8)
    asm.memory(0, 0, 0)
    asm.memory(1, 0, 0)
    start = asm("vmov", dd=1, da=0)
    asm("end")
    assert dispatched(alone(asm), start) == [0, 1]


def test_elements_are_computed_in_order_and_advance_moves_the_base():
    asm = begin()
    a = asm.values("<i2", [1, 1, 1, 1, 1, 0])
    asm.memory(0, a, 2)
    asm.memory(1, a + 2, 2)
    asm("vadd", dd=1, da=1, db=0, advance_d=1, advance_b=1, type=T.I16)  # d is in use while it moves
    asm.memory(1, a + 6, 2)
    asm("vadd", dd=1, da=1, db=0, type=T.I16)
    asm("end")
    assert alone(asm).memory("<i2", a, 6) == [1, 2, 3, 4, 5, 0]


def test_dequantise_reads_groups_with_their_scale():
    from waferloom.isa.dequantise import pack_q4

    asm = begin()
    packed = pack_q4(np.float16([0.5, 2.0]), np.float16([-4.0, 0.0]), np.arange(64).reshape(2, 32) % 16)
    a = asm.values("u1", packed.ravel())
    d = asm.space(128)
    asm.memory(0, a, 64, 0)
    asm.memory(1, d, 64)
    start = asm("vdeq", dd=1, da=0, source=T.Q4, type=T.F16)
    asm("end")
    run = alone(asm)
    codes = [k % 16 for k in range(32)]
    assert run.memory("<f2", d, 64) == [0.5 * code - 4 for code in codes] + [2.0 * code for code in codes]
    assert dispatched(run, start)[-1] == 13 + 16  # lead 16 - 3, 4 weights a cycle


def test_a_microthread_gets_in_where_the_task_waits():
    asm = begin()
    asm.transmit(0, 0, 4)
    asm("li", rd=1, imm=7)
    start = asm("vmov", dd=0, da=1, scalar=1, asynchronous=1, type=T.I32)  # lead 5: groups from 5 on
    for _ in range(4):
        asm("fdiv", rd=2, ra=2, rb=2)
    asm("end")
    asm.tasks[0].entry = True
    grid = Grid(2).place(asm, (0, 0), sends={0: 3}).route(0, 0, 3, ({RAMP}, {E}))
    grid.port("out", True, E, 3, (0,), 4).route(1, 0, 3, ({W}, {E}))
    run = execute(grid)
    assert dispatched(run, start)[:6] == [0, 1, 5, 6, 7, 8]
    assert run.outcome.end == "finished"
    assert [int(w) for w in run.outcome.outputs["out"][0].payload] == [7] * 4


def test_a_fifo_in_memory_is_pushed_and_popped():
    asm = begin()
    ring = asm.values("<u2", [3, 0, 0, 0, 0, 0])  # head 3 of 4: wraps
    a = asm.values("<i2", [5, 6, 7])
    d = asm.space(6)
    asm.descriptor(0, Descriptor(FIFO, ring, (3, 4), (0, 0)))
    asm.memory(1, a, 3)
    asm.memory(2, d, 3)
    asm("vmov", dd=0, da=1, type=T.I16)
    asm("vmov", dd=2, da=0, type=T.I16)
    asm("end")
    run = alone(asm)
    assert run.memory("<i2", d, 3) == [5, 6, 7]
    assert run.memory("<u2", ring, 2) == [2, 0]
