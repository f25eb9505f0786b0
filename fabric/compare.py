"""Two outcomes field by field: what the tests and the self-test mean by `both engines agree`."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from .outcome import FaultCode, Outcome, Wait, Waits

__all__ = ["outcome_differences"]

NOTHING = np.zeros(0, np.int64)  # stands for an array that is not compared


def outcome_differences(a: Outcome, b: Outcome) -> list[str]:
    """One line per field that differs, with its first place and both values; [] if the outcomes are equal.

    Of `waits` only what has a meaning is compared: where and since when a thread waits if it does, and fills
    that are not zero. What an engine may be ahead of at the end of a run (docs/engine.md) is left out: after
    a fault everything but the fault, what the host received, and the PE at fault; of a limit and a livelock
    how many wavelets stand where.
    """
    a, b = _comparable(a), _comparable(b)
    if a.waits is not None and b.waits is not None:
        a, b = (dataclasses.replace(o, waits=_meaningful(o.waits)) for o in (a, b) if o.waits is not None)
    return _differences("", a, b)


def _comparable(o: Outcome) -> Outcome:
    """The outcome without what the end of the run leaves open."""
    livelock = o.waits is not None and o.waits.livelock
    if o.end == "fault" and o.fault is not None:
        at = (o.fault.y, o.fault.x)
        own = o.fault.code is not FaultCode.BAD_COMMAND  # else the router's, not the PE's
        names = ("counters", "registers", "instructions", "done", "last_issue")
        here: dict[str, Any] = {name: getattr(o, name)[at] if own else NOTHING for name in names}
        return dataclasses.replace(o, **here, link_words=NOTHING, waits=None, unread_inputs={})
    if (o.end == "limit" or livelock) and o.waits is not None:
        waits = dataclasses.replace(
            o.waits,
            in_fill=NOTHING,
            out_fill=NOTHING,
            router_fill={},
            position={} if livelock else o.waits.position,
        )
        return dataclasses.replace(o, link_words=NOTHING, waits=waits)
    return o


def _meaningful(waits: Waits) -> Waits:
    waiting = ~np.isin(waits.state, (Wait.INACTIVE, Wait.RUNNING))
    return dataclasses.replace(
        waits,
        pc=np.where(waiting, waits.pc, -1),
        queue=np.where(waiting, waits.queue, -1),
        since=np.where(waiting, waits.since, -1),
        router_fill={colour: fill for colour, fill in waits.router_fill.items() if fill.any()},
        position={colour: held for colour, held in waits.position.items() if held.any()},
    )


def _differences(where: str, a: Any, b: Any) -> list[str]:
    if dataclasses.is_dataclass(a) and type(a) is type(b):
        fields = [field.name for field in dataclasses.fields(a)]
        return [line for f in fields for line in _differences(_join(where, f), getattr(a, f), getattr(b, f))]
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        if a.shape != b.shape:
            return [f"{where}: shape {a.shape} and {b.shape}"]
        differ = np.argwhere(a != b)
        if not len(differ):
            return []
        first = tuple(int(i) for i in differ[0])
        return [f"{where}{list(first)}: {a[first]} and {b[first]} ({len(differ):,} places differ)"]
    if isinstance(a, dict) and isinstance(b, dict):
        if a.keys() != b.keys():
            return [f"{where}: keys {sorted(a)} and {sorted(b)}"]
        return [line for key in sorted(a) for line in _differences(f"{where}[{key}]", a[key], b[key])]
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        pairs = enumerate(zip(a, b, strict=True))
        return [line for i, (x, y) in pairs for line in _differences(f"{where}[{i}]", x, y)]
    return [] if type(a) is type(b) and a == b else [f"{where}: {a} and {b}"]


def _join(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name
