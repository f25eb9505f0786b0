"""The steps of a layer as kernels of their own: each fragment in a small program, with golden twin and bound.

`AllReduce.cycles` is exact. The others' `cycles` leave out bank clashes and the filling of queues: they are
within 20 per cent of a run (tests/test_programs_kernels_steps.py).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from ...fabric.result import Result
from ...fabric.spec import MachineSpec
from ...fabric.wafer import Wafer
from ...isa.assembler import assemble_text
from ...isa.errors import Usage
from ...isa.float32 import max32
from ...isa.program import Program
from .all_reduce import (
    COLUMN,
    FIRST_LINES,
    ROW,
    Axis,
    Vector,
    all_reduce,
    axis_bindings,
    axis_colours,
    axis_role,
    axis_routes,
    sum_in_chains,
)
from .cycles import Bound, distance, hop, memory_groups, queue
from .job import Data, Job, at_least_one
from .rms_norm import normalised, rms_norm
from .rope import next_rotation, rope, rotated, turned
from .silu_gate import silu_gate, silu_gated

__all__ = ["AllReduce", "RmsNorm", "RotaryPosition", "SiluGate", "Step"]


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
    def text(self) -> str:
        """The program, as it can be saved and read."""
        colours = [*axis_colours(self.column), *axis_colours(self.row)]
        bound = ["column_role = " + axis_role(self.column, "y"), "row_role = " + axis_role(self.row, "x")]
        bound += [*axis_bindings(self.column, "y"), *axis_bindings(self.row, "x"), *self.bindings]
        parts = [
            *([f".colour {', '.join(colours)}"] if colours else []),
            ".kernel step",
            ".queues",
            f"  in {', '.join([*COLUMN.inputs, *ROW.inputs])}",
            f"  out {', '.join([*COLUMN.outputs, *ROW.outputs])}",
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


def _began(spec: MachineSpec) -> int:
    """First issue behind `FIRST_LINES` and the two roles."""
    return len(FIRST_LINES) + 2


@dataclass(frozen=True)
class AllReduce(Step):
    """Sums, or maxima, of `words` f32 of every PE of a line, on all of them. Operand and output `v`.

    `along` is `row` or `column`; sums meet at the PE `meet`, 0 .. pes - 1.
    """

    pes: int
    words: int
    meet: int = 0
    along: str = "column"
    lines_of_pes: int = 1
    largest: bool = False

    def __post_init__(self) -> None:
        at_least_one(pes=self.pes, words=self.words, lines_of_pes=self.lines_of_pes)
        if self.along not in ("row", "column") or not 0 <= self.meet < self.pes:
            raise Usage(f"along {self.along}, meeting at PE {self.meet} of {self.pes}", category="range")

    @property
    def cols(self) -> int:  # type: ignore[override]
        """Columns of the grid."""
        return self.pes if self.along == "row" else self.lines_of_pes

    @property
    def rows(self) -> int:  # type: ignore[override]
        """Rows of the grid."""
        return self.lines_of_pes if self.along == "row" else self.pes

    @property
    def axis(self) -> Axis:
        """The line."""
        return (ROW if self.along == "row" else COLUMN).of(self.pes, self.meet)

    @property
    def row(self) -> Axis:
        return self.axis if self.along == "row" else ROW.of(1, 0)

    @property
    def column(self) -> Axis:
        return self.axis if self.along == "column" else COLUMN.of(1, 0)

    @property
    def symbols(self) -> Mapping[str, str]:
        return {"v": f"f32[{self.words}] export"}

    @property
    def lines(self) -> list[str]:
        v = Vector("v[i]", f"i:{self.words}")
        # Without a chain there is a queue that no instruction uses; the roles decide as in a layer.
        return all_reduce(self.axis, v, "all", "vmax.f32" if self.largest else "vadd.f32")

    def example(self, seed: int = 0) -> Data:
        shape = (self.rows, self.cols, self.words)
        return {"v": np.random.default_rng(seed).standard_normal(shape, np.float32)}

    def gather(self, wafer: Wafer, result: Result) -> dict[str, np.ndarray]:
        return {"v": wafer.read("v")}

    def golden(self, data: Data) -> dict[str, np.ndarray]:
        v = np.asarray(data["v"])
        parts = v.swapaxes(0, 1) if self.along == "row" else v
        if self.largest:
            total = parts[0]
            for part in parts[1:]:
                total = max32(total, part)
        else:
            total = sum_in_chains(parts, self.meet)
        out = np.broadcast_to(total, parts.shape)
        return {"v": np.ascontiguousarray(out.swapaxes(0, 1) if self.along == "row" else out)}

    def cycles(self, spec: MachineSpec) -> int:
        """PE by PE along both sides: each adds as its wavelets come in; then the copies."""
        if self.pes == 1:
            return _began(spec) + 2
        taken, missed, n = spec.engine.branch_taken, spec.engine.branch_not_taken, self.words
        add, copy = spec.lead("elementwise"), spec.lead("copy")
        start = _began(spec)
        first: list[int] = []  # first issue of the PE next to the meeting one, per side
        for inner in (self.meet, self.pes - 1 - self.meet):
            if inner:
                begin = start + missed + taken + 2 + copy  # the PE at the end
                link = start + 2 * missed + 3 + add
                for _ in range(inner - 1):
                    begin = max(begin + hop(spec), link)
                first.append(begin)
        t = start + taken
        for side, begin in enumerate(first):  # `before`, then `other`
            t = max(t + 2 + add, begin + hop(spec)) + n
            if side == 0 and len(first) == 2:
                t += self._taken_by_other(spec, begin - first[1])
        out = t + 2 + copy  # first copy
        ends = [out + n - 1 + taken + 1]  # the meeting PE's `done`, one cycle after the branch
        for inner in (self.meet, self.pes - 1 - self.meet):
            for k in range(1, inner + 1):
                ends.append(out + distance(spec, k) + n)
        return max(ends) + 2

    def _taken_by_other(self, spec: MachineSpec, later: int) -> int:
        """Cycles of the ramp that the other side's wavelets take while the first stream, `later` by so much,
        comes in: until their queue is full. At the same time the lower port is first: north, or east."""
        number = [*COLUMN.inputs, *ROW.inputs].index(self.axis.other)
        if later < 0:
            return max(0, min(self.words + later, queue(spec, number)))
        behind = later == 0 and self.along == "column"
        return max(0, min(self.words - behind, queue(spec, number)) - later)

    def bound(self, spec: MachineSpec) -> Bound:
        """Every PE takes in the result once and gives its values once; half the line there and back."""
        if self.pes == 1:
            return Bound(0, 0, 0)
        way = 2 * distance(spec, 1) + 2 * spec.fabric.hop * (self.pes // 2 - 1)
        return Bound(self.words, self.words, way)


@dataclass(frozen=True)
class RmsNorm(Step):
    """Operands `hidden` float16 (rows, 1, values) alike in all columns, `norm` float32; output `x`."""

    cols: int
    rows: int
    values: int
    eps: float = 1e-5

    def __post_init__(self) -> None:
        at_least_one(cols=self.cols, rows=self.rows, values=self.values)
        if self.values % 4:
            raise Usage(f"{self.values} values of a row are not a multiple of 4", category="range")

    @property
    def symbols(self) -> Mapping[str, str]:
        return {
            "hidden": f"f16[{self.values}] export", "norm": f"f32[{self.values}] export",
            "x": f"f16[{self.values}] export", "wide": f"f32[{self.values}]",
            "squares": "f32[8]", "square": "f32[1]",
        }  # fmt: skip

    @property
    def lines(self) -> list[str]:
        return rms_norm("norm", self.values, self.rows * self.values, self.eps, self.column)

    def example(self, seed: int = 0) -> Data:
        """Of the size of a real residual: its squares overflow f16."""
        rng = np.random.default_rng(seed)
        shape = (self.rows, self.cols, self.values)
        hidden = (1e3 * rng.standard_normal((self.rows, 1, self.values))).astype(np.float16)
        norm = rng.uniform(0.5, 1.5, (self.rows, 1, self.values)).astype(np.float32)
        return {
            name: np.ascontiguousarray(np.broadcast_to(values, shape))
            for name, values in (("hidden", hidden), ("norm", norm))
        }

    def gather(self, wafer: Wafer, result: Result) -> dict[str, np.ndarray]:
        return {"x": wafer.read("x")}

    def golden(self, data: Data) -> dict[str, np.ndarray]:
        total = self.rows * self.values
        x = normalised(data["hidden"][:, 0], data["norm"][:, 0], total, self.eps, self.column.meet)
        return {"x": np.repeat(x[:, None], self.cols, axis=1)}

    def cycles(self, spec: MachineSpec) -> int:
        lead, rate, n = spec.lead, spec.rate, self.values
        t = _began(spec) + 1 + lead("fill") + 2
        t += 2 + lead("mac") + math.ceil(n / rate["mixed_mac"]) + 2 + lead("reduce") + int(8 / rate["reduce"])
        t += spec.engine.writeback
        weigh = 2 + lead("copy") + math.ceil(n / rate["convert"]) + 2 + lead("elementwise")
        weigh += math.ceil(n / rate["f32_mul"])
        if self.rows > 1:
            far = max(self.column.meet, self.column.last - self.column.meet)
            t += 6 + 2 + lead("copy") + hop(spec) * far + 2 * (2 + lead("copy"))
            t += max(weigh, distance(spec, far)) + 2 + lead("copy")
        else:
            t += weigh
        t += 4 + 3 * spec.engine.fp_latency + spec.special["rsqrt"]
        t += 1 + lead("elementwise") + math.ceil(n / rate["f32_mul"])
        return t + 2 + lead("copy") + math.ceil(n / rate["convert"]) + 2

    def bound(self, spec: MachineSpec) -> Bound:
        """A multiply-add and two multiplications per value; half a column there and back."""
        compute = memory_groups(self.values, spec.rate["mixed_mac"])
        compute += 2 * memory_groups(self.values, spec.rate["f32_mul"])
        way = 2 * distance(spec, self.rows // 2) if self.rows > 1 else 0
        return Bound(compute, 1, way)


@dataclass(frozen=True)
class RotaryPosition(Step):
    """RoPE on `vectors` of `dims` f32 on every PE, then the next angles.

    Operands `sums` f32, `rotation` and `step`; outputs `rotated` and the next `rotation`.
    """

    cols: int
    rows: int
    vectors: int
    dims: int

    def __post_init__(self) -> None:
        at_least_one(cols=self.cols, rows=self.rows, vectors=self.vectors, dims=self.dims)
        if self.dims % 2:
            raise Usage(f"{self.dims} dimensions are not pairs", category="range")

    @property
    def symbols(self) -> Mapping[str, str]:
        count, half = self.vectors * self.dims, self.dims // 2
        return {
            "sums": f"f32[{count}] align 32 export", "rotated": f"f32[{count}] export",
            "rotation": f"f32[3, {half}] export", "step": f"f32[2, {half}] export",
            "turned": f"f32[2, {half}]",
        }  # fmt: skip

    @property
    def lines(self) -> list[str]:
        return [*rope(self.vectors, self.dims), *next_rotation(self.dims)]

    def example(self, seed: int = 0) -> Data:
        rng = np.random.default_rng(seed)
        pes, half = (self.rows, self.cols), self.dims // 2
        angle, step = rng.uniform(-3, 3, (2, *pes, half))
        return {
            "sums": rng.standard_normal((*pes, self.vectors * self.dims), np.float32),
            "rotation": np.stack([-np.sin(angle), np.cos(angle), np.sin(angle)], 2).astype(np.float32),
            "step": np.stack([np.cos(step), np.sin(step)], 2).astype(np.float32),
        }

    def gather(self, wafer: Wafer, result: Result) -> dict[str, np.ndarray]:
        return {"rotated": wafer.read("rotated"), "rotation": wafer.read("rotation")}

    def golden(self, data: Data) -> dict[str, np.ndarray]:
        pes = self.rows * self.cols
        rotation = data["rotation"].reshape(pes, 3, -1)
        sums = data["sums"].reshape(pes, self.vectors, self.dims)
        after = turned(rotation, data["step"].reshape(pes, 2, -1))
        return {
            "rotated": rotated(sums, rotation).reshape(data["sums"].shape),
            "rotation": after.reshape(data["rotation"].shape),
        }

    def cycles(self, spec: MachineSpec) -> int:
        lead, rate, n, d = spec.lead, spec.rate, self.vectors * self.dims, self.dims
        t = _began(spec) + 6 + 2 * lead("elementwise") + math.ceil((n + d) / rate["f32_mul"])
        t += 6 + 2 * lead("mac_f32") + math.ceil((n + d) / rate["f32_mac"])
        t += 4 + lead("copy") + math.ceil(d / rate["f32_add"])
        return t + lead("elementwise") + math.ceil(d / 2 / rate["f32_add"]) + 2

    def bound(self, spec: MachineSpec) -> Bound:
        """A multiplication and a multiply-add per value."""
        n = (self.vectors + 1) * self.dims
        return Bound(memory_groups(n, spec.rate["f32_mul"]) + memory_groups(n, spec.rate["f32_mac"]), 0, 0)


@dataclass(frozen=True)
class SiluGate(Step):
    """silu(gate) * up of a column's neurons, shared out over its rows and gathered on all of them.

    Operand `sums` float32 (cols, 2 * neurons), alike in a column; output `neurons` float16.
    """

    cols: int
    rows: int
    neurons: int

    def __post_init__(self) -> None:
        at_least_one(cols=self.cols, rows=self.rows, neurons=self.neurons)
        if self.neurons % 2:
            raise Usage(f"{self.neurons} neurons do not fill wavelets: an even number is needed")

    @cached_property
    def share(self) -> int:
        """Neurons of a row, even."""
        return 2 * math.ceil(self.neurons / (2 * self.rows))

    @property
    def symbols(self) -> Mapping[str, str]:
        gathered = self.rows * self.share
        return {
            "gate_at": "i32 = 0", "behind": "i32 = 0", "sums": f"f32[{2 * gathered}] export",
            "gate": f"f32[{self.share}]", "gated": f"f16[{self.share}]",
            "neurons": f"f16[{gathered}] export",
        }  # fmt: skip

    @property
    def bindings(self) -> list[str]:
        meet, last = self.column.meet, self.column.last
        return [
            f"gate_at = {8 * self.share} * y",
            f"behind = {self.share} * (y < {meet} ? y : {last} - y)",
        ]

    @property
    def lines(self) -> list[str]:
        return silu_gate(self.neurons, self.share, self.column)

    def example(self, seed: int = 0) -> Data:
        """Gates from far below to far above zero."""
        sums = np.zeros((self.cols, 2 * self.rows * self.share), np.float32)
        sums[:, : 2 * self.neurons] = 20 * np.random.default_rng(seed).standard_normal(
            (self.cols, 2 * self.neurons)
        )
        shape = (self.rows, *sums.shape)
        return {"sums": np.ascontiguousarray(np.broadcast_to(sums, shape))}

    def gather(self, wafer: Wafer, result: Result) -> dict[str, np.ndarray]:
        return {"neurons": wafer.read("neurons")[..., : self.neurons]}

    def golden(self, data: Data) -> dict[str, np.ndarray]:
        gated = silu_gated(data["sums"][0])[:, : self.neurons]
        return {"neurons": np.repeat(gated[None], self.rows, axis=0)}

    def cycles(self, spec: MachineSpec) -> int:
        lead, rate, n = spec.lead, spec.rate, self.share
        t = _began(spec) + 6 + 2 * (1 + lead("elementwise") + math.ceil(n / rate["f32_add"]))
        t += 2 * (1 + lead("special") + math.ceil(n / rate["special"]))
        t += 2 * (1 + lead("elementwise") + math.ceil(n / rate["f32_mul"]))
        t += 2 + lead("copy") + math.ceil(n / rate["convert"])
        if self.rows == 1:
            return t + 2
        others, far = (self.rows - 1) * n // 2, max(self.column.meet, self.column.last - self.column.meet)
        t += spec.engine.branch_taken + 2 * (2 + lead("copy")) + math.ceil(n / rate["f16_add"]) + others
        if 0 < self.column.meet < self.column.last:
            t += 2 + lead("copy")
        t += 2 + lead("copy") + math.ceil(self.neurons / 2) + distance(spec, far)
        return t + 2

    def bound(self, spec: MachineSpec) -> Bound:
        """Two special functions per neuron of the share; the gathered values into every PE."""
        even = math.ceil(self.neurons / self.rows)
        compute = 2 * memory_groups(even, spec.rate["special"])
        link = math.ceil(self.neurons / 2) if self.rows > 1 else 0
        return Bound(compute, link, 2 * distance(spec, self.rows // 2) if self.rows > 1 else 0)
