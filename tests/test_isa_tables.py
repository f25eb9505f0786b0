"""The printed instruction table: generated pages are up to date, nothing of the table is missing."""

import json
import tomllib
from pathlib import Path

import pytest
from waferloom.isa.errors import Usage
from waferloom.isa.fields import FIELDS
from waferloom.isa.instructions import INSTRUCTIONS, Unit, encode
from waferloom.isa.spelling import operand_fields, template
from waferloom.isa.tables import (
    as_json,
    diagram,
    families,
    find_examples,
    markdown_page,
    one_page,
    text_table,
    timing,
)

ROOT = Path(__file__).parent.parent
WSE3 = tomllib.loads((ROOT / "fabric/machines/wse3.toml").read_text())


def test_docs_are_generated_from_the_table():
    written = (ROOT / "docs/isa.md").read_text("utf-8")
    assert written == markdown_page(), "run `python -m waferloom.isa.tables > docs/isa.md`"


def test_families_are_the_whole_table():
    assert [row for _, rows in families() for row in rows] == list(INSTRUCTIONS)


@pytest.mark.parametrize("machine", [None, WSE3], ids=["classes", "wse3"])
def test_every_instruction_is_in_every_form(machine):
    text, page, data = text_table(machine), markdown_page(), as_json(machine)
    assert [row["opcode"] for row in data["instructions"]] == [row.opcode for row in INSTRUCTIONS]
    for row in INSTRUCTIONS:
        assert f"{row.opcode:3}  {template(row)}" in text
        assert f"| {row.opcode} | `{template(row)}`".replace(" | r", " \\| r") in page
        assert row.meaning in text


def test_json_describes_every_bit():
    data = json.loads(json.dumps(as_json()))
    assert (data["schema"], data["word_bits"]) == (1, 32)
    for row in data["instructions"]:
        bits = [data["fields"][name] for name in ["opcode", *row["fields"]]]
        taken = [n for field in bits for n in range(field["low"], field["high"] + 1)]
        assert len(taken) == len(set(taken))
        assert set(row["operands"]) <= set(row["fields"])
    add = next(row for row in data["instructions"] if row["name"] == "vadd")
    assert add["syntax"] == "vadd.T dd, da, db | rb"
    assert add["types"] == [["i16", "i16"], ["i32", "i32"], ["f16", "f16"], ["f32", "f32"]]
    assert add["second_word"] == "launch"
    assert data["fields"]["imm"] == {
        "high": 16,
        "low": 0,
        "kind": "number",
        "signed": True,
        "minimum": -65536,
        "maximum": 65535,
        "choices": [],
    }


@pytest.mark.parametrize("row", INSTRUCTIONS, ids=lambda row: row.name)
def test_one_page(row):
    page = one_page(row.name, WSE3, "tests/run/x.loom")
    assert page.startswith(template(row) + "\n")
    assert row.meaning in page
    assert page.endswith("example  tests/run/x.loom\n")
    for name in row.fields:
        field = FIELDS[name]
        assert any(line.split()[:1] == [name] and str(field.low) in line for line in page.splitlines())


@pytest.mark.parametrize("row", INSTRUCTIONS, ids=lambda row: row.name)
def test_diagram_accounts_for_all_bits(row):
    numbers, edge, body, bottom = diagram(row)
    assert edge == bottom
    assert len(edge) == len(body)
    spans = [int(n) for n in numbers.split()]
    assert spans[0] == 31
    assert spans[-1] == 0
    assert spans == sorted(spans, reverse=True)
    names = [cell.strip() for cell in body.strip("|").split("|")]
    assert [name for name in names if name != "0"] == [
        f"{row.opcode:07b}",
        *sorted(row.fields, key=lambda name: -FIELDS[name].high),
    ]


def test_one_page_in_full():
    assert one_page("shli", WSE3) == (
        "shli rd, ra, shift\n"
        "    rd = ra << shift (0 if 32 or more)\n"
        "\n"
        " 31     25 24 21 20 17 16 6 5     0\n"
        "+---------+-----+-----+----+-------+\n"
        "| 0001101 | rd  | ra  | 0  | shift |\n"
        "+---------+-----+-----+----+-------+\n"
        "\n"
        "operand        bits  kind        legal values\n"
        "rd             24:21 register    0..15\n"
        "ra             20:17 register    0..15\n"
        "shift          5:0   number      0..63\n"
        "\n"
        "timing   1 cycle\n"
        "unit     scalar\n"
    )


def test_unknown_instruction():
    with pytest.raises(Usage, match="no instruction is called `shll`") as caught:
        one_page("shll")
    assert caught.value.help == "did you mean `shl`?"


def test_timing_of_a_machine():
    rows = {row.name: row for row in INSTRUCTIONS}
    assert timing(rows["fdiv"], WSE3) == "50 cycles"
    assert timing(rows["beq"], WSE3) == "3 or 6 cycles"
    assert timing(rows["beq"]) == "branch_not_taken or branch_taken"
    assert timing(rows["vmov"]) == "set-up copy, fill; rate i16_add, i32_add, f16_add, f32_add"
    assert timing(rows["vadd"], WSE3) == "set-up 9, then 8 (i16 f16), 4 (i32 f32) per cycle"
    assert "0.5 (f32)" in timing(rows["vmac"], WSE3)


def test_operand_order_is_that_of_the_fields():
    for row in INSTRUCTIONS:
        if row.unit is Unit.SCALAR and not row.second_word:
            values = dict.fromkeys(row.fields, 0)
            if row.types:
                values |= {"type": row.types[0][0], "source": row.types[0][1]}
            assert len(encode(row.name, values)) == 1
        in_order = [name for name in row.fields if name in operand_fields(row)]
        assert sorted(operand_fields(row)) == sorted(in_order)
        assert list(operand_fields(row)) == in_order or row.name == "recv"  # the destination comes first


def test_examples_are_found(tmp_path):
    (tmp_path / "ok_any.loom").write_text("  vadd.f32 d0, d1, d2 ; vsub\n  here: shl r1, r2, r3\n")
    (tmp_path / "ok_shl.loom").write_text("  shl r1, r2, r3\n")
    found = find_examples(tmp_path)
    assert found == {"vadd": str(tmp_path / "ok_any.loom"), "shl": str(tmp_path / "ok_shl.loom")}
