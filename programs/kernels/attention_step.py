"""Attention for one new token as a kernel of its own: queries and a KV cache in, attention outputs out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...fabric.result import Result
from ...fabric.spec import MachineSpec
from ...fabric.wafer import Wafer
from ...isa.errors import Usage
from .all_reduce import ROW, Axis
from .attention import (
    GROUP,
    attended,
    attention,
    group_bindings,
    group_routes,
    meeting_roles,
)
from .clock import Clock
from .cycles import Bound, distance, memory_groups
from .job import Data, at_least_one
from .step import Step, began

__all__ = ["Attention"]


@dataclass(frozen=True)
class Attention(Step):
    """`kv_heads` KV heads, each with `queries` query heads of `sharing` * `dims` dimensions, on
    `kv_heads` * `sharing` columns (and `spare` more) x `rows` PEs; `tokens` in the cache.

    Operands float16: `query` (cols, queries, dims), `keys` and `values` (tokens, cols, dims). Output
    `context` float16 (rows, cols, queries * dims), alike in a column.
    """

    kv_heads: int
    sharing: int
    rows: int
    queries: int
    dims: int
    tokens: int
    spare: int = 0

    def __post_init__(self) -> None:
        at_least_one(kv_heads=self.kv_heads, sharing=self.sharing, rows=self.rows, queries=self.queries)
        at_least_one(dims=self.dims, tokens=self.tokens)
        if self.dims % 4 or self.spare < 0:
            raise Usage(f"{self.dims} dimensions per column are not a multiple of 4", category="range")

    @property
    def used(self) -> int:
        """Columns that have a head."""
        return self.kv_heads * self.sharing

    @property
    def cols(self) -> int:  # type: ignore[override]
        """Columns of the grid."""
        return self.used + self.spare

    @property
    def row(self) -> Axis:
        return ROW.of(self.cols, self.cols // 2)

    @property
    def capacity(self) -> int:
        """Tokens that a row holds, in whole eights."""
        return 8 * math.ceil(self.tokens / self.rows / 8)

    @property
    def symbols(self) -> Mapping[str, str]:
        n, count = self.queries, self.queries * self.dims
        return {
            "group_role": "i32 = 0", "tokens": "i32 export = 0",
            "query_block": f"f16[{count + 2}] align 32", "query": f"f16[{count}] at query_block + 4 export",
            "context": f"f16[{count}] export", "largest": f"f32[{n}]", "mixed": f"f32[{count + n}]",
            "keys": f"f16[{self.dims}, {self.capacity}] align 32 export = 0",
            "values": f"f16[{self.capacity}, {self.dims}] align 32 export = 0",
            "scores": f"f32[{n}, {self.capacity}] align 32", "weights": f"f16[{n}, {self.capacity}] align 32",
        }  # fmt: skip

    @property
    def queues(self) -> tuple[list[str], list[str]]:
        return [GROUP.back], [GROUP.copies]

    @property
    def colours(self) -> list[str]:
        return ["group_all"] if self.sharing > 1 else []

    @property
    def bindings(self) -> list[str]:
        return group_bindings(self.sharing, self.used, self.row)

    @property
    def routes(self) -> list[str]:
        return group_routes(self.sharing, self.used, self.row)

    @property
    def lines(self) -> list[str]:
        roles = meeting_roles(self.sharing, self.used, self.row)
        return [
            f"  ld.i32 {GROUP.role}, group_role",
            "  ld.i32 r11, tokens",
            *attention(
                self.queries, self.dims, self.capacity, self.sharing, roles, self.spare > 0, self.column
            ),
        ]

    def example(self, seed: int = 0) -> Data:
        """Scores from about -8 to 8."""
        rng = np.random.default_rng(seed)
        scale = 2 / math.sqrt(self.sharing * self.dims)
        query = (scale * rng.standard_normal((self.cols, self.queries, self.dims))).astype(np.float16)
        cache = (self.tokens, self.cols, self.dims)
        keys, values = (rng.standard_normal(cache).astype(np.float16) for _ in range(2))
        return {"query": query, "keys": keys, "values": values}

    def load(self, wafer: Wafer, data: Data) -> None:
        query = np.asarray(data["query"]).reshape(self.cols, -1)
        wafer.write("query", np.repeat(query[None], self.rows, axis=0))
        cache = np.zeros((2, self.rows, self.cols, self.capacity, self.dims), np.float16)
        for row in range(self.rows):
            for part, name in enumerate(("keys", "values")):
                mine = data[name][row :: self.rows]
                cache[part, row, :, : len(mine)] = mine.swapaxes(0, 1)
        wafer.write("keys", np.ascontiguousarray(cache[0].swapaxes(-1, -2)))
        wafer.write("values", cache[1])
        here = (self.tokens - np.arange(self.rows) + self.rows - 1) // self.rows
        wafer.write("tokens", np.repeat(here[:, None], self.cols, axis=1).astype(np.int32))

    def gather(self, wafer: Wafer, result: Result) -> dict[str, np.ndarray]:
        return {"context": wafer.read("context")}

    def golden(self, data: Data) -> dict[str, np.ndarray]:
        query, keys, values = (data[name].astype(np.float32) for name in ("query", "keys", "values"))
        out = attended(query, keys, values, self.sharing, self.used, self.row, self.column)
        return {"context": np.repeat(out.reshape(1, self.cols, -1), self.rows, axis=0)}

    def cycles(self, spec: MachineSpec) -> int:
        here = math.ceil(self.tokens / self.rows)
        steps = Clock(spec).attention(self.queries, self.dims, self.sharing, here, self.column)
        return began(spec) + 2 + steps + 2

    def bound(self, spec: MachineSpec) -> Bound:
        """Two multiply-adds per token, head and dimension, an exponential per token and head."""
        share = math.ceil(self.tokens / self.rows) * self.queries
        compute = 2 * memory_groups(share * self.dims, spec.rate["mixed_mac"])
        compute += memory_groups(math.ceil(share / self.sharing), spec.rate["special"])
        link = self.queries * self.dims if self.rows > 1 else 0
        return Bound(compute, link, 4 * distance(spec, self.rows // 2) if self.rows > 1 else 0)
