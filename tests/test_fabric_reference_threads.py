"""Microthreads, fabric operands and FIFOs of the reference engine: who issues, and what travels."""

import numpy as np
import pytest
from support import RAMP, Asm, E, Grid, W, execute
from waferloom.fabric.outcome import Cycle, Wait
from waferloom.isa.element_types import ElementType as T
from waferloom.isa.program import Descriptor, DescriptorKind

FIFO = DescriptorKind.FIFO


def begin(size: int = 0) -> Asm:
    asm = Asm()
    asm.task(0, entry=True)
    asm.space(size)
    return asm


def to_host(asm: Asm, sends: dict[int, int], words: int = 8) -> Grid:
    """A PE whose colours leave the grid in the east."""
    grid = Grid(1).place(asm, (0, 0), sends=sends)
    for colour in sends.values():
        grid.route(0, 0, colour, ({RAMP}, {E})).port(f"c{colour}", True, E, colour, (0,), words)
    return grid


def words_of(run, port: str) -> list[int]:
    return run.outcome.outputs[port][0].payload.tolist()


def test_sixteen_bit_elements_travel_in_pairs_or_with_their_index():
    asm = begin()
    a = asm.values("<u2", [1, 2, 3, 4])
    asm.memory(0, a, 4)
    asm.transmit(1, 0, 4, packed=True)
    asm.transmit(2, 1, 4)
    asm("vmov", dd=1, da=0)
    asm("vmov", dd=2, da=0)
    asm("end")
    run = execute(to_host(asm, {0: 3, 1: 4}))
    assert words_of(run, "c3") == [0x2_0001, 0x4_0003]
    assert words_of(run, "c4") == [1, 0x1_0002, 0x2_0003, 0x3_0004]


def test_a_packed_operand_moves_a_wavelet_per_group_whatever_the_rate():
    # WSE-2 converts one element per cycle, so a wavelet of two takes two cycles.
    asm = begin()
    a = asm.values("<f2", np.arange(8))
    asm.memory(0, a, 8)
    asm.transmit(1, 0, 8, packed=True)
    asm("vcvt", dd=1, da=0, source=T.F16, type=T.BF16)
    asm("tsc", rd=1)
    asm("end")
    run = execute(to_host(asm, {0: 3}), "wse2")
    assert run.issues() == [0, 1, 2, 5, 7, 9, 11, 13, 14]  # lead 6 - 3
    assert run.outcome.registers[0, 0, 1] == 13


def test_a_control_flag_sends_control_wavelets():
    asm = begin()
    asm.transmit(0, 0, 2, control=True)
    asm("vmov", dd=0, da=1, scalar=1, type=T.I32)
    asm("end")
    run = execute(to_host(asm, {0: 3}))
    assert run.outcome.outputs["c3"][0].control.tolist() == [True, True]


@pytest.mark.parametrize(("priority", "order"), [(0, [1, 2, 1, 2, 1, 2]), (1, [1, 2, 2, 2, 1, 1])])
def test_threads_take_turns_unless_one_has_priority(priority, order):
    asm = begin()
    asm.transmit(0, 0, 3)
    asm.transmit(1, 1, 3)
    asm("vmov", dd=0, da=1, scalar=1, asynchronous=1, thread=0, type=T.I32)
    asm("vmov", dd=1, da=1, scalar=1, asynchronous=1, thread=1, priority=priority, type=T.I32)
    asm("end")
    run = execute(to_host(asm, {0: 3, 1: 4}))
    threads = [details["thread"] for event, *_, details in run.events if event == "issue"]
    assert threads[5:] == order


def test_a_synchronous_vector_keeps_microthreads_out():
    asm = begin(256)
    asm.transmit(0, 0, 4)
    asm.memory(1, 0, 64)
    asm("vmov", dd=0, da=1, scalar=1, asynchronous=1, type=T.I32)
    asm("vmov", dd=1, da=1, scalar=1, type=T.F16)
    asm("end")
    run = execute(to_host(asm, {0: 3}))
    # dispatched at 2 and 3; the fill holds the engine from 3 on: lead 5, groups at 8..15
    assert run.issues() == [0, 1, 2, 3, *range(8, 16), 16, 17, 18, 19, 20]
    assert run.outcome.counters[0, 0, Cycle.SETUP] == 4


