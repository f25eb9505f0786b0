"""Steps of a layer as kernels of their own: RMSNorm, rotary position, SiLU gate; all-reduce beside them.

`AllReduce.cycles` is exact. The others' `cycles` leave out bank clashes and the filling of queues: they are
within 20 per cent of a run (tests/test_programs_kernels_steps.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...fabric.result import Result
from ...fabric.spec import MachineSpec
from ...fabric.wafer import Wafer
from ...isa.errors import Usage
from .all_reduce_step import AllReduce
from .cycles import Bound, distance, hop, memory_groups
from .job import Data, at_least_one
from .rms_norm import normalised, rms_norm
from .rope import next_rotation, rope, rotated, turned
from .silu_gate import silu_gate, silu_gated
from .step import Step, began

__all__ = ["AllReduce", "RmsNorm", "RotaryPosition", "SiluGate"]


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
        t = began(spec) + 1 + lead("fill") + 2
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
        t = began(spec) + 6 + 2 * lead("elementwise") + math.ceil((n + d) / rate["f32_mul"])
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
        t = began(spec) + 6 + 2 * (1 + lead("elementwise") + math.ceil(n / rate["f32_add"]))
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
