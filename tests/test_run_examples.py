"""Every program in tests/run on both engines: its own expectations hold, and the engines agree on everything.

`pytest --update-golden` writes what came out into the files, to be reviewed as a diff.
"""

from pathlib import Path

import pytest
from waferloom.fabric.compare import outcome_differences
from waferloom.fabric.spec import machine
from waferloom.fabric.wafer import ENGINES, Wafer
from waferloom.isa.assembler import assemble_file
from waferloom.programs.expectations import differences, feed, parse, rewritten

EXAMPLES = sorted((Path(__file__).parent / "run").glob("*.loom"))


def run(path: Path, engine: str):
    """(expectations, wafer, result) of one example."""
    found = parse(path.read_text("utf-8"), path.name)
    program = assemble_file(path, parameters=found.parameters).program
    wafer = Wafer(
        machine(found.machine or program.machine or "tiny"), program, engine=engine, strict=found.strict
    )
    inputs = feed(found, wafer)
    return found, wafer, wafer.run(inputs, found.max_cycles)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_expectations(path: Path, update_golden: bool):
    found, wafer, result = run(path, "reference")
    if update_golden:
        path.write_text(rewritten(path.read_text("utf-8"), found, wafer, result), "utf-8")
        found = parse(path.read_text("utf-8"), path.name)
    assert found.expects, f"{path.name} expects nothing"
    assert not differences(found, wafer, result)
    prefix = path.stem.partition("_")[0]
    assert prefix == {"finished": "ok"}.get(result.end, result.end), "the file's name starts with its end"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_engines_agree(path: Path):
    (_, wafer_a, a), (_, wafer_b, b) = (run(path, engine) for engine in reversed(ENGINES))
    assert outcome_differences(a.outcome, b.outcome) == []
    assert (wafer_a.sram == wafer_b.sram).all()
    if a.report is not None:
        assert a.report.text() == b.report.text()


@pytest.mark.parametrize(
    "path", [p for p in EXAMPLES if p.stem.startswith("ok_")], ids=lambda path: path.stem
)
def test_a_second_run_equals_the_first(path: Path):
    """T11: only SRAM is kept, and writing it anew gives the same run."""
    found, wafer, first = run(path, "reference")
    second = wafer.run(feed(found, wafer))
    assert outcome_differences(first.outcome, second.outcome) == []
    assert first.dumps(host=False) == second.dumps(host=False)