def test_a_completion_unblocks_a_task():
    asm = begin()
    asm.transmit(0, 0, 2)
    asm("activate", task=1)
    asm("vmov", dd=0, da=1, scalar=1, asynchronous=1, completion=2, launch_task=1, type=T.I32)
    asm("end")
    asm.task(1, blocked=True)
    asm("tsc", rd=5)
    asm("end")
    run = execute(to_host(asm, {0: 3}))
    assert run.outcome.registers[0, 0, 5] == 2 + 5 + 2  # dispatched at 2, two words from 7 on


def test_a_fifo_carries_elements_from_a_task_to_a_microthread():
    asm = begin()
    ring = asm.space(4 + 4 * 4)
    a = asm.values("<i4", range(12))
    asm.descriptor(0, Descriptor(FIFO, ring, (12, 4), (0, 0)))
    asm.transmit(1, 0, 12)
    asm("vmov", dd=1, da=0, asynchronous=1, type=T.I32)
    for k in range(3):
        asm.memory(2, a + 16 * k, 4, 4)
        asm.descriptor(3, Descriptor(FIFO, ring, (4, 4), (0, 0)))
        asm("vmov", dd=3, da=2, asynchronous=1, thread=1, completion=1, launch_task=k + 1, type=T.I32)
        asm("end")
        asm.task(k + 1)
    asm("end")
    run = execute(to_host(asm, {0: 3}))
    assert run.outcome.end == "finished"
    assert words_of(run, "c3") == list(range(12))


def test_an_empty_fifo_is_named_as_what_is_waited_for():
    asm = begin()
    ring = asm.space(4 + 4 * 2)
    asm.descriptor(0, Descriptor(FIFO, ring, (4, 2), (0, 0)))
    asm.memory(1, ring, 4)
    asm("vmov", dd=1, da=0)
    asm("end")
    outcome = execute(Grid(1).place(asm, (0, 0))).outcome
    assert outcome.end == "hang"
    assert outcome.waits.state[0, 0, 0] == Wait.FIFO
    assert outcome.waits.since[0, 0, 0] == 2 + 5


def test_an_add_on_the_way_takes_and_gives_a_word_per_cycle():
    # 0 sends, 1 adds its own and passes on, 2 collects: B + 6 (P - 1) cycles from the first issue to the last
    words = 16
    source, middle, sink = begin(), begin(), begin()
    source.transmit(0, 0, words)
    source("li32", rd=1, value=0x3F800000)
    source("vmov", dd=0, da=1, scalar=1, type=T.F32)
    source("end")
    a = middle.values("<f4", np.arange(words))
    middle.memory(0, a, words, 4)
    middle.receive(1, 0, words)
    middle.transmit(2, 0, words)
    middle("vadd", dd=2, da=1, db=0, type=T.F32)
    middle("end")
    d = sink.space(4 * words)
    sink.memory(0, d, words, 4)
    sink.receive(1, 0, words)
    sink("vmov", dd=0, da=1, type=T.F32)
    sink("end")
    grid = Grid(3).place(source, (0, 0), sends={0: 3}).place(sink, (2, 0), receives={0: 4})
    grid.place(middle, (1, 0), receives={0: 3}, sends={0: 4})
    grid.route(0, 0, 3, ({RAMP}, {E})).route(1, 0, 3, ({W}, {RAMP}))
    grid.route(1, 0, 4, ({RAMP}, {E})).route(2, 0, 4, ({W}, {RAMP}))
    run = execute(grid, "wse2")
    assert run.memory("<f4", d, words, x=2) == [k + 1.0 for k in range(words)]
    first, last = run.issues(0)[3], run.issues(2)[-2]
    assert last - first + 1 == words + 6 * 2
