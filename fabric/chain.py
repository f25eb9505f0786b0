"""A chain of wafers: host -> wafer 0 -> wafer 1 -> ... -> host, over links, with one global time.

Every item that the host sends passes all wafers in order; a wafer runs its program once per item, from the
arrival of the item's first wavelet on, and keeps its SRAM. Wafer k works on an item while wafer k + 1 works
on the one before. docs/chain.md holds the rules and why host threads cannot change a cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

import numpy as np

from ..isa import errors
from ..isa.program import EdgePort
from . import wavelets
from .link import Link, LinkSpec, TimeBase, link
from .outcome import LaneOutput
from .result import Result
from .wafer import Wafer

__all__ = ["Chain", "Delivery", "Stay"]

BETWEEN_RUNS = "interrupted between two runs of wafers"  # within a long run the engine asks, too
Ticks = list[np.ndarray]  # per lane of a link, int64: when each word is there


@dataclass(frozen=True)
class Stay:
    """One item on one wafer: a run of its program. Times in ticks, cycles of the wafer's own clock."""

    start: int
    end: int  # start + cycles * period: the wafer is free for the next item
    cycles: int
    compute: int  # PE-cycles in which an engine worked


@dataclass(frozen=True)
class Delivery:
    """An item at the host's end of the chain. Times in ticks."""

    item: int
    outputs: dict[str, np.ndarray]  # output port of the last wafer -> (lanes, *shape)
    first: int  # the first word arrived
    at: int  # the last word arrived


class _Message:
    """Words under way to a wafer: payloads and arrival ticks, lane by lane over all ports of the link."""

    def __init__(self, payloads: list[np.ndarray], arrivals: Ticks) -> None:
        self.payloads = payloads
        self.arrivals = arrivals


