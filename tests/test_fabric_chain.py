"""Chains of small wafers: values, times by the rules of docs/chain.md, back-pressure, threads, bad ends."""

import dataclasses
from fractions import Fraction

import numpy as np
import pytest
from waferloom.fabric.chain import Chain
from waferloom.fabric.link import Link, LinkSpec, TimeBase, link, parse_link
from waferloom.fabric.spec import MachineError, machine
from waferloom.fabric.wafer import Wafer
from waferloom.isa.assembler import assemble
from waferloom.isa.errors import Fault, Hang, Interrupted, Limit, Mismatch, Rejected, Usage

TINY = machine("tiny")  # 875 MHz
NS = LinkSpec(
    "ns", latency_ns=80, bandwidth_gbit_s=28, word_bits=32, buffer_words=1 << 16
)  # a word: one cycle

PLUS = """; y = x + step; counts its runs in memory
.machine tiny
.param n = 4, declared = n
.colour a, b
.kernel plus
.queues
  in  come
  out go
.data
  step:  i32[1] export = 1
  runs:  i32[1] export
  got:   i32[n]
.code
task start entry
  ld.i32   r1, runs
  addi     r1, r1, 1
  st.i32   r1, runs
  ld.i32   r2, step
  vmov.i32 got, come
  vadd.i32 go, got, r2
  done
  end
.layout
  grid 1, 1
  place plus at (0, 0) { come = a, go = b }
  route a at (0, 0): W -> RAMP
  route b at (0, 0): RAMP -> E
  input  x on west lanes 0 colour a : i32[n]
  output y on east lanes 0 colour b : i32[declared]
"""


def plus(engine="reference", spec=TINY, **parameters) -> Wafer:
    return Wafer(spec, assemble(PLUS, **parameters), engine=engine)


def numbers(first, n=4):
    return np.arange(first, first + n, dtype=np.int32)[None]


def chain_of(count, links=NS, threads=1, engine="reference", **parameters) -> Chain:
    return Chain([plus(engine, **parameters) for _ in range(count)], links, threads=threads)


def everything(chain, items):
    """What a chain did, to be compared: outputs, arrival ticks, stays, memory."""
    sent = [chain.send({"x": numbers(10 * i)}) for i in range(items)]
    got = [chain.receive(i) for i in sent]
    return (
        [d.outputs["y"].tolist() for d in got],
        [(d.first, d.at) for d in got],
        chain.stays,
        [w.sram.tobytes() for w in chain.wafers],
    )


def test_values_pass_all_wafers_and_memory_stays():
    chain = chain_of(3)
    outputs, *_ = everything(chain, 4)
    assert outputs == [[[10 * i + j + 3 for j in range(4)]] for i in range(4)]
    assert [int(w.read("runs", at=(0, 0))[0]) for w in chain.wafers] == [4, 4, 4]


def test_times_of_one_item_follow_from_the_rules():
    """The host sends at 0; a word takes a cycle, arrives 80 ns = 70 cycles later, and then the run begins."""
    chain = chain_of(2)
    delivery = chain.receive(chain.send({"x": numbers(0)}))
    period = chain.period[0]
    assert chain.links[0].word == period
    assert chain.links[0].latency == 70 * period
    alone = plus().run(
        wavelets_in={"x": [(numbers(0)[0].view(np.uint32), None, np.arange(4, dtype=np.int64))]}
    )
    first, second = chain.stays[0][0], chain.stays[1][0]
    assert first.start == 71 * period
    assert first.cycles == alone.cycles
    assert second.start == first.start + (int(alone.lanes["y"][0].cycle[0]) + 1 + 70) * period
    out = alone.lanes["y"][0].cycle
    assert delivery.first == second.start + (int(out[0]) + 71) * period
    assert delivery.at == second.start + (int(out[-1]) + 71) * period


def test_neighbours_work_at_the_same_time():
    chain = chain_of(2, dataclasses.replace(NS, latency_ns=0))
    everything(chain, 6)
    for item in range(1, 6):
        assert chain.stays[0][item].start < chain.stays[1][item - 1].end
        assert chain.stays[0][item].start >= chain.stays[0][item - 1].end
    shares = chain.busy_share(chain.stays[1][0].start)
    assert min(shares) > 0.7
    assert max(shares) <= 1


