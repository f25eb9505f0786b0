"""How runs end, on both engines: hangs that the static checks would refuse, waiting that is none."""

import numpy as np
import pytest
from small_programs import kernel, program, route, two_pes_that_receive_first
from waferloom.fabric.compare import outcome_differences
from waferloom.fabric.spec import machine
from waferloom.fabric.wafer import ENGINES, Wafer
from waferloom.isa.assembler import assemble_text
from waferloom.isa.errors import Hang, Interrupted
from waferloom.isa.program import Port, Route, RoutePosition

TINY, WSE3 = machine("tiny"), machine("wse3")


@pytest.mark.parametrize("engine", ENGINES)
def test_two_pes_receive_first(engine):
    """T01, and that it is an exception of the library."""
    result = Wafer(TINY, two_pes_that_receive_first(), engine=engine).run()
    with pytest.raises(Hang, match="cycle of 2"):
        result.raise_for_end()
    assert len(result.report.circle) == 2


@pytest.mark.parametrize("engine", ENGINES)
def test_nobody_sends(engine):
    """T02 without the static checks: the root blocker is the receiver, though a route leads to it."""
    made = program(2, 1, [kernel(("recv", {"queue": 0, "ra": 1}, 2), ("end", {}, 4))], [[-1, 0]])
    made.in_colour[0, 1, 0] = 3
    route(made, 0, 0, 3, "R", "E")
    route(made, 1, 0, 3, "W", "R")
    result = Wafer(TINY, made, engine=engine).run()
    assert result.end == "hang"
    assert result.report.root.node == (0, 1, 0)
    assert "nobody sends" in result.report.text()


@pytest.mark.parametrize("engine", ENGINES)
def test_1024_pes_at_one_line(engine):
    """T03: a row of senders' rings: every PE waits for its western neighbour, one message."""
    made = program(
        32,
        32,
        [kernel(("recv", {"queue": 0, "ra": 1}, 2), ("send", {"queue": 0, "ra": 1}, 3), ("end", {}, 4))],
    )
    x = np.arange(32)
    made.in_colour[..., 0], made.out_colour[..., 0] = np.where(x % 2, 0, 1), np.where(x % 2, 1, 0)
    for inputs, outputs in (({Port.RAMP}, {Port.E}), ({Port.W}, {Port.RAMP})):
        made.route_table.append(Route((RoutePosition(frozenset(inputs), frozenset(outputs)),)))
    made.routes = {c: np.zeros((32, 32), np.uint16) for c in (0, 1)}
    for c in (0, 1):
        made.routes[c][:, c:-1:2] = 1
        made.routes[c][:, 1 + c :: 2] = 2
    made.out_colour[:, -1, 0] = -1  # the last column only receives
    last = kernel(("recv", {"queue": 0, "ra": 1}, 2), ("end", {}, 4), name="last")
    made.kernels.append(last)
    made.placement[:, -1] = 1
    text = Wafer(WSE3, made, engine=engine).run().report.text()
    assert "1,024 PEs blocked" in text
    assert text == Wafer(WSE3, made, engine=engine).run().report.text()
    assert len(text.splitlines()) <= 12


LONG_WAIT = """\
.param rounds = 300
.colour c
.kernel slow
.queues
  out go
.code
task start entry
  li r1, rounds
  li r2, 0
again:
  addi r1, r1, -1
  bne r1, r2, again
  send go, r1
  done
  end
.kernel patient
.queues
  in come
.code
task start entry
  recv r1, come
  done
  end
.kernel idle
.code
task never
  end
.layout
  grid 3, 1
  place slow at (0, 0) { go = c }
  place patient at (1, 0) { come = c }
  place idle at (2, 0) {}
  route c at (0, 0): RAMP -> E
  route c at (1, 0): W -> RAMP
"""


def test_long_waiting_and_idle_pes_are_no_hang():
    """T12: a PE that waits long, and one that never gets work."""
    outcomes = []
    for engine in ENGINES:
        result = Wafer(TINY, assemble_text(LONG_WAIT, name="wait"), engine=engine).run()
        assert result.end == "finished"
        assert result.counters["receive"][0, 1] > 300
        assert result.counters["idle"][0, 2] == result.cycles
        outcomes.append(result.outcome)
    assert outcome_differences(*outcomes) == []


def test_a_million_cycles_of_waiting():
    """T12: not a matter of time."""
    made = assemble_text(LONG_WAIT.replace("li r1, rounds", "li r1, 150_000"), name="wait")
    result = Wafer(TINY, made).run()
    assert result.end == "finished"
    assert result.cycles > 1_000_000


@pytest.mark.parametrize("engine", ENGINES)
def test_interrupt_keeps_the_state(engine):
    """T34: whoever asks is stopped at the engine's next look, with cycles and places."""
    made = assemble_text(
        ".kernel k\n.code\ntask t entry\nhere:\n  jmp here\n.layout\n  grid 1, 1\n  place k at (0, 0) {}\n"
    )
    asked = []

    def stop() -> bool:
        asked.append(1)
        return len(asked) > 2

    result = Wafer(TINY, made, engine=engine).run(interrupted=stop)
    with pytest.raises(Interrupted, match="running jmp"):
        result.raise_for_end()
    assert result.counters.array.sum() == result.cycles
