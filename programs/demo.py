"""`waferloom demo`: the feed-forward matrices of a real model, as shipped in 4 bits, on an emulated wafer.

Layer 0 of SmolLM2-135M: gate and up (1,536 x 576) take the normalised activations of a prompt's five tokens,
down (576 x 1,536) the gated ones. Every output is compared with the NumPy golden twin bit for bit, and with
the model's own fp32 results.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from importlib import resources
from typing import Any

import click
import numpy as np

from ..fabric.heatmap import HeatMap
from ..fabric.result import Result
from ..fabric.spec import MachineSpec, machine
from ..isa.errors import Mismatch
from .kernels.gemv import Gemv, widest_group
from .kernels.job import same_bits
from .summary import duration
from .terminal import Progress, Terminal
from .weights import Groups, groups_of, open_gguf
from .weights.fetch import fetch

__all__ = ["GRIDS", "LARGEST_ERROR", "Figures", "run_demo"]

GRIDS = ((12, 24), (16, 16), (24, 48))  # columns, rows; the first one runs all tokens and is drawn
LARGEST_ERROR = 2e-3  # rms of the error over rms of the fp32 result
MATRICES = {"gate": "ffn_norm", "up": "ffn_norm", "down": "gated"}  # matrix -> what it multiplies
ACTIVATIONS = "smollm2_prompt0_layer0.npz"


@dataclass(frozen=True)
class Figures:
    """One matrix on one grid. Bytes per PE, cycles of one token, errors over all tokens that ran."""

    matrix: str
    outputs: int
    inputs: int
    columns: int
    rows: int
    group: int
    sram_bytes: int
    cycles: int
    formula_cycles: int
    microseconds: float
    bound_cycles: int
    bound_by: str
    share_of_peak: float
    tokens: int
    relative_error: float
    bit_equal: bool


def run_demo(
    machine: str = "wse3", engine: str = "fast", as_json: bool = False, terminal: Terminal | None = None
) -> list[Figures]:
    """Run the demo and print it. Raises FetchError without weights, Mismatch if an output is wrong."""
    terminal = terminal or Terminal()
    spec, began = _machine(machine), time.perf_counter()
    figures: list[Figures] = []
    drawn: Result | None = None
    with Progress(terminal, "SmolLM2 on a wafer") as progress:
        weights, activations = _weights(progress), _activations()
        for columns, rows in GRIDS:
            if columns > spec.grid.width or rows > spec.grid.height:
                continue
            for matrix, source in MATRICES.items():
                progress.tick(f"{matrix} on {columns} x {rows} PEs")
                first = not figures or (columns, rows) == (figures[0].columns, figures[0].rows)
                tokens = slice(None) if first else slice(-1, None)
                x, wanted = activations[source][tokens], activations[matrix][tokens]
                row, result = _multiply(spec, matrix, weights[matrix], x, wanted, columns, rows, engine)
                figures.append(row)
                drawn = drawn or result
    seconds = time.perf_counter() - began
    if as_json:
        click.echo(json.dumps(_document(spec, engine, figures, seconds), indent=1))
    elif not terminal.quiet:
        click.echo(_text(spec, figures, seconds))
        if drawn is not None:
            click.echo("\n" + _map(drawn, terminal), color=terminal.colour_for(sys.stdout))
    _judge(figures)
    return figures


def _machine(name: str) -> MachineSpec:
    return machine(name)


def _weights(progress: Progress) -> dict[str, Groups]:
    """The three matrices, their Q4_1 blocks as groups of 32, exactly."""

    def report(what: str, done: int, total: int) -> None:
        progress.tick(f"{what}{f' {100 * done // total} %' if total else ''}")

    with open_gguf(fetch("smollm2", report)) as opened:
        return {name: groups_of(opened.tensor(f"blk.0.ffn_{name}.weight")) for name in MATRICES}


def _activations() -> dict[str, np.ndarray]:
    """fp32 activations of the prompt's five tokens at layer 0: name -> (5, values)."""
    with resources.as_file(resources.files(__package__).joinpath("data", ACTIVATIONS)) as path:
        with np.load(path) as stored:
            return {name.removeprefix("p0_L0_"): stored[name] for name in stored.files}


