"""Kernels: readable `.loom` files with NumPy golden twins, exact cycle formulas and lower bounds."""

from .broadcast import ColumnBroadcast, RowBroadcast
from .cycles import Bound
from .dequantise import Dequantise
from .gemm import Gemm
from .gemv import Gemv
from .job import Job, Ran
from .reduction import ColumnReduction, RowReduction
from .relay import Relay
from .segmented import TreeReduction, TwoPhaseReduction, best_reduction
from .table import KERNELS, Kernel
from .top_k import TopK
from .transpose import Transpose

__all__ = [
    "KERNELS",
    "Bound",
    "ColumnBroadcast",
    "ColumnReduction",
    "Dequantise",
    "Gemm",
    "Gemv",
    "Job",
    "Kernel",
    "Ran",
    "Relay",
    "RowBroadcast",
    "RowReduction",
    "TopK",
    "Transpose",
    "TreeReduction",
    "TwoPhaseReduction",
    "best_reduction",
]