class Chain:
    """Wafers in a row. `send` gives the first one an item, `receive` waits for it at the end of the chain."""

    def __init__(
        self,
        wafers: Sequence[Wafer],
        links: LinkSpec | Sequence[LinkSpec] | None = None,
        *,
        threads: int = 1,
        max_cycles: int | None = None,
    ) -> None:
        """`links`: one for all, or one before each wafer and one behind the last; default: the preset.

        Output ports of a wafer feed the input ports of the next one in the order of their declarations and
        must have the same lanes, shape and type. `threads` are host threads and change speed only;
        `max_cycles` limits every single run of a wafer. Raises Usage or Rejected naming wafers and ports.
        """
        self.wafers = list(wafers)
        if not self.wafers:
            raise errors.Usage("a chain needs at least one wafer")
        if len({id(wafer) for wafer in self.wafers}) < len(self.wafers):
            raise errors.Usage("the same Wafer stands twice in the chain; every place needs one of its own")
        if threads < 1:
            raise errors.Usage(f"{threads} host threads; at least 1 is needed")
        count = len(self.wafers) + 1
        specs = [links or link()] * count if links is None or isinstance(links, LinkSpec) else list(links)
        if len(specs) != count:
            raise errors.Usage(
                f"{len(specs)} links for {len(self.wafers)} wafers; {count} are needed: "
                "one before each wafer and one behind the last"
            )
        self.threads, self.max_cycles = threads, max_cycles
        self.time = TimeBase([w.spec.clock_mhz for w in self.wafers], specs)
        self.period = [self.time.period(w.spec.clock_mhz) for w in self.wafers]  # ticks per cycle
        self._inputs = [_ports(w, output=False) for w in self.wafers]
        self._outputs = [_ports(w, output=True) for w in self.wafers]
        for k in range(1, len(self.wafers)):
            _check_joint(k, self._outputs[k - 1], self._inputs[k])
        streams = [*self._inputs, self._outputs[-1]]
        self.links = [_link(k, *given, self.time) for k, given in enumerate(zip(specs, streams, strict=True))]
        self.stays: list[list[Stay]] = [[] for _ in self.wafers]  # [wafer][item]
        self.sent: list[int] = []  # [item]: the tick at which the host had it
        self._under_way: dict[int, _Message] = {}  # item -> its words, on the way to wafer `_passed[item]`
        self._passed: list[int] = []  # [item]: wafers it has left behind
        self._delivered: dict[int, Delivery] = {}
        self._received = 0  # items the host has asked for, and all before them
        self._open = 0  # items below it have passed all wafers
        self._failures: dict[int, errors.WaferloomError] = {}  # item -> how its run ended

    # --- the host's ends ---

    def send(self, inputs: Mapping[str, object], *, at: int = 0) -> int:
        """Queue an item behind those sent before: arrays of wafer 0's input ports.

        The host has them from tick `at` on. Returns the item's number; nothing runs yet.
        """
        ports = self._inputs[0]
        for name in sorted(inputs.keys() ^ {port.name for port in ports}):
            known = ", ".join(port.name for port in ports)
            missing = "is missing" if name not in inputs else "is no input of wafer 0"
            raise errors.Usage(f"item: `{name}` {missing}; its inputs: {known}", category="name")
        payloads = [words for port in ports for words in wavelets.pack(port, inputs[port.name])]
        self._under_way[len(self.sent)] = _Message(payloads, [])
        self.sent.append(int(at))
        self._passed.append(-1)  # still at the host
        return len(self.sent) - 1

    def receive(self, item: int, interrupted: Callable[[], bool] | None = None) -> Delivery:
        """The item's outputs, after running whatever must run before. May be asked again until `forget`.

        Raises Hang, Fault, Limit or Interrupted of the first item (in order of sending) that did not come
        through, with the wafer's number in front of its report, and Mismatch for a wafer that sent too little
        or too much. `interrupted` is asked now and then; True stops, between runs without loss.
        """
        if not 0 <= item < len(self.sent):
            raise errors.Usage(f"item {item} was not sent; {len(self.sent)} were", category="range")
        if item not in self._delivered and self._passed[item] == len(self.wafers):
            raise errors.Usage(f"item {item} was forgotten", category="range")
        if item not in self._delivered and not self._blocked(item):
            self._advance(item, interrupted)
        if item not in self._delivered:
            raise self._failures[min(self._failures)]
        self._received = max(self._received, item + 1)
        return self._delivered[item]

    def forget(self, item: int) -> None:
        """Drop a delivered item's outputs; its times stay."""
        self._delivered.pop(item, None)

    # --- figures ---

    @property
    def place(self) -> tuple[int, int]:
        """(item, wafer) of the first item that is not through: what a progress line shows."""
        for item in range(self._open, len(self.sent)):
            if self._passed[item] < len(self.wafers):
                return item, max(0, self._passed[item])
        return len(self.sent), 0

    def microseconds(self, ticks: int) -> float:
        """Ticks of the chain's time in microseconds."""
        return self.time.microseconds(ticks)

    def busy_share(self, start: int = 0, end: int | None = None) -> list[float]:
        """Per wafer: the part of the time from `start` to `end` in which it had one of the items received.

        `end` is by default the end of the last wafer's run of them.
        """
        received = [stays[: self._received] for stays in self.stays]
        if end is None:
            end = received[-1][-1].end if self._received else start
        span = end - start
        held = [sum(max(0, min(s.end, end) - max(s.start, start)) for s in stays) for stays in received]
        return [ticks / span if span > 0 else 0.0 for ticks in held]

    # --- running ---

    def _blocked(self, item: int) -> bool:
        """Whether an item cannot come through since one before it, or it itself, did not."""
        return bool(self._failures) and min(self._failures) <= item

    def _steps(self, last: int) -> Iterator[tuple[int, int]]:
        """(item, stage) of all that can happen now, up to item `last`; stage -1 is the host's sending."""
        while self._open < len(self.sent) and self._passed[self._open] == len(self.wafers):
            self._open += 1
        for item in range(self._open, last + 1):
            stage = self._passed[item]
            if self._blocked(item):
                return
            ahead = self._passed[item - 1] if item else len(self.wafers)
            if ahead > stage and self.links[stage + 1].known(item):
                yield item, stage

    def _advance(self, item: int, interrupted: Callable[[], bool] | None) -> None:
        """Run until `item` is delivered or cannot be."""
        if self.threads == 1:
            while self._passed[item] < len(self.wafers):
                step = next(self._steps(item), None)
                if step is None:
                    return
                if interrupted is not None and interrupted():
                    raise errors.Interrupted(BETWEEN_RUNS)
                self._finish(*step, self._run(*step, interrupted))
            return
        running: dict[Future[Result | None], tuple[int, int]] = {}
        stopped = False  # what runs now still ends
        with ThreadPoolExecutor(self.threads) as pool:
            while True:
                stopped = stopped or (interrupted is not None and interrupted())
                through = self._passed[item] == len(self.wafers)
                wanted = -1 if stopped or through else len(self.sent) - 1
                if self._blocked(item):
                    wanted = min(wanted, min(self._failures) - 1)
                busy = {stage for _, stage in running.values()}
                for step in list(self._steps(wanted)):
                    if step[1] not in busy and len(running) < self.threads:
                        busy.add(step[1])
                        running[pool.submit(self._run, *step, interrupted)] = step
                if not running and stopped and not through and not self._blocked(item):
                    raise errors.Interrupted(BETWEEN_RUNS)
                if not running:
                    return
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    self._finish(*running.pop(done), done.result())

    def _run(self, item: int, stage: int, interrupted: Callable[[], bool] | None) -> Result | None:
        """The run of one item on one wafer; changes nothing but that wafer's memory."""
        if stage < 0:
            return None
        message, start = self._under_way[item], self._start(item, stage)
        lanes = [
            (payload, None, np.maximum(0, -(-ticks // self.period[stage]) - start))
            for payload, ticks in zip(message.payloads, message.arrivals, strict=True)
        ]
        given, first = {}, 0
        for port in self._inputs[stage]:
            given[port.name] = lanes[first : first + len(port.lanes)]
            first += len(port.lanes)
        return self.wafers[stage].run(max_cycles=self.max_cycles, wavelets_in=given, interrupted=interrupted)

    def _start(self, item: int, stage: int) -> int:
        """Cycle of the wafer's clock in which a run begins: first word there, wafer free, room behind it."""
        arrivals = self._under_way[item].arrivals
        ready = max(min(int(ticks[0]) for ticks in arrivals), self.links[stage + 1].room(item))
        if item:
            ready = max(ready, self.stays[stage][item - 1].end)
        return -(-ready // self.period[stage])

    def _finish(self, item: int, stage: int, result: Result | None) -> None:
        """Book a run (or the host's sending) and put its words on the next link."""
        if result is None:
            payloads = self._under_way[item].payloads
            begin = max(self.sent[item], self.links[0].room(item))
            available = [np.full(len(words), begin, np.int64) for words in payloads]
        else:
            cycle = self._start(item, stage)
            period = self.period[stage]
            self.links[stage].release((cycle + result.cycles) * period)
            compute = result.counters.totals["compute"]
            self.stays[stage].append(
                Stay(cycle * period, (cycle + result.cycles) * period, result.cycles, compute)
            )
            failure = self._failure(item, stage, result)
            if failure is not None:
                self._failures[item] = failure
                return
            out = [lane for port in self._outputs[stage] for lane in result.lanes[port.name]]
            payloads = [lane.payload for lane in out]
            available = [(cycle + lane.cycle) * period for lane in out]
        arrivals = self.links[stage + 1].send(available)
        self._passed[item] = stage + 1
        self._under_way[item] = _Message(payloads, arrivals)
        if stage + 1 == len(self.wafers):
            self._deliver(item)

    def _failure(self, item: int, stage: int, result: Result) -> errors.WaferloomError | None:
        """The exception of a run that did not come to a good end, with the wafer's number."""
        began = self.microseconds(self._start(item, stage) * self.period[stage])
        where = f"wafer {stage}, item {item} (its run began at {began:.3f} us)"
        error = result.error()
        if error is not None:
            return type(error)(f"{where}: {error}")
        for port in self._outputs[stage]:
            wanted = wavelets.words_per_lane(port)
            for number, lane in enumerate(result.lanes[port.name]):
                if len(lane.payload) != wanted or lane.control.any():
                    control = int(lane.control.sum())
                    return errors.Mismatch(
                        f"{where}: output `{port.name}`, lane {number}: {len(lane.payload) - control} data "
                        f"and {control} control wavelets; a link carries the {wanted} data wavelets declared"
                    )
        return None

    def _deliver(self, item: int) -> None:
        """The item is at the host."""
        message, first = self._under_way.pop(item), 0
        outputs = {}
        for port in self._outputs[-1]:
            lanes = [
                LaneOutput(words, np.zeros(len(words), bool), ticks)
                for words, ticks in zip(message.payloads[first:], message.arrivals[first:], strict=True)
            ][: len(port.lanes)]
            outputs[port.name] = wavelets.unpack(port, lanes)
            first += len(port.lanes)
        begin = min(int(ticks[0]) for ticks in message.arrivals)
        end = max(int(ticks[-1]) for ticks in message.arrivals)
        self.links[-1].release(end)
        self._delivered[item] = Delivery(item, outputs, begin, end)


def _ports(wafer: Wafer, output: bool) -> list[EdgePort]:
    """A wafer's edge ports of one direction, in the order of their declarations."""
    return [port for port in wafer.program.edge_ports.values() if port.output == output]


def _check_joint(k: int, before: list[EdgePort], after: list[EdgePort]) -> None:
    """Raise Rejected unless wafer k - 1's outputs `before` can feed wafer k's inputs `after`."""
    if len(before) != len(after):
        raise errors.Rejected(
            f"wafer {k - 1} has {len(before)} outputs ({_names(before)}), "
            f"wafer {k} has {len(after)} inputs ({_names(after)})",
            category="route",
            help="the outputs of a wafer feed the inputs of the next one in the order of their declarations",
        )
    for out, into in zip(before, after, strict=True):
        if (len(out.lanes), out.shape, out.element, out.packed) != (
            len(into.lanes), into.shape, into.element, into.packed,
        ):  # fmt: skip
            raise errors.Rejected(
                f"output {_spelled(out)} of wafer {k - 1} cannot feed input {_spelled(into)} of wafer {k}",
                category="route",
                help="lanes, elements per lane, type and packing must be the same",
            )


def _link(k: int, spec: LinkSpec, ports: list[EdgePort], time: TimeBase) -> Link:
    """Link k of a chain; its buffer must hold at least one message."""
    words = sum(len(port.lanes) * wavelets.words_per_lane(port) for port in ports)
    if not words:
        raise errors.Rejected(
            f"link {k} of the chain carries nothing: no edge port on its side", category="route"
        )
    if words > spec.buffer_words:
        raise errors.Rejected(
            f"link {k}: a message of {words} words does not fit its buffer of {spec.buffer_words} words",
            category="capacity",
            help=f"set buffer_words to {words} or more; {2 * words} let two wafers work at the same time",
        )
    return Link(spec, time, words)


def _names(ports: list[EdgePort]) -> str:
    return ", ".join(f"`{port.name}`" for port in ports) or "none"


def _spelled(port: EdgePort) -> str:
    shape = ", ".join(map(str, port.shape))
    packed = ", packed" if port.packed and port.element.bits == 16 else ""
    return f"`{port.name}` ({len(port.lanes)} lanes of {port.element.source_name}[{shape}]{packed})"
