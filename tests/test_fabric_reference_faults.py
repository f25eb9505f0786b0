"""Faults of the reference engine: which one, where, in which cycle, and that nothing has changed by then."""

import pytest
from support import RAMP, Asm, E, Grid, W, alone, execute
from waferloom.fabric.outcome import FaultCode as F
from waferloom.isa.element_types import ElementType as T
from waferloom.isa.errors import Rejected
from waferloom.isa.program import Descriptor, DescriptorKind, TaskKind

MEMORY, IN, OUT, FIFO = DescriptorKind


def begin(size: int = 16) -> Asm:
    asm = Asm()
    asm.task(0, entry=True)
    asm.space(size)
    return asm


def fault(asm: Asm, receives=None, sends=None, **options):
    """(code, cycle, pc, argument) of a PE alone, whose queues lead nowhere."""
    grid = Grid(2).place(asm, (0, 0), receives=receives, sends=sends)
    outcome = execute(grid, **options).outcome
    assert outcome.end == "fault"
    found = outcome.fault
    assert outcome.cycles == found.cycle + 1
    assert outcome.counters[0, 0].sum() == outcome.cycles
    return found.code, found.cycle, found.pc, found.argument


def test_scalar_accesses():
    asm = begin()
    asm("li", rd=1, imm=16)
    asm("ld", rd=2, ra=1, disp=-2)
    asm("ld", rd=2, ra=1, disp=0)
    assert fault(asm) == (F.BOUNDS, 2, 2, 16)
    asm = begin()
    asm("stm", rd=2, address=15)
    assert fault(asm) == (F.ALIGNMENT, 0, 0, 15)
    asm = begin()
    asm("ldm", rd=2, address=14, type=T.F32)
    assert fault(asm) == (F.BOUNDS, 0, 0, 14)


def test_leaving_the_code_and_illegal_words():
    asm = begin()
    asm("jmp", jump=3)
    assert fault(asm) == (F.PC, 6, 3, 3)
    asm = begin()
    asm("li", rd=1, imm=0)
    asm.words.append(0xFE000000)
    assert fault(asm) == (F.ILLEGAL, 1, 1, 0xFE000000)


def test_trap_and_assert_carry_their_code_and_the_last_instructions():
    asm = begin()
    asm("li", rd=1, imm=1)
    asm("assert", ra=1, trap_code=7)
    asm("assert", ra=0, trap_code=8)
    assert fault(asm) == (F.TRAP, 2, 2, 8)
    assert execute(Grid(1).place(asm, (0, 0))).outcome.fault.recent == (0, 1, 2)
    asm = begin()
    asm("trap", trap_code=9)
    assert fault(asm) == (F.TRAP, 0, 0, 9)


def test_tasks_that_do_not_exist():
    asm = begin()
    asm("activate", task=4)
    assert fault(asm) == (F.NO_TASK, 0, 0, 4)


def test_extents_descriptors_and_queues_are_checked_at_dispatch():
    asm = begin(64)
    asm.memory(0, 0, 4)
    asm.memory(1, 16, 5)
    at = asm("vmov", dd=1, da=0)
    assert fault(asm) == (F.EXTENT, 2, at, 4)

    asm = begin(64)
    asm.memory(0, 0, 4)
    at = asm("vmov", dd=0, da=7)
    assert fault(asm) == (F.DESCRIPTOR, 1, at, 7)

    asm = begin(64)
    asm.memory(0, 0, 4)
    asm.receive(1, 2, 4)
    at = asm("vmov", dd=0, da=1)
    assert fault(asm) == (F.QUEUE_UNBOUND, 2, at, 2)

    asm = begin(64)
    asm.memory(0, 0, 4, 4)
    asm.receive(1, 2, 4, packed=True)
    at = asm("vmov", dd=0, da=1, type=T.F32)
    assert fault(asm, {2: 3}) == (F.DESCRIPTOR, 2, at, 1)

    asm = begin(64)
    asm.receive(0, 2, 4)
    at = asm("vmac", dd=0, da=0, db=0)
    assert fault(asm, {2: 3}) == (F.DESCRIPTOR, 1, at, 0)  # vmac adds to memory

    asm = begin(64)
    asm.descriptor(0, Descriptor(FIFO, 0, (4, 0), (0, 0)))
    asm.memory(1, 16, 4)
    at = asm("vmov", dd=0, da=1)
    assert fault(asm) == (F.DESCRIPTOR, 2, at, 0)


