"""The machine: wafers, machine files, results.

Names are imported when they are first used, so that a tool loads only what it needs.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "MachineSpec": "spec",
    "Result": "result",
    "Wafer": "wafer",
    "machine": "spec",
    "parse_machine": "spec",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
