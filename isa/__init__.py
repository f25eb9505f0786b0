"""The language of the machine: instruction table, numbers, assembler, images.

Names are imported when they are first used, so that `waferloom --help` does not load what it does not need.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "AssemblyError": "diagnostics",
    "assemble": "assembler",
    "assemble_file": "assembler",
    "assemble_text": "assembler",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f".{_HOME[name]}", __package__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
