"""The report of a run that did not finish: who waits for whom, in which circle, or which PE blocks all.

One message for any number of equal PEs; the same message for the same run. Also tells where everybody was
when a run reached its limit or was interrupted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..isa.diagnostics import excerpt
from ..isa.program import Program
from .outcome import Outcome, Wait
from .rectangles import corners, cover, spell
from .spec import MachineSpec
from .stuck import never_done, stuck_wavelets
from .waiting import Line, Node, WaitGraph

__all__ = ["HangReport"]

GROUPS_SHOWN = 12
CYCLE_SHOWN = 16


@dataclass
class HangReport:
    """What `text` prints and `to_json` gives; made by `of`."""

    end: str  # hang, limit, interrupted
    kind: str  # deadlock, livelock, left over, never done, limit, interrupted
    cycles: int
    headline: str
    circle: list[Line] = field(default_factory=list)
    root: Line | None = None
    reason: str | None = None  # why the root can never go on
    groups: list[tuple[Line, np.ndarray]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    last_progress: str = ""
    next_step: str = ""
    source: list[str] = field(default_factory=list)  # excerpt of the first waiting line

    @staticmethod
    def of(
        spec: MachineSpec, program: Program, outcome: Outcome, sram: np.ndarray | None = None
    ) -> HangReport:
        """Analyse the end of a run. `sram` (H * W, stride) tells how full FIFOs in memory are."""
        if outcome.waits is None:
            return HangReport(
                outcome.end, outcome.end, outcome.cycles, f"{outcome.end} at cycle {outcome.cycles:,}"
            )
        graph = WaitGraph(spec, program, outcome, sram)
        if outcome.end != "hang":
            return _where_everybody_was(graph)
        report = _deadlock(graph)
        left, undone = stuck_wavelets(graph), never_done(program, outcome)
        report.remarks += left + undone
        if report.kind == "idle":
            report.kind = "left over" if left else "never done"
            what = "wavelets are left that nobody takes" if left else "a PE never executed its `done`"
            report.headline += f", but {what}"
            report.next_step = (
                "receive as many wavelets as are sent, or send fewer"
                if left
                else "activate the task that executes `done`, or remove it"
            )
        report.last_progress = _last_progress(program, outcome)
        if not report.next_step:
            report.next_step = (
                "see the lines above; `--max-cycles` and `tsc` help to look at an earlier cycle"
            )
        return report

    def text(self) -> str:
        """The report for people, without a final newline."""
        lines = [self.headline]
        if self.circle:
            lines.append(f"cycle of {len(self.circle)}:")
            lines += _table(self.circle[:CYCLE_SHOWN])
            if len(self.circle) > CYCLE_SHOWN:
                lines.append(f"  ... {len(self.circle) - CYCLE_SHOWN} more")
        elif self.root is not None:
            lines.append("root blocker:")
            lines += _table([self.root])
        if self.reason:
            lines.append(f"  {self.reason}")
        lines += self.source
        if self.end == "hang":
            lines += self._behind()
        else:
            lines += self._everybody()
        lines += self.remarks
        if self.last_progress:
            lines.append(f"last progress: {self.last_progress}")
        if self.next_step:
            lines.append(f"next: {self.next_step}")
        return "\n".join(lines)

    def _behind(self) -> list[str]:
        """Groups of waiting PEs that are not the ones already shown."""
        lines, shown = [], 0
        named = {line.node for line in self.circle} | ({self.root.node} if self.root else set())
        for line, mask in self.groups:
            rest = mask.copy()
            for node in named:
                if node.thread == line.node.thread:
                    rest[node.y, node.x] = False
            if not rest.any():
                continue
            shown += 1
            if shown <= GROUPS_SHOWN:
                same = any(
                    line.location == other.location and line.what == other.what for other in self._heads()
                )
                where = "same line" if same else f"{line.what}   since {line.since:,}   {_place(line)}"
                lines.append(f"blocked behind it: {spell(rest)}, {where}")
        if shown > GROUPS_SHOWN:
            lines.append(f"blocked behind it: {shown - GROUPS_SHOWN} more groups of PEs")
        return lines

    def _heads(self) -> list[Line]:
        return self.circle or ([self.root] if self.root else [])

    def _everybody(self) -> list[str]:
        lines = ["where everybody was:"] if self.groups else []
        for line, mask in self.groups[:GROUPS_SHOWN]:
            since = "" if line.state is Wait.RUNNING else f"   since {line.since:,}"
            lines.append(f"  {spell(mask)}: {line.task}, {line.what}{since}   {_place(line)}")
        if len(self.groups) > GROUPS_SHOWN:
            lines.append(f"  ... {len(self.groups) - GROUPS_SHOWN} more groups of PEs")
        return lines

    def to_json(self) -> dict[str, Any]:
        """The same as a document; coordinates are [x, y], rectangles [x0, y0, x1, y1]."""
        return {
            "kind": self.kind,
            "cycles": int(self.cycles),
            "headline": self.headline,
            "circle": [_line_json(line) for line in self.circle],
            "root": _line_json(self.root) if self.root else None,
            "reason": self.reason,
            "groups": [
                {
                    **_line_json(line),
                    "pes": int(np.count_nonzero(mask)),
                    "rectangles": [corners(box) for box in cover(mask)[:64]],
                }
                for line, mask in self.groups[:64]
            ],
            "remarks": self.remarks,
            "last_progress": self.last_progress,
            "next": self.next_step,
        }


def _deadlock(graph: WaitGraph) -> HangReport:
    outcome, spec = graph.outcome, graph.spec
    blocked = int(np.count_nonzero(graph.blocked.any(axis=2)))
    if graph.waits.livelock:
        kind = "livelock"
        what = (
            f"wavelets moved for {spec.fabric.livelock_cycles:,} cycles and no instruction issued, "
            f"{blocked:,} PEs blocked"
        )
    else:
        kind = "deadlock" if blocked else "idle"
        pes = "1 PE" if blocked == 1 else f"{blocked:,} PEs"
        what = "nothing can happen any more"
        what += f", {pes} blocked, 0 events pending" if blocked else " and no instruction waits"
    report = HangReport("hang", kind, outcome.cycles, f"hang at cycle {outcome.cycles:,}: {what}")
    groups = graph.groups(graph.blocked)
    report.groups = [(graph.line(first), mask) for first, mask in groups]
    circle = graph.smallest_cycle(groups)
    if circle:
        report.circle = [graph.line(node) for node in circle]
        report.reason = next((r for line in report.circle if (r := _impossible(line, graph))), None)
        report.next_step = _break(report.circle)
    else:
        roots = graph.roots(groups)
        if roots:
            report.root = graph.line(roots[0])
            report.reason, report.next_step = _why(graph, roots[0], report.root)
    heads = report.circle or ([report.root] if report.root else [])
    if heads:
        report.source = excerpt(heads[0].location, graph.program.sources)
    elif graph.waits.livelock:
        report.next_step = "a colour's routes form a ring: give one router of it a RAMP output or an edge"
    return report


def _impossible(line: Line, graph: WaitGraph) -> str | None:
    """T06: an instruction that needs more than a FIFO can ever hold, with nobody to drain it meanwhile."""
    fifo = line.fifo
    if fifo is None or fifo.moves <= fifo.capacity or len(graph.threads(line.node.x, line.node.y)) > 1:
        return None
    verb = "has room for" if fifo.push else "holds"
    needs = f"needs {fifo.moves}, capacity {fifo.capacity}"
    return f"can never be satisfied: {needs} (the FIFO {verb} no more elements)"


def _break(circle: list[Line]) -> str:
    at = next((f" `{line.location.file}:{line.location.line}`" for line in circle if line.location), "")
    states = {line.state for line in circle}
    if states == {Wait.RECEIVE}:
        return f"every PE of the cycle receives first; let one send before{at}"
    if states == {Wait.SEND}:
        return (
            "every PE of the cycle sends before it receives; receive on a microthread, or send less at a time"
        )
    if states == {Wait.FIFO}:
        return "a FIFO is filled and drained by the same thread; push on a microthread, or enlarge the FIFO"
    return (
        f"start one of these transfers asynchronously, for example the one at{at}"
        if at
        else ("start one of these transfers asynchronously")
    )


def _why(graph: WaitGraph, node: Node, line: Line) -> tuple[str, str]:
    """Why a root blocker can never go on, and what to do."""
    at = f"`{line.location.file}:{line.location.line}`" if line.location else f"pc {graph.waits.pc[node]}"
    if line.state is Wait.FIFO:
        return _why_fifo(graph, line, at)
    colour = f"colour {line.colour}" + (f" ({line.colour_name})" if line.colour_name else "")
    far = graph.far_side(node)
    if line.state is Wait.RECEIVE:
        if line.fill:
            return (
                f"the head of the queue is a control wavelet; {line.mnemonic} takes data only",
                "let the control wavelet name a control task, or none, so that it ends at the router",
            )
        if not far.pes and not far.edges:
            return (
                f"nobody sends: no PE and no edge port reaches PE ({node.x},{node.y}) on {colour}",
                f"route {colour} to this PE from a sender, or remove the receive at {at}",
            )
        names = [f"PE ({x},{y})" for x, y, _ in far.pes[:3]] + [f"input `{name}`" for name in far.edges]
        more = f" and {len(far.pes) - 3} more" if len(far.pes) > 3 else ""
        left: dict[str, int] = {
            k: sum(v) for k, v in graph.outcome.unread_inputs.items() if k in far.edges and sum(v) > 0
        }
        if left:
            return (
                ", ".join(f"input `{k}` still has {n:,} words that cannot enter" for k, n in left.items()),
                "look at the switch positions and full queues on the way",
            )
        return (
            f"who could send {colour}: {', '.join(names)}{more}; none of them has anything left to run",
            f"send as many wavelets as {at} receives",
        )
    if not far.pes and not far.edges:
        return (
            f"nobody takes it: the routes of {colour} lead from here to no PE and no edge port",
            f"route {colour} to a receiver, or remove the send at {at}",
        )
    takers = [f"PE ({x},{y})" for x, y, _ in far.pes[:3]] or [f"output `{n}`" for n in far.edges]
    return (
        f"{', '.join(takers)} should take {colour}, but no thread there receives it: its queue is full or "
        "the way is switched off",
        f"receive as many wavelets as {at} sends",
    )


def _why_fifo(graph: WaitGraph, line: Line, at: str) -> tuple[str, str]:
    impossible = _impossible(line, graph)
    if impossible:
        return impossible, f"enlarge the FIFO, move fewer elements at {at}, or push on a microthread"
    push = line.fifo is not None and line.fifo.push
    other = "pops from" if push else "pushes to"
    return f"no other thread of this PE {other} the FIFO", f"start the other side before {at}"


def _where_everybody_was(graph: WaitGraph) -> HangReport:
    outcome = graph.outcome
    state = graph.waits.state
    running = int(np.count_nonzero((state == Wait.RUNNING).any(axis=2)))
    waiting = int(np.count_nonzero(graph.blocked.any(axis=2)))
    idle = int(np.count_nonzero((graph.program.placement >= 0) & ~(state != Wait.INACTIVE).any(axis=2)))
    how = "the limit of cycles was reached" if outcome.end == "limit" else "stopped by the user"
    report = HangReport(
        outcome.end,
        outcome.end,
        outcome.cycles,
        f"{outcome.end} at cycle {outcome.cycles:,}: {how}; "
        f"PEs: {running:,} running, {waiting:,} waiting, {idle:,} idle",
    )
    groups = graph.groups(state != Wait.INACTIVE)
    groups.sort(key=lambda group: -int(np.count_nonzero(group[1])))
    report.groups = [(graph.line(first), mask) for first, mask in groups]
    report.last_progress = _last_progress(graph.program, outcome)
    if outcome.end == "limit":
        report.next_step = "raise --max-cycles if this is progress; else look at the lines above"
    return report


def _last_progress(program: Program, outcome: Outcome) -> str:
    placed = np.asarray(program.placement) >= 0
    last = np.where(placed, outcome.last_issue, -1)
    latest = int(last.max(initial=-1))
    if latest < 0:
        return "no PE issued an instruction"
    return f"{spell(last == latest)} issued at cycle {latest:,}"


def _place(line: Line) -> str:
    return str(line.location) if line.location else "(no source location)"


def _table(lines: list[Line]) -> list[str]:
    names = [f"PE ({line.node.x},{line.node.y})" for line in lines]
    tasks = [line.task for line in lines]
    whats = [line.what for line in lines]
    sinces = [f"since {line.since:,}" for line in lines]
    columns = [names, tasks, whats, sinces]
    widths = [max(map(len, column)) for column in columns]
    rows = zip(*columns, [_place(line) for line in lines], strict=True)
    return [
        "  " + "   ".join(cell.ljust(w) for cell, w in zip(row, [*widths, 0], strict=True)) for row in rows
    ]


def _line_json(line: Line) -> dict[str, Any]:
    place = line.location
    return {
        "pe": [line.node.x, line.node.y],
        "thread": line.node.thread,
        "task": line.task,
        "state": line.state.name.lower(),
        "instruction": line.mnemonic,
        "colour": line.colour if line.colour >= 0 else None,
        "queue": line.queue if line.queue >= 0 else None,
        "fill_wavelets": line.fill if line.colour >= 0 else None,
        "capacity_wavelets": line.capacity if line.colour >= 0 else None,
        "fifo": {
            "push": line.fifo.push,
            "moves_elements": line.fifo.moves,
            "capacity_elements": line.fifo.capacity,
            "fill_elements": line.fifo.fill,
        }
        if line.fifo
        else None,
        "since_cycle": line.since if line.state is not Wait.RUNNING else None,
        "location": {"file": place.file, "line": place.line, "column": place.column} if place else None,
    }
