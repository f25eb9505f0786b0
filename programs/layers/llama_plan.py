"""The plan of a llama layer: which part of every tensor a PE holds, and whether it fits.

The grid has `cols` x `rows` PEs. The residual stream is split over the rows; the outputs of the first GEMV of
a pair (q, k, v; gate, up) over the columns, which are the inputs of the second one (output; down), whose
outputs are split over the rows again. So nothing is ever transposed: sums go down the columns, then along
the rows, and a wafer's outputs leave where the next wafer's inputs arrive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from ...fabric.spec import MachineSpec
from ...isa.dequantise import GROUP_SIZES
from ...isa.errors import Usage
from ..kernels.all_reduce import COLUMN, ROW, Axis
from ..kernels.cycles import hop
from ..weights.groups import ceil_div, group_bytes

__all__ = [
    "LayerConfig",
    "LayerPlan",
    "Matrix",
    "PlanError",
    "Store",
    "WeightKind",
    "alternatives",
    "plan_layer",
]

WeightKind = Literal["q4", "q8", "f16"]
SUMS = 8  # outputs whose sums the engine keeps
CODE_BYTES, QUERY_BYTES = 3_400, 32  # code and descriptors, and per query head, at most; the tests compare
DEFAULT_GRID = (12, 12)  # the fewest PEs that hold SmolLM2's layer with 2,048 tokens and room for slices
MOST_SLICE_BYTES = 32_768  # of the buffer in which weights become f16


class PlanError(Usage):
    """A layer that does not fit: the message says by how much, the help what fits."""


@dataclass(frozen=True)
class LayerConfig:
    """Sizes of a llama layer. `kv_capacity`: tokens the KV cache holds."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    rope_base: float = 10_000.0
    eps: float = 1e-5
    kv_capacity: int = 512

    def __post_init__(self) -> None:
        sizes = ("hidden", "heads", "kv_heads", "head_dim", "ffn", "kv_capacity")
        bad = [f"{name} is {getattr(self, name)}" for name in sizes if getattr(self, name) < 1]
        if self.kv_heads > 0 and self.heads % self.kv_heads:
            bad.append(f"{self.heads} heads do not share {self.kv_heads} KV heads evenly")
        if self.head_dim % 4:
            bad.append(f"head_dim is {self.head_dim}, a multiple of 4 is needed")
        if self.eps <= 0 or self.rope_base <= 0:
            bad.append("eps and rope_base must be above 0")
        if bad:
            raise Usage(f"not a llama layer: {'; '.join(bad)}", category="range")

    @property
    def queries(self) -> int:
        """Query heads that share a KV head."""
        return self.heads // self.kv_heads

    @property
    def weights(self) -> int:
        """Weights of the linear layers, each multiplied once per token."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        return attention + 3 * self.hidden * self.ffn


class Matrix(NamedTuple):
    """The tile of one GEMV on a PE: `outputs` rows of `inputs` weights in groups of `group`."""

    name: str
    outputs: int
    inputs: int
    group: int
    slice: int  # outputs whose weights are f16 at a time, a multiple of 8

    @property
    def slices(self) -> int:
        """How often a slice becomes f16."""
        return ceil_div(self.outputs, self.slice)

    @property
    def rows(self) -> int:
        """Outputs with padding: whole slices."""
        return self.slices * self.slice

    @property
    def pitch(self) -> int:
        """Elements between rows of f16 weights: 4 modulo 8, so that 4 rows lie in 4 banks of one parity."""
        return self.inputs + (12 - self.inputs % 8) % 8

    def stored_bytes(self, kind: WeightKind) -> int:
        """Bytes that stay in SRAM."""
        if kind == "f16":
            return 2 * self.rows * self.pitch
        return self.rows * (self.inputs // self.group) * group_bytes(kind, self.group)


class Store(NamedTuple):
    """One symbol of every PE: its declaration in the language, its bytes, what it is for."""

    name: str
    declaration: str
    nbytes: int
    purpose: str


@dataclass(frozen=True)
class LayerPlan:
    """A layer on a grid. Lengths are per PE; see the properties for what each PE holds."""

    config: LayerConfig
    spec: MachineSpec
    cols: int
    rows: int
    kind: WeightKind = "q4"
    requests: int = 1  # sequences kept apart, each with a KV cache of its own
    slice_bytes: int = MOST_SLICE_BYTES

    @property
    def grid(self) -> tuple[int, int]:
        """(columns, rows)."""
        return self.cols, self.rows

    # --- lengths ---

    @property
    def tile(self) -> int:
        """Elements of the residual stream in a row, a multiple of 4; the last rows may hold padding."""
        return 4 * ceil_div(self.config.hidden, 4 * self.rows)

    @cached_property
    def sharing(self) -> int:
        """Columns that share a KV head and its query heads: each holds `dims` of the head's dimensions."""
        fitting = [
            n
            for n in range(1, self.config.head_dim // 4 + 1)
            if self.config.head_dim % (4 * n) == 0 and n * self.config.kv_heads <= self.cols
        ]
        if not fitting:
            raise PlanError(
                f"{self.cols} columns cannot hold {self.config.kv_heads} KV heads: over by "
                f"{self.config.kv_heads - self.cols} columns",
                category="resource",
                help=f"a grid of at least {self.config.kv_heads} columns is needed",
            )
        return fitting[-1]

    @property
    def attention_cols(self) -> int:
        """Columns that take part in attention, from the west."""
        return self.sharing * self.config.kv_heads

    @property
    def dims(self) -> int:
        """Dimensions of a head in one column, a multiple of 4."""
        return self.config.head_dim // self.sharing

    @property
    def context(self) -> int:
        """Attention outputs in one column: `dims` of every query head of its KV head."""
        return self.config.queries * self.dims

    @property
    def ffn(self) -> int:
        """FFN neurons of a column, a multiple of 4."""
        return 4 * ceil_div(self.config.ffn, 4 * self.cols)

    @property
    def share(self) -> int:
        """FFN neurons of a column that one PE gates, even."""
        return 2 * ceil_div(self.ffn, 2 * self.rows)

    @property
    def capacity(self) -> int:
        """Tokens whose keys and values one PE holds: token t lies in row t mod rows; whole eights."""
        return 8 * ceil_div(ceil_div(self.config.kv_capacity, self.rows), 8)

    # --- where sums meet ---

    @cached_property
    def column(self) -> Axis:
        """Sums of a column: of squares, q k v, largest scores, attention, gate and up."""
        m = self.matrices
        heads = self.config.queries
        counts = (1, 1, m["qkv"].outputs, heads, self.context + heads, m["gate_up"].outputs)
        return COLUMN.of(self.rows, self._meeting(self.rows, counts))

    @cached_property
    def row(self) -> Axis:
        """Sums of a row: of the output and the down projection."""
        return ROW.of(self.cols, self._meeting(self.cols, (self.tile, self.tile)))

    def _meeting(self, pes: int, counts: Sequence[int]) -> int:
        """The middle of a line of PEs or its last one, whichever costs fewer cycles for sums of `counts`."""
        middle, last = pes // 2, pes - 1
        per_hop = hop(self.spec) + self.spec.fabric.hop
        second = 2 + self.spec.lead("elementwise")  # in the middle, the addition of the other side's sums
        saved = (per_hop * (last - middle) - second) * len(counts)
        return last if pes > 2 and sum(counts) >= saved else middle

    # --- the edges ---

    @property
    def lane(self) -> int:
        """f16 elements of a token on a lane of the edge ports: with several requests two more in front, one
        wavelet with the request's number."""
        return self.tile + 2 * (self.requests > 1)

    def split(self, hidden: np.ndarray) -> np.ndarray:
        """A hidden vector (hidden,) as the rows hold it: (rows, tile), padded with zeros."""
        rows = np.zeros(self.rows * self.tile, hidden.dtype)
        rows[: self.config.hidden] = hidden
        return rows.reshape(self.rows, self.tile)

    def to_lanes(self, hidden: np.ndarray, request: int = 0) -> np.ndarray:
        """A hidden vector float16 (hidden,) as the edge ports carry it: (rows, lane)."""
        if not 0 <= request < self.requests:
            raise Usage(f"request {request}; this layer keeps {self.requests} apart", category="range")
        head = np.array([request, 0] if self.requests > 1 else [], np.uint16).view(np.float16)
        front = np.broadcast_to(head, (self.rows, len(head)))
        return np.concatenate([front, self.split(np.asarray(hidden, np.float16))], axis=1)

    def from_lanes(self, lanes: np.ndarray) -> np.ndarray:
        """The hidden vector (hidden,) of an edge port's lanes (rows, lane), or of rows (rows, tile)."""
        return lanes[:, lanes.shape[1] - self.tile :].reshape(-1)[: self.config.hidden]

    # --- weights ---

    @cached_property
    def matrices(self) -> dict[str, Matrix]:
        """The four GEMVs of a PE by name."""
        shapes = {
            "qkv": (self.context + 2 * self.dims, self.tile, self.tile),
            "output": (self.tile, self.context, self.dims),
            "gate_up": (2 * self.ffn, self.tile, self.tile),
            "down": (self.tile, self.ffn, self.ffn),
        }
        return {name: self._matrix(name, *shape) for name, shape in shapes.items()}

    def _matrix(self, name: str, outputs: int, inputs: int, run: int) -> Matrix:
        """`run`: inputs that follow one another in the tensor; groups may not reach over its end."""
        group = max(size for size in GROUP_SIZES if run % size == 0) if self.kind != "f16" else 1
        eights = ceil_div(outputs, SUMS)
        whole = Matrix(name, outputs, inputs, group, SUMS * eights)
        if self.kind == "f16":
            return whole
        most = max(1, self.slice_bytes // (2 * SUMS * whole.pitch))  # eights of a slice
        return whole._replace(slice=SUMS * ceil_div(eights, ceil_div(eights, most)))

    # --- SRAM ---

    @cached_property
    def stores(self) -> tuple[Store, ...]:
        """Every symbol of a PE, in SRAM order."""
        from .llama_memory import stores

        return stores(self)

    @property
    def code_bytes(self) -> int:
        """Bytes of code and descriptors, at most."""
        return CODE_BYTES + QUERY_BYTES * self.config.queries

    @property
    def sram_bytes(self) -> int:
        """Bytes of a PE: data, and the most that code and descriptors take."""
        return sum(store.nbytes for store in self.stores) + self.code_bytes

    def sram_map(self) -> str:
        """A table of the SRAM of a PE."""
        lines = [f"{s.nbytes:>7,} B  {s.name:<12} {s.purpose}" for s in self.stores if s.nbytes >= 64]
        rest = sum(s.nbytes for s in self.stores if s.nbytes < 64)
        lines += [f"{rest:>7,} B  {'scalars':<12} roles, counters, short vectors"]
        lines += [f"{self.code_bytes:>7,} B  {'code':<12} at most, with descriptors"]
        free = self.spec.sram.bytes - self.sram_bytes
        return "\n".join([*lines, f"{self.sram_bytes:>7,} B  of {self.spec.sram.bytes:,}; {free:,} free"])

    # --- cycles ---

    @property
    def macs(self) -> int:
        """Multiply-adds of the fullest PE for one token, padding included, attention left out."""
        return sum(m.rows * m.inputs for m in self.matrices.values())

    def bound(self, context: int = 0) -> int:
        """Cycles below which no program stays on this grid: its share of multiply-adds (and of turning
        weights into f16) at the machine's rates. `context`: tokens in the KV cache."""
        pes, rate = self.cols * self.rows, self.spec.rate
        config = self.config
        cycles = config.weights / rate["mixed_mac"]
        if self.kind != "f16":
            cycles += config.weights / rate["dequantise"]
        cycles += 2 * config.heads * config.head_dim * context / rate["mixed_mac"]
        return int(-(-cycles // pes))

    def cycles(self, context: int = 1) -> int:
        """Expected cycles of a token that finds itself and `context` - 1 others in the cache."""
        from .llama_cycles import cycles

        return cycles(self, context)


def plan_layer(
    config: LayerConfig,
    spec: MachineSpec,
    grid: tuple[int, int] | None = None,
    kind: WeightKind = "q4",
    requests: int = 1,
) -> LayerPlan:
    """The plan of a layer on a grid of (columns, rows), the default one if it is left out. `requests`:
    sequences in flight, each with a KV cache of `kv_capacity` tokens.

    Raises PlanError, "over by N bytes", if it does not fit; the help names grids that do.
    """
    if grid is None:
        plan = _shrunk(LayerPlan(config, spec, *DEFAULT_GRID, kind, requests))
        fitting = [plan] if _fits(plan) else alternatives(config, spec, kind, requests)
        if fitting:
            return fitting[0]
    if requests < 1:
        raise PlanError(f"{requests} requests; at least 1", category="range")
    cols, rows = grid or DEFAULT_GRID
    if cols < 1 or rows < 1:
        raise PlanError(f"a grid of {cols} x {rows} PEs", category="range", help="at least 1 x 1")
    plan = _shrunk(LayerPlan(config, spec, cols, rows, kind, requests))
    if cols > spec.grid.width or rows > spec.grid.height:
        raise PlanError(
            f"{cols} x {rows} PEs do not lie on {spec.name}: {spec.grid.width} x {spec.grid.height} PEs",
            category="resource",
            help=_advice(config, spec, kind, requests),
        )
    over = plan.sram_bytes - spec.sram.bytes
    if over > 0:
        raise PlanError(
            f"a layer on {cols} x {rows} PEs is over by {over:,} bytes per PE:\n{plan.sram_map()}",
            category="resource",
            help=_advice(config, spec, kind, requests),
        )
    return plan


def alternatives(
    config: LayerConfig, spec: MachineSpec, kind: WeightKind = "q4", requests: int = 1
) -> list[LayerPlan]:
    """Plans that fit, the least rows per number of columns, from few PEs to many."""
    plans = []
    for cols in (config.kv_heads * n for n in (1, 2, 4, 8, 16, 32)):
        for rows in (1, 2, 3, 4, 6, 8, 9, 12, 16, 18, 24, 32, 36, 48, 64, 72, 96):
            plan = _shrunk(LayerPlan(config, spec, cols, rows, kind, requests))
            if _fits(plan):
                plans.append(plan)
                break
    return sorted(plans, key=lambda plan: (plan.cols * plan.rows, plan.cols))


def _shrunk(plan: LayerPlan) -> LayerPlan:
    """The plan with a buffer for f16 weights that is as large as SRAM allows, down to 512 bytes."""
    while plan.kind != "f16" and plan.slice_bytes > 512 and plan.sram_bytes > plan.spec.sram.bytes:
        plan = replace(plan, slice_bytes=plan.slice_bytes // 2)
    return plan


def _fits(plan: LayerPlan) -> bool:
    on_machine = plan.cols <= plan.spec.grid.width and plan.rows <= plan.spec.grid.height
    return on_machine and plan.sram_bytes <= plan.spec.sram.bytes


def _advice(config: LayerConfig, spec: MachineSpec, kind: WeightKind, requests: int) -> str:
    grids = [f"{p.cols} x {p.rows}" for p in alternatives(config, spec, kind, requests)]
    if not grids:
        return "no grid of this machine holds the layer: lower kv_capacity or use weights of fewer bits"
    return f"grids that hold it: {', '.join(grids[:6])}; or lower kv_capacity"
