"""Hang reports: the circle, the root blocker, equal PEs once, the impossible, and what is left over."""

import json

import numpy as np
import pytest
from small_programs import kernel, nobody_waits, outcome, program, route, two_pes_that_receive_first, wait
from waferloom.fabric.hang import HangReport
from waferloom.fabric.outcome import Wait
from waferloom.fabric.rectangles import cover, spell
from waferloom.fabric.result import Result, RunSettings
from waferloom.fabric.spec import machine
from waferloom.isa.element_types import ElementType
from waferloom.isa.errors import Hang, Interrupted, Limit
from waferloom.isa.program import Descriptor, DescriptorKind

TINY = machine("tiny")
ALL = np.s_[:, :]


def report(made, waits, end="hang", sram=None, **more) -> HangReport:
    return HangReport.of(TINY, made, outcome(made, end, waits=waits, **more), sram)


def test_two_pes_receive_first():
    """T01: a cycle of length 2, each line is the receive."""
    made = two_pes_that_receive_first()
    waits = nobody_waits(made)
    wait(waits, ALL, 0, Wait.RECEIVE, pc=0)
    waits.since[0, 0, 0], waits.since[0, 1, 0] = 12, 9
    found = report(made, waits)
    text = found.text()
    assert text.startswith(
        "hang at cycle 100: nothing can happen any more, 2 PEs blocked, 0 events pending\n"
    )
    assert "cycle of 2:" in text
    lines = text.splitlines()
    assert [("PE (0,0)" in line, "since 12" in line, "ring.loom:2:5" in line) for line in lines[2:3]] == [
        (True,) * 3
    ]
    assert "PE (1,0)" in lines[3]
    assert "recv colour 0 east (empty, 0/5)" in lines[3]
    assert "since 9" in lines[3]
    assert "   2 |     recv 0, r1" in text
    assert "let one send before `ring.loom:2`" in text
    assert "blocked behind it" not in text
    document = found.to_json()
    assert [line["pe"] for line in document["circle"]] == [[0, 0], [1, 0]]
    json.dumps(document)


def test_nobody_sends():
    """T02: the root blocker is the PE whose colour has no producer."""
    made = program(2, 1, [kernel(("recv", {"queue": 0, "ra": 1}, 2), ("end", {}, 4))], [[-1, 0]])
    made.in_colour[0, 1, 0] = 3
    route(made, 1, 0, 3, "W", "R")
    waits = nobody_waits(made)
    wait(waits, (0, 1), 0, Wait.RECEIVE, pc=0)
    found = report(made, waits)
    assert found.root is not None
    assert found.root.node == (0, 1, 0)
    assert "nobody sends: no PE and no edge port reaches PE (1,0) on colour 3" in found.text()


def test_1024_equal_pes_are_one_message():
    """T03: one message with a rectangle and the count; the same on repeated runs."""
    made = program(32, 32, [kernel(("recv", {"queue": 0, "ra": 1}, 2), ("end", {}, 4))])
    made.in_colour[..., 0] = 3
    for y in range(32):
        for x in range(32):
            route(made, x, y, 3, "W", "R")
    waits = nobody_waits(made)
    wait(waits, ALL, 0, Wait.RECEIVE, pc=0)
    text = report(made, waits).text()
    assert text == report(made, waits).text()
    assert "1,024 PEs blocked" in text
    assert "blocked behind it: 1,023 PEs" in text
    assert "same line" in text
    assert len(text.splitlines()) < 12
    groups = report(made, waits).to_json()["groups"]
    assert [(g["pes"], g["rectangles"]) for g in groups] == [(1024, [[0, 0, 31, 31]])]


def fifo_program(moves: int, capacity: int):
    """One PE that pushes `moves` elements into a FIFO of `capacity` before anybody pops."""
    push = {"dd": 0, "da": 1, "scalar": 1, "type": int(ElementType.I16), "asynchronous": 0}
    made = program(
        1,
        1,
        [kernel(("ldd", {"dd": 0, "address": 16}, 1), ("vmov", push, 2), ("end", {}, 4), data_bytes=32)],
    )
    stored = Descriptor(DescriptorKind.FIFO, 0, (moves, capacity), (0, 0)).halfwords
    made.kernels[0].data[16 : 16 + 2 * len(stored)] = np.array(stored, "<u2").view(np.uint8)
    return made