def _multiply(
    spec: MachineSpec,
    matrix: str,
    weights: Groups,
    x: np.ndarray,
    wanted: np.ndarray,
    columns: int,
    rows: int,
    engine: str,
) -> tuple[Figures, Result]:
    """All tokens through one matrix: the weights are loaded once and stay in SRAM between the runs."""
    outputs, inputs = weights.shape
    group = widest_group(inputs, columns)
    job = Gemv.on(spec, outputs, inputs, columns, rows, kind="q4", group=group)
    w, vectors = weights.regroup(group), x.astype(np.float16)
    wafer = job.wafer(spec, {"w": w}, engine=engine)
    golden = job.golden_many(w, vectors)
    equal, given = True, np.empty_like(wanted)
    for token, vector in enumerate(vectors):
        result = wafer.run(job.feeds({"x": vector}))
        result.raise_for_end()
        given[token] = job.gather(wafer, result)["y"]
        equal &= same_bits(given[token], golden[token])
    bound = job.bound(spec)
    row = Figures(
        matrix, outputs, inputs, columns, rows, group,
        sram_bytes=max(k.sram_bytes for k in wafer.program.kernels),
        cycles=int(result.cycles),
        formula_cycles=job.cycles(spec),
        microseconds=result.microseconds,
        bound_cycles=bound.cycles,
        bound_by=bound.by,
        share_of_peak=job.share_of_peak(spec, result.cycles),
        tokens=len(x),
        relative_error=_rms(given - wanted) / _rms(wanted),
        bit_equal=bool(equal),
    )  # fmt: skip
    return row, result


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values, dtype=np.float64))))


def _judge(figures: list[Figures]) -> None:
    """The demo's claims, as an error if one does not hold."""
    for row in figures:
        where = f"{row.matrix} on {row.columns} x {row.rows} PEs"
        if not row.bit_equal:
            raise Mismatch(f"{where}: outputs differ from the golden twin")
        if row.relative_error > LARGEST_ERROR:
            raise Mismatch(f"{where}: relative error {row.relative_error:.2e}, at most {LARGEST_ERROR:g}")
        if row.cycles != row.formula_cycles:
            raise Mismatch(f"{where}: {row.cycles} cycles, the formula gives {row.formula_cycles}")


def _document(spec: MachineSpec, engine: str, figures: list[Figures], seconds: float) -> dict[str, Any]:
    return {
        "schema": 1,
        "config": {"machine": spec.name, "clock_mhz": spec.clock_mhz, "engine": engine},
        "gemv": [asdict(row) for row in figures],
        "host": {"demo_s": round(seconds, 3)},
    }


def _text(spec: MachineSpec, figures: list[Figures], seconds: float) -> str:
    """A few lines that a person understands."""
    lines = [
        f"SmolLM2-135M, layer 0, feed-forward: the 4-bit weights as shipped, on an emulated {spec.name} "
        f"at {spec.clock_mhz:g} MHz",
        "Activations enter at the north edge, each PE multiplies its tile, sums leave at the east edge.",
    ]
    grid = None
    for row in figures:
        if (row.columns, row.rows) != grid:
            grid = (row.columns, row.rows)
            tokens = f"{row.tokens} token{'s' if row.tokens > 1 else ''}"
            lines += ["", f"{row.columns} x {row.rows} = {row.columns * row.rows} PEs, {tokens}"]
            lines.append(
                "  matrix  outputs x inputs  bytes/PE  cycles     time  lower bound    peak    error  bits"
            )
        size = f"{row.outputs} x {row.inputs}"
        bound = f"{row.bound_cycles} {row.bound_by}"
        bits = "equal" if row.bit_equal else "DIFFER"
        lines.append(
            f"  {row.matrix:6}  {size:>16}  {row.sram_bytes:8,}  {row.cycles:6,}  "
            f"{duration(row.microseconds):>7}  {bound:>11}  {100 * row.share_of_peak:4.1f} %  "
            f"{row.relative_error:7.1e}  {bits}"
        )
    lines += [
        "",
        "cycles: of one token, equal to the formula. lower bound: what no program on this grid can beat, and",
        "why. peak: multiply-adds done of those all PEs could have done. error: rms, relative to the model's",
        f"own fp32 results. bits: against the golden twin in NumPy. The host took {seconds:.1f} s.",
    ]
    return "\n".join(lines)


def _map(result: Result, terminal: Terminal) -> str:
    """When each PE finished, counted from the first one that did."""
    finished = result.outcome.last_issue - result.outcome.last_issue.min()
    drawn = HeatMap("gate: when each PE finished, after the first one", finished, "cycles", result.placed)
    return drawn.text(ascii=terminal.ascii_only(sys.stdout), colour=terminal.colour_for(sys.stdout))
