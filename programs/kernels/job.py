"""A kernel at one size: its program, its data, its golden twin and its cycle formula under common names.

job = Gemv(outputs=100, inputs=60, rows=4, cols=3, kind="q4", group=8)
ran = job.run(machine("wse3"), job.example())
assert ran.equal and ran.result.cycles == job.cycles(machine("wse3"))
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from ...fabric.result import Result
from ...fabric.spec import MachineSpec
from ...fabric.wafer import Wafer
from ...isa.assembler import assemble_file
from ...isa.errors import Usage
from ...isa.program import Program
from .cycles import Bound

__all__ = ["Data", "Job", "Ran", "at_least_one"]

Data = Mapping[str, Any]  # operands by name: arrays, or grouped weights


@dataclass(frozen=True)
class Ran:
    """One run of a job: the wafer's result, the outputs gathered from it, and what the golden twin gives."""

    result: Result
    outputs: dict[str, np.ndarray]
    golden: dict[str, np.ndarray]

    @property
    def equal(self) -> bool:
        """Whether every output equals the golden twin's, bit for bit."""
        return self.outputs.keys() == self.golden.keys() and all(
            same_bits(self.outputs[name], self.golden[name]) for name in self.golden
        )


class Job(ABC):
    """One kernel at one size. Subclasses are frozen dataclasses of the sizes."""

    @property
    @abstractmethod
    def source(self) -> str:
        """Name of the kernel's file, without `.loom`."""

    @property
    @abstractmethod
    def parameters(self) -> dict[str, int]:
        """Values of the file's `.param`s."""

    @abstractmethod
    def example(self, seed: int = 0) -> Data:
        """Random operands of the right shapes."""

    @abstractmethod
    def load(self, wafer: Wafer, data: Data) -> None:
        """Write the operands that lie in SRAM."""

    def feeds(self, data: Data) -> dict[str, np.ndarray]:
        """Arrays of the input edge ports."""
        return {}

    @abstractmethod
    def gather(self, wafer: Wafer, result: Result) -> dict[str, np.ndarray]:
        """The outputs, padding left behind."""

    @abstractmethod
    def golden(self, data: Data) -> dict[str, np.ndarray]:
        """The outputs in NumPy, in the machine's order of operations: equal bit for bit."""

    @abstractmethod
    def cycles(self, spec: MachineSpec) -> int:
        """Cycles of a run, exactly."""

    @abstractmethod
    def bound(self, spec: MachineSpec) -> Bound:
        """Cycles below which no program for this task on this grid can stay."""

    def program(self) -> Program:
        """The kernel's file, assembled for this size; assembled once per size."""
        return _assembled(self.source, tuple(sorted(self.parameters.items())))

    def wafer(self, spec: MachineSpec, data: Data, **options: Any) -> Wafer:
        """A wafer with the program and the operands. `options` as of `Wafer`."""
        wafer = Wafer(spec, self.program(), **options)
        self.load(wafer, data)
        return wafer

    def run(
        self,
        spec: MachineSpec,
        data: Data,
        *,
        interrupted: Callable[[], bool] | None = None,
        **options: Any,
    ) -> Ran:
        """Build a wafer, run it once, gather the outputs, and compute the golden ones."""
        wafer = self.wafer(spec, data, **options)
        result = wafer.run(self.feeds(data), interrupted=interrupted)
        result.raise_for_end()
        return Ran(result, self.gather(wafer, result), self.golden(data))


@functools.lru_cache(maxsize=64)
def _assembled(source: str, parameters: tuple[tuple[str, int], ...]) -> Program:
    with resources.as_file(resources.files(__package__)) as folder:
        return assemble_file(folder / f"{source}.loom", parameters=dict(parameters)).program


def at_least_one(**sizes: int) -> None:
    """Refuse sizes below 1 by name."""
    for name, value in sizes.items():
        if value < 1:
            raise Usage(f"{name} is {value}: at least 1 is needed", category="range")


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal shape, type and bytes: zeros differ by their sign, NaNs by their payload."""
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
