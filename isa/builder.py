"""Programs written in Python: a builder whose every call is one statement of the language.

The statements are collected as text and go through the assembler, so that operands, checks, messages and the
resulting `Program` are the same; `Builder.source` shows the text. NumPy arrays do not become text: they are
handed to the assembler by name. Instruction methods are the rows of the instruction table.

    b = Builder(4, 1)
    k = b.kernel("tile")
    k.output("east")
    k.data("acc", F32, (8,), init=0)
    with k.task("start", entry=True) as t:
        t.vmov(F32, "east", "acc")
        t.end()
    b.place(k, x=range(0, 3), east=b.colour("sums"))
    program = b.build()
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .assembler import _assemble
from .builder_code import Code, caller, operand_text, over_text, shape_text
from .diagnostics import Source
from .element_types import ElementType
from .errors import Usage
from .program import Descriptor, Program

__all__ = ["BF16", "F16", "F32", "I16", "I32", "Q4", "Q8", "Builder", "Code", "KernelBuilder"]

I16, I32, F16, F32, BF16, Q4, Q8 = ElementType
Number = int | float
Span = int | range | str | None  # None: all


class Builder:
    """A program of `width` x `height` PEs. Calls collect statements; `build` assembles them."""

    def __init__(self, width: int, height: int, name: str = "built", machine: str | None = None) -> None:
        self.width, self.height, self.name = width, height, name
        self._kernels: list[KernelBuilder] = []
        self._head: list[str] = [f'.machine "{machine}"'] * (machine is not None)
        self._layout: list[str] = [f"grid {width}, {height}"]
        self._arrays: dict[str, np.ndarray] = {}

    # --- declarations ---
    def colour(self, name: str, number: int | None = None) -> str:
        """Declare a colour; without a number it gets the lowest free one. Returns its name."""
        self._head.append(f".colour {name}" + ("" if number is None else f" = {number}") + caller())
        return name

    def kernel(self, name: str) -> KernelBuilder:
        """Start a kernel."""
        kernel = KernelBuilder(self, name)
        self._kernels.append(kernel)
        return kernel

    # --- layout ---
    def place(
        self,
        kernel: KernelBuilder | str,
        x: Span = None,
        y: Span = None,
        where: str | np.ndarray | None = None,
        bind: Mapping[str, Any] | None = None,
        **bindings: Any,
    ) -> None:
        """Put a kernel on a region and bind its queues (colours) and scalars (values).

        A value is a number, an expression in the language (`"x % 2 ? a : b"`), or an array [y, x] over the
        whole grid. `where`: an expression, or a bool array [y, x]. `bind`: for names such as `x`.
        """
        name = kernel if isinstance(kernel, str) else kernel.name
        region = _Region(self, x, y, where)
        pairs = {**(bind or {}), **bindings}.items()
        braces = ", ".join(f"{key} = {region.value(value)}" for key, value in pairs)
        self._layout.append(f"place {name} at {region.text} {{ {braces} }}{caller()}")

    def route(
        self,
        colour: str | int | np.ndarray,
        at: tuple[Span, Span] | np.ndarray,
        inputs: str | Sequence[str],
        *outputs: str,
        merge: bool = False,
        swap: bool = False,
    ) -> None:
        """What the routers of a region do with a colour. `at`: (x, y) or a bool array [y, x]."""
        self.switch(colour, at, (inputs, *outputs), merge=merge, swap=swap)

    def switch(
        self,
        colour: str | int | np.ndarray,
        at: tuple[Span, Span] | np.ndarray,
        *positions: Sequence[str | Sequence[str]],
        ring: bool = False,
        pop: bool = False,
        merge: bool = False,
        swap: bool = False,
    ) -> None:
        """A route of several positions, each `(inputs, output, ...)`; inputs: a port or several."""
        region = _Region(self, None, None, at) if isinstance(at, np.ndarray) else _Region(self, *at, None)
        texts = []
        for inputs, *outputs in positions:
            sources = inputs if isinstance(inputs, str) else ", ".join(inputs)
            texts.append(f"{sources} -> {', '.join(str(port) for port in outputs)}")
        flags = [flag for flag, on in (("ring", ring), ("pop", pop), ("merge", merge), ("swap", swap)) if on]
        text = " ".join([" | ".join(texts), *flags])
        self._layout.append(f"route {region.value(colour, True)} at {region.text}: {text}{caller()}")

    def input(
        self,
        name: str,
        side: str,
        colour: str | int,
        element: ElementType,
        shape: Sequence[int] = (),
        lanes: Span | Sequence[int] = None,
        single: bool = False,
    ) -> None:
        """A stream from the host into the routers of an edge; `shape`: elements per lane."""
        self._edge("input", name, side, colour, element, shape, lanes, single)

    def output(
        self,
        name: str,
        side: str,
        colour: str | int,
        element: ElementType,
        shape: Sequence[int] = (),
        lanes: Span | Sequence[int] = None,
        single: bool = False,
    ) -> None:
        """A stream from the routers of an edge to the host."""
        self._edge("output", name, side, colour, element, shape, lanes, single)

    def _edge(
        self,
        stream: str,
        name: str,
        side: str,
        colour: str | int,
        element: ElementType,
        shape: Sequence[int],
        lanes: Span | Sequence[int],
        single: bool,
    ) -> None:
        listed = isinstance(lanes, list | tuple | np.ndarray)
        where = f"[{', '.join(map(str, lanes))}]" if listed else _span(lanes)  # type: ignore[arg-type]
        kind = element.source_name + shape_text(shape) + (" single" if single else "")
        self._layout.append(f"{stream} {name} on {side} lanes {where} colour {colour}: {kind}{caller()}")

    # --- the result ---
    @property
    def source(self) -> str:
        """The statements so far, as the assembler reads them; `_a0` and the like stand for arrays."""
        lines = [*self._head]
        for kernel in self._kernels:
            lines += ["", *kernel.lines()]
        return "\n".join([*lines, "", ".layout", *(f"  {line}" for line in self._layout)]) + "\n"

    def build(self, strict: bool = False) -> Program:
        """Assemble and check. Raises AssemblyError with every finding, as the assembler does."""
        source = Source(f"<{self.name}>", self.source)
        return _assemble(source, self.name, (), strict, {}, self._arrays).program

    def _array(self, values: np.ndarray) -> str:
        name = f"_a{len(self._arrays)}"
        self._arrays[name] = values
        return name


class KernelBuilder:
    """A class of PEs: queues, data, tasks."""

    def __init__(self, builder: Builder, name: str) -> None:
        self.builder, self.name = builder, name
        self._first = f".kernel {name}{caller()}"
        self._queues: list[str] = []
        self._data: list[str] = []
        self._tasks: list[Code] = []

    def input(self, name: str, number: int | None = None) -> str:
        """Declare an input queue; returns its name."""
        return self._queue("in", name, number)

    def output(self, name: str, number: int | None = None) -> str:
        """Declare an output queue; returns its name."""
        return self._queue("out", name, number)

    def _queue(self, direction: str, name: str, number: int | None) -> str:
        self._queues.append(f"{direction} {name}" + ("" if number is None else f": {number}") + caller())
        return name

    def data(
        self,
        name: str,
        element: ElementType,
        shape: Sequence[int] = (),
        init: Number | Sequence | np.ndarray | None = None,
        export: bool = False,
        group: int | None = None,
        align: int | None = None,
        at: str | int | None = None,
    ) -> str:
        """Declare a symbol; `init` fills it (a number) or gives every element (an array of its shape)."""
        words = [f"{name}: {element.source_name}{shape_text(shape)}"]
        words += ["export"] * export
        words += [
            f"{key} {value}"
            for key, value in (("group", group), ("align", align), ("at", at))
            if value is not None
        ]
        if init is not None and np.ndim(init) == 0:
            words.append(f"= {operand_text(init)}")
        elif init is not None:
            values = np.asarray(init)
            if values.shape != tuple(shape):
                raise Usage(f"`{name}` has shape {list(shape)}, its values have shape {list(values.shape)}")
            words.append(f"= {self.builder._array(_plain(values).reshape(-1))}")
        self._data.append(" ".join(words) + caller())
        return name

    def fifo(self, name: str, element: ElementType, capacity: int, export: bool = False) -> str:
        """Declare a FIFO of `capacity` elements; returns its name."""
        self._data.append(f"{name}: fifo {element.source_name}[{capacity}]" + " export" * export + caller())
        return name

    def descriptor(
        self, name: str, value: str | Descriptor, over: Mapping[str, int | str] | None = None
    ) -> str:
        """Declare a stored descriptor: an operand expression, or a `Descriptor`; returns its name."""
        if isinstance(value, Descriptor):
            value = f"[{', '.join(map(str, value.halfwords))}]"
        self._data.append(f"{name}: descriptor {value}{over_text(over)}{caller()}")
        return name

    def task(
        self,
        name: str,
        *,
        entry: bool = False,
        data: str | None = None,
        control: int | None = None,
        blocked: bool = False,
        id: int | None = None,
        high: bool = False,
    ) -> Code:
        """Start a task: local, or bound to a queue (`data`), or for control wavelets (`control`: its id)."""
        words = [f"task {name}"]
        for word, value in (("data", data), ("control", control), ("id", id)):
            if value is not None:
                words.append(f"{word} {value}")
        words += ["entry"] * entry + ["blocked"] * blocked + ["priority high"] * high
        code = Code(" ".join(words) + caller())
        self._tasks.append(code)
        return code

    def lines(self) -> list[str]:
        """The kernel's statements."""
        lines = [self._first]
        for section, content in (("queues", self._queues), ("data", self._data)):
            if content:
                lines += [f".{section}", *(f"  {line}" for line in content)]
        return [*lines, ".code", *(f"  {line}" for task in self._tasks for line in task._lines)]


