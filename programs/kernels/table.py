"""The table of kernels, which benchmarks, tests and the command line go through: one row each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .broadcast import ColumnBroadcast, RowBroadcast
from .dequantise import Dequantise
from .gemm import Gemm
from .gemv import Gemv
from .job import Job
from .reduction import ColumnReduction, RowReduction
from .relay import Relay
from .segmented import TreeReduction, TwoPhaseReduction
from .top_k import TopK
from .transpose import Transpose

__all__ = ["KERNELS", "Kernel"]


@dataclass(frozen=True)
class Kernel:
    """A row: what it does, the job at a size, a small size for quick runs, and sizes that are awkward."""

    name: str
    summary: str
    job: Callable[..., Job]
    small: Job
    awkward: tuple[Job, ...]


# (outputs, inputs, cols, rows): does not divide, one PE, prime inputs, more PEs than rows or inputs
_SHAPES = (
    (33, 33, 4, 3),
    (1, 1, 1, 1),
    (1, 1, 3, 2),
    (5, 211, 4, 2),
    (3, 7, 2, 6),
    (17, 40, 1, 3),
    (20, 64, 5, 1),
)


def _gemv(kind: str, **options: int) -> Kernel:
    return Kernel(
        f"gemv_{kind}",
        f"y = W x, weights in {kind} spread over the grid",
        lambda **sizes: Gemv(kind=kind, **sizes),  # type: ignore[arg-type]
        Gemv(24, 64, 3, 2, kind, **options),  # type: ignore[arg-type]
        tuple(Gemv(m, k, cols, rows, kind, **options) for m, k, cols, rows in _SHAPES),  # type: ignore[arg-type]
    )


KERNELS: dict[str, Kernel] = {
    row.name: row
    for row in (
        Kernel(
            "relay", "words through the memory of every PE of a row",
            Relay, Relay(4, 16), (Relay(1, 3), Relay(2, 1), Relay(3, 20), Relay(7, 5)),
        ),
        Kernel(
            "row_broadcast", "one PE's vector to its whole row",
            RowBroadcast, RowBroadcast(4, 2, 32),
            (RowBroadcast(1, 1, 4), RowBroadcast(1, 3, 3), RowBroadcast(2, 1, 1), RowBroadcast(7, 2, 33)),
        ),
        Kernel(
            "column_broadcast", "one PE's vector to its whole column",
            ColumnBroadcast, ColumnBroadcast(2, 4, 32),
            (
                ColumnBroadcast(1, 1, 4), ColumnBroadcast(3, 1, 3), ColumnBroadcast(1, 2, 1),
                ColumnBroadcast(2, 7, 33),
            ),
        ),
        Kernel(
            "row_reduction", "sums along rows, leaving in the east",
            RowReduction, RowReduction(4, 2, 16),
            (RowReduction(1, 1, 1), RowReduction(2, 3, 1), RowReduction(7, 2, 5), RowReduction(3, 1, 40)),
        ),
        Kernel(
            "column_reduction", "sums down columns, leaving in the south",
            ColumnReduction, ColumnReduction(2, 4, 16),
            (
                ColumnReduction(1, 1, 1), ColumnReduction(3, 2, 1), ColumnReduction(2, 7, 5),
                ColumnReduction(1, 3, 40),
            ),
        ),
        Kernel(
            "two_phase_reduction", "sums along rows or columns: chains over segments, then over their ends",
            TwoPhaseReduction, TwoPhaseReduction(9, 2, 16, segment=3),
            (
                TwoPhaseReduction(1, 1, 1), TwoPhaseReduction(2, 3, 5),
                TwoPhaseReduction(7, 1, 40, segment=3), TwoPhaseReduction(8, 1, 5, segment=6),
                TwoPhaseReduction(5, 1, 3, segment=9),
                TwoPhaseReduction(2, 11, 9, column=True, segment=4),
            ),
        ),
        Kernel(
            "tree_reduction", "sums along rows or columns over 1, 2, 4 .. hops",
            TreeReduction, TreeReduction(8, 2, 16),
            (
                TreeReduction(1, 1, 1), TreeReduction(2, 3, 5), TreeReduction(3, 1, 40),
                TreeReduction(13, 1, 7), TreeReduction(2, 11, 9, column=True),
            ),
        ),
        Kernel(
            "dequantise", "4-bit and 8-bit weights to f16",
            Dequantise, Dequantise(2, 2, 8, 32),
            (
                Dequantise(1, 1, 1, 4, "q4", 4), Dequantise(2, 1, 3, 24, "q8", 8),
                Dequantise(1, 2, 5, 48, "q4", 16), Dequantise(3, 1, 2, 64, "q8"),
            ),
        ),
        Kernel(
            "transpose", "a vector split over rows becomes one split over columns",
            Transpose, Transpose(24, 3, 4),
            (
                Transpose(1, 1, 1), Transpose(7, 5, 1), Transpose(5, 1, 4), Transpose(3, 5, 6),
                Transpose(61, 7, 2), Transpose(100, 2, 9),
            ),
        ),
        Kernel(
            "top_k", "the k largest values of the grid and their indices; arg-max",
            TopK, TopK(40, 3, 2, 2),
            (
                TopK(1, 1, 1), TopK(5, 1, 1, 3), TopK(20, 3, 1), TopK(20, 1, 3, 2), TopK(3, 3, 2, 3),
                TopK(40, 4, 3, 16),
            ),
        ),
        _gemv("q4", group=4),
        _gemv("q8", group=8),
        _gemv("f16"),
        _gemv("f32"),
        Kernel(
            "gemm_f16", "Y = W X for several tokens at once, weights in f16 spread over the grid",
            Gemm, Gemm(24, 24, 3, 3, 2),
            (
                Gemm(1, 1, 1, 1, 1), Gemm(33, 33, 2, 4, 3), Gemm(5, 60, 5, 4, 2), Gemm(3, 7, 4, 2, 6),
                Gemm(17, 40, 2, 1, 3), Gemm(16, 18, 7, 2, 1),
            ),
        ),
    )
}  # fmt: skip
