"""The packaged example programs: their expectations hold on both engines, and every instruction has one.

`pytest --update-golden` writes what came out into the files, to be reviewed as a diff.
"""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from test_run_examples import run
from waferloom.fabric.compare import outcome_differences
from waferloom.fabric.wafer import ENGINES
from waferloom.isa.instructions import BY_NAME
from waferloom.isa.tables import find_examples
from waferloom.programs.cli import cli
from waferloom.programs.expectations import differences, parse, rewritten

FOLDER = Path(__file__).parents[1] / "programs" / "examples"
FILES = sorted(FOLDER.glob("*.loom"))
RUNNABLE = [path for path in FILES if ";= expect" in path.read_text("utf-8")]
WITH_A_MISTAKE = {"relay_astray", "relay_misspelt"}  # tests/test_docs_commands.py sees what they are told


@pytest.mark.parametrize("path", RUNNABLE, ids=lambda path: path.stem)
def test_expectations_hold_on_both_engines(path: Path, update_golden: bool):
    found, wafer, result = run(path, "reference")
    if update_golden:
        path.write_text(rewritten(path.read_text("utf-8"), found, wafer, result), "utf-8")
        found = parse(path.read_text("utf-8"), path.name)
    assert not differences(found, wafer, result)
    _, other, again = run(path, next(name for name in ENGINES if name != "reference"))
    assert outcome_differences(result.outcome, again.outcome) == []
    assert (wafer.sram == other.sram).all()


def test_the_others_are_the_ones_with_a_mistake():
    assert {path.stem for path in FILES} - {path.stem for path in RUNNABLE} == WITH_A_MISTAKE


def test_every_example_says_what_it_is():
    assert not [path.name for path in FILES if not path.read_text("utf-8").startswith("; ")]


def test_every_instruction_has_an_example():
    assert set(find_examples(FOLDER)) == set(BY_NAME)


def test_isa_shows_the_example():
    """`waferloom isa NAME` ends with the place and the text of a line that uses the instruction."""
    for name in BY_NAME:
        done = CliRunner().invoke(cli, ["isa", name])
        assert done.exit_code == 0
        where, line, text = done.output.splitlines()[-1].removeprefix("example").strip().split(":", 2)
        assert re.search(rf"\b{name}\b", text), name
        shown = Path(where).read_text("utf-8").splitlines()[int(line) - 1]
        assert " ".join(shown.split(";")[0].split()) == text.strip()