def test_a_full_buffer_keeps_the_sender_from_starting():
    """With room for one message, a wafer starts an item when the next wafer has ended the one before."""
    narrow = dataclasses.replace(NS, buffer_words=7)
    chain = chain_of(2, [NS, narrow, NS])
    everything(chain, 4)
    for item in range(1, 4):
        assert chain.stays[0][item].start == chain.stays[1][item - 1].end + chain.links[1].latency
    free = chain_of(2)
    everything(free, 4)
    assert free.stays[1][3].end < chain.stays[1][3].end


def test_a_full_buffer_keeps_the_host_from_sending():
    chain = chain_of(1, dataclasses.replace(NS, buffer_words=4))
    everything(chain, 3)
    gap = chain.stays[0][1].start - chain.stays[0][0].end
    assert gap == 2 * chain.links[0].latency + chain.links[0].word  # credit back, then the first word


def test_items_wait_for_the_host():
    chain = chain_of(1)
    later = 10_000 * chain.period[0]
    chain.send({"x": numbers(0)})
    item = chain.send({"x": numbers(1)}, at=later)
    chain.receive(item)
    assert chain.stays[0][1].start == later + 71 * chain.period[0]


def test_bandwidth_is_shared_by_lanes_and_kept_between_messages():
    time = TimeBase([875], [NS])
    wire = Link(NS, time, 4)
    word, latency = wire.word, wire.latency
    zeros = np.zeros(2, np.int64)
    a, b = wire.send([zeros, zeros])
    assert (a.tolist(), b.tolist()) == (
        [latency + word, latency + 3 * word],
        [latency + 2 * word, latency + 4 * word],
    )
    c, d = wire.send([zeros, zeros + 100 * word])
    assert (c[0], d[1]) == (latency + 5 * word, latency + 102 * word)


def one_by_one(messages, word, latency):
    """The rule of the link, word by word: who was there first enters as soon as the link is free."""
    free, out = 0, []
    for lanes in messages:
        waiting = sorted((int(t), place, lane) for lane, ts in enumerate(lanes) for place, t in enumerate(ts))
        arrived = [[0] * len(ts) for ts in lanes]
        for there, place, lane in waiting:
            begin = max(there, free)
            free = begin + word
            arrived[lane][place] = free + latency
        out.append(arrived)
    return out


@pytest.mark.parametrize("seed", range(20))
def test_words_cross_as_if_one_by_one(seed):
    random = np.random.default_rng(seed)
    time = TimeBase([875], [NS])
    wire = Link(NS, time, 1)
    lanes, messages, now = int(random.integers(1, 6)), [], 0
    for _ in range(4):
        gaps = [random.integers(0, 3 * wire.word, random.integers(1, 9)) for _ in range(lanes)]
        messages.append([now + np.cumsum(g) for g in gaps])
        now = max(int(m[-1]) for m in messages[-1])
    want = one_by_one(messages, wire.word, wire.latency)
    assert [[lane.tolist() for lane in wire.send(message)] for message in messages] == want


def test_one_time_base_for_different_clocks():
    slow = dataclasses.replace(TINY, clock_mhz=850)
    chain = Chain([plus(), plus(spec=slow)], link())
    assert Fraction(chain.period[0], chain.period[1]) == Fraction(850, 875)
    everything(chain, 2)
    assert all(s.start % chain.period[k] == 0 for k in (0, 1) for s in chain.stays[k])
    assert chain.microseconds(chain.time.ticks_per_second) == 1e6


@pytest.mark.parametrize("buffer_words", [4, 9, 1 << 16])
def test_host_threads_change_nothing(buffer_words):
    wire = dataclasses.replace(NS, buffer_words=buffer_words)
    one = everything(chain_of(4, wire), 6)
    assert everything(chain_of(4, wire, threads=3), 6) == one


def test_engines_agree():
    assert everything(chain_of(2), 3) == everything(chain_of(2, threads=2, engine="fast"), 3)


def test_a_wafer_that_sends_too_little():
    chain = Chain([plus(), plus(declared=5)], NS)
    with pytest.raises(Mismatch, match=r"wafer 1, item 0 .*4 data and 0 control wavelets; .* 5 data"):
        chain.receive(chain.send({"x": numbers(0)}))


def test_a_wafer_that_waits_for_ever():
    chain = Chain([plus(), Wafer(TINY, assemble(WAITS), engine="reference")], NS, threads=2)
    items = [chain.send({"x": numbers(i)}) for i in range(3)]
    with pytest.raises(Hang, match="wafer 1, item 0"):
        chain.receive(items[2])


