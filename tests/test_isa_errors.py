"""The table of ends: exit codes, categories, and errors that cross a process boundary whole."""

import pickle

import pytest
from waferloom.isa import errors
from waferloom.isa.errors import CATEGORIES, ENDS, Rejected, WaferloomError, end_of

CODES = {
    "finished": 0,
    "mismatch": 1,
    "usage": 2,
    "rejected": 3,
    "hang": 4,
    "limit": 5,
    "fault": 6,
    "internal": 70,
    "interrupted": 130,
}


def test_exit_codes_are_the_documented_ones():
    assert {row.name: row.exit_code for row in ENDS.values()} == CODES


@pytest.mark.parametrize("name", [name for name in CODES if name != "finished"])
def test_every_bad_end_has_its_class(name):
    cls = getattr(errors, name.capitalize())
    assert issubclass(cls, WaferloomError)
    assert cls.exit_code == CODES[name]
    assert cls.__doc__
    assert end_of(cls("x")) == end_of(cls) == ENDS[name]


@pytest.mark.parametrize("category", CATEGORIES)
def test_text_has_notes_and_help(category):
    error = Rejected("no.", category=category, notes=["because"], help="do it")
    assert str(error) == "no.\nnote: because\nhelp: do it"
    assert error.category == category


def test_unknown_category_is_refused():
    with pytest.raises(ValueError, match="unknown error category"):
        Rejected("no.", category="weather")


def test_errors_survive_pickling():
    error = Rejected("no.", category="route", notes=["because"], help="do it")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is Rejected
    assert str(copy) == str(error)
    assert (copy.category, copy.exit_code) == ("route", 3)
