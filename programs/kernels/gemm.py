"""GEMM, Y = W X for several tokens at once, with f16 weights that stay where they are on the grid.

The tiles and the way of the words are a GEMV's: activations enter at the north edge and are copied down the
columns, token after token; sums travel one hop at a time to the east edge. All tokens of a run are in SRAM at
once, so that instructions start and the grid is crossed once for all of them.
"""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass

import numpy as np

from ...fabric.result import Result
from ...fabric.spec import MachineSpec
from ...fabric.wafer import Wafer
from ...isa.errors import Usage
from ..weights.groups import Tiling, ceil_div
from .cycles import Bound, Walk, length, memory_groups, multiply_add_groups, queue
from .gemv import BANK_BYTES, OVERHEAD_BYTES, SUMS, Gemv
from .job import Data, Job, at_least_one
from .reduction import chain_starts

__all__ = ["Gemm"]


@dataclass(frozen=True)
class Gemm(Job):
    """y (tokens, outputs) = x (tokens, inputs) times W (outputs, inputs) transposed, on `cols` x `rows` PEs.

    Operands: `w` and `x` float16. Output: `y` float32; every token has the bits that a `Gemv` of kind f16 on
    the same grid gives it.
    """

    outputs: int
    inputs: int
    tokens: int
    cols: int
    rows: int

    def __post_init__(self) -> None:
        at_least_one(outputs=self.outputs, inputs=self.inputs, tokens=self.tokens)
        at_least_one(cols=self.cols, rows=self.rows)

    @classmethod
    def most_tokens(cls, spec: MachineSpec, outputs: int, inputs: int, cols: int, rows: int) -> int:
        """Tokens that a PE of this machine holds at once; Usage if not even one."""
        one, two = (cls(outputs, inputs, tokens, cols, rows).tile_bytes for tokens in (1, 2))
        most = 1 + (spec.sram.bytes - one) // (two - one)
        if most < 1:
            raise Usage(
                f"a tile of {outputs} x {inputs} weights on {cols} x {rows} PEs needs {one} bytes per PE "
                f"with one token, {spec.sram.bytes} are there",
                category="resource",
                help=f"spread the matrix over more than {cols} x {rows} PEs",
            )
        return most

    # --- a tile ---

    @functools.cached_property
    def one(self) -> Gemv:
        """The GEMV of one token."""
        return Gemv(self.outputs, self.inputs, self.cols, self.rows, "f16")

    @property
    def tiling(self) -> Tiling:
        """Tiles of whole pairs of inputs, since two activations share a wavelet."""
        return self.one.tiling

    @property
    def wavelets(self) -> int:
        """Wavelets of activations into each PE, of all tokens."""
        return self.tokens * self.tiling.in_tile // 2

    @property
    def words(self) -> int:
        """Sums of each row of PEs, of all tokens."""
        return self.tokens * self.tiling.out_tile

    @property
    def tile_bytes(self) -> int:
        """SRAM of one PE, code included, rounded up."""
        eights, ins = self.one.tile_outputs, self.tiling.in_tile
        weights = 2 * eights * self.one.pitch
        return OVERHEAD_BYTES + weights + self.tokens * (4 * eights + 2 * (ins + ins % 4))

    # --- program and data ---

    @property
    def source(self) -> str:
        return "gemm_f16"

    @property
    def parameters(self) -> dict[str, int]:
        return {
            "cols": self.cols, "rows": self.rows, "tokens": self.tokens,
            "outs": self.tiling.out_tile, "ins": self.tiling.in_tile,
        }  # fmt: skip

    def example(self, seed: int = 0) -> Data:
        """Weights from -1 to 1 and normal activations."""
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((self.tokens, self.inputs)).astype(np.float16)
        return {"w": rng.uniform(-1, 1, (self.outputs, self.inputs)).astype(np.float16), "x": x}

    def load(self, wafer: Wafer, data: Data) -> None:
        self.one.load(wafer, data)

    def feeds(self, data: Data) -> dict[str, np.ndarray]:
        if data["x"].shape != (self.tokens, self.inputs):
            raise Usage(f"x is {data['x'].shape}, this GEMM is for {(self.tokens, self.inputs)}")
        tokens = np.stack([self.tiling.split_input(x) for x in data["x"]], axis=1)
        return {"x": tokens.reshape(self.cols, -1)}

    def gather(self, wafer: Wafer, result: Result) -> dict[str, np.ndarray]:
        rows = result["y"].reshape(self.rows, self.tokens, -1)
        return {"y": np.stack([self.tiling.join_output(rows[:, t]) for t in range(self.tokens)])}

    def golden(self, data: Data) -> dict[str, np.ndarray]:
        return {"y": self.one.golden_many(data["w"], data["x"])}

    # --- cycles ---

    def cycles(self, spec: MachineSpec) -> int:
        """The south-most row is last: all of x in, multiply, then the chain of sums to the east edge."""
        t = self._received(spec) + 3 + spec.lead("mac") + self._groups(spec)
        head = t + spec.engine.branch_not_taken + 2 + spec.lead("copy")
        link = t + spec.engine.branch_taken + 3 + spec.lead("elementwise")
        first = chain_starts(spec, head, link, self.cols)
        return length(spec, first + self.words - 1, leaves=True)

    def _groups(self, spec: MachineSpec) -> int:
        """Cycles of all groups of the multiply-add. Every eight outputs start in the same bank, so one stands
        for all; tokens differ by the bank that their activations start in."""
        ins = self.tiling.in_tile
        sums, weights = Walk(0, (ins, SUMS), (0, 4)), Walk(0, (ins, SUMS), (2, 2 * self.one.pitch))
        apart = 2 * (ins + ins % 4)  # bytes from one token to the next
        row = spec.sram.bytes_per_cycle
        starts = Counter((BANK_BYTES + t * apart) % row for t in range(self.tokens))
        cycles = 0
        for start, tokens in starts.items():
            sources = (weights, Walk(start, (ins, SUMS), (2, 0)))
            cycles += tokens * multiply_add_groups(spec, "mixed_mac", sums, sources, sum_bytes=4, bytes=2)
        return ceil_div(self.tiling.out_tile, SUMS) * cycles

    def _received(self, spec: MachineSpec) -> int:
        """The cycle after the last row's last activation was stored, as of a GEMV with as many wavelets."""
        zeros = memory_groups(self.tokens * self.one.tile_outputs, spec.rate["f32_add"])
        ready = 3 + spec.lead("fill") + zeros + 2 + spec.lead("copy")
        way = spec.fabric.hop * (self.rows - 1) + spec.fabric.ramp_down
        first = max(ready, spec.fabric.hop + way)
        held = queue(spec, 0)
        if self.wavelets > held:
            first = max(first, ready + 1 - held + way)
        return first + self.wavelets

    def bound(self, spec: MachineSpec) -> Bound:
        """Multiply-adds at their rate, wavelets of x and y, the way across."""
        share = self.tokens * ceil_div(self.outputs * self.inputs, self.cols * self.rows)
        compute = memory_groups(share, spec.rate["mixed_mac"])
        link = self.tokens * max(ceil_div(self.inputs, 2 * self.cols), ceil_div(self.outputs, self.rows))
        return Bound(compute, link, self.one.bound(spec).latency)

    def share_of_peak(self, spec: MachineSpec, cycles: int) -> float:
        """Multiply-adds of all tokens over what all PEs could do in `cycles`."""
        return self.tokens * self.one.share_of_peak(spec, cycles)