WAITS = PLUS.replace("got, come\n", "got, come\n  recv r3, come\n")
STOPS = PLUS.replace("  done\n", "  li r3, 3\n  bne r1, r3, over\n  trap 7\nover:\n  done\n")


def test_a_fault_in_the_third_run():
    reports = []
    for threads in (1, 2):
        wafers = [plus(), Wafer(TINY, assemble(STOPS), engine="reference"), plus()]
        chain = Chain(wafers, NS, threads=threads)
        items = [chain.send({"x": numbers(i)}) for i in range(5)]
        with pytest.raises(Fault, match="wafer 1, item 2") as caught:
            chain.receive(items[4])
        reports.append(str(caught.value))
        assert chain.receive(items[1]).outputs["y"].tolist() == [[4, 5, 6, 7]]
        with pytest.raises(Fault):
            chain.receive(items[2])
    assert reports[0] == reports[1]


def test_limit_and_interrupt():
    chain = Chain([plus()], NS, max_cycles=10)
    with pytest.raises(Limit, match="wafer 0, item 0"):
        chain.receive(chain.send({"x": numbers(0)}))
    chain = chain_of(1)
    with pytest.raises(Interrupted, match="between two runs"):
        chain.receive(chain.send({"x": numbers(0)}), lambda: True)
    answers = iter([False, False, True])  # the host's sending, the run, and within it
    with pytest.raises(Interrupted, match="wafer 0"):
        chain.receive(0, lambda: next(answers))


@pytest.mark.parametrize("threads", [1, 3])
def test_an_interrupted_chain_can_go_on(threads):
    """On the fast engine, which does not ask within such short runs."""
    want = everything(chain_of(3), 4)
    chain = chain_of(3, threads=threads, engine="fast")
    items = [chain.send({"x": numbers(10 * i)}) for i in range(4)]
    asked = iter(range(1000))
    with pytest.raises(Interrupted, match="between two runs"):
        chain.receive(items[2], lambda: next(asked) > 4)
    got = [chain.receive(i) for i in items]
    assert [d.outputs["y"].tolist() for d in got] == want[0]
    assert chain.stays == want[2]


def test_what_does_not_fit_is_refused():
    with pytest.raises(
        Rejected, match=r"output `y` \(1 lanes of i32\[4\]\) of wafer 0 cannot feed input `x`"
    ):
        Chain([plus(), plus(n=5)], NS)
    with pytest.raises(Rejected, match="link 0: a message of 4 words does not fit"):
        chain_of(1, dataclasses.replace(NS, buffer_words=3))
    with pytest.raises(Usage, match="3 are needed"):
        Chain([plus(), plus()], [NS, NS])
    with pytest.raises(Usage, match="twice"):
        Chain([plus()] * 2, NS)
    with pytest.raises(Usage, match="at least one"):
        Chain([])
    chain = chain_of(1)
    with pytest.raises(Usage, match="`z` is no input"):
        chain.send({"x": numbers(0), "z": numbers(0)})
    with pytest.raises(Usage, match="`x` is missing"):
        chain.send({})
    with pytest.raises(Usage, match="was not sent"):
        chain.receive(0)
    with pytest.raises(Rejected, match="no common tick"):
        TimeBase([875, 850.000001, 333.3333331], [NS])


def test_the_preset_link_and_bad_link_files():
    preset = link()
    assert preset.latency_s == Fraction(2, 10**6)
    assert preset.word_s == Fraction(32, 1_200_000_000_000)
    good = 'name = "x"\nlatency_ns = 1\nbandwidth_gbit_s = 2.5\nword_bits = 32\nbuffer_words = 9\n'
    assert parse_link(good, "f").word_s == Fraction(128, 10**10)
    for old, new, text in (
        ("word_bits = 32\n", "", "missing key `word_bits`"),
        ("word_bits", "bits", "unknown key `bits`"),
        ("= 9", "= 0", "`buffer_words` is 0"),
        ("= 9", "= 1.5", "whole number"),
        ("= 2.5", "= -1", "`bandwidth_gbit_s` is -1"),
        ("= 1\n", "= true\n", "`latency_ns` is True"),
        ("=", "", "not TOML"),
    ):
        with pytest.raises(MachineError, match=text):
            parse_link(good.replace(old, new, 1), "f")
