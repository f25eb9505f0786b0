"""The language of the machine: instruction table, numbers, assembler, images.

Names are imported when they are first used, so that `waferloom --help` does not load what it does not need.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "AssemblyError": "diagnostics",
    "Builder": "builder",
    "assemble": "assembler",
    "assemble_file": "assembler",
    "assemble_text": "assembler",
    "disassemble": "source_writer",
    "load_image": "image",
    "save_image": "image",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f".{_HOME[name]}", __package__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
