"""Calibration: published measurements of the machine beside what the emulator gives, one small program each.

Measures only, and judges by the row's own tolerance; never adjusts anything. `calibrate` runs all rows on
either engine; `table` is the table of docs/machine.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np

from ...isa import assemble_text
from ...isa.program import Program
from ..outcome import Outcome
from ..spec import MachineSpec, machine
from ..wafer import Wafer

__all__ = ["ROWS", "Bench", "Measured", "Row", "calibrate", "table"]

BEFORE, AFTER = 14, 15  # registers that hold the cycle of the `tsc` before and after what is measured
LONG = 4096  # elements of the long vectors
SHORT = 1024  # elements of the shorter one of the two runs that give a set-up


class Bench:
    """Runs the programs of this folder on one engine."""

    def __init__(self, engine: str = "reference") -> None:
        self.engine = engine
        self._runs: dict[tuple, Outcome] = {}

    def run(self, program: str, machine_name: str = "wse3", /, **parameters: int) -> Outcome:
        """The outcome of `<program>.loom`, which must finish."""
        key = (program, machine_name, tuple(sorted(parameters.items())))
        if key not in self._runs:
            assembled = _assembled(program, tuple(sorted(parameters.items())))
            wafer = Wafer(machine(machine_name), assembled, engine=self.engine)
            words = {
                name: np.zeros((len(port.lanes), *port.shape), np.int32)
                for name, port in assembled.edge_ports.items()
                if not port.output
            }
            outcome = wafer.run(words).outcome
            if outcome.end != "finished":
                raise AssertionError(f"calibration program {program} ended by {outcome.end}")
            self._runs[key] = outcome
        return self._runs[key]

    def following(self, program: str, **parameters: int) -> int:
        """Cycles from the measured instruction's dispatch to that of the next one."""
        registers = self.run(program, **parameters).registers[0, 0].astype(np.int64)
        return int(registers[AFTER] - registers[BEFORE]) - 1

    def executed(self, program: str, **parameters: int) -> int:
        """Cycles from the first dispatch to the last execution."""
        return self.following(program, **parameters) - 1 + machine("wse3").engine.writeback

    def per_element(self, program: str, n: int = LONG, **parameters: int) -> float:
        """Cycles per element in steady state: the slope between two lengths."""
        long, short = (self.executed(program, n=k, **parameters) for k in (n, SHORT))
        return (long - short) / (n - SHORT)

    def setup(self, program: str, n: int = LONG, **parameters: int) -> float:
        """Cycles besides the steady state: the intercept."""
        slope = self.per_element(program, n, **parameters)
        return self.executed(program, n=n, **parameters) - n * slope

    def average(self, program: str, n: int = LONG, **parameters: int) -> float:
        """Elements per cycle over one long vector, set-up included."""
        return n / self.executed(program, n=n, **parameters)


@cache
def _assembled(program: str, parameters: tuple[tuple[str, int], ...]) -> Program:
    source = resources.files(__package__).joinpath(f"{program}.loom").read_text("utf-8")
    return assemble_text(source, name=program, **dict(parameters))


@dataclass(frozen=True)
class Row:
    """One published number. `tolerance` is absolute in the row's unit, or relative if `relative`."""

    what: str
    unit: str
    published: float
    measure: Callable[[Bench], float]
    tolerance: float = 0.0
    relative: bool = False
    note: str = ""

    @property
    def limit(self) -> str:
        """The tolerance in words."""
        if not self.tolerance:
            return "exact"
        return f"{100 * self.tolerance:g} %" if self.relative else f"{self.tolerance:g}"


@dataclass(frozen=True)
class Measured:
    """A row and what the emulator gives."""

    row: Row
    emulated: float

    @property
    def within(self) -> bool:
        """Whether the difference is within the row's tolerance."""
        allowed = self.row.tolerance * (abs(self.row.published) if self.row.relative else 1)
        return abs(self.emulated - self.row.published) <= allowed + 1e-9


