"""Ctrl-C as a wish: long work asks `Stop` now and then, so that what was made so far still exists."""

from __future__ import annotations

import signal
from typing import Any

__all__ = ["Stop"]


class Stop:
    """`with Stop() as stop:` the first Ctrl-C makes `stop.asked` true, the second one kills."""

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = None

    def __enter__(self) -> Stop:
        try:
            self._before = signal.signal(signal.SIGINT, self._ask)
        except ValueError:  # not in the main thread: Ctrl-C is somebody else's
            self._before = None
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _ask(self, number: int, frame: Any) -> None:
        self.asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)
