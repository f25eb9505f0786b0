"""Shared links taken on trust, and what happens when trust was misplaced.

Most links that several colours share are never wanted by two of them in the same cycle: kernels run one
after another. So a run first lets every channel stream as if its links were its own and notes the bursts in
which each one crosses a shared link. If no two bursts of a link overlap, arbitration could not have delayed
anything, and the run is exact. If some do, those links are marked as contended and the run starts again
from the same memory with an arbiter at each (docs/engine.md). What is known of a program is kept for its
next run.
"""

from __future__ import annotations

import numpy as np

from ...isa.program import Program
from .kept import kept
from .pipes import RESERVE
from .state import NEVER_YET, WATCH
from .state_table import State

ATTEMPTS = 3  # with trust; then every shared link is arbitrated


def contended_links(program: Program) -> np.ndarray:
    """(n, 5) bool: output links that were found contended in earlier runs of this program. Shared: changes
    are kept."""
    return kept(program, "contended", lambda: np.zeros((program.width * program.height, 5), bool))


def watch_arrays(watched: np.ndarray, router: np.ndarray) -> dict[str, np.ndarray]:
    """The state arrays that note crossings; `watched` (channels, 5) bool, `router` (channels,)."""
    ids = np.full(watched.shape, -1, np.int32)
    channel, port = np.nonzero(watched)
    ids[channel, port] = np.arange(len(channel))
    watches = np.zeros(len(channel), WATCH)
    watches["link"] = router[channel].astype(np.int64) * 5 + port
    watches["first"] = -1
    watches["last"] = NEVER_YET
    capacity = 4 * RESERVE if len(channel) else 0
    return {"channel_watch": ids, "watches": watches, **_log(capacity)}


def _log(capacity: int) -> dict[str, np.ndarray]:
    return {
        "crossing_watch": np.zeros(capacity, np.int32),
        "crossing_first": np.zeros(capacity, np.int64),
        "crossing_last": np.zeros(capacity, np.int64),
    }


def overlapping(state: State) -> np.ndarray:
    """Links (router * 5 + port) that two channels crossed in overlapping bursts, as far as noted."""
    used = int(state.run[0]["crossings"])
    now = state.watches["last"] >= 0
    link = np.concatenate([state.watches["link"][state.crossing_watch[:used]], state.watches["link"][now]])
    first = np.concatenate([state.crossing_first[:used], state.watches["first"][now]])
    last = np.concatenate([state.crossing_last[:used], state.watches["last"][now]])
    if len(link) < 2:
        return np.zeros(0, np.int64)
    order = np.lexsort((first, link))
    link, first, last = link[order], first[order], last[order]
    # Bursts of one channel are disjoint, so a burst that begins before all earlier ones of its link ended
    # meets another's.
    rank = np.concatenate([[0], np.cumsum(link[1:] != link[:-1])])
    span = np.int64(last.max()) + 1
    ended = np.maximum.accumulate(last + rank * span)
    meets = (first[1:] + rank[1:] * span <= ended[:-1]) & (link[1:] == link[:-1])
    return np.unique(link[1:][meets])


def with_room(state: State) -> State:
    """Drop noted bursts that nothing can meet any more (call `overlapping` first); double the notes if that
    does not help."""
    run = state.run[0]
    used, capacity = int(run["crossings"]), len(state.crossing_watch)
    if used + 2 * RESERVE < capacity or not capacity:
        return state
    kept = np.flatnonzero(state.crossing_last[:used] >= run["now"])  # all that is still to come lies later
    names = ("crossing_watch", "crossing_first", "crossing_last")
    for name in names:
        array = getattr(state, name)
        array[: len(kept)] = array[:used][kept]
    run["crossings"] = len(kept)
    if len(kept) + 4 * RESERVE < capacity:
        return state
    return state.replace(
        **{n: np.concatenate([getattr(state, n), np.zeros_like(getattr(state, n))]) for n in names}
    )
