"""Opening a model for a command: the pinned one by default, a user's GGUF file, its grid and its plan."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from ..isa.errors import Usage
from .terminal import Progress, Terminal

if TYPE_CHECKING:
    from .weights.weight_file import WeightFile

__all__ = ["DEFAULT_MODEL", "grid_of", "open_model"]

DEFAULT_MODEL = "smollm2"  # a name of programs/weights/fetch.py


def open_model(name: str, terminal: Terminal) -> WeightFile:
    """A GGUF file by its path, or a pinned one by its name (fetched and checked if it must be)."""
    from .weights import open_gguf
    from .weights.fetch import PINNED, fetch

    if name in PINNED and not Path(name).exists():
        with Progress(terminal, name) as progress:
            return open_gguf(fetch(name, lambda what, done, total: progress.tick(what)))
    if not Path(name).suffix and not Path(name).exists():
        raise Usage(
            f"no model {name!r}", category="name", help=f"a GGUF file, or a pinned one: {', '.join(PINNED)}"
        )
    return open_gguf(name)


def grid_of(text: str | None) -> tuple[int, int] | None:
    """`12x12` as (columns, rows); None stays None."""
    if text is None:
        return None
    found = re.fullmatch(r"\s*(\d{1,5})\s*[x×,]\s*(\d{1,5})\s*", text)
    if not found:
        raise Usage(f"--grid {text}: COLUMNSxROWS is wanted, for example 12x12")
    return int(found[1]), int(found[2])
