"""The link between two wafers: its numbers, the chain's one time base, when the words of a message arrive.

Times are whole ticks of a TimeBase, chosen so that clock periods, link words and latencies are whole numbers
of ticks: nothing is ever rounded. docs/chain.md holds the rules and why they are exact.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from importlib import resources
from pathlib import Path

import numpy as np

from ..isa.errors import Rejected
from .spec import MachineError

__all__ = ["Link", "LinkSpec", "TimeBase", "link", "parse_link"]

FINEST = 10**15  # ticks per second; int64 then still holds two and a half hours


@dataclass(frozen=True)
class LinkSpec:
    """The numbers of a link; `latency_ns` and `bandwidth_gbit_s` mean exactly the decimals they print as."""

    name: str
    latency_ns: float
    bandwidth_gbit_s: float
    word_bits: int
    buffer_words: int

    @property
    def latency_s(self) -> Fraction:
        """Seconds from the last bit of a word on one side to the word on the other."""
        return Fraction(str(self.latency_ns)) / 10**9

    @property
    def word_s(self) -> Fraction:
        """Seconds that one word occupies the link."""
        return self.word_bits / (Fraction(str(self.bandwidth_gbit_s)) * 10**9)


def link(path: str | Path | None = None) -> LinkSpec:
    """The preset link, or a user's own TOML file. Raises MachineError naming file and key."""
    if path is None:
        where = "link.toml"
        text = resources.files(__package__).joinpath("machines/link.toml").read_text("utf-8")
    else:
        where = str(path)
        try:
            text = Path(path).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8 text"
            raise MachineError(where, f"cannot read the link file: {reason}") from None
    return parse_link(text, where)


def parse_link(text: str, where: str) -> LinkSpec:
    """Read and check a link file. `where` names it in messages."""
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise MachineError(where, f"not TOML: {error}") from None
    known = {field.name for field in fields(LinkSpec)}
    for key in sorted(tree.keys() ^ known):
        raise MachineError(where, f"{'unknown key' if key in tree else 'missing key'} `{key}`")
    if not isinstance(tree["name"], str):
        raise MachineError(where, f"`name` is {tree['name']!r}: a string is wanted")
    for key, whole, least in (
        ("latency_ns", False, 0),
        ("bandwidth_gbit_s", False, 1e-6),
        ("word_bits", True, 1),
        ("buffer_words", True, 1),
    ):
        value = tree[key]
        fits = isinstance(value, int) or (isinstance(value, float) and not whole)
        if isinstance(value, bool) or not fits or not least <= value <= 1e12:
            raise MachineError(
                where, f"`{key}` is {value!r}: a {'whole ' * whole}number of at least {least} is wanted"
            )
    return LinkSpec(**tree)


class TimeBase:
    """One time for all wafers and links of a chain: whole ticks since the chain's beginning."""

    def __init__(self, clocks_mhz: Iterable[float], links: Iterable[LinkSpec]) -> None:
        """The coarsest tick of which every clock period, word and latency is a whole number."""
        spans = [1 / (Fraction(str(mhz)) * 10**6) for mhz in clocks_mhz]
        for spec in links:
            spans += [spec.word_s, spec.latency_s]
        self.ticks_per_second = math.lcm(*(span.denominator for span in spans))
        if self.ticks_per_second > FINEST:
            raise Rejected(
                f"clocks and links have no common tick coarser than 1/{FINEST} s",
                category="range",
                help="choose rounder numbers for clock_mhz, latency_ns and bandwidth_gbit_s",
            )

    def ticks(self, seconds: Fraction) -> int:
        """Ticks of a span that is a whole number of them."""
        count = seconds * self.ticks_per_second
        assert count.denominator == 1
        return count.numerator

    def period(self, clock_mhz: float) -> int:
        """Ticks of one cycle of a clock."""
        return self.ticks(1 / (Fraction(str(clock_mhz)) * 10**6))

    def microseconds(self, ticks: int) -> float:
        """A span or a time in microseconds."""
        return ticks * 1e6 / self.ticks_per_second


class Link:
    """One link in use. Messages pass in order; each has `message_words` words in fixed lanes.

    `free` grows by one entry per message: the tick at which the sender knows that its room is free again.
    """

    def __init__(self, spec: LinkSpec, time: TimeBase, message_words: int) -> None:
        self.spec = spec
        self.word = time.ticks(spec.word_s)
        self.latency = time.ticks(spec.latency_s)
        self.message_words = message_words
        self.places = spec.buffer_words // message_words  # whole messages the buffer holds
        self.free: list[int] = []
        self.busy_until = 0

    def known(self, message: int) -> bool:
        """Whether it can be said when there is room for a message."""
        return message < self.places or message - self.places < len(self.free)

    def room(self, message: int) -> int:
        """Tick from which the buffer has room for a whole message (`known` must hold)."""
        return 0 if message < self.places else self.free[message - self.places]

    def send(self, available: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Ticks at which the words of the next message arrive, lane by lane.

        `available`: per lane int64 ticks at which its words are at the sender, never decreasing. Words enter
        the link in the order they became available; ties: place in the lane, then lane.
        """
        counts = [len(ticks) for ticks in available]
        times = np.concatenate(available)
        lane = np.repeat(np.arange(len(counts)), counts)
        place = np.concatenate([np.arange(n) for n in counts])
        order = np.lexsort((lane, place, times))
        steps = self.word * np.arange(len(order), dtype=np.int64)
        begin = np.maximum.accumulate(np.maximum(times[order], self.busy_until) - steps) + steps
        self.busy_until = int(begin[-1]) + self.word
        arrival = np.empty(len(order), np.int64)
        arrival[order] = begin + self.word + self.latency
        return np.split(arrival, np.cumsum(counts)[:-1])

    def release(self, tick: int) -> None:
        """The receiver has taken the next message whole; the sender knows one latency later."""
        self.free.append(tick + self.latency)