def _plain(values: np.ndarray) -> np.ndarray:
    """An array as expressions have them: 64-bit integers or reals."""
    return values.astype(np.float64 if values.dtype.kind == "f" else np.int64)


def _span(span: Any) -> str:
    """`*`, a number or a range of a region; a `range` excludes its end as in Python."""
    if span is None:
        return "*"
    if isinstance(span, range):
        if span.step < 1:
            raise Usage(f"{span!r}: the step of a region is at least 1")
        return f"{span.start}..{span.stop - 1}" + (f" step {span.step}" if span.step > 1 else "")
    return str(span)


class _Region:
    """A region as text, and arrays over the grid cut to it."""

    def __init__(self, builder: Builder, x: Span, y: Span, where: str | np.ndarray | None) -> None:
        self.builder, self.x, self.y, self.where = builder, x, y, where
        self.text = f"({_span(x)}, {_span(y)})"
        if isinstance(where, np.ndarray):
            self.text += f" where {builder._array(self._cut(where).astype(np.int64))}"
        elif where is not None:
            self.text += f" where {where}"

    def value(self, value: Any, bracketed: bool = False) -> str:
        """A number, an expression, or the name of an array with one value for each PE of the region."""
        if not isinstance(value, np.ndarray):
            text = operand_text(value)
            return f"({text})" if bracketed and not text.isidentifier() and not text.isdecimal() else text
        values = self._cut(value)
        if isinstance(self.where, str):
            raise Usage("an array of values needs a region of numbers", help="give `where` as a bool array")
        if self.where is not None:
            values = values[self._cut(self.where) != 0]
        return self.builder._array(_plain(values))

    def _cut(self, array: np.ndarray) -> np.ndarray:
        grid = (self.builder.height, self.builder.width)
        if array.shape != grid:
            raise Usage(f"an array of values has shape {list(array.shape)}, the grid [y, x] is {list(grid)}")
        return array[np.ix_(self._indices(self.y, grid[0]), self._indices(self.x, grid[1]))].reshape(-1)

    @staticmethod
    def _indices(span: Span, length: int) -> np.ndarray:
        if span is None:
            return np.arange(length)
        if isinstance(span, str):
            raise Usage(f"an array of values needs a region of numbers, not `{span}`")
        return np.arange(length)[np.array(span if isinstance(span, range) else [span], int)]
