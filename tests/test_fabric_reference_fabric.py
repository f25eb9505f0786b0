"""Links, queues and tasks of the reference engine: when wavelets leave and arrive, and whom they start."""

import pytest
from support import NAMES_TASK, RAMP, Asm, E, Grid, N, S, W, execute
from waferloom.fabric.outcome import Cycle, FaultCode, Wait
from waferloom.isa.element_types import ElementType as T
from waferloom.isa.program import TaskKind


def idle(asm: Asm, cycles: int) -> None:
    """Pass the time until `cycles`."""
    while len(asm.words) < cycles:
        asm("add", rd=9, ra=9, rb=9)


def task(**options) -> Asm:
    asm = Asm()
    asm.task(0, entry=True, **options)
    return asm


def eastward(grid: Grid, colour: int = 3, y: int = 0) -> Grid:
    """Route a colour from the first PE of a row to the last."""
    grid.route(0, y, colour, ({RAMP}, {E}))
    for x in range(1, grid.width - 1):
        grid.route(x, y, colour, ({W}, {E}))
    return grid.route(grid.width - 1, y, colour, ({W}, {RAMP}))


def test_message_of_eight_words_over_one_hop():
    sender, receiver = task(), task()
    a = sender.values("<i4", range(8))
    sender.memory(0, a, 8, 4)
    sender.transmit(1, 0, 8)
    idle(sender, 375)
    sender("vmov", dd=1, da=0, type=T.I32)
    sender("end")
    d = receiver.space(32)
    receiver.memory(0, d, 8, 4)
    receiver.receive(1, 0, 8)
    idle(receiver, 365)
    receiver("vmov", dd=0, da=1, asynchronous=1, completion=1, launch_task=1, type=T.I32)
    receiver("end")
    receiver.task(1)
    receiver("end")
    grid = Grid(2).place(sender, (0, 0), sends={0: 3}).place(receiver, (1, 0), receives={0: 3})
    run = execute(eastward(grid))
    assert run.issues(0)[375:] == [375, *range(380, 388), 388]  # lead 5
    assert run.departures(0) == list(range(382, 390))  # ramp up 2
    assert run.departures(1) == list(range(384, 392))  # hop 2
    assert run.issues(1)[365:] == [365, 366, *range(386, 394), 394]  # ramp down 2, then the completion task
    assert run.memory("<i4", d, 8, x=1) == list(range(8))
    assert run.outcome.cycles == 395
    assert run.outcome.link_words[0].tolist() == [[0, 8, 0, 0, 0], [0, 0, 0, 0, 8]]


def stream(count: int, gap: int = 0) -> Asm:
    """A PE that sends 0, 1, ... on queue 0 with scalar sends."""
    asm = task()
    for k in range(count):
        asm("li", rd=1, imm=k)
        asm("send", queue=0, ra=1)
        for _ in range(gap):
            asm("li", rd=2, imm=0)
    asm("end")
    return asm


def collector(count: int) -> Asm:
    """A PE that receives `count` words on queue 0 into memory at 0."""
    asm = task()
    d = asm.space(4 * count)
    asm.memory(0, d, count, 4)
    asm.receive(1, 0, count)
    asm("vmov", dd=0, da=1, type=T.I32)
    asm("end")
    return asm


@pytest.mark.parametrize(("machine", "hop"), [("wse2", 1), ("wse3", 2)])
def test_each_hop_takes_its_latency(machine, hop):
    grid = Grid(5).place(stream(1), (0, 0), sends={0: 3}).place(collector(1), (4, 0), receives={0: 3})
    run = execute(eastward(grid), machine)
    assert [run.departures(x)[0] - run.departures(0)[0] for x in range(5)] == [hop * x for x in range(5)]