def _vectors() -> list[Row]:
    rate, cycles, per = "elements per cycle", "cycles", "cycles per element"
    rows = [
        Row("f16 copy, steady state", rate, 8.0, lambda b: 1 / b.per_element("copy")),
        Row("f32 copy, steady state", rate, 4.0, lambda b: 1 / b.per_element("copy", wide=1)),
    ]
    long = f"over {LONG:,} elements; the published length is not known"
    for what, published, setup, program, parameters in (
        ("fill", 7.93, 8, "fill", {}),
        ("f16 copy", 7.85, 8, "copy", {}),
        ("f16 element-wise add", 3.96, 9, "elementwise", {}),
        ("f16 element-wise multiply", 3.96, 9, "elementwise", {"op": 1}),
        ("i16 add", 3.94, 9, "elementwise", {"op": 2}),
        ("axpy (multiply-add with a scalar)", 3.94, 13, "axpy", {}),
    ):
        rows.append(
            Row(f"{what}, long vector", rate, published, _average(program, parameters), 0.01, True, long)
        )
        rows.append(Row(f"{what}, set-up", cycles, setup, _setup(program, parameters)))
    narrow: dict[str, int] = {}
    apart = "operands half of the banks apart; all in one bank they take 3 cycles per group"
    wide = {"wide": 1, "n": 2048}
    return [
        *rows,
        Row("f16 multiply-add in memory", rate, 4.0, lambda b: 1 / b.per_element("multiply_add"), note=apart),
        Row("f16 multiply-add in memory, set-up", cycles, 16, _setup("multiply_add", narrow)),
        Row(
            "f32 multiply-add in memory",
            rate,
            0.5,
            lambda b: 1 / b.per_element("multiply_add", **wide),
            note=apart,
        ),
        Row("f32 multiply-add in memory, set-up", cycles, 17, _setup("multiply_add", wide)),
        Row("reduction into a scalar", per, 2.0, lambda b: b.per_element("reduction")),
        Row("reduction into a scalar, set-up", cycles, 8, _setup("reduction", narrow)),
        Row("dot product, multiply then reduce", per, 2.25, lambda b: b.per_element("dot")),
        Row(
            "dot product, set-up",
            cycles,
            20,
            _setup("dot", narrow),
            1,
            note="with clearing and storing the sum; what the published number counts is not known",
        ),
    ]


def _average(program: str, parameters: dict[str, int]) -> Callable[[Bench], float]:
    return lambda bench: bench.average(program, **parameters)


def _setup(program: str, parameters: dict[str, int]) -> Callable[[Bench], float]:
    return lambda bench: bench.setup(program, **parameters)


def _latencies() -> list[Row]:
    cycles = "cycles"
    rows = []
    for n, last, following in ((8, 11, 8), (16, 13, 10), (64, 25, 22)):
        what = f"f16 vector add of {n} elements"
        rows.append(Row(f"{what}, to the last execution", cycles, last, _executed("elementwise", n=n)))
        rows.append(Row(f"{what}, to the next dispatch", cycles, following, _following("elementwise", n=n)))
    return [
        *rows,
        Row("scalar load, load, add, store", cycles, 7, _executed("scalar_sequence")),
        Row("branch not taken, to the next dispatch", cycles, 3, _following("branch", taken=0)),
        Row("branch taken, to the next dispatch", cycles, 6, _following("branch", taken=1)),
        Row(
            "dependent f16 operations",
            "cycles each",
            2,
            lambda b: (b.following("dependent_chain", n=64) - b.following("dependent_chain", n=32)) / 32,
        ),
        Row("one synchronous operation", cycles, 514, lambda b: b.following("synchronous", operations=1) + 1),
        Row("two of them", cycles, 1027, lambda b: b.following("synchronous", operations=2) + 1),
    ]


def _executed(program: str, **parameters: int) -> Callable[[Bench], float]:
    return lambda bench: bench.executed(program, **parameters)


def _following(program: str, **parameters: int) -> Callable[[Bench], float]:
    return lambda bench: bench.following(program, **parameters)