@pytest.mark.parametrize(("moves", "capacity", "never"), [(3, 2, True), (2, 2, False)])
def test_more_than_a_fifo_holds(moves, capacity, never):
    """T06: told apart from a FIFO that is only full."""
    made = fifo_program(moves, capacity)
    waits = nobody_waits(made)
    wait(waits, (0, 0), 0, Wait.FIFO, pc=1, queue=-1)
    sram = made.kernels[0].data[None].copy()
    sram[0, 2] = 2  # the fill count
    found = report(made, waits, sram=sram)
    assert ("can never be satisfied: needs 3, capacity 2" in found.text()) == never
    assert f"push fifo (2/{capacity} elements)" in found.text()


def test_sender_without_a_receiver_and_stuck_wavelets():
    """The queue that is full is named, and what lies in queues and routers."""
    sender = kernel(("send", {"queue": 0, "ra": 1}, 3), ("end", {}, 4), name="sender")
    idle = kernel(("end", {}, 4), name="idle")
    made = program(3, 1, [sender, idle], [[0, -1, 1]])
    made.out_colour[0, 0, 0] = made.in_colour[0, 2, 1] = 5
    route(made, 0, 0, 5, "R", "E")
    route(made, 1, 0, 5, "W", "E")
    route(made, 2, 0, 5, "W", "R")
    waits = nobody_waits(made)
    wait(waits, (0, 0), 0, Wait.SEND, pc=0)
    waits.out_fill[0, 0, 0] = 3
    waits.in_fill[0, 2, 1] = 5
    waits.router_fill[5] = np.zeros((1, 3, 4), np.int32)
    waits.router_fill[5][0, 1:, 3] = 2
    text = report(made, waits).text()
    assert "send colour 5 (full, 3/3)" in text
    assert "PE (2,0) should take colour 5, but no thread there receives it" in text
    assert "delivered, never consumed: 5 wavelets of colour 5 in input queue 1 of PE (2,0)" in text
    assert "stuck on the way: 4 wavelets of colour 5 in the routers of 2 PEs, rectangle (1,0)-(2,0)" in text


def test_pe_that_is_never_done():
    """T34: everybody idle, but one PE whose code has `done` never executed it."""
    made = program(2, 1, [kernel(("end", {}, 2), ("done", {}, 3), ("end", {}, 4))])
    found = report(made, nobody_waits(made), done=np.array([[True, False]]))
    assert found.kind == "never done"
    assert "no instruction waits, but a PE never executed its `done`" in found.headline
    assert "never done: PE (1,0) of kernel k (`done` at ring.loom:3:5)" in found.text()


def test_livelock():
    made = program(1, 1, [kernel(("end", {}, 4))])
    text = report(made, nobody_waits(made, livelock=True)).text()
    assert "wavelets moved for 100,000 cycles and no instruction issued" in text


@pytest.mark.parametrize(("end", "error"), [("limit", Limit), ("interrupted", Interrupted), ("hang", Hang)])
def test_where_everybody_was(end, error):
    """T34: limit, interrupt and hang are told apart, and each says where the PEs were."""
    made = two_pes_that_receive_first()
    waits = nobody_waits(made)
    wait(waits, (0, 0), 0, Wait.RECEIVE, pc=0)
    wait(waits, (0, 1), 0, Wait.RUNNING, pc=1, queue=-1)
    result = Result(TINY, made, outcome(made, end, waits=waits), RunSettings("reference"))
    with pytest.raises(error, match=f"{end} at cycle 100") as caught:
        result.raise_for_end()
    if end != "hang":
        assert "1 running, 1 waiting, 0 idle" in str(caught.value)
        assert "PE (1,0): task start, running send   ring.loom:3:5" in str(caught.value)
    assert result.to_json()["end"] == end
    assert result.to_json()["report"]["groups"]


def test_rectangles_cover_a_mask_exactly():
    rng = np.random.default_rng(1)
    for _ in range(300):
        mask = rng.random(rng.integers(1, 8, 2)) < rng.random()
        counted = np.zeros(mask.shape, int)
        for rectangle in cover(mask):
            counted[rectangle.slices] += 1
        assert (counted == mask).all()
    assert spell(np.eye(5, dtype=bool)) == "5 PEs, rectangles (0,0), (1,1), (2,2) and 2 more"
