"""Rules on which the engines once differed, one small program each; both engines run every program."""

from __future__ import annotations

import dataclasses
from importlib import resources

import numpy as np
import pytest
from support import RAMP, Asm, E, Grid, N, S, W
from test_fabric_engines_agree import differences
from waferloom.fabric.engine import run as fast
from waferloom.fabric.outcome import FaultCode as F
from waferloom.fabric.outcome import Outcome
from waferloom.fabric.reference import run as reference
from waferloom.fabric.spec import MachineError, machine, parse_machine
from waferloom.isa.element_types import ElementType as T
from waferloom.isa.errors import Internal
from waferloom.isa.instructions import BY_NAME
from waferloom.isa.program import Descriptor, DescriptorKind, TaskKind

MEMORY, IN, OUT, FIFO = DescriptorKind
TINY = machine("tiny")
NAMES_TASK = 1 << 29


def both(grid: Grid, spec=TINY, inputs=None, max_cycles: int | None = 5000) -> tuple[Outcome, np.ndarray]:
    """Run on both engines; they must agree."""
    program = grid.program()
    results = []
    for engine in (reference, fast):
        stride = -(-max(len(k.data) for k in program.kernels) // 8) * 8 + 8
        sram = np.zeros((program.width * program.height, stride), np.uint8)
        for row, index in enumerate(program.placement.ravel()):
            if index >= 0:
                data = program.kernels[index].data
                sram[row, : len(data)] = data
        results.append((engine(spec, program, sram, inputs or {}, max_cycles=max_cycles), sram, None))
    assert differences(*results) == []
    return results[0][:2]


def entry(size: int = 64) -> Asm:
    asm = Asm()
    asm.task(0, entry=True)
    asm.space(size)
    return asm


def alone(asm: Asm, spec=TINY, **options) -> tuple[Outcome, np.ndarray]:
    return both(Grid(1).place(asm, (0, 0)), spec, **options)


def test_a_task_started_by_a_wavelet_issues_no_earlier_than_it():
    sender = entry()
    for _ in range(9):
        sender("addi", rd=1, ra=1, imm=1)
    sender("send", queue=0, ra=1)
    sender("end")
    receiver = Asm()
    receiver.task(3, TaskKind.DATA, queue=0)
    receiver("tsc", rd=5)
    receiver("end")
    grid = Grid(2).place(sender, (0, 0), sends={0: 1}).place(receiver, (1, 0), receives={0: 1})
    grid.route(0, 0, 1, ({RAMP}, {E})).route(1, 0, 1, ({W}, {RAMP}))
    outcome, _ = both(grid)
    assert outcome.registers[0, 1, 5] == 9 + TINY.fabric.ramp_up + TINY.fabric.hop + TINY.fabric.ramp_down + 1


def test_what_is_no_instruction_waits_for_no_register():
    asm = entry()
    asm("fdiv", rd=0, ra=1, rb=2)
    asm.words.append(0xFE000000)
    assert alone(asm)[0].fault.cycle == 1


def test_leaving_the_code_backwards_costs_a_cycle_like_any_fault():
    asm = entry()
    asm("jmp", jump=-3)
    outcome, _ = alone(asm)
    assert (outcome.fault.code, outcome.fault.pc, outcome.fault.argument) == (F.PC, -3, -3)
    assert outcome.counters[0, 0, 0] == 2


def test_a_vector_or_task_at_the_end_of_the_code_leaves_it_there():
    asm = entry()
    asm.memory(0, 0, 4)
    asm("vmov", dd=0, da=0)
    outcome, _ = alone(asm)
    assert (outcome.fault.code, outcome.fault.argument) == (F.PC, len(asm.words))
    asm = entry()
    asm("activate", task=1)
    asm("end")
    asm.task(1)
    outcome, _ = alone(asm)
    assert (outcome.fault.code, outcome.fault.argument) == (F.PC, 2)


def test_a_descriptor_in_two_places_moves_once():
    asm = entry()
    asm.memory(0, 0, 4)
    asm("vadd", dd=0, da=0, db=0, advance_d=1, advance_a=1, advance_b=1)
    asm("vmov", dd=0, da=3, scalar=1)
    asm("end")
    asm.data[:24] = np.arange(1, 13, dtype=np.uint16).tobytes()
    outcome, sram = alone(asm)
    assert outcome.end == "finished"
    assert sram[0, 8:16].any() == False  # noqa: E712
    assert sram[0, 16:24].any()


def test_one_fifo_as_two_operands_is_read_at_one_head():
    """A group sees head and fill as they were; afterwards both operands have taken their elements."""
    asm = entry()
    ring = asm.values("<u2", [0, 8, *range(1, 9)])
    for register in (1, 2):
        asm.descriptor(register, Descriptor(FIFO, ring, (4, 8), (0, 0)))
    asm.memory(0, 0, 4)
    asm("vadd", dd=0, da=1, db=2, type=T.I16)
    asm("end")
    _, sram = alone(asm)
    assert sram[0, :8].view("<u2").tolist() == [2, 4, 6, 8]
    assert sram[0, ring : ring + 4].view("<u2").tolist() == [0, 0]


def test_a_register_operand_of_16_bits_is_its_low_half():
    asm = entry()
    asm("li32", rd=1, value=0x43000001)
    asm("li32", rd=2, value=0x70003C00)
    asm.memory(0, 0, 4)
    asm.data[:8] = np.full(4, 4, np.uint16).tobytes()
    asm("vshr", dd=0, da=0, ra=1, db=1, scalar=1, type=T.I16)
    asm("fmax", rd=2, ra=2, rb=3)
    asm("li32", rd=4, value=0x70003C00)
    asm.memory(1, 32, 4)
    asm("vredmax", rd=4, da=1)
    asm("end")
    outcome, sram = alone(asm)
    assert sram[0, :8].view("<u2").tolist() == [2] * 4
    assert outcome.registers[0, 0, [2, 4]].tolist() == [0x3C00, 0x3C00]


def test_unaligned_words_clash_where_there_are_few_banks():
    for banks in (1, 2):
        asm = entry()
        asm.descriptor(0, Descriptor(MEMORY, 2, (8,), (4,)))
        asm.transmit(1, 0, 8, packed=True)
        asm("vcvt", dd=1, da=0, type=T.F16, source=T.F32)
        asm("end")
        grid = Grid(1).place(asm, (0, 0), sends={0: 1}, receives={0: 1})
        grid.route(0, 0, 1, ({RAMP}, {RAMP}))
        spec = dataclasses.replace(TINY, sram=dataclasses.replace(TINY.sram, banks=banks))
        assert both(grid, spec)[0].counters[0, 0, 1] > 0


def test_behind_a_wavelet_that_left_a_task_starts_two_cycles_later():
    """A control wavelet could not have been issued in the cycle in which another one left its queue."""
    asm = entry()
    asm.receive(0, 0, 1)
    asm.memory(1, 0, 1, 4)
    asm("vmov", dd=1, da=0, type=T.I32, asynchronous=1)
    asm("end")
    asm.task(7, TaskKind.CONTROL)
    asm("tsc", rd=5)
    asm("end")
    for slow in (False, True):
        grid = Grid(1).place(asm, (0, 0), receives={0: 2}).route(0, 0, 2, ({W}, {RAMP}))
        grid.port("in", False, W, 2, (0,))
        words, control = np.array([5, NAMES_TASK | 7 << 24], np.uint32), np.array([False, True])
        spec = dataclasses.replace(TINY, setup={k: 40 if slow else v for k, v in TINY.setup.items()})
        outcome, _ = both(grid, spec, {"in": [(words, control)]})
        assert outcome.end == "finished"
    assert outcome.registers[0, 0, 5] == 2 + spec.lead("copy") + 2


def test_a_second_word_that_looks_like_done_is_none():
    asm = entry()
    asm("li32", rd=1, value=BY_NAME["done"].opcode << 25)
    asm("end")
    assert alone(asm)[0].end == "finished"


def test_a_control_descriptor_needs_no_symbol():
    """What a queue may send is read from the data, not from names."""
    sender = entry()
    sender.memory(0, 0, 2, 4)
    sender.data[:8] = np.array([0, NAMES_TASK | 9 << 24], "<u4").tobytes()
    sender.transmit(1, 0, 2, control=True)
    sender("vmov", dd=1, da=0, type=T.I32)
    sender("end")
    receiver = Asm()
    receiver.task(9, TaskKind.CONTROL)
    receiver("end")
    grid = Grid(2).place(sender, (0, 0), sends={0: 1}).place(receiver, (1, 0), receives={0: 1})
    grid.route(0, 0, 1, ({RAMP}, {E})).route(1, 0, 1, ({W}, {RAMP}))
    outcome, _ = both(grid)
    assert (outcome.end, int(outcome.instructions[0, 1])) == ("finished", 1)


def test_a_circle_without_arbitration_is_a_livelock():
    """Switched into a circle, words pass no merge; nothing but streams is left."""
    asm = entry()
    asm("send", queue=0, ra=1)
    asm("li", rd=1, imm=1)
    asm("sendc", queue=0, ra=1)
    asm("end")
    grid = Grid(2, 2).place(asm, (0, 0), sends={0: 4})
    grid.route(0, 0, 4, ({RAMP}, {E}), ({S}, {E})).route(1, 0, 4, ({W}, {S}))
    grid.route(1, 1, 4, ({N}, {W})).route(0, 1, 4, ({E}, {N}))
    spec = dataclasses.replace(TINY, fabric=dataclasses.replace(TINY.fabric, livelock_cycles=200))
    outcome, _ = both(grid, spec, max_cycles=None)
    assert outcome.end == "hang"
    assert outcome.waits.livelock


def test_a_limit_hides_nothing_that_comes_before_it():
    """A thread that could issue behind the limit must not keep the PE from what arrives before."""
    sender = entry()
    for _ in range(20):
        sender("addi", rd=1, ra=1, imm=1)
    sender("send", queue=0, ra=1)
    sender("end")
    slow = entry()
    slow.transmit(1, 1, 4)
    slow("vmov", dd=1, da=3, ra=3, scalar=1, type=T.I32, asynchronous=1, thread=0)
    slow("recv", queue=0, ra=2)
    slow("end")
    grid = Grid(2).place(sender, (0, 0), sends={0: 1})
    grid.place(slow, (1, 0), receives={0: 1}, sends={1: 2})
    grid.route(0, 0, 1, ({RAMP}, {E})).route(1, 0, 1, ({W}, {RAMP})).route(1, 0, 2, ({RAMP}, {E}))
    grid.port("out", True, E, 2, (0,))
    spec = dataclasses.replace(TINY, setup=dict.fromkeys(TINY.setup, 200))
    outcome, _ = both(grid, spec, max_cycles=60)
    assert (outcome.end, int(outcome.registers[0, 1, 2])) == ("limit", 20)


def test_too_many_elements_are_an_extent_fault():
    asm = entry()
    asm.descriptor(0, Descriptor(MEMORY, 0, (65535, 65535), (0, 0)))
    asm("vmov", dd=0, da=0)
    outcome, _ = alone(asm)
    assert (outcome.fault.code, outcome.fault.argument) == (F.EXTENT, 1 << 31)


def test_a_completion_that_names_no_task_counts_its_group_once():
    asm = entry()
    asm.memory(0, 0, 4)
    asm.transmit(1, 0, 4, packed=True)
    at = asm("vmov", dd=1, da=0, asynchronous=1, thread=2, completion=1, launch_task=30)
    asm("end")
    grid = Grid(1).place(asm, (0, 0), sends={0: 1}, receives={0: 1}).route(0, 0, 1, ({RAMP}, {RAMP}))
    outcome, _ = both(grid)
    assert (outcome.fault.code, outcome.fault.pc, outcome.fault.argument) == (F.NO_TASK, at, 30)
    assert outcome.counters[0, 0].sum() == outcome.cycles


def test_a_control_descriptor_made_at_run_time_is_refused_aloud():
    """The fast engine sets routes up before the run; it must not send such wavelets the wrong way."""
    asm = entry()
    asm("li", rd=1, imm=Descriptor(OUT, 0, (1,), (0,), 0, True).halfwords[0])
    asm("stm", rd=1, address=0, type=T.I16)
    asm("ldd", dd=0, address=0)
    asm("end")
    grid = Grid(1).place(asm, (0, 0), sends={0: 1}, receives={0: 1}).route(0, 0, 1, ({RAMP}, {RAMP}))
    with pytest.raises(Internal, match="control descriptor"):
        fast(TINY, grid.program(), np.zeros((1, 128), np.uint8), {})


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("banks = 8", "banks = 128", "at most 64"),
        ("i16_add = 8", "i16_add = 65", "at most 64"),
        ("livelock_cycles = 100_000", "livelock_cycles = 20", "more than any latency"),
    ],
)
def test_a_machine_beyond_what_the_engines_hold_is_refused(old, new, rule):
    text = resources.files("waferloom.fabric").joinpath("machines/tiny.toml").read_text("utf-8")
    assert old in text
    with pytest.raises(MachineError, match=rule):
        parse_machine(text.replace(old, new), "mine.toml")