def test_a_full_chain_holds_what_its_stages_hold_and_the_sender_waits():
    receiver = task()
    receiver("li", rd=1, imm=0)
    receiver("end")
    grid = Grid(3).place(stream(40), (0, 0), sends={0: 3}).place(receiver, (2, 0), receives={2: 3})
    run = execute(eastward(grid))
    # out queue 8 + 1, two links 2 + 1 each, in queue 2: 4 + 1
    waits = run.outcome.waits
    assert run.outcome.end == "hang"
    assert waits.out_fill[0, 0, 0] == 9
    assert waits.router_fill[3][0, :, 3].tolist() == [0, 3, 3]
    assert waits.in_fill[0, 2, 2] == 5
    assert waits.state[0, 0, 0] == Wait.SEND
    assert waits.queue[0, 0, 0] == 0
    assert len(run.departures(0)) == 11
    sent = 9 + 3 + 3 + 5
    assert run.outcome.instructions[0, 0] == 2 * sent + 1
    assert run.outcome.cycles == run.issues(0)[-1] + 1
    assert waits.since[0, 0, 0] == run.issues(0)[-1] + 1


def test_a_slot_freed_in_a_cycle_is_filled_in_the_next():
    # Depth 2 plus the link's register: full rate. The receiver takes one wavelet per cycle: nothing stops.
    sender = task()
    sender.transmit(1, 0, 64)
    sender("vmov", dd=1, da=2, scalar=1, type=T.I32)
    sender("end")
    grid = Grid(4).place(sender, (0, 0), sends={0: 3}).place(collector(64), (3, 0), receives={0: 3})
    run = execute(eastward(grid))
    first = run.departures(3)[0]
    assert run.departures(3) == list(range(first, first + 64))


def test_colours_share_a_link_round_robin_and_a_blocked_one_blocks_no_other():
    sender = task()
    sender.transmit(1, 0, 8)
    sender.transmit(2, 1, 8)
    sender("vmov", dd=1, da=2, scalar=1, asynchronous=1, thread=0, type=T.I32)
    sender("vmov", dd=2, da=2, scalar=1, asynchronous=1, thread=1, type=T.I32)
    sender("end")
    receiver = task()
    receiver.space(64)
    receiver.memory(0, 0, 8, 4)
    receiver.receive(1, 0, 8)
    receiver("vmov", dd=0, da=1, type=T.I32)
    receiver("end")
    grid = Grid(2).place(sender, (0, 0), sends={0: 3, 1: 4}).place(receiver, (1, 0), receives={0: 4, 2: 3})
    run = execute(eastward(eastward(grid, 3), 4))
    colours = [d["colour"] for e, t, x, y, d in run.events if e == "depart" and x == 0]
    assert colours[:8] == [3, 4] * 4  # the engine's threads alternate too
    assert run.outcome.end == "hang"  # colour 3 stays
    assert run.outcome.waits.in_fill[0, 1].tolist() == [0, 0, 5, 0, 0, 0, 0, 0]


def test_a_merge_takes_turns():
    grid = Grid(3)
    for x in (0, 2):
        sender = task()
        sender.transmit(1, 0, 4)
        sender("li", rd=2, imm=x)
        sender("vmov", dd=1, da=2, scalar=1, type=T.I32)
        sender("end")
        grid.place(sender, (x, 0), sends={0: 3})
    grid.place(collector(8), (1, 0), receives={0: 3})
    grid.route(0, 0, 3, ({RAMP}, {E})).route(2, 0, 3, ({RAMP}, {W}))
    grid.route(1, 0, 3, ({W, E}, {RAMP}), merge=True)
    run = execute(grid)
    first = run.departures(1)[0]
    assert run.departures(1) == list(range(first, first + 8))
    assert run.memory("<i4", 0, 8, x=1) == [2, 0] * 4  # E stands before W


def test_multicast_leaves_when_all_outputs_have_room():
    grid = Grid(3).place(stream(30), (0, 0), sends={0: 3}).place(collector(30), (2, 0), receives={0: 3})
    stuck = task()
    stuck("end")
    grid.place(stuck, (1, 0), receives={2: 3})
    grid.route(0, 0, 3, ({RAMP}, {E})).route(1, 0, 3, ({W}, {E, RAMP})).route(2, 0, 3, ({W}, {RAMP}))
    run = execute(grid)
    assert run.outcome.end == "hang"
    assert len(run.departures(1)) == 5  # the queue that nobody empties: 4 + 1