def test_a_busy_queue_or_thread():
    asm = begin(64)
    asm.memory(0, 0, 4, 4)
    asm.receive(1, 2, 4)
    asm("vmov", dd=0, da=1, asynchronous=1, thread=3, type=T.I32)
    at = asm("vmov", dd=0, da=1, asynchronous=1, thread=4, type=T.I32)
    assert fault(asm, {2: 3}) == (F.QUEUE_BUSY, 3, at, 2)

    asm = begin(64)
    asm.memory(0, 0, 4, 4)
    asm.receive(1, 2, 4)
    asm("vmov", dd=0, da=1, asynchronous=1, thread=3, type=T.I32)
    at = asm("vmov", dd=0, da=1, asynchronous=1, thread=3, type=T.I32)
    assert fault(asm, {2: 3}) == (F.THREAD_BUSY, 3, at, 3)

    asm = begin(64)
    at = asm("recv", queue=2, ra=1)
    asm.task(5, TaskKind.DATA, queue=2)
    asm("end")
    assert fault(asm, {2: 3}) == (F.QUEUE_BUSY, 0, at, 2)


def test_memory_is_checked_group_by_group_before_any_effect():
    asm = Asm()
    asm.task(0, entry=True)
    asm.memory(0, 16, 16)
    asm.memory(1, 32, 16)
    at = asm("vmov", dd=1, da=0)  # 16 elements of 2 bytes from 32 on: the last 4 are outside
    asm.space(16, 16)
    asm.data[16:32] = b"\1" * 16
    asm.space(56 - 32, 32)
    run = execute(Grid(1).place(asm, (0, 0)))
    found = run.outcome.fault
    assert len(asm.data) == 56
    assert (found.code, found.pc, found.argument) == (F.BOUNDS, at, 56)
    assert found.cycle == 2 + 5 + 1  # the second group
    assert run.memory("u1", 32, 24) == [1] * 16 + [0] * 8


def test_strict_finds_reads_of_memory_never_written():
    asm = begin(0)
    a = asm.values("<u2", [1])
    asm("ldm", rd=1, address=a)
    asm("ldm", rd=1, address=8)
    asm("end")
    asm.space(8)
    grid = Grid(1).place(asm, (0, 0))
    grid.kernels[0].initialised[4:] = False
    found = execute(grid, strict=True).outcome.fault
    assert (found.code, found.cycle, found.argument) == (F.UNINITIALISED, 1, 8)
    assert execute(grid).outcome.end == "finished"


def test_writing_makes_memory_readable_in_strict_runs():
    asm = begin(8)
    asm("stm", rd=1, address=4)
    asm("ldm", rd=2, address=4)
    asm("end")
    grid = Grid(1).place(asm, (0, 0))
    grid.kernels[0].initialised[:] = False
    assert execute(grid, strict=True).outcome.end == "finished"


def test_the_earliest_fault_counts_then_the_lowest_place():
    asm = begin()
    asm("trap", trap_code=1)
    later = begin()
    later("li", rd=1, imm=0)
    later("trap", trap_code=2)
    grid = Grid(2, 2).place(later, (0, 0)).place(asm, (1, 0), (0, 1))
    found = execute(grid).outcome.fault
    assert (found.x, found.y, found.cycle) == (1, 0, 0)


def test_descriptor_parts():
    asm = begin(64)
    asm.memory(0, 0, 4)
    asm("li", rd=1, imm=-2)
    asm("setd", dd=0, ra=1, part=0)
    asm("addd", dd=0, ra=1, part=5)  # stride 2 - 2
    asm("li", rd=1, imm=6)
    asm("addd", dd=0, ra=1, part=0)  # base 4
    at = asm("setd", dd=0, ra=1, part=2)  # no second extent
    assert fault(asm) == (F.DESCRIPTOR, 6, at, 0)


def test_routes_that_lead_nowhere_are_refused_before_the_run():
    asm = begin()
    asm("end")
    grid = Grid(1).place(asm, (0, 0), sends={0: 3}).route(0, 0, 3, ({RAMP}, {E}))
    with pytest.raises(Rejected, match="leaves the grid at PE \\(0,0\\) to E"):
        execute(grid)
    grid = Grid(2).place(asm, (0, 0), (1, 0), sends={0: 3})
    grid.route(0, 0, 3, ({RAMP}, {E})).route(1, 0, 3, ({W}, {RAMP}))
    with pytest.raises(Rejected, match="delivered to PE \\(1,0\\)"):
        execute(grid)
    grid = Grid(2).place(asm, (0, 0), sends={0: 2, 1: 3})
    grid.route(0, 0, 2, ({RAMP}, {E}), swap=True).route(0, 0, 3, ({RAMP}, {E}))
    with pytest.raises(Rejected, match="colours 2 and 3 both leave PE \\(0,0\\) to E as colour 3"):
        execute(grid)
    assert alone(asm).outcome.end == "finished"
