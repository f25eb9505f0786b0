"""Diagnostics of source text: what is wrong, where, why, and the next step; collected, sorted, printed once.

Nothing here knows the language. A `Span` is a stretch of characters of a `Source`; a `Diagnostic` is one
finding; `Diagnostics` collects them; `AssemblyError` carries them all to the caller.
"""

from __future__ import annotations

import difflib
import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .errors import CATEGORIES, Rejected
from .program import Location

MOST_SHOWN = 20  # errors printed; the rest is counted
TAB = 8  # columns of a tab stop in excerpts


class Source:
    """One source text: its name as the user wrote it, its characters, where its lines start."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        # CRLF and lone CR are one line end, a byte order mark is nothing: columns stay those of an editor.
        self.text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
        self.line_starts = [0, *(match.end() for match in re.finditer("\n", self.text))]

    def line_number(self, offset: int) -> int:
        """1-based line of a character offset."""
        return bisect_right(self.line_starts, offset)

    def line(self, number: int) -> str:
        start = self.line_starts[number - 1]
        end = self.text.find("\n", start)
        return self.text[start : len(self.text) if end < 0 else end]


class Span(NamedTuple):
    """Characters start..end (exclusive) of a source."""

    source: Source
    start: int
    end: int

    def __str__(self) -> str:
        return str(self.location)

    @property
    def location(self) -> Location:
        line = self.source.line_number(self.start)
        column = self.start - self.source.line_starts[line - 1] + 1
        return Location(self.source.name, line, column, max(1, self.end - self.start))

    @property
    def text(self) -> str:
        return self.source.text[self.start : self.end]

    def to(self, other: Span) -> Span:
        """From the start of this one to the end of the other."""
        return Span(self.source, self.start, max(self.end, other.end))


@dataclass
class Diagnostic:
    """One finding. `notes` say why (each may point somewhere else), `help` is the next step."""

    category: str
    text: str
    location: Location | None = None
    notes: list[tuple[str, Location | None]] = field(default_factory=list)
    help: str | None = None
    severity: str = "error"

    def first_line(self, program: str = "") -> str:
        """`path:line:col: severity[category]: text`; the program's name where no source is known."""
        where = str(self.location) if self.location else program
        return f"{where}: {self.severity}[{self.category}]: {self.text}".removeprefix(": ")

    def render(self, sources: dict[str, str], program: str = "") -> str:
        lines = [self.first_line(program), *excerpt(self.location, sources)]
        for text, location in self.notes:
            lines.append(f"note: {text}" + (f" ({location})" if location else ""))
            if location and location != self.location:
                lines += excerpt(location, sources)
        if self.help:
            lines.append(f"help: {self.help}")
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        place = self.location
        return {
            "severity": self.severity,
            "category": self.category,
            "text": self.text,
            "file": place.file if place else None,
            "line": place.line if place else None,
            "column": place.column if place else None,
            "length": place.length if place else None,
            "notes": [text for text, _ in self.notes],
            "help": self.help,
        }


def excerpt(location: Location | None, sources: dict[str, str]) -> list[str]:
    """The source line with a caret line under it, tabs expanded; empty if the text is not known."""
    if location is None or location.file not in sources:
        return []
    lines = sources[location.file].split("\n")
    if location.line > len(lines):
        return []
    text, first = lines[location.line - 1].rstrip("\r"), location.column - 1
    before = len(text[:first].expandtabs(TAB))
    through = len(text[: min(len(text), first + location.length)].expandtabs(TAB))
    gutter = f"{location.line:>4} | "
    return [
        (gutter + text.expandtabs(TAB)).rstrip(),
        " " * (len(gutter) - 2) + "| " + " " * before + "^" * max(1, through - before),
    ]


class Problem(Exception):
    """Raised while one statement is processed; the statement's owner records it and goes on with the next."""

    def __init__(
        self,
        category: str,
        text: str,
        span: Span,
        *,
        notes: Iterable[tuple[str, Span | None] | str] = (),
        help: str | None = None,
        severity: str = "error",
    ) -> None:
        super().__init__(text)
        assert category in CATEGORIES
        self.subject = span.text.partition(".")[0]  # the name it is about, if it is about a name
        pairs = [(note, None) if isinstance(note, str) else note for note in notes]
        self.diagnostic = Diagnostic(
            category, text, span.location, [(t, s.location if s else None) for t, s in pairs], help, severity
        )


class Diagnostics:
    """All findings of one assembly."""

    def __init__(self) -> None:
        self.found: list[Diagnostic] = []
        self._seen: set[tuple] = set()
        self._poisoned: set[str] = set()

    def poison(self, *names: str) -> None:
        """Names whose declaration failed: that they are unknown is no finding of its own."""
        self._poisoned.update(names)

    def add(self, finding: Problem | Diagnostic) -> None:
        """Record a finding; the same text at the same place (a repeated body) is recorded once."""
        item = finding.diagnostic if isinstance(finding, Problem) else finding
        if isinstance(finding, Problem) and item.category == "name" and finding.subject in self._poisoned:
            return
        key = (item.location, item.category, item.text)
        if key not in self._seen:
            self._seen.add(key)
            self.found.append(item)

    @property
    def errors(self) -> list[Diagnostic]:
        return self.sorted([item for item in self.found if item.severity == "error"])

    @property
    def warnings(self) -> list[Diagnostic]:
        return self.sorted([item for item in self.found if item.severity == "warning"])

    @staticmethod
    def sorted(items: list[Diagnostic]) -> list[Diagnostic]:
        """By file, line and column; findings without a place last, in the order they were made."""
        files = {item.location.file: n for n, item in reversed(list(enumerate(items))) if item.location}

        def key(item: Diagnostic) -> tuple:
            place = item.location
            return (0, files[place.file], place.line, place.column) if place else (1, 0, 0, 0)

        return sorted(items, key=key)

    def raise_if_rejected(self, sources: dict[str, str], program: str, strict: bool = False) -> None:
        """Raise AssemblyError if there is an error (with `strict`, or a warning)."""
        if strict:
            for item in self.found:
                item.severity = "error"
        if self.errors:
            raise AssemblyError(self.errors + self.warnings, sources, program)


class AssemblyError(Rejected):
    """A source that is refused. `diagnostics` are all findings, errors first; `str()` prints the first 20."""

    def __init__(self, diagnostics: list[Diagnostic], sources: dict[str, str], program: str = "") -> None:
        self.diagnostics = diagnostics
        shown = [item.render(sources, program) for item in diagnostics[:MOST_SHOWN]]
        if len(diagnostics) > MOST_SHOWN:
            shown.append(f"{program or 'program'}: {len(diagnostics) - MOST_SHOWN} more findings not shown")
        super().__init__("\n".join(shown), category=diagnostics[0].category)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`, if one is close enough to be a typing error."""
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return matches[0] if matches else None


def did_you_mean(name: str, known: Iterable[str], otherwise: str | None = None) -> str | None:
    """A help text for an unknown name."""
    known = list(known)
    match = nearest(name, known)
    if match:
        return f"did you mean `{match}`?"
    if otherwise is None and known and len(known) <= 12:
        return "known here: " + ", ".join(sorted(known))
    return otherwise
