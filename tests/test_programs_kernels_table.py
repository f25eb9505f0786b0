"""Every kernel of the table: golden bits and cycle formulas, on both engines and on all machines."""

import re
from pathlib import Path

import numpy as np
import pytest
from waferloom.fabric.spec import machine
from waferloom.isa.errors import Usage
from waferloom.programs import kernels
from waferloom.programs.kernels import KERNELS, Dequantise, Gemv, Relay, RowBroadcast
from waferloom.programs.kernels.job import same_bits

SIZES = [(name, job) for name, row in KERNELS.items() for job in (row.small, *row.awkward)]
FOLDER = Path(kernels.__file__).parent


def check(job, spec, engine, seed=0):
    ran = job.run(spec, job.example(seed), engine=engine)
    assert ran.equal, f"{job} on {spec.name}: outputs differ from the golden twin"
    assert ran.result.cycles == job.cycles(spec), f"{job} on {spec.name}"
    assert job.bound(spec).cycles <= ran.result.cycles
    return ran


@pytest.mark.parametrize(("name", "job"), SIZES, ids=lambda v: v if isinstance(v, str) else repr(v))
def test_golden_bits_and_cycles(name, job):
    spec = machine("wse3")
    ran = check(job, spec, "reference")
    fast = check(job, spec, "fast")
    assert np.array_equal(ran.result.counters.array, fast.result.counters.array)


@pytest.mark.parametrize("spec", ["tiny", "wse2"])
@pytest.mark.parametrize("name", KERNELS)
def test_formulas_hold_on_other_machines(name, spec):
    row = KERNELS[name]
    for job in (row.small, row.awkward[-1]):
        check(job, machine(spec), "reference")


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_never_read_what_was_not_written(name):
    row = KERNELS[name]
    for job in (row.small, row.awkward[0]):
        check_strict = job.run(machine("wse3"), job.example(1), engine="reference", strict=True)
        assert check_strict.equal


@pytest.mark.parametrize("name", KERNELS)
def test_larger_sizes_on_the_fast_engine(name):
    larger = {
        "relay": Relay(40, 100),
        "row_broadcast": RowBroadcast(60, 20, 501),
        "column_broadcast": kernels.ColumnBroadcast(20, 60, 501),
        "row_reduction": kernels.RowReduction(60, 20, 33),
        "column_reduction": kernels.ColumnReduction(20, 60, 33),
        "two_phase_reduction": kernels.TwoPhaseReduction(60, 3, 33),
        "tree_reduction": kernels.TreeReduction(3, 60, 33, column=True),
        "dequantise": Dequantise(20, 20, 24, 96, "q4", 16),
        "transpose": kernels.Transpose(1000, 20, 30),
        "top_k": kernels.TopK(2000, 20, 12, 5),
        "gemv_q4": Gemv(500, 700, 20, 30, "q4", 4),
        "gemv_q8": Gemv(500, 700, 20, 30, "q8", 4),
        "gemv_f16": Gemv(500, 700, 20, 30, "f16"),
        "gemv_f32": Gemv(500, 700, 20, 30, "f32"),
        "gemm_f16": kernels.Gemm(500, 700, 4, 20, 30),
    }
    check(larger[name], machine("wse3"), "fast", seed=3)


def test_every_file_belongs_to_a_kernel_and_says_what_it_costs():
    sources = {job.source for _, job in SIZES}
    files = {path.stem: path.read_text() for path in FOLDER.glob("*.loom")}
    included = {name for text in files.values() for name in re.findall(r'\.include "(\w+)\.loom"', text)}
    assert set(files) == sources | included, "a file that no kernel of the table uses"
    for name in sources:
        head = (FOLDER / f"{name}.loom").read_text().split("\n.param")[0]
        assert all(word in head for word in (";   shapes", ";   cycles"))


def test_sizes_below_one_are_refused():
    with pytest.raises(Usage, match="pes is 0"):
        Relay(0, 4)
    with pytest.raises(Usage, match="groups of 32"):
        Dequantise(1, 1, 8, 40)
    with pytest.raises(Usage, match="rows is -1"):
        Gemv(4, 4, 1, -1)


def test_same_bits_tells_zeros_apart():
    assert not same_bits(np.float32([0.0]), np.float32([-0.0]))
    assert same_bits(np.float32([np.nan]), np.float32([np.nan]))
    assert not same_bits(np.float32([1]), np.float16([1]))