def _fabric() -> list[Row]:
    message = "message of 8 words, receive dispatched at 365, send at 375"
    rows = []
    for what, published, lane, place in (
        ("first word leaves", 382, 0, 0),
        ("last word leaves", 389, 0, -1),
        ("first word arrives", 384, 1, 0),
        ("last word arrives", 391, 1, -1),
    ):
        rows.append(Row(f"{message}: {what}", "cycle", published, _passed(lane, place)))
    rows.append(
        Row(
            f"{message}: completion task",
            "cycle",
            394,
            lambda b: int(b.run("message").registers[0, 1, AFTER]),
        )
    )
    rows.append(
        Row(
            "one hop",
            "cycles",
            2.0,
            lambda b: (_arrival(b.run("hops", routers=10)) - _arrival(b.run("hops", routers=2))) / 8,
        )
    )
    for words in (64, 512):
        for relays in (1, 2, 4, 8):
            rows.append(
                Row(
                    f"relay chain, {relays} x {words} words",
                    "cycles",
                    1.001 * relays * words + 16.1 * relays + 16.5,
                    _relay(relays, words),
                    0.04,
                    True,
                    "1.001 N B + 16.1 N + 16.5; from cycle 0 to the last execution",
                )
            )
    for pes, words in ((4, 16), (8, 64)):
        size = f"{words} words, {pes} PEs"
        rows.append(
            Row(
                f"WSE-2 broadcast, {size}",
                "cycles",
                words + pes + 4,
                _along_row("broadcast", pes, words),
                0,
                note="B + P + 4, from the first issue to the last, both counted",
            )
        )
        rows.append(
            Row(
                f"WSE-2 chain reduction, {size}",
                "cycles",
                words + 6 * (pes - 1),
                _along_row("chain_reduction", pes, words),
                note="B + 6 (P - 1), counted in the same way",
            )
        )
    return rows


def _passed(lane: int, place: int) -> Callable[[Bench], float]:
    """When a word left the router of a lane of the message (lane 0) or reached it (lane 1)."""

    def measure(bench: Bench) -> float:
        spec = machine("wse3")
        at_host = int(bench.run("message").outputs["passed"][lane].cycle[place])
        return at_host - spec.fabric.hop  # it left for the host in the cycle in which it left for its goal

    return measure


def _arrival(outcome: Outcome) -> int:
    return int(outcome.outputs["finish"][0].cycle[0])


def _relay(relays: int, words: int) -> Callable[[Bench], float]:
    def measure(bench: Bench) -> float:
        outcome = bench.run("relay_chain", relays=relays, words=words)
        return outcome.cycles - 1 + machine("wse3").engine.writeback

    return measure


def _along_row(program: str, pes: int, words: int) -> Callable[[Bench], float]:
    def measure(bench: Bench) -> float:
        spec: MachineSpec = machine("wse2")
        registers = bench.run(program, "wse2", pes=pes, words=words).registers.astype(np.int64)
        first = registers[0, 0, BEFORE] + 1 + spec.lead("copy")
        last = registers[0, -1, AFTER] - 1
        return int(last - first) + 1

    return measure


ROWS: tuple[Row, ...] = (*_vectors(), *_latencies(), *_fabric())


def calibrate(engine: str = "reference") -> list[Measured]:
    """Run every row on an engine (`fast` or `reference`); both give the same."""
    bench = Bench(engine)
    return [Measured(row, row.measure(bench)) for row in ROWS]


def table(measured: list[Measured]) -> str:
    """The Markdown table of docs/machine.md."""
    lines = ["| what | unit | published | emulated | tolerance | note |", "|---|---|---|---|---|---|"]
    for m in measured:
        outside = "" if m.within else "outside the tolerance; "
        lines.append(
            f"| {m.row.what} | {m.row.unit} | {_number(m.row.published)} | {_number(m.emulated)} | "
            f"{m.row.limit} | {outside}{m.row.note} |"
        )
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value - round(value)) < 1e-9 and abs(value) >= 10 else f"{value:.2f}"
