"""Expectation comments: what they may say, what is refused, and how they are rewritten."""

import numpy as np
import pytest
from small_programs import kernel, outcome, program, symbol
from waferloom.fabric.result import Result, RunSettings
from waferloom.fabric.spec import machine
from waferloom.fabric.wafer import Wafer
from waferloom.isa.element_types import ElementType
from waferloom.programs import values
from waferloom.programs.expectations import ExpectationError, differences, feed, parse, rewritten

TINY = machine("tiny")


def wafer_and_result():
    data = [symbol("acc", "f16", (2,), 0), symbol("b", "bf16", (), 4), symbol("n", "i32", (2, 2), 8)]
    made = program(2, 1, [kernel(("end", {}, 1), symbols=data, data_bytes=24)])
    w = Wafer(TINY, made, engine="reference")
    return w, Result(TINY, made, outcome(made, "finished", cycles=5), RunSettings("reference"), w.sram)


def check(text: str) -> list[str]:
    w, result = wafer_and_result()
    found = parse(text, "p.loom")
    feed(found, w)
    return differences(found, w, result)


def test_everything_that_can_be_said():
    text = """\
; a comment
;= machine tiny
;= strict
  ;= max_cycles 0x10
;= param rows = -2
;= write acc(1,0) = [1.5, nan]
;= write n = [[1, 2],
;=            [3, 4]]
;= write b(0,0) = bits(0x3f80)
;= expect end = finished
;= expect cycles = 5
;= expect fault = none
;= expect acc(1, 0) = bits([0x3e00, 0x7e00])
;= expect acc(0,0) = 0
;= expect n = [[1, 2], [3, 4]]
;= expect b(0,0) = 1
;= expect idle(0,0) = 5
;= expect idle = [[5, 5]]
"""
    found = parse(text, "p.loom")
    assert (found.machine, found.strict, found.max_cycles, found.parameters) == (
        "tiny",
        True,
        16,
        {"rows": -2},
    )
    assert check(text) == []


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (";= expect cycles = 6", "p.loom:1: cycles = 5, expected 6"),
        (";= expect end = hang", "end = finished, expected hang"),
        (";= expect acc = 1", "acc[0, 0, 0] is 0x0000 (0.0), expected 0x3c00 (1.0); 4 of 4 elements differ"),
        (";= expect n(1,0) = [[0, 0], [0, -1]]", "n(1,0)[1, 1] is 0x00000000 (0), expected 0xffffffff (-1)"),
        (";= expect compute(0,0) = 1", "compute(0,0) is 0 cycles, expected 1"),
        (";= expect report = 'x'", "does not contain 'x'"),
    ],
)
def test_what_does_not_hold_is_one_line(line, text):
    (found,) = check(line)
    assert text in found


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (";= hope y = 1", "`hope y = 1` is no directive"),
        (";= expect y 1", "name = value is wanted"),
        (";= expect y = [1, 2", "a bracket is never closed"),
        (";= expect y = __import__('os')", "not a value"),
        (";= expect y = 2 ** 9999", "not a value"),
        (";= expect y = [0] * 100000000", "not a value"),
        (";= expect y(1) = 1", "(x, y) or (x0, y0, x1, y1) is wanted"),
        (";= param n = 1.5", "a whole number is wanted"),
        (";= expect nothing = 1", "no output, symbol or counter has this name"),
        (";= write n(0,0) = [1, 2]", "shape (2,), declared is (2, 2)"),
        (";= write n(0,0) = 4294967296", "whole numbers in -2147483648..2147483647 are wanted"),
        (";= write n(0,0) = 1.5", "whole numbers in"),
        (";= write b(0,0) = 1.001", "bf16 does not hold exactly"),
        (";= input z = 1", "no such input"),
    ],
)
def test_what_is_refused_names_the_line(line, text):
    with pytest.raises(ExpectationError) as caught:
        check(f"; first\n{line}\n")
    assert str(caught.value).startswith("p.loom:2:1: error[")
    assert text in str(caught.value)


def test_rewriting_changes_only_what_differs():
    w, result = wafer_and_result()
    tail = ";= expect end = finished\ncode ; tail\n"
    text = f"; head\n;= expect cycles = 0\n;= expect acc(0,0) = [1,\n;=  2]\n{tail}"
    new = rewritten(text, parse(text, "p"), w, result)
    assert new == f"; head\n;= expect cycles = 5\n;= expect acc(0,0) = [0.0, 0.0]\n{tail}"
    assert not differences(parse(new, "p"), w, result)


@pytest.mark.parametrize("element", [ElementType.F16, ElementType.BF16, ElementType.F32, ElementType.I16])
def test_spelling_gives_back_the_same_bits(element):
    rng = np.random.default_rng(5)
    width = 4 if element is ElementType.F32 else 2
    for _ in range(50):
        array = np.frombuffer(rng.bytes(width * 6), f"<u{width}").reshape(2, 3)
        array = array.view({"F16": "<f2", "F32": "<f4", "I16": "<i2", "BF16": "<u2"}[element.name])
        back = values.typed(values.read(values.spell(array, element)), element, [(2, 3)])
        assert back.tobytes() == array.tobytes()


def test_numbers_round_once_to_the_declared_type():
    assert values.typed(65519.99, ElementType.F16, [()]).view(np.uint16) == 0x7BFF
    assert values.typed(1 + 2**-11 + 2**-30, ElementType.F16, [()]).view(np.uint16) == 0x3C01