def test_swap_leaves_with_the_partner_colour():
    grid = Grid(2).place(stream(3), (0, 0), sends={0: 6}).place(collector(3), (1, 0), receives={0: 7})
    grid.route(0, 0, 6, ({RAMP}, {E}), swap=True).route(1, 0, 7, ({W}, {RAMP}))
    run = execute(grid)
    assert run.outcome.end == "finished"
    assert run.memory("<i4", 0, 3, x=1) == [0, 1, 2]


def command(*commands: int, task: int | None = None) -> int:
    """Payload of a control wavelet."""
    word = sum(c << 2 * i for i, c in enumerate(commands))
    return word if task is None else word | NAMES_TASK | task << 24


def switching(words: list[tuple[int, bool]], *positions, **options):
    """Stream words from the west into a switch at (0, 0); E and S lead to edge ports."""
    grid = Grid(1).route(0, 0, 3, *positions, **options)
    grid.port("in", False, W, 3, (0,)).port("e", True, E, 3, (0,)).port("s", True, S, 3, (0,))
    import numpy as np

    lane = (np.array([w for w, _ in words], np.uint32), np.array([c for _, c in words]))
    run = execute(grid, inputs={"in": [lane]})
    return run, *([int(w) for w in run.outcome.outputs[p][0].payload] for p in "es")


def test_a_control_wavelet_switches_after_it_passed():
    advance = command(1)
    run, east, south = switching(
        [(5, False), (advance, True), (6, False), (advance, True), (7, False)], ({W}, {E}), ({W}, {S})
    )
    assert east == [5, advance]
    assert south == [6, advance, 7]  # past the last position: stays
    assert run.outcome.outputs["e"][0].cycle.tolist() == [4, 5]  # in 2, out 2
    assert run.outcome.outputs["s"][0].cycle.tolist() == [6, 7, 8]
    assert run.outcome.cycles == 9


def test_ring_wraps_reset_returns_and_pop_removes_a_command():
    words = [(command(1, 2), True), (1, False), (command(1), True), (2, False)]
    _, east, south = switching(words, ({W}, {E}), ({W}, {S}), ring=True, pop=True)
    assert east == [command(2), 2]
    assert south == [1, command(0)]


def test_an_unknown_command_is_a_fault_of_the_router():
    run, *_ = switching([(command(3), True)], ({W}, {E}), ({W}, {S}))
    fault = run.outcome.fault
    assert run.outcome.end == "fault"
    assert (fault.code, fault.cycle, fault.argument, fault.pc) == (FaultCode.BAD_COMMAND, 2, 3, -1)
    assert run.outcome.cycles == 3


def test_a_control_wavelet_without_a_task_ends_at_the_ramp():
    sender = task()
    sender("li", rd=1, imm=command(1))
    sender("sendc", queue=0, ra=1)
    sender("send", queue=0, ra=1)
    sender("end")
    grid = Grid(2).place(sender, (0, 0), sends={0: 3}).place(collector(1), (1, 0), receives={0: 3})
    run = execute(eastward(grid))
    assert run.outcome.end == "finished"
    assert run.outcome.link_words[0, 1].tolist() == [0, 0, 0, 0, 1]


def test_a_control_wavelet_starts_the_task_it_names():
    sender = task()
    sender("li32", rd=1, value=command(task=9))
    sender("sendc", queue=0, ra=1)
    sender("end")
    receiver = Asm()
    receiver.task(9, TaskKind.CONTROL)
    receiver("addi", rd=1, ra=0, imm=0)
    receiver("end")
    grid = Grid(2).place(sender, (0, 0), sends={0: 3}).place(receiver, (1, 0), receives={0: 3})
    run = execute(eastward(grid))
    # sent at 1, leaves at 3 and 5, could be issued at 7, so the pick is at 8
    assert run.issues(1) == [8, 9]
    assert run.outcome.registers[0, 1, 1] == command(task=9)


def test_a_control_wavelet_that_names_no_control_task_is_a_fault():
    sender = task()
    sender("li32", rd=1, value=command(task=9))
    sender("sendc", queue=0, ra=1)
    sender("end")
    receiver = Asm()
    receiver.task(9)
    receiver("end")
    grid = Grid(2).place(sender, (0, 0), sends={0: 3}).place(receiver, (1, 0), receives={0: 3})
    fault = execute(eastward(grid)).outcome.fault
    assert (fault.code, fault.x, fault.cycle, fault.argument) == (FaultCode.NO_CONTROL_TASK, 1, 8, 9)


