"""Scalar instructions of the reference engine: when each one issues, and what it leaves in the registers."""

import pytest
from support import Asm, alone
from waferloom.fabric.outcome import Cycle
from waferloom.fabric.reference.semantics import SCALAR, VECTOR
from waferloom.isa.element_types import ElementType as T
from waferloom.isa.instructions import INSTRUCTIONS, Unit


def test_every_row_of_the_table_has_exactly_one_meaning():
    assert set(SCALAR) == {row.name for row in INSTRUCTIONS if row.unit is Unit.SCALAR}
    assert set(VECTOR) == {row.name for row in INSTRUCTIONS if row.unit is Unit.VECTOR}


def scalar() -> Asm:
    asm = Asm()
    asm.task(0)
    return asm


def test_integers_issue_back_to_back():
    asm = scalar()
    asm("li", rd=1, imm=5)
    asm("addi", rd=2, ra=1, imm=-7)
    asm("mul", rd=3, ra=1, rb=2)
    asm("end")
    run = alone(asm)
    assert run.issues() == [0, 1, 2, 3]
    assert run.outcome.end == "finished"
    assert run.outcome.cycles == 4
    assert run.outcome.registers[0, 0, 1:4].tolist() == [5, 2**32 - 2, 2**32 - 10]
    assert run.outcome.counters[0, 0].tolist() == [4, 0, 0, 0, 0, 0, 0, 0]


def test_load_load_add_store_has_executed_after_seven_cycles():
    asm = scalar()
    a = asm.values("<f2", [1.5, 2.25, 0])
    asm("ldm", rd=1, address=a)  # 0
    asm("ldm", rd=2, address=a + 2)  # 1
    asm("fadd", rd=3, ra=1, rb=2)  # 2: a load is ready one cycle later
    asm("stm", rd=3, address=a + 4)  # 4: a sum two cycles later
    asm("end")
    run = alone(asm)
    assert run.issues() == [0, 1, 2, 4, 5]
    assert run.memory("<f2", a + 4, 1) == [3.75]


def test_dependent_floating_point_takes_two_cycles_each():
    asm = scalar()
    for _ in range(4):
        asm("fadd", rd=1, ra=1, rb=2)
    asm("end")
    run = alone(asm)
    assert run.issues() == [0, 2, 4, 6, 7]
    assert run.outcome.counters[0, 0, Cycle.LATENCY] == 3


@pytest.mark.parametrize(("value", "target", "cycles"), [(0, 5, 6), (1, 3, 3)])
def test_a_branch_costs_three_cycles_or_six(value, target, cycles):
    asm = scalar()
    asm("li", rd=1, imm=value)  # word 0
    asm("tsc", rd=2)  # word 1
    asm("beq", rd=1, ra=0, offset=3)  # word 2
    asm("tsc", rd=3)
    asm("end")
    asm("tsc", rd=3)
    asm("end")
    run = alone(asm)
    assert run.issues() == [0, 1, 2, 2 + cycles, 3 + cycles]
    assert run.outcome.registers[0, 0, 3] == 2 + cycles
    assert run.outcome.counters[0, 0, Cycle.BRANCH] == cycles - 1


def test_a_jump_is_a_taken_branch_and_links_the_next_word():
    asm = scalar()
    asm("jal", rd=1, jump=2)
    asm("end")
    asm("jr", ra=1)
    run = alone(asm)
    assert run.issues() == [0, 6, 12]
    assert run.outcome.registers[0, 0, 1] == 1


def test_division_and_special_functions_take_their_latency():
    asm = scalar()
    asm("li32", rd=1, value=0x3F800000)
    asm("fdiv", rd=2, ra=1, rb=1, type=T.F32)
    asm("fexp", rd=3, ra=2, type=T.F32)
    asm("add", rd=4, ra=3, rb=0)
    asm("end")
    assert alone(asm).issues() == [0, 1, 51, 71, 72]


def test_a_destination_that_is_not_ready_is_waited_for():
    asm = scalar()
    asm("fadd", rd=1, ra=2, rb=2)
    asm("li", rd=1, imm=3)
    asm("end")
    run = alone(asm)
    assert run.issues() == [0, 2, 3]
    assert run.outcome.registers[0, 0, 1] == 3


def test_sixteen_bit_results_are_extended_as_loads_are():
    asm = scalar()
    a = asm.values("<i2", [-2])
    asm("ldm", rd=1, address=a, type=T.I16)
    asm("ldm", rd=2, address=a, type=T.F16)
    asm("li", rd=3, imm=-3)
    asm("cvt", rd=4, ra=3, source=T.I32, type=T.I16)
    asm("end")
    assert alone(asm).outcome.registers[0, 0, 1:5].tolist() == [2**32 - 2, 0xFFFE, 2**32 - 3, 2**32 - 3]
