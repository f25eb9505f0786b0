"""The code of a task as the builder collects it, and how Python values are written in the language.

Every method of `Code` that is named after an instruction adds one line of source; nothing is checked here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .diagnostics import did_you_mean
from .element_types import ElementType
from .errors import Usage
from .instructions import BY_NAME
from .lowering import ALIASES

_HERE = os.path.dirname(__file__)


class Code:
    """The code of a task. `t.add("r1", "r2", 5)`, `t.vadd(F32, "east", "west", "acc[i]")`.

    First the element types, then the operands as in source; `and_`, `or_` and `assert_` have an underscore.
    Keywords of vector instructions: `over={"i": 8}`, `thread=2`, `priority="high"`, `activate="t"` or
    `unblock="t"`, `group=32`.
    """

    def __init__(self, head: str) -> None:
        self._lines = [head]

    def __enter__(self) -> Code:
        return self

    def __exit__(self, *exception: object) -> None:
        return None

    def label(self, name: str) -> str:
        """Mark this place; returns the label's name."""
        self._lines.append(f"{name}:{caller()}")
        return name

    def word(self, *values: int) -> None:
        """Raw words in the code."""
        self._lines.append(f"  .word {', '.join(map(str, values))}{caller()}")

    def __getattr__(self, name: str) -> Callable[..., None]:
        mnemonic = name.removesuffix("_")
        if mnemonic not in BY_NAME and mnemonic not in ALIASES:
            help = did_you_mean(mnemonic, [*BY_NAME, *ALIASES])
            raise AttributeError(f"no instruction is called `{mnemonic}`" + (f"; {help}" if help else ""))

        def emit(*operands: Any, **suffixes: Any) -> None:
            types = [o.source_name for o in operands if isinstance(o, ElementType)]
            rest = ", ".join(operand_text(o) for o in operands if not isinstance(o, ElementType))
            text = f"{'.'.join([mnemonic, *types])} {rest}".rstrip()
            self._lines.append(f"  {text}{_suffixes(mnemonic, suffixes)}{caller()}")

        return emit

    def __dir__(self) -> list[str]:
        return sorted([*super().__dir__(), *BY_NAME, *ALIASES])


def _suffixes(mnemonic: str, given: dict[str, Any]) -> str:
    known = ("over", "thread", "priority", "activate", "unblock", "group")
    for name in given:
        if name not in known:
            raise Usage(f"`{mnemonic}` has no `{name}=`", help=did_you_mean(name, known))
    text = over_text(given.get("over"))
    for name, written in (("group", "group"), ("thread", "@"), ("priority", "priority")):
        if name in given:
            text += f" {written} {given[name]}"
    for action in ("activate", "unblock"):
        if action in given:
            text += f" then {action} {given[action]}"
    return text


def over_text(loops: Mapping[str, int | str] | None) -> str:
    """Loops as the language writes them behind an operand: ` over i: 4, j: 8`."""
    return " over " + ", ".join(f"{name}: {extent}" for name, extent in loops.items()) if loops else ""


def shape_text(shape: Sequence[int]) -> str:
    """A shape as the language writes it behind a type: `[4, 8]`; nothing for a scalar."""
    return f"[{', '.join(map(str, shape))}]" if len(shape) else ""


def operand_text(value: Any) -> str:
    """An operand as text: a string as it is, a number as the language writes it."""
    if isinstance(value, bool | np.bool_):
        return str(int(value))
    if isinstance(value, int | np.integer):
        return str(int(value))
    return repr(float(value)) if isinstance(value, float | np.floating) else str(value)


def caller() -> str:
    """A comment that names the Python line which made a statement."""
    frame = sys._getframe(1)
    while frame.f_back is not None and os.path.dirname(frame.f_code.co_filename) == _HERE:
        frame = frame.f_back
    return f"  ; {os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
