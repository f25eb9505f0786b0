"""What the engine keeps of a program from one run to the next: decoded code, fabric, links it learnt about.

A model runs the same programs thousands of times. Nothing here changes a result; it goes with the program.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from ...isa.program import Program

Value = TypeVar("Value")
_kept: dict[int, dict[Hashable, Any]] = {}


def kept(program: Program, key: Hashable, make: Callable[[], Value]) -> Value:
    """The value kept under `key` for this program; made on first use. All callers share it."""
    values = _kept.get(id(program))
    if values is None:
        values = _kept[id(program)] = {}
        weakref.finalize(program, _kept.pop, id(program), None)
    if key not in values:
        values[key] = make()
    return values[key]
