"""One wafer: SRAM that stays between runs, a program loaded into it, and runs of it on either engine.

Between runs SRAM is kept; registers, tasks, queues, routers and counters start anew (docs/machine.md §8).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from ..isa.errors import Usage
from ..isa.program import EdgePort, Kernel, Program, Symbol
from . import sram, wavelets
from .fit import check_fit
from .outcome import Outcome
from .result import Result, RunSettings
from .spec import MachineSpec
from .wavelets import Lane

__all__ = ["ENGINES", "Wafer"]

ENGINES = ("fast", "reference")
MOST_CYCLES = 10**18  # as a limit; the engines count in 64 bits, and need room for what is due later


class Wafer:
    """A program on a machine, with the memory of all its PEs."""

    def __init__(
        self,
        spec: MachineSpec,
        program: Program,
        *,
        engine: str = "fast",
        strict: bool = False,
    ) -> None:
        """Check that the program fits, then load every PE. `strict`: reading never-written SRAM is a fault.

        Wafers may run in host threads of their own: the fast engine releases Python's lock (see Chain).
        """
        if engine not in ENGINES:
            raise Usage(f"engine {engine!r}; legal: {', '.join(ENGINES)}")
        check_fit(spec, program)
        self.spec = spec
        self.program = program
        self.engine = engine
        self.stride = sram.stride_of(program)
        rows = program.width * program.height
        self.sram = sram.allocate(rows, self.stride)  # (H * W, stride) uint8, row y * W + x
        self.written = np.zeros((rows, self.stride), bool) if strict else None  # bytes ever written, or None
        self._of_kernel = [
            np.flatnonzero(program.placement.ravel() == k) for k in range(len(program.kernels))
        ]
        self._load()

    # --- memory ---

    def write(self, symbol: str, array: object, *, at: tuple[int, ...] | None = None) -> None:
        """Give a symbol's values to every PE that has it, or to the PEs of `at` = (x, y) or (x0, y0, x1, y1).

        `array` is (H, W, *shape) of the grid or rectangle, or (*shape), the same for each PE. Its dtype is
        the declared type's: f16 np.float16, f32 np.float32, i16 np.int16, i32 np.int32; bf16 np.uint16 (bit
        patterns); q4 and q8 np.uint8, shape (..., groups, bytes per group).
        """
        declared, places, box = self._placed(symbol, at)
        given = wavelets.checked(symbol, array, declared.element)
        shape = wavelets.array_shape(declared)
        x0, y0, x1, y1 = box
        grid = (y1 - y0 + 1, x1 - x0 + 1)
        if given.shape not in (shape, (*grid, *shape)):
            raise Usage(
                f"`{symbol}` takes shape {shape} (the same for every PE) or {(*grid, *shape)} (rows of PEs, "
                f"columns of PEs, then the symbol); the array given has shape {given.shape}",
                category="range",
            )
        values = (
            np.ascontiguousarray(given).view(np.uint8).reshape(-1, declared.nbytes) if given.size else None
        )
        if values is None:
            return
        for address, rows in places:
            if len(values) == 1 and given.shape == shape:
                chosen = values
            else:
                y, x = np.divmod(rows, self.program.width)
                chosen = values[(y - y0) * grid[1] + (x - x0)]
            self._store(rows, address, chosen)

    def read(self, symbol: str, *, at: tuple[int, ...] | None = None) -> np.ndarray:
        """A symbol's values in its type: (H, W, *shape) of the grid or rectangle; (*shape) at (x, y).

        PEs without that symbol read as zero over the whole grid; in a rectangle they are an error.
        """
        declared, places, box = self._placed(symbol, at)
        x0, y0, x1, y1 = box
        height, width = y1 - y0 + 1, x1 - x0 + 1
        out = np.zeros((height * width, declared.nbytes), np.uint8)
        for address, rows in places:
            y, x = np.divmod(rows, self.program.width)
            out[(y - y0) * width + (x - x0)] = self.sram[rows, address : address + declared.nbytes]
        shape = wavelets.array_shape(declared)
        typed = (
            out.view(wavelets.dtype_of(declared.element))
            if out.size
            else out.astype(wavelets.dtype_of(declared.element))
        )
        if at is not None and len(at) == 2:
            return typed.reshape(shape)
        return typed.reshape(height, width, *shape)

    def symbol(self, name: str) -> Symbol:
        """The declaration of a symbol; an error with the nearest names if no kernel on the grid has it."""
        return self._placed(name, None)[0]

    # --- runs ---

    def run(
        self,
        inputs: Mapping[str, object] | None = None,
        max_cycles: int | None = None,
        *,
        wavelets_in: Mapping[str, Sequence[Lane]] | None = None,
        interrupted: Callable[[], bool] | None = None,
    ) -> Result:
        """Run the program once from cycle 0. `inputs`: input edge port -> array (lanes, *shape) of its type.

        `wavelets_in` gives ports raw wavelets instead: per lane a uint32 payload array, a bool array of
        control bits or None, and perhaps an int64 array: the cycle before which each wavelet is not there.
        `interrupted` is asked now and then; True stops the run.
        Never raises for the way a run ends: see `Result.end` and `Result.raise_for_end`.
        """
        if max_cycles is not None and max_cycles < 1:
            raise Usage(f"max_cycles is {max_cycles}; at least 1 cycle is needed")
        if max_cycles is not None and max_cycles > MOST_CYCLES:
            raise Usage(f"max_cycles is {max_cycles:,}; at most {MOST_CYCLES:,} can be counted")
        packed = self._packed(dict(inputs or {}), dict(wavelets_in or {}))
        run = _engine(self.engine)
        began = time.perf_counter()
        outcome = run(self.spec, self.program, self.sram, packed, max_cycles, self.written, interrupted)
        settings = RunSettings(
            engine=self.engine,
            strict=self.written is not None,
            max_cycles=max_cycles,
            seconds=time.perf_counter() - began,
        )
        return Result(self.spec, self.program, outcome, settings, self.sram)

    # --- inner parts ---

    def _packed(self, inputs: dict[str, object], raw: dict[str, Sequence[Lane]]) -> dict[str, list[Lane]]:
        """The wavelets of every input port, one entry per lane."""
        ports = {name: port for name, port in self.program.edge_ports.items() if not port.output}
        given = inputs.keys() | raw.keys()
        for name in sorted(given - ports.keys()):
            raise Usage(
                f"the program has no input `{name}`",
                category="name",
                help=f"its inputs: {', '.join(map(_spelled, ports.values())) or 'none'}",
            )
        for name in sorted(inputs.keys() & raw.keys()):
            raise Usage(f"input `{name}` is given twice, as an array and as wavelets")
        missing = [port for name, port in ports.items() if name not in given]
        if missing:
            raise Usage(
                f"no values for input {', '.join(map(_spelled, missing))}",
                category="name",
                help="every input edge port needs an array (lanes, *shape)",
            )
        return {
            name: wavelets.raw_lanes(port, raw[name])
            if name in raw
            else [(words, None) for words in wavelets.pack(port, inputs[name])]
            for name, port in ports.items()
        }

    def _load(self) -> None:
        """Initial data of every PE: a kernel's bytes to all its PEs at once, then per-PE values."""
        filled = (
            len(rows) * int(np.ptp(np.flatnonzero(kernel.data)))
            for kernel, rows in zip(self.program.kernels, self._of_kernel, strict=True)
            if np.any(kernel.data)
        )
        sram.check_room(sum(filled), "the wafer")
        for kernel, rows in zip(self.program.kernels, self._of_kernel, strict=True):
            if not len(rows) or not len(kernel.data):
                continue
            nonzero = np.flatnonzero(kernel.data)
            if len(nonzero):
                low, high = int(nonzero[0]), int(nonzero[-1]) + 1
                self.sram[rows, low:high] = kernel.data[low:high]
            if self.written is not None:
                self.written[rows, : len(kernel.data)] = kernel.initialised
        for name, bits in self.program.pe_values.items():
            flat = np.asarray(bits, np.uint32).ravel()
            for kernel, rows in zip(self.program.kernels, self._of_kernel, strict=True):
                symbol = kernel.symbols.get(name)
                if symbol is not None and len(rows):
                    self._store(
                        rows,
                        symbol.address,
                        flat[rows].astype("<u4").view(np.uint8).reshape(-1, 4)[:, : symbol.nbytes],
                    )

    def _store(self, rows: np.ndarray, address: int, values: np.ndarray) -> None:
        """Bytes (n or 1, nbytes) to `address` of the PEs `rows`, marked as written."""
        end = address + values.shape[1]
        self.sram[rows, address:end] = values
        if self.written is not None:
            self.written[rows, address:end] = True

    def _placed(
        self, name: str, at: tuple[int, ...] | None
    ) -> tuple[Symbol, list[tuple[int, np.ndarray]], tuple[int, int, int, int]]:
        """A symbol's declaration, (address, rows of PEs) per kernel that has it, and the rectangle meant."""
        box = self._box(at)
        found: list[tuple[Kernel, Symbol, np.ndarray]] = []
        covered = 0
        for kernel, rows in zip(self.program.kernels, self._of_kernel, strict=True):
            if at is not None:
                rows = self._inside(rows, box)
            if name in kernel.symbols and len(rows):
                found.append((kernel, kernel.symbols[name], rows))
                covered += len(rows)
        if not found:
            raise self._no_symbol(name, at)
        kernel, declared, _ = found[0]
        for other, symbol, _ in found[1:]:
            if (symbol.element, symbol.shape, symbol.group) != (
                declared.element,
                declared.shape,
                declared.group,
            ):
                raise Usage(
                    f"`{name}` is {_declared(declared)} in kernel {kernel.name} and "
                    f"{_declared(symbol)} in kernel {other.name}",
                    category="type",
                    help="name a rectangle `at` in which all PEs declare it alike",
                )
        x0, y0, x1, y1 = box
        if at is not None and covered != (x1 - x0 + 1) * (y1 - y0 + 1):
            x, y = next(self._without(name, box))
            here = self.program.kernel_at(x, y)
            what = f"kernel {here.name} has none" if here else "it is only a router"
            raise Usage(
                f"PE ({x},{y}) has no symbol `{name}`: {what}",
                category="name",
                help="name a smaller rectangle",
            )
        return declared, [(symbol.address, rows) for _, symbol, rows in found], box

    def _without(self, name: str, box: tuple[int, int, int, int]) -> Iterator[tuple[int, int]]:
        x0, y0, x1, y1 = box
        for y in range(y0, y1 + 1):
            for x in range(x0, x1 + 1):
                kernel = self.program.kernel_at(x, y)
                if kernel is None or name not in kernel.symbols:
                    yield x, y

    def _inside(self, rows: np.ndarray, box: tuple[int, int, int, int]) -> np.ndarray:
        y, x = np.divmod(rows, self.program.width)
        return rows[(x >= box[0]) & (x <= box[2]) & (y >= box[1]) & (y <= box[3])]

    def _box(self, at: tuple[int, ...] | None) -> tuple[int, int, int, int]:
        width, height = self.program.width, self.program.height
        if at is None:
            return 0, 0, width - 1, height - 1
        if len(at) not in (2, 4):
            raise Usage(f"at={at!r}; (x, y) or (x0, y0, x1, y1), both corners included")
        x0, y0, x1, y1 = (*at, *at) if len(at) == 2 else at
        if not (0 <= x0 <= x1 < width and 0 <= y0 <= y1 < height):
            raise Usage(
                f"at={tuple(at)!r} is not inside the grid of {width} x {height} PEs",
                category="range",
                help=f"x in 0..{width - 1}, y in 0..{height - 1}, corners included",
            )
        return x0, y0, x1, y1

    def _no_symbol(self, name: str, at: tuple[int, ...] | None) -> Usage:
        import difflib

        known = {s.name for k in self.program.kernels for s in k.symbols.values() if s.role == "data"}
        close = difflib.get_close_matches(name, known, n=3)
        where = "" if at is None else f" at {tuple(at)}"
        help = (
            f"did you mean {', '.join(close)}?"
            if close
            else f"symbols: {', '.join(sorted(known)[:20]) or 'none'}"
        )
        return Usage(f"no PE{where} has a symbol `{name}`", category="name", help=help)


def _engine(name: str) -> Callable[..., Outcome]:
    """The `run` of an engine, imported only when a run needs it."""
    if name == "reference":
        from .reference import run as reference

        return reference
    from .engine import run as fast

    return fast


def _declared(symbol: Symbol) -> str:
    shape = ", ".join(map(str, symbol.shape))
    group = f" in groups of {symbol.group}" if symbol.element.source_name in ("q4", "q8") else ""
    size = f"{math.prod(symbol.shape)} elements, {symbol.nbytes} bytes"
    return f".{symbol.element.source_name}[{shape}]{group} ({size})"


def _spelled(port: EdgePort) -> str:
    shape = ", ".join(map(str, (len(port.lanes), *port.shape)))
    return f"`{port.name}` ({port.element.source_name}, shape ({shape}))"