def test_a_data_task_runs_once_per_wavelet():
    receiver = Asm()
    receiver.task(2, TaskKind.DATA, queue=0)
    receiver("add", rd=1, ra=1, rb=0)
    receiver("end")
    grid = Grid(2).place(stream(4), (0, 0), sends={0: 3}).place(receiver, (1, 0), receives={0: 3})
    run = execute(eastward(grid))
    assert run.issues(1) == [8, 9, 10, 11, 12, 13, 14, 15]  # sent every other cycle from 1 on
    assert run.outcome.registers[0, 1, 1] == 6


def test_tasks_are_picked_by_priority_then_by_id():
    asm = Asm()
    for number, priority, entry in ((3, 0, True), (5, 1, True), (1, 0, False), (4, 0, True)):
        asm.task(number, priority=priority, entry=entry)
        if number == 5:
            asm("activate", task=1)
            asm("block", task=3)
        if number == 4:
            asm("unblock", task=3)
        asm("tsc", rd=number)
        asm("end")
    run = execute(Grid(1).place(asm, (0, 0)))
    r = run.outcome.registers[0, 0].tolist()
    assert (r[5], r[1], r[4], r[3]) == (2, 4, 7, 9)


def test_receive_waits_and_is_a_hang_at_once():
    asm = task()
    asm("li", rd=1, imm=1)
    asm("recv", queue=0, ra=2)
    asm("end")
    run = execute(Grid(1).place(asm, (0, 0), receives={0: 3}))
    waits = run.outcome.waits
    assert (run.outcome.end, run.outcome.cycles) == ("hang", 1)
    assert waits.state[0, 0].tolist() == [Wait.RECEIVE] + [Wait.INACTIVE] * 8
    assert (waits.pc[0, 0, 0], waits.queue[0, 0, 0], waits.since[0, 0, 0], waits.task[0, 0]) == (1, 0, 1, 0)


def test_a_route_that_goes_in_circles_is_a_livelock():
    grid = Grid(2, 2).route(0, 0, 3, ({RAMP, S}, {E}), merge=True).route(1, 0, 3, ({W}, {S}))
    grid.route(1, 1, 3, ({N}, {W})).route(0, 1, 3, ({E}, {N}))
    grid.place(stream(1), (0, 0), sends={0: 3})
    import dataclasses

    from waferloom.fabric.spec import machine

    spec = machine("tiny")
    spec = dataclasses.replace(spec, fabric=dataclasses.replace(spec.fabric, livelock_cycles=50))
    run = execute(grid, spec)
    assert (run.outcome.end, run.outcome.cycles, run.outcome.waits.livelock) == ("hang", 3, True)


def test_done_that_is_never_reached_is_a_hang():
    asm = Asm()
    asm.task(0)
    asm("done")
    asm("end")
    assert execute(Grid(1).place(asm, (0, 0))).outcome.end == "hang"


def test_limit_counts_only_runs_that_would_go_on():
    asm = task()
    for _ in range(9):
        asm("li", rd=1, imm=1)
    asm("end")
    program = Grid(1).place(asm, (0, 0))
    assert execute(program, max_cycles=10).outcome.end == "finished"
    limited = execute(program, max_cycles=9).outcome
    assert (limited.end, limited.cycles, limited.instructions[0, 0]) == ("limit", 9, 9)
    assert limited.waits.state[0, 0, 0] == Wait.RUNNING


def test_counters_name_every_cycle():
    grid = Grid(2).place(stream(6, gap=3), (0, 0), sends={0: 3}).place(collector(6), (1, 0), receives={0: 3})
    outcome = execute(eastward(grid)).outcome
    assert outcome.counters.sum(axis=2).tolist() == [[outcome.cycles] * 2]
    assert outcome.counters[0, 1, Cycle.RECEIVE] > 0
    assert outcome.counters[0, 0, Cycle.IDLE] > 0
