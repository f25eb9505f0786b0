"""The terminal: who gets colours, what goes to stderr, progress that shows only where somebody watches."""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any, TextIO

import click

__all__ = ["Progress", "Terminal", "say"]

PROGRESS_AFTER_S = 1.0
PROGRESS_EVERY_S = 0.2


def say(text: str) -> None:
    """A message for people: to stderr, since stdout carries only the result."""
    click.echo(text, err=True)


@dataclass(frozen=True)
class Terminal:
    """What the options in front of the command ask for."""

    color: str = "auto"
    quiet: bool = False
    verbose: int = 0

    def colour_for(self, stream: TextIO) -> bool:
        """Does this stream get colours: always, never, or if it is a terminal and NO_COLOR is not set."""
        if self.color != "auto":
            return self.color == "always"
        return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()

    def ascii_only(self, stream: TextIO) -> bool:
        """Does the stream's encoding lack block characters."""
        try:
            "░▒▓█·│─".encode(stream.encoding or "ascii")
        except (UnicodeEncodeError, LookupError):
            return True
        return False

    def note(self, text: str) -> None:
        """A remark on stderr, unless -q."""
        if not self.quiet:
            say(text)


class Progress:
    """One line on stderr, rewritten by a thread; only on a terminal, only after a second, gone at the end."""

    def __init__(self, terminal: Terminal, what: str, detail: str = "") -> None:
        self.what = what
        self.detail = detail
        self.began = time.monotonic()
        self.wanted = sys.stderr.isatty() and not terminal.quiet
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._show, daemon=True)

    def tick(self, detail: str = "") -> None:
        """What to say beside the time; called as often as one likes."""
        self.detail = detail

    def _show(self) -> None:
        if self._over.wait(PROGRESS_AFTER_S):
            return
        while not self._over.is_set():
            detail = f"{self.detail}, " if self.detail else ""
            sys.stderr.write(f"\r\x1b[K{self.what}: {detail}{time.monotonic() - self.began:.0f} s")
            sys.stderr.flush()
            self._over.wait(PROGRESS_EVERY_S)
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()

    def __enter__(self) -> Progress:
        if self.wanted:
            self._thread.start()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._over.set()
        if self.wanted:
            self._thread.join()
