"""GEMV, y = W x, with the weights spread over the grid in f32, f16, 8 bits or 4 bits.

Rows of PEs split the outputs, columns of PEs the inputs: PE (x, y) keeps one tile. Activations enter at the
north edge and are copied down each column; sums travel east along each row and leave at the east edge.
Any sizes: tiles are filled up with zero weights that meet zero activations, and outputs that no row of the
matrix belongs to are dropped by `gather`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import numpy as np

from ...fabric.result import Result
from ...fabric.spec import MachineSpec
from ...fabric.wafer import Wafer
from ...isa.dequantise import GROUP_SIZES
from ...isa.errors import Usage
from ...isa.float16 import mac_f32_f16
from ...isa.float32 import add32, fma32
from ..weights.groups import Groups, Kind, Tiling, ceil_div, group_bytes
from .cycles import Bound, Walk, length, memory_groups, multiply_add_groups, queue
from .dequantise import random_groups, weights_of
from .job import Data, Job, at_least_one
from .reduction import chain_starts

__all__ = ["Gemv", "GemvKind", "widest_group"]

GemvKind = Literal["q4", "q8", "f16", "f32"]
SUMS = 8  # outputs that one pass over a tile's inputs works on; the engine keeps their sums
OVERHEAD_BYTES = 512  # of a GEMV kernel: descriptors, scalars, alignment and code, at most
BANK_BYTES = 4


@dataclass(frozen=True)
class Gemv(Job):
    """y (outputs,) = W (outputs, inputs) x (inputs,) on `cols` x `rows` PEs.

    Operands: `x`, float16 (float32 for kind f32), and `w`: a matrix of that type, or `Groups` of `group`
    weights for kinds q4 and q8. Output: `y` float32. `slice_rows`: outputs of a PE whose weights are f16 at
    a time, 0 for all; `Gemv.on` chooses it.
    """

    outputs: int
    inputs: int
    cols: int
    rows: int
    kind: GemvKind = "q4"
    group: int = 32
    slice_rows: int = 0

    def __post_init__(self) -> None:
        at_least_one(outputs=self.outputs, inputs=self.inputs, cols=self.cols, rows=self.rows)
        if self.kind not in ("q4", "q8", "f16", "f32"):
            raise Usage(f"no GEMV of kind {self.kind!r}; legal: q4, q8, f16, f32", category="name")
        if self.slice_rows < 0 or self.slice_rows % SUMS:
            raise Usage(f"slice_rows is {self.slice_rows}: a multiple of {SUMS} is needed", category="range")

    @classmethod
    def on(cls, spec: MachineSpec, outputs: int, inputs: int, cols: int, rows: int, **options: Any) -> Gemv:
        """The GEMV with the fewest slices that a PE of this machine holds; Usage if none does."""
        job = cls(outputs, inputs, cols, rows, **options)
        eights = ceil_div(job.tiling.out_tile, SUMS)
        for slices in range(1, eights + 1 if job.quantised else 2):
            fitting = replace(job, slice_rows=ceil_div(eights, slices) * SUMS)
            if fitting.tile_bytes <= spec.sram.bytes:
                return fitting
        raise Usage(
            f"a tile of {job.tiling.out_tile} x {job.tile_inputs} weights in {job.kind} needs "
            f"{fitting.tile_bytes} bytes per PE, {spec.sram.bytes} are there",
            category="resource",
            help=f"spread the matrix over more than {cols} x {rows} PEs",
        )

    # --- a tile ---

    @property
    def quantised(self) -> bool:
        """Whether weights become f16 on the wafer."""
        return self.kind in ("q4", "q8")

    @functools.cached_property
    def tiling(self) -> Tiling:
        """Tiles of whole groups; of whole pairs of inputs for f16, since two activations share a wavelet."""
        size = self.group if self.quantised else 2 if self.kind == "f16" else 1
        return Tiling.of(self.outputs, self.inputs, self.rows, self.cols, size)

    @property
    def tile_inputs(self) -> int:
        """Inputs of one PE, padding included."""
        return self.tiling.in_tile

    @property
    def slice(self) -> int:
        """Outputs of a PE whose weights are f16 at a time."""
        return self.slice_rows or ceil_div(self.tiling.out_tile, SUMS) * SUMS

    @property
    def slices(self) -> int:
        """How often a PE turns a slice of its weights into f16."""
        return ceil_div(self.tiling.out_tile, self.slice)

    @property
    def tile_outputs(self) -> int:
        """Rows of weights of one PE, padding included; only `tiling.out_tile` sums leave."""
        if self.kind == "f32":
            return self.tiling.out_tile
        return self.slices * self.slice if self.quantised else ceil_div(self.tiling.out_tile, SUMS) * SUMS

    @property
    def pitch(self) -> int:
        """Elements from one row of multiplied weights to the next: 4 modulo 8 for f16, for the banks."""
        return self.tile_inputs if self.kind == "f32" else self.tile_inputs + (12 - self.tile_inputs % 8) % 8

    @property
    def tile_bytes(self) -> int:
        """SRAM of one PE, code included, rounded up."""
        width = 4 if self.kind == "f32" else 2
        multiplied = self.slice if self.quantised else self.tile_outputs
        used = OVERHEAD_BYTES + 4 * self.tile_outputs + width * (self.tile_inputs + multiplied * self.pitch)
        if self.quantised:
            groups = self.tile_inputs // self.group
            used += self.tile_outputs * groups * group_bytes(cast(Kind, self.kind), self.group)
        return used

    # --- program and data ---

    @property
    def source(self) -> str:
        return "gemv_quantised" if self.quantised else f"gemv_{self.kind}"

    @property
    def parameters(self) -> dict[str, int]:
        sizes = {"cols": self.cols, "rows": self.rows, "m": self.tiling.out_tile, "k": self.tile_inputs}
        if self.quantised:
            sizes |= {"bits": int(self.kind[1:]), "group_size": self.group}
            sizes |= {"slices": self.slices, "slice": self.slice}
        return sizes

    def example(self, seed: int = 0) -> Data:
        """Weights of about -1 to 1 and normal activations."""
        rng = np.random.default_rng(seed)
        dtype = np.float32 if self.kind == "f32" else np.float16
        x = rng.standard_normal(self.inputs).astype(dtype)
        if not self.quantised:
            return {"w": rng.uniform(-1, 1, (self.outputs, self.inputs)).astype(dtype), "x": x}
        kind, shape = cast(Kind, self.kind), (self.outputs, ceil_div(self.inputs, self.group))
        blocks = random_groups(rng, kind, self.group, shape)
        return {"w": Groups("example", kind, self.group, self.inputs, blocks), "x": x}

    def load(self, wafer: Wafer, data: Data) -> None:
        if self.quantised:
            if data["w"].kind != self.kind:
                raise Usage(
                    f"weights are {data['w'].kind} groups, this GEMV is for {self.kind}", category="type"
                )
            wafer.write("wq", self._rows_filled(self.tiling.split_groups(data["w"])))
            return
        tiles = self._rows_filled(self.tiling.split_matrix(data["w"]))
        wafer.write("w", np.pad(tiles, ((0, 0), (0, 0), (0, 0), (0, self.pitch - self.tile_inputs))))

    def feeds(self, data: Data) -> dict[str, np.ndarray]:
        return {"x": self.tiling.split_input(data["x"])}

    def gather(self, wafer: Wafer, result: Result) -> dict[str, np.ndarray]:
        return {"y": self.tiling.join_output(result["y"])}

    def _rows_filled(self, tiles: np.ndarray) -> np.ndarray:
        """Tiles with zero weights up to `tile_outputs` rows."""
        more = self.tile_outputs - self.tiling.out_tile
        return np.pad(tiles, ((0, 0), (0, 0), (0, more), *([(0, 0)] * (tiles.ndim - 3)))) if more else tiles

    # --- golden twin ---

    def golden(self, data: Data) -> dict[str, np.ndarray]:
        """Inputs in order within a PE, all PEs at once, then PEs from west to east."""
        return {"y": self.golden_many(data["w"], data["x"][None])[0]}

    def golden_many(self, w: np.ndarray | Groups, vectors: np.ndarray) -> np.ndarray:
        """`golden` for several activations (n, inputs), float32 (n, outputs); weights become f16 once."""
        if isinstance(w, Groups):
            weights = weights_of(cast(Kind, self.kind), self.tiling.split_groups(w))
        else:
            weights = self.tiling.split_matrix(w)
        by_input = np.ascontiguousarray(np.moveaxis(weights, 3, 0))  # (inputs, rows, cols, outputs) of a tile
        return np.stack([self._golden(by_input, self.tiling.split_input(x)) for x in vectors])

    def _golden(self, weights: np.ndarray, x: np.ndarray) -> np.ndarray:
        sums = np.zeros(weights.shape[1:], np.float32)  # (rows, cols, outputs of a tile)
        for j, column in enumerate(weights):
            activation = x[None, :, j, None]
            if self.kind == "f32":
                sums = fma32(column, activation, sums)
            else:
                sums = mac_f32_f16(sums, column, activation)
        total = sums[:, 0]
        for east in range(1, self.cols):
            total = add32(total, sums[:, east])
        return self.tiling.join_output(np.ascontiguousarray(total))

    # --- cycles ---

    def cycles(self, spec: MachineSpec) -> int:
        """The south-most row is last: x in, multiply, then the chain of sums to the east edge."""
        t = self._multiplied(spec, self._received(spec))
        head = t + spec.engine.branch_not_taken + 2 + spec.lead("copy")
        link = t + spec.engine.branch_taken + 3 + spec.lead("elementwise")
        first = chain_starts(spec, head, link, self.cols)
        return length(spec, first + self.tiling.out_tile - 1, leaves=True)

    @property
    def wavelets(self) -> int:
        """Wavelets of activations into each PE."""
        return self.tile_inputs if self.kind == "f32" else self.tile_inputs // 2

    def _received(self, spec: MachineSpec) -> int:
        """The cycle after the last row's last activation was stored.

        A row's first one can be stored at `ready`, or when it is there. While the north-most PE is not ready
        its queue fills and then stops the column; what comes after that starts on its way when it is emptied.
        """
        ready = (
            3 + spec.lead("fill") + memory_groups(self.tile_outputs, spec.rate["f32_add"])
        )  # sums are zero
        if self.quantised and self.slices == 1:
            ready += self._dequantised(spec) + 2
        ready += 2 + spec.lead("copy")
        way = spec.fabric.hop * (self.rows - 1) + spec.fabric.ramp_down
        first = max(ready, spec.fabric.hop + way)
        held = queue(spec, 0)
        if self.wavelets > held:
            first = max(first, ready + 1 - held + way)
        return first + self.wavelets

    def _dequantised(self, spec: MachineSpec) -> int:
        """From the dispatch of `vdeq` on one slice to the next instruction."""
        return spec.lead("dequantise") + memory_groups(self.slice * self.tile_inputs, spec.rate["dequantise"])

    def _multiplied(self, spec: MachineSpec, t: int) -> int:
        """The cycle after the last group of multiply-adds, if `t` is the first after the activations."""
        if self.kind == "f32":
            return t + 3 + spec.lead("mac_f32") + self._groups(spec)
        once = spec.lead("mac") + self._groups(spec)
        if self.slices == 1:
            return t + 3 + once
        # five `ldd` and `li`; then per slice vdeq, vmac, addi and the branch back, not taken by the last one
        again = self._dequantised(spec) + once + 1
        taken = spec.engine.branch_taken * (self.slices - 1) + spec.engine.branch_not_taken
        return t + 6 + again * self.slices + taken

    def _groups(self, spec: MachineSpec) -> int:
        """Cycles of all groups of one `vmac`."""
        k, m = self.tile_inputs, self.slice if self.quantised else self.tile_outputs
        if self.kind == "f32":
            weights = Walk(_aligned(4 * m), (m * k,), (4,))
            x = Walk(weights.base + 4 * m * k + BANK_BYTES, (m, k), (0, 4))
            sums = Walk(0, (m, k), (4, 0))
            return multiply_add_groups(spec, "f32_mac", sums, (weights, x), sum_bytes=4, bytes=4)
        # Every eight outputs start in the same bank, so one eight stands for all.
        weights = Walk(0, (k, SUMS), (2, 2 * self.pitch))
        x = Walk(BANK_BYTES, (k, SUMS), (2, 0))
        sums = Walk(0, (k, SUMS), (0, 4))
        return m // SUMS * multiply_add_groups(spec, "mixed_mac", sums, (weights, x), sum_bytes=4, bytes=2)

    def bound(self, spec: MachineSpec) -> Bound:
        """Multiply-adds at their rate (and turning weights into f16), wavelets of x and y, the way across."""
        share = ceil_div(self.outputs * self.inputs, self.cols * self.rows)
        compute = memory_groups(share, spec.rate["f32_mac" if self.kind == "f32" else "mixed_mac"])
        if self.quantised:
            compute += memory_groups(share, spec.rate["dequantise"])
        per_wavelet = 1 if self.kind == "f32" else 2
        link = max(ceil_div(self.inputs, per_wavelet * self.cols), ceil_div(self.outputs, self.rows))
        fabric = spec.fabric
        way = fabric.hop * (self.rows + self.cols) + fabric.ramp_down + fabric.ramp_up
        return Bound(compute, link, way)

    def share_of_peak(self, spec: MachineSpec, cycles: int) -> float:
        """Multiply-adds of the matrix over what all PEs could do in `cycles`."""
        rate = spec.rate["f32_mac" if self.kind == "f32" else "mixed_mac"]
        return self.outputs * self.inputs / (cycles * rate * self.cols * self.rows)


def _aligned(nbytes: int) -> int:
    return ceil_div(nbytes, 32) * 32


def widest_group(inputs: int, cols: int) -> int:
    """The largest group size with the least padding when `inputs` are spread over `cols` columns of PEs."""
    return min(sorted(GROUP_SIZES, reverse=True), key=lambda g: Tiling.of(1, inputs, 1, cols, g).in_tile)
