"""The plan of a head's wafer: final RMSNorm, a row of weights per token of the vocabulary, the largest logit.

Rows of PEs split the hidden vector exactly as the layers' wafers do, so that their outputs arrive in the
right lanes; columns of PEs split the vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...fabric.spec import MachineSpec
from ...isa.dequantise import GROUP_SIZES
from ..kernels.all_reduce import COLUMN, ROW, Axis
from ..layers.llama_plan import LayerPlan, Matrix, PlanError, WeightKind
from ..weights.groups import ceil_div
from .description import ModelConfig

__all__ = ["HeadPlan", "plan_head"]

SUMS = 8  # outputs whose sums the engine keeps
SLICE_BYTES = 6_144  # of the buffer in which weights become f16
CODE_BYTES = 1_280  # code and descriptors, at most; the tests compare


@dataclass(frozen=True)
class HeadPlan:
    """A head on a grid of `cols` x `rows` PEs."""

    hidden: int
    vocabulary: int
    eps: float
    spec: MachineSpec
    cols: int
    rows: int
    kind: WeightKind
    requests: int = 1  # as of the layers: with several, a wavelet with a number travels in front

    @property
    def lane(self) -> int:
        """f16 elements of a token on a lane of the input port."""
        return self.tile + 2 * (self.requests > 1)

    @property
    def tile(self) -> int:
        """Elements of the hidden vector in a row, a multiple of 4; the last rows may hold padding."""
        return 4 * ceil_div(self.hidden, 4 * self.rows)

    @property
    def share(self) -> int:
        """Tokens of the vocabulary in a column; the last columns may have fewer."""
        return ceil_div(self.vocabulary, self.cols)

    @property
    def column(self) -> Axis:
        """Sums of a column meet in the last row: there are many of them."""
        return COLUMN.of(self.rows, self.rows - 1)

    @property
    def row(self) -> Axis:
        """Largest logits of a row meet in the middle: there is one at a time."""
        return ROW.of(self.cols, self.cols // 2)

    @cached_property
    def matrix(self) -> Matrix:
        """The tile of weights of a PE."""
        group = max(size for size in GROUP_SIZES if self.tile % size == 0) if self.kind != "f16" else 1
        eights = ceil_div(self.share, SUMS)
        whole = Matrix("head", self.share, self.tile, group, SUMS * eights)
        if self.kind == "f16":
            return whole
        most = max(1, SLICE_BYTES // (2 * SUMS * whole.pitch))
        return whole._replace(slice=SUMS * ceil_div(eights, ceil_div(eights, most)))

    @cached_property
    def declarations(self) -> tuple[tuple[str, str, int], ...]:
        """Every symbol of a PE: name, declaration in the language, bytes at most."""
        m, tile = self.matrix, self.tile
        found = [
            *((name, "i32 = 0", 4) for name in ("column_role", "row_role", "first", "valid")),
            ("message", f"f16[{self.lane}] = 0", 2 * self.lane),
            ("hidden", f"f16[{tile}] at message + {2 * (self.lane - tile)}", 0),
            ("output_norm", f"f32[{tile}] export = 0", 4 * tile),
            ("wide", f"f32[{tile}] = 0", 4 * tile),
            ("squares", f"f32[{SUMS}] = 0", 4 * SUMS),
            ("square", "f32[1] = 0", 4),
            ("best", "f32[1] = 0", 4),
            ("index", "f32[1] = 0", 4),
            ("x_block", f"f16[{tile + SUMS // 4}] align 32 = 0", 2 * tile + 35),
            ("x", f"f16[{tile}] at x_block + 4", 0),
            ("sums", f"f32[{m.rows}] align 32 = 0", 4 * m.rows + 31),
        ]
        if self.kind == "f16":
            found.append(
                ("w_head", f"f16[{m.rows}, {m.pitch}] align 32 export = 0", m.stored_bytes("f16") + 31)
            )
            return tuple(found)
        groups = f"{self.kind}[{{}}, {m.inputs}] group {m.group}"
        return (
            *found,
            ("slice", f"f16[{m.slice}, {m.pitch}] align 32 = 0", 2 * m.slice * m.pitch + 31),
            ("w_head", groups.format(m.rows) + " export", m.stored_bytes(self.kind)),
            ("part_head", groups.format(m.slice) + " at w_head", 0),
            ("slice_head", f"f16[{m.slice}, {m.pitch}] at slice", 0),
        )

    @property
    def sram_bytes(self) -> int:
        """Bytes of a PE: data, and the most that code and descriptors take."""
        return sum(nbytes for *_, nbytes in self.declarations) + CODE_BYTES

    @property
    def product_cycles(self) -> int:
        """Cycles of a PE's share of dequantising and multiply-adds at the machine's rates."""
        weights = self.matrix.rows * self.tile
        cycles = weights / self.spec.rate["mixed_mac"]
        if self.kind != "f16":
            cycles += weights / self.spec.rate["dequantise"]
        return round(cycles)

    def split(self, hidden: np.ndarray) -> np.ndarray:
        """A hidden vector (hidden,) as the rows hold it: (rows, tile), padded with zeros."""
        lanes = np.zeros(self.rows * self.tile, hidden.dtype)
        lanes[: self.hidden] = hidden
        return lanes.reshape(self.rows, self.tile)


def plan_head(config: ModelConfig, kind: WeightKind, layer: LayerPlan) -> HeadPlan:
    """A head behind layers of that plan: the fewest columns that fit and take no longer than half a layer."""
    spec = layer.spec
    sizes = (config.hidden, config.vocabulary, config.eps, spec)
    for cols in (*(1 << n for n in range(9)), spec.grid.width):
        widest = HeadPlan(*sizes, min(cols, spec.grid.width), layer.rows, kind, layer.requests)
        quick = 2 * widest.product_cycles <= max(layer.cycles(1), 4 * widest.tile)
        if widest.sram_bytes <= spec.sram.bytes and quick:
            return widest
    over = widest.sram_bytes - spec.sram.bytes
    if over > 0:
        raise PlanError(
            f"a head of {config.vocabulary:,} tokens on {widest.cols} x {widest.rows} PEs is over by "
            f"{over:,} bytes per PE",
            category="resource",
            help="a grid of more rows holds more",
        )
    return widest
