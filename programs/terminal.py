"""The terminal: who gets colours, what goes to stderr, progress that shows only where somebody watches."""

from __future__ import annotations

import os
import sys
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
    """One line on stderr that is rewritten; only on a terminal, only after a second, gone at the end."""

    def __init__(self, terminal: Terminal, what: str) -> None:
        self.what = what
        self.began = self.last = time.monotonic()
        self.shown = False
        self.wanted = sys.stderr.isatty() and not terminal.quiet

    def tick(self, detail: str = "") -> None:
        """Called as often as one likes."""
        now = time.monotonic()
        if not self.wanted or now - self.began < PROGRESS_AFTER_S or now - self.last < PROGRESS_EVERY_S:
            return
        self.last, self.shown = now, True
        sys.stderr.write(f"\r\x1b[K{self.what}: {detail + ', ' if detail else ''}{now - self.began:.0f} s")
        sys.stderr.flush()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exception: Any) -> None:
        if self.shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
