"""A run in a few lines for people: how it ended, how long it took, where the cycles went, hottest links."""

from __future__ import annotations

import numpy as np

from ..fabric.outcome import Cycle
from ..fabric.result import Result
from ..isa.program import Port

__all__ = ["duration", "summary"]

LINKS_SHOWN = 3


def summary(result: Result, *, host: bool = True) -> str:
    """The lines that `waferloom run` prints. `host`: with the time that the host took."""
    spec, program, cycles = result.spec, result.program, result.cycles
    pes = int(result.placed.sum())
    grid = f"{program.width} x {program.height} grid"
    first = (
        f"{program.name}: {result.end} after {_count(cycles, 'cycle')} ({duration(result.microseconds)} at "
        f"{spec.clock_mhz:g} MHz) on {spec.name}, {grid}, {_count(pes, 'PE')}"
    )
    lines = [first]
    if host:
        seconds = result.settings.seconds
        lines.append(f"host: {result.settings.engine} engine, {seconds:.3f} s{_rate(pes * cycles, seconds)}")
    totals = result.counters.totals
    whole = sum(totals.values())
    if whole:
        parts = [f"{name} {100 * totals[name] / whole:.1f} %" for name in totals if totals[name]]
        lines.append(f"cycles of all PEs: {', '.join(parts)}")
        lines.append(_busiest(result))
    lines.append(_links(result))
    for name in result.outputs:
        port = program.edge_ports[name]
        arrived = sum(len(lane.payload) for lane in result.lanes[name])
        shape = ", ".join(map(str, (len(port.lanes), *port.shape)))
        lines.append(f"output {name}: {port.element.source_name} ({shape}), {arrived:,} wavelets")
    return "\n".join(lines)


def duration(microseconds: float) -> str:
    """`1.41 us`, `2.3 ms`: three digits with the unit that fits."""
    for limit, unit, factor in ((1, "ns", 1e3), (1e3, "us", 1.0), (1e6, "ms", 1e-3)):
        if microseconds < limit:
            return f"{microseconds * factor:.3g} {unit}"
    return f"{microseconds * 1e-6:.3g} s"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _rate(pe_cycles: int, seconds: float) -> str:
    return f", {pe_cycles / seconds:.3g} PE-cycles/s" if seconds > 0 and pe_cycles else ""


def _busiest(result: Result) -> str:
    """The PE whose engine was held longest, and what it waited for otherwise."""
    busy = np.where(result.placed, result.counters["compute"] + result.counters["bank"], -1)
    y, x = np.unravel_index(int(busy.argmax()), busy.shape)
    cycles = max(result.cycles, 1)
    rest = {
        reason.name.lower(): int(result.counters.array[y, x, reason])
        for reason in Cycle
        if reason > Cycle.BANK
    }
    worst = max(rest, key=lambda name: rest[name])
    text = f"busiest PE: ({x},{y}), {100 * int(busy[y, x]) / cycles:.1f} % busy"
    return text + (f", then {worst} {100 * rest[worst] / cycles:.1f} %" if rest[worst] else "")


def _links(result: Result) -> str:
    """Wavelets over links and the hottest ones; utilisation is wavelets / cycles."""
    links = result.link_words[..., :4]
    total = int(links.sum())
    if not total:
        return "links: no wavelet crossed one"
    order = np.argsort(links, axis=None, kind="stable")[::-1]
    top = int(links.max())
    best = np.flatnonzero(links.ravel() == top)
    flat = links.ravel()
    picked = list(best[:LINKS_SHOWN]) + [i for i in order[: LINKS_SHOWN * 2] if 0 < flat[i] < top]
    names = []
    for index in picked[:LINKS_SHOWN]:
        y, x, port = np.unravel_index(int(index), links.shape)
        words = int(links[y, x, port])
        names.append(
            f"({x},{y}) {Port(int(port)).name} {words:,} ({100 * words / max(result.cycles, 1):.1f} %)"
        )
    equal = f" ({len(best):,} links carry {top:,})" if len(best) > LINKS_SHOWN else ""
    return f"links: {total:,} wavelet hops; hottest {', '.join(names)}{equal}"
