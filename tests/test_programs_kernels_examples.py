"""The kernels that are made as text have their examples in tests/run/ok_kernel_*.loom, one small size each.

A file's first comment is written by hand. The rest must be what is made here: the operands, the golden
values, the cycles, the program. `pytest --update-golden` writes it anew.
"""

from pathlib import Path

import numpy as np
import pytest
from waferloom.fabric.spec import machine
from waferloom.programs.kernels.attention_step import Attention
from waferloom.programs.kernels.steps import AllReduce, RmsNorm, RotaryPosition, SiluGate

RUN = Path(__file__).parent / "run"


def on_grid(job, values, kind):
    """`values` copied to rows and columns that they do not have of their own."""
    values = np.array(values, kind)
    return np.ascontiguousarray(np.broadcast_to(values, (job.rows, job.cols, *values.shape[2:])))


def all_reduce():
    job = AllReduce(pes=3, words=4, meet=1, lines_of_pes=2)
    ones = [[1, 0.5, -1, 1e8], [2, 0.25, -2, 1], [4, 0.125, -3, -1e8]]
    tens = [[10, 0, 7, 1], [20, 0, 7, 1e8], [40, 0, 7, -1e8]]
    return job, {"v": np.array([ones, tens], np.float32).swapaxes(0, 1)}


def rms_norm():
    job = RmsNorm(cols=2, rows=2, values=4)
    hidden, norm = [[[1, 2, 3, 4]], [[-5, 6, -7, 1000]]], [[[1, 1, 0.5, 2]], [[1, 1, -1, 0.25]]]
    return job, {"hidden": on_grid(job, hidden, np.float16), "norm": on_grid(job, norm, np.float32)}


def rope():
    job = RotaryPosition(cols=2, rows=2, vectors=1, dims=4)
    sums = [[[1, 0, 0, 1], [10, 5, -3, 4]], [[1, 2, 3, 4], [0, 0, 100, -100]]]
    rotation = [[[[-0.8, 0], [0.6, 1], [0.8, 0]]]]  # -sin, cos, sin of two angles
    step = [[[[0, 0.8], [1, 0.6]]]]  # cos, sin: a quarter turn, and a smaller one
    return job, {name: on_grid(job, v, np.float32) for name, v in locals().items() if name != "job"}


def silu_gate():
    job = SiluGate(cols=2, rows=2, neurons=4)
    sums = [[[0, 5, 1, 2, -1, 2, 20, 0.5], [-20, 1, 0.5, -4, 3, 3, 100, -1]]]  # gate, up, gate, up
    return job, {"sums": on_grid(job, sums, np.float32)}


def attention():
    job = Attention(kv_heads=1, sharing=2, rows=2, queries=1, dims=4, tokens=3)
    query = [[[1, 0, 0.5, 0]], [[0, 1, 0, -1]]]
    keys = [[[1, 0, 0, 0], [0, 1, 0, 0]], [[0, 0, 2, 0], [0, 0, 0, 1]], [[0, 5, 0, 0], [0.5, 0, 0, 0]]]
    values = [[[1, 2, 3, 4], [5, 6, 7, 8]], [[10, 20, 30, 40], [0, 0, 0, 1]], [[-1, 0, 1, 0], [0, 1, 0, 0]]]
    named = {"query": query, "keys": keys, "values": values}
    return job, {name: np.array(v, np.float16) for name, v in named.items()}


def spelt(array):
    """Nested lists, the shortest decimals that give the same bits; four and more alike at the end as one."""
    if array.ndim:
        alike = 1
        while alike < len(array) and array[-1 - alike].tobytes() == array[-1].tobytes():
            alike += 1
        if alike < 4:
            return f"[{', '.join(map(spelt, array))}]"
        first = f"[{', '.join(map(spelt, array[:-alike]))}] + " if alike < len(array) else ""
        return f"{first}[{spelt(array[-1])}] * {alike}"
    text = str(array) if array.dtype.kind == "i" else np.format_float_positional(array, trim="-")
    return "-0.0" if text == "-0" else text


def directive(head, array):
    """`;= head = value`, a line per row of PEs if one line is too long."""
    line = f";= {head} = {spelt(array)}"
    if len(line) <= 110:
        return [line]
    return _nested(f";= {head} = ", array)


def _nested(before, array):
    line = before + spelt(array)
    if len(line) <= 106 or array.ndim == 1:
        return [line]
    lines: list[str] = []
    for part in array:
        start = before + "[" if not lines else ";=" + " " * (len(before) - 1)
        lines += _nested(start, part)
        lines[-1] += ","
    return [*lines[:-1], lines[-1][:-1] + "]"]


@pytest.mark.parametrize(
    "kernel", [all_reduce, rms_norm, rope, silu_gate, attention], ids=lambda k: k.__name__
)
def test_the_example_file_is_the_kernel_with_its_golden_values(kernel, update_golden):
    job, data = kernel()
    spec, path = machine("tiny"), RUN / f"ok_kernel_{kernel.__name__}.loom"
    ran = job.run(spec, data, engine="reference", strict=True)
    assert ran.equal

    wafer, names = job.wafer(spec, data), list(data)
    names += ["tokens"] * isinstance(job, Attention)  # `load` writes how many a PE has
    lines = [";= machine tiny", ";= strict"]
    for name in names:
        lines += directive(f"write {name}", wafer.read(name))
    lines += [";= expect end = finished"]
    for name, golden in ran.golden.items():
        lines += directive(f"expect {name}", golden)
    lines += [f";= expect cycles = {ran.result.cycles}", job.text]

    text = path.read_text("utf-8")
    comment = [line for line in text.splitlines() if line.startswith("; ")]
    made = "\n".join([*comment, *lines])
    if update_golden:
        path.write_text(made, "utf-8")
    assert path.read_text("utf-8") == made
