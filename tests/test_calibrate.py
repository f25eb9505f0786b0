"""`waferloom calibrate`: its table, its JSON, and exit code 1 when a row is outside its tolerance."""

import json

import pytest
from click.testing import CliRunner
from waferloom.fabric.calibration import ROWS, Row
from waferloom.programs import calibration
from waferloom.programs.cli import cli

FEW = ROWS[-2:]


@pytest.fixture(autouse=True)
def few_rows(monkeypatch):
    """Two rows are enough here; tests/calibration measures them all."""
    monkeypatch.setattr(calibration, "ROWS", FEW)


def run(*words: str):
    return CliRunner().invoke(cli, ["calibrate", "--engine", "reference", *words])


def test_the_table_is_printed():
    done = run()
    assert done.exit_code == 0
    assert all(row.what in done.output for row in FEW)
    assert "2 of 2 rows within their tolerance" in done.output


def test_json():
    done = run("--json")
    document = json.loads(done.stdout)
    assert document["end"] == "finished"
    assert [row["what"] for row in document["rows"]] == [row.what for row in FEW]
    assert all(row["within"] for row in document["rows"])


def test_a_row_outside_its_tolerance_is_a_mismatch(monkeypatch):
    wrong = Row("one hop", "cycles", 2.0, lambda bench: 3.0, 0.1, True)
    monkeypatch.setattr(calibration, "ROWS", (*FEW, wrong))
    done = run()
    assert done.exit_code == 1
    assert "OUTSIDE" in done.stdout
    assert "1 of 3 rows are outside" in done.stderr
    assert "one hop: published 2, emulated 3 cycles" in done.stderr
    assert json.loads(run("--json").stdout)["end"] == "mismatch"
