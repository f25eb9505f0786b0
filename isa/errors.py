"""The errors of the whole project: one exception class per way a run can end badly, one exit code each.

`ENDS` is the only table of exit codes. It names no exception that ends the host process: callers raise,
the command line turns the class into an exit code.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple

__all__ = [
    "CATEGORIES",
    "ENDS",
    "End",
    "Fault",
    "Hang",
    "Internal",
    "Interrupted",
    "Limit",
    "Mismatch",
    "Rejected",
    "Usage",
    "WaferloomError",
    "end_of",
]


class End(NamedTuple):
    """One row: how a run ends (`name`, the value of `end` in JSON), its exit code, category, meaning."""

    name: str
    exit_code: int
    category: str  # of an error that names no category of its own
    meaning: str


ENDS: dict[str, End] = {
    row.name: row
    for row in (
        End("finished", 0, "", "all PEs done, checks passed"),
        End("mismatch", 1, "mismatch", "ran to the end but a golden value or a check failed"),
        End("usage", 2, "usage", "bad command line or call"),
        End("rejected", 3, "format", "input refused: assembly, route, capacity or file format error"),
        End("hang", 4, "hang", "deadlock or livelock, report attached"),
        End("limit", 5, "limit", "the cycle limit was reached"),
        End("fault", 6, "fault", "target fault: illegal operation, bounds, uninitialised read"),
        End("internal", 70, "internal", "bug in this tool"),
        End("interrupted", 130, "interrupted", "stopped by the user; results so far were written"),
    )
}

# The closed list of diagnostic categories. A run that ends by `mismatch`, `limit` or `interrupted` is no
# diagnostic about an input; its category is the name of its end.
CATEGORIES = (
    "syntax",
    "name",
    "range",
    "type",
    "resource",
    "route",
    "capacity",
    "format",
    "unsupported",
    "hang",
    "fault",
    "internal",
    "usage",
)
_LEGAL = frozenset(CATEGORIES) | {row.category for row in ENDS.values()} - {""}


class WaferloomError(Exception):
    """Base of every error raised on purpose.

    `message` is one sentence with its numbers and units, `notes` say why, `help` is the next step.
    `category` is one of `CATEGORIES` (or the end's own name), `exit_code` the one of the class's row.
    """

    end: ClassVar[str] = "internal"
    exit_code: ClassVar[int] = ENDS["internal"].exit_code

    category: str
    message: str
    notes: list[str]
    help: str | None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.exit_code = ENDS[cls.end].exit_code

    def __init__(
        self,
        message: str,
        *,
        category: str | None = None,
        notes: Iterable[str] = (),
        help: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.category = ENDS[self.end].category if category is None else category
        if self.category not in _LEGAL:
            raise ValueError(f"unknown error category {self.category!r}; known: {', '.join(sorted(_LEGAL))}")
        self.notes = list(notes)
        self.help = help

    def __str__(self) -> str:
        lines = [self.message, *(f"note: {note}" for note in self.notes)]
        if self.help:
            lines.append(f"help: {self.help}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[Any, ...]:
        # Subclasses may have other constructors; errors must still cross from a stage's host process.
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(cls: type[WaferloomError], args: tuple[Any, ...], state: dict[str, Any]) -> WaferloomError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(state)
    return error


class Mismatch(WaferloomError):
    """The run finished, but a result differs from its golden value or a check failed."""

    end = "mismatch"


class Usage(WaferloomError):
    """The command line or a call is wrong: names the option or argument and its legal values."""

    end = "usage"


class Rejected(WaferloomError):
    """An input was refused before anything ran: assembly, route, capacity or file format error."""

    end = "rejected"


class Hang(WaferloomError):
    """Nothing can progress any more (deadlock), or wavelets move without any work done (livelock)."""

    end = "hang"


class Limit(WaferloomError):
    """The given number of cycles was reached before the program ended."""

    end = "limit"


class Fault(WaferloomError):
    """A PE did something illegal: illegal operation, access out of bounds, uninitialised read."""

    end = "fault"


class Internal(WaferloomError):
    """A bug in this tool, never the user's fault: ask for the report file."""

    end = "internal"


class Interrupted(WaferloomError):
    """The user stopped the run; results so far were written."""

    end = "interrupted"


def end_of(error: WaferloomError | type[WaferloomError]) -> End:
    """The row of `ENDS` to which an error, or a class of errors, belongs."""
    return ENDS[error.end]
