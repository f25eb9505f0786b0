"""The published numbers: every row within its tolerance, and the table of docs/machine.md up to date."""

from pathlib import Path

import pytest
from waferloom.fabric.calibration import ROWS, Measured, Row, calibrate, table

PAGE = Path(__file__).parents[2] / "docs" / "machine.md"
BEGIN, END = "<!-- calibration: begin -->\n", "<!-- calibration: end -->\n"


@pytest.fixture(scope="module")
def measured() -> list[Measured]:
    return calibrate("reference")


def test_every_row_is_within_its_tolerance(measured):
    assert len(measured) == len(ROWS)
    assert [m.row.what for m in measured if not m.within] == []


def test_the_table_of_the_page_is_up_to_date(measured):
    page = PAGE.read_text("utf-8")
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    expected = before + BEGIN + table(measured) + END + after
    assert page == expected, "run `python tests/calibration/update.py`"


def test_a_row_outside_its_tolerance_says_so():
    row = Row("one hop", "cycles", 2.0, lambda bench: 3.0, 0.1, True, "a reason")
    found = Measured(row, 2.3)
    assert not found.within
    assert "| 2.00 | 2.30 | 10 % | outside the tolerance; a reason |" in table([found])
    assert Measured(row, 2.2).within
