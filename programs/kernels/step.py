"""A fragment of a layer as a kernel of its own: a small program around it, the same on every PE."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import lru_cache

from ...fabric.spec import MachineSpec
from ...fabric.wafer import Wafer
from ...isa.assembler import assemble_text
from ...isa.program import Program
from .all_reduce import COLUMN, FIRST_LINES, ROW, Axis, axis_bindings, axis_colours, axis_role, axis_routes
from .job import Data, Job

__all__ = ["Step", "began"]


class Step(Job):
    """A fragment on a grid of its own. Symbols are written and read by the host; no edge ports."""

    cols: int
    rows: int

    @property
    def source(self) -> str:
        return type(self).__name__.lower()

    @property
    def parameters(self) -> dict[str, int]:
        return {}

    @property
    def row(self) -> Axis:
        """The axis of a row; it meets at its end unless a kernel says otherwise."""
        return ROW.of(self.cols, self.cols - 1)

    @property
    def column(self) -> Axis:
        """The axis of a column."""
        return COLUMN.of(self.rows, self.rows // 2)

    @property
    @abstractmethod
    def symbols(self) -> Mapping[str, str]:
        """Declarations by name."""

    @property
    @abstractmethod
    def lines(self) -> list[str]:
        """The fragment."""

    @property
    def bindings(self) -> list[str]:
        """Scalars of a PE that the fragment asks for."""
        return []

    @property
    def queues(self) -> tuple[list[str], list[str]]:
        """Input and output queues besides those of rows and columns."""
        return [], []

    @property
    def colours(self) -> list[str]:
        """Colours besides those of rows and columns."""
        return []

    @property
    def routes(self) -> list[str]:
        """Routes besides those of rows and columns."""
        return []

    @property
    def text(self) -> str:
        """The program, as it can be saved and read."""
        colours = [*axis_colours(self.column), *axis_colours(self.row), *self.colours]
        inputs, outputs = self.queues
        bound = ["column_role = " + axis_role(self.column, "y"), "row_role = " + axis_role(self.row, "x")]
        bound += [*axis_bindings(self.column, "y"), *axis_bindings(self.row, "x"), *self.bindings]
        parts = [
            *([f".colour {', '.join(colours)}"] if colours else []),
            ".kernel step",
            ".queues",
            f"  in {', '.join([*COLUMN.inputs, *ROW.inputs, *inputs])}",
            f"  out {', '.join([*COLUMN.outputs, *ROW.outputs, *outputs])}",
            ".data",
            "  column_role: i32 = 0",
            "  row_role: i32 = 0",
            *(f"  {name}: {declaration}" for name, declaration in self.symbols.items()),
            ".code",
            "task start entry",
            *FIRST_LINES,
            f"  ld.i32 {COLUMN.role}, column_role",
            f"  ld.i32 {ROW.role}, row_role",
            *self.lines,
            "  done",
            "  end",
            ".layout",
            f"  grid {self.cols}, {self.rows}",
            "  place step at (*, *) {",
            *(f"    {binding}" for binding in bound),
            "  }",
            *(f"  {line}" for line in (*axis_routes(self.column, "y"), *axis_routes(self.row, "x"))),
            *(f"  {line}" for line in self.routes),
        ]
        return "\n".join(parts) + "\n"

    def program(self) -> Program:
        return _assembled(self.text, self.source)

    def load(self, wafer: Wafer, data: Data) -> None:
        for name, values in data.items():
            wafer.write(name, values)


@lru_cache(maxsize=64)
def _assembled(text: str, name: str) -> Program:
    return assemble_text(text, name=name)


def began(spec: MachineSpec) -> int:
    """First issue behind `FIRST_LINES` and the two roles."""
    return len(FIRST_LINES) + 2
