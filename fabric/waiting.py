"""The wait-for graph at the end of a run: which thread waits for what, and which threads could end that.

A node is one waiting thread of one PE. An edge leads to a thread that would have to go on first.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from ..isa.instructions import Decoded, IllegalInstruction, decode
from ..isa.program import Descriptor, DescriptorKind, Kernel, Location, Program
from . import reach
from .outcome import Outcome, Wait, Waits
from .spec import MachineSpec

__all__ = ["Fifo", "Line", "Node", "WaitGraph", "place"]

BLOCKED = (Wait.RECEIVE, Wait.SEND, Wait.FIFO)
STARTS_PER_GROUP = 16  # threads of a group of equal ones from which a cycle is looked for
NODES_PER_SEARCH = 4096


class Node(NamedTuple):
    """A thread of a PE; thread 0 is the main thread, n is microthread n - 1."""

    y: int
    x: int
    thread: int


@dataclass(frozen=True)
class Fifo:
    """The FIFO in SRAM that an instruction pushes to or pops from."""

    push: bool
    moves: int  # elements the instruction moves
    capacity: int  # elements
    fill: int | None  # elements in it at the end of the run
    symbol: str | None


@dataclass(frozen=True)
class Line:
    """What one waiting thread waits for."""

    node: Node
    state: Wait
    queue: int
    colour: int  # -1: none
    colour_name: str | None
    fill: int
    capacity: int
    since: int
    task: str
    location: Location | None
    mnemonic: str
    fifo: Fifo | None

    @property
    def verb(self) -> str:
        return {Wait.RECEIVE: "recv", Wait.SEND: "send", Wait.FIFO: "fifo"}.get(self.state, "running")

    @property
    def what(self) -> str:
        """`recv colour 3 x_in (empty, 0/8)`."""
        if self.state is Wait.RUNNING:
            return f"running {self.mnemonic}"
        if self.fifo is not None:
            way = "push" if self.fifo.push else "pop"
            fill = "?" if self.fifo.fill is None else self.fifo.fill
            name = f" {self.fifo.symbol}" if self.fifo.symbol else ""
            return f"{way} fifo{name} ({fill}/{self.fifo.capacity} elements)"
        if self.state is Wait.FIFO:
            return "fifo in SRAM"
        name = f" {self.colour_name}" if self.colour_name else ""
        how = (
            "empty"
            if self.fill == 0
            else "full"
            if self.fill >= self.capacity
            else "head is a control wavelet"
        )
        if self.state is Wait.SEND and self.fill < self.capacity:
            how = "no room"
        return f"{self.verb} colour {self.colour}{name} ({how}, {self.fill}/{self.capacity})"


def place(kernel: Kernel | None, pc: int) -> Location | None:
    """Source location of a code word."""
    if kernel is None or not 0 <= pc < len(kernel.locations):
        return None
    return kernel.locations[pc]


class WaitGraph:
    """Waiting threads of a run and what would let them go on."""

    def __init__(
        self, spec: MachineSpec, program: Program, outcome: Outcome, sram: np.ndarray | None = None
    ) -> None:
        assert outcome.waits is not None
        self.spec = spec
        self.program = program
        self.outcome = outcome
        self.waits: Waits = outcome.waits
        self.sram = sram
        self._successors = lru_cache(None)(self._find_successors)
        self.decoded = lru_cache(None)(self._decode)
        names = {number: name for name, number in reversed(list(program.colour_names.items()))}
        self.colour_names: dict[int, str] = names

    @cached_property
    def blocked(self) -> np.ndarray:
        """(H, W, 9) bool: threads that wait for a queue or a FIFO."""
        return np.isin(self.waits.state, [int(w) for w in BLOCKED])

    # --- one thread ---

    def line(self, node: Node) -> Line:
        """Everything about one waiting thread."""
        y, x, thread = node
        waits = self.waits
        state, queue, pc = Wait(int(waits.state[node])), int(waits.queue[node]), int(waits.pc[node])
        kernel = self.program.kernel_at(x, y)
        colour = fill = capacity = -1
        if queue >= 0 and state in (Wait.RECEIVE, Wait.SEND):
            receiving = state is Wait.RECEIVE
            colours = self.program.in_colour if receiving else self.program.out_colour
            colour = int(colours[y, x, queue])
            fill = int((waits.in_fill if receiving else waits.out_fill)[y, x, queue])
            capacity = self.capacity(queue, receiving)
        if thread:
            task = f"microthread {thread - 1}"
        else:
            running = int(waits.task[y, x])
            known = kernel.tasks.get(running) if kernel else None
            task = f"task {known.name}" if known else f"task {running}"
        decoded = self.decoded(int(self.program.placement[y, x]), pc)
        return Line(
            node,
            state,
            queue,
            colour,
            self.colour_names.get(colour),
            fill,
            capacity,
            min(int(waits.since[node]), self.outcome.cycles),  # a vector's first issue may lie beyond the end
            task,
            place(kernel, pc),
            decoded.row.name if decoded else f"pc {pc}",
            self.fifo(node) if state is Wait.FIFO else None,
        )

    def capacity(self, queue: int, receiving: bool) -> int:
        """Wavelets that fit in the stage of a queue: its depth and the ramp's registers (machine.md §3)."""
        depths = self.spec.queues.in_depth if receiving else self.spec.queues.out_depth
        ramp = self.spec.fabric.ramp_down if receiving else self.spec.fabric.ramp_up
        return depths[queue] + ramp - 1 if queue < len(depths) else 0

    def _decode(self, kernel: int, pc: int) -> Decoded | None:
        if kernel < 0:
            return None
        try:
            return decode(self.program.kernels[kernel].code.tolist(), pc)
        except (IllegalInstruction, IndexError):
            return None

    def fifo(self, node: Node) -> Fifo | None:
        """The FIFO an instruction waits for, from the nearest `ldd` before it; None if that does not tell."""
        y, x, _ = node
        index, pc = int(self.program.placement[y, x]), int(self.waits.pc[node])
        decoded = self.decoded(index, pc)
        if decoded is None:
            return None
        kernel = self.program.kernels[index]
        for field in ("dd", "da", "db"):
            if field not in decoded.values or (field == "db" and decoded.values.get("scalar")):
                continue
            loaded = self._loaded(index, pc, decoded.values[field])
            if loaded is None or loaded.kind is not DescriptorKind.FIFO:
                continue
            moves, capacity = (*loaded.extents, 0)[:2]
            name = next(
                (s.name for s in kernel.symbols.values() if s.address == loaded.base and s.nbytes), None
            )
            fill = None
            if self.sram is not None:
                row = self.sram[y * self.program.width + x]
                fill = int(row[loaded.base + 2 : loaded.base + 4].view("<u2")[0])
            return Fifo(field == "dd", moves, capacity, fill, name)
        return None

    def _loaded(self, index: int, pc: int, register: int) -> Descriptor | None:
        kernel = self.program.kernels[index]
        for before in range(pc - 1, -1, -1):
            found = self.decoded(index, before)
            if found and found.row.name == "ldd" and found.values["dd"] == register:
                address = found.values["address"]
                halfwords = np.ascontiguousarray(kernel.data[address : address + 20])
                try:
                    return Descriptor.from_halfwords(
                        halfwords[: len(halfwords) // 2 * 2].view("<u2").tolist()
                    )
                except (ValueError, IndexError):
                    return None
        return None

    # --- edges ---

    def successors(self, node: Node) -> tuple[Node, ...]:
        """Threads that would have to go on before this one can."""
        return self._successors(node)

    def far_side(self, node: Node) -> reach.Reach:
        """Who could send what this thread waits for, or take what it wants to send."""
        y, x, _ = node
        line = self.line(node)
        if line.colour < 0:
            return reach.Reach()
        walk = reach.producers if line.state is Wait.RECEIVE else reach.consumers
        return walk(self.program, x, y, line.colour)

    def _find_successors(self, node: Node) -> tuple[Node, ...]:
        y, x, thread = node
        state = Wait(int(self.waits.state[node]))
        if state is Wait.FIFO:
            return tuple(n for n in self.threads(x, y) if n.thread != thread)
        if state is Wait.RECEIVE and self.waits.in_fill[y, x, self.waits.queue[node]] > 0:
            return ()  # something is there, but it is not what the instruction can take
        far = self.far_side(node)
        found: list[Node] = []
        for fx, fy, queue in far.pes:
            if state is Wait.SEND and self.waits.in_fill[fy, fx, queue] < self.capacity(queue, True):
                continue  # it has room: it does not hold this sender up
            here = [n for n in self.threads(fx, fy) if n != node]
            on_it = [
                n
                for n in here
                if state is Wait.RECEIVE and self.waits.state[n] == Wait.SEND and self.waits.queue[n] == queue
            ]
            found.extend(on_it or here)
            if (fx, fy) == (x, y) and not here:
                found.append(node)  # it waits for itself
        return tuple(sorted(set(found)))

    def threads(self, x: int, y: int) -> list[Node]:
        """Waiting threads of a PE."""
        return [Node(y, x, int(t)) for t in np.flatnonzero(self.blocked[y, x])]

    # --- groups and searches ---

    def groups(self, chosen: np.ndarray) -> list[tuple[Node, np.ndarray]]:
        """Threads of `chosen` (H, W, 9) grouped by kernel, thread, instruction, state and queue.

        Per group its first thread (lowest y, then x) and its mask (H, W); in order of those.
        """
        ys, xs, threads = np.nonzero(chosen)
        if not len(ys):
            return []
        waits = self.waits
        at = (ys, xs, threads)
        keys = np.stack(
            [self.program.placement[ys, xs], threads, waits.pc[at], waits.state[at], waits.queue[at]]
        ).astype(np.int64)
        _, first, inverse = np.unique(keys, axis=1, return_index=True, return_inverse=True)
        inverse = inverse.reshape(-1)
        out = []
        for group in np.argsort(first, kind="stable"):
            mask = np.zeros(chosen.shape[:2], bool)
            members = inverse == group
            mask[ys[members], xs[members]] = True
            i = first[group]
            out.append((Node(int(ys[i]), int(xs[i]), int(threads[i])), mask))
        return out

    def smallest_cycle(self, groups: list[tuple[Node, np.ndarray]]) -> list[Node]:
        """The shortest cycle found from the first threads of each group; [] if there is none."""
        best: list[Node] = []
        for first, mask in groups:
            ys, xs = np.nonzero(mask)
            for y, x in zip(ys[:STARTS_PER_GROUP].tolist(), xs[:STARTS_PER_GROUP].tolist(), strict=True):
                found = self._cycle_from(Node(y, x, first.thread), len(best))
                if found and (not best or len(found) < len(best)):
                    best = found
                if len(best) == 1:
                    return best
        if best:
            start = best.index(min(best))
            best = best[start:] + best[:start]
        return best

    def _cycle_from(self, start: Node, shorter_than: int) -> list[Node]:
        """Shortest way from a thread back to itself, by breadth-first search."""
        came: dict[Node, Node | None] = {start: None}
        queue = deque([(start, 1)])
        while queue and len(came) < NODES_PER_SEARCH:
            node, length = queue.popleft()
            if shorter_than and length >= shorter_than:
                return []
            for following in self.successors(node):
                if following == start:
                    path: list[Node] = []
                    back: Node | None = node
                    while back is not None:
                        path.append(back)
                        back = came[back]
                    return path[::-1]
                if following not in came:
                    came[following] = node
                    queue.append((following, length + 1))
        return []

    def roots(self, groups: list[tuple[Node, np.ndarray]]) -> list[Node]:
        """Waiting threads that no waiting thread could free: where the trouble starts."""
        seen: set[Node] = set()
        found: list[Node] = []
        for first, _ in groups:
            stack = [first]
            while stack and len(seen) < NODES_PER_SEARCH:
                node = stack.pop()
                if node in seen:
                    continue
                seen.add(node)
                following = self.successors(node)
                if not following:
                    found.append(node)
                stack.extend(following)
        return sorted(found)
