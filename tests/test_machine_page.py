"""docs/machine.md against the machine files: its table of all values, and every value that its text quotes.

`pytest --update-golden` writes the table anew.
"""

import re
import tomllib
from pathlib import Path

import numpy as np
from waferloom.isa import numbers
from waferloom.isa.element_types import ElementType
from waferloom.isa.float16 import f16_from_f64

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/machine.md"
BEGIN, END = "<!-- machine files: begin -->\n", "<!-- machine files: end -->\n"
NAMES = ("tiny", "wse2", "wse3")
FILES = {name: (ROOT / f"fabric/machines/{name}.toml").read_text("utf-8") for name in NAMES}
VALUES = {name: tomllib.loads(text) for name, text in FILES.items()}


def published(name: str, section: str, key: str) -> bool:
    """Whether the machine file calls a value published."""
    if (section, key) == ("grid", "height"):
        key = "width"  # one comment for both
    body = re.split(rf"^\[{section}\]", FILES[name], flags=re.M)[1] if section else FILES[name]
    line = re.search(rf"^{key} *=.*$", body, re.M)
    assert line, (name, section, key)
    return "(published)" in line.group()


def spelled(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def table() -> str:
    """All keys of the machine files, a column per machine."""
    lines = ["| key | " + " | ".join(f"`{n}`" for n in NAMES) + " |", "|---|" + "---|" * len(NAMES)]
    sections = [("", "clock_mhz")]
    for section, body in VALUES["wse3"].items():
        if isinstance(body, dict):
            sections += [(section, key) for key in body]
    for section, key in sections:
        cells = []
        for name in NAMES:
            values = VALUES[name][section] if section else VALUES[name]
            mark = " †" if name != "tiny" and published(name, section, key) else ""
            cells.append(spelled(values[key]) + mark)
        lines.append(f"| `{f'[{section}] ' if section else ''}{key}` | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def test_the_table_of_all_values_is_up_to_date(update_golden: bool):
    page = PAGE.read_text("utf-8")
    before, rest = page.split(BEGIN)
    expected = before + BEGIN + table() + END + rest.split(END)[1]
    if update_golden:
        PAGE.write_text(expected, "utf-8")
        page = expected
    assert page == expected, "run `pytest tests/test_machine_page.py --update-golden`"


def test_the_three_files_have_the_same_keys():
    shape = {
        name: {k: set(v) if isinstance(v, dict) else None for k, v in VALUES[name].items()} for name in NAMES
    }
    assert shape["tiny"] == shape["wse2"] == shape["wse3"]


def test_every_key_that_the_text_names_exists():
    text = PAGE.read_text("utf-8").split("## 10.")[0]
    named = re.findall(r"`\[(\w+)\]\s+([a-z_, ]+)`", text)
    assert len(named) > 10
    for section, keys in named:
        for key in re.split(r",\s*", keys):
            assert key in VALUES["wse3"][section], (section, key)


def test_every_value_that_the_text_quotes_is_the_file_s():
    """`[section] key` = value, in the text; a section is remembered for a key that follows without one."""
    text = PAGE.read_text("utf-8").split("## 10.")[0]
    quoted = re.findall(r"`\[(\w+)\]\s+(\w+)`(?: at most)? = ([\d,.]+\d|\d)", text)
    assert {key for _, key, _ in quoted} >= {"bytes", "banks", "accumulators", "fp_latency", "writeback"}
    for section, key, value in quoted:
        assert VALUES["wse3"][section][key] == float(value.replace(",", "")), (section, key)
    wse3 = VALUES["wse3"]
    assert f"`bank_bytes` = {wse3['sram']['bank_bytes']} wide" in text
    assert f"t + {wse3['engine']['branch_not_taken']} (not taken)" in text
    assert f"t + {wse3['engine']['branch_taken']} (taken)" in text
    hops = {name: VALUES[name]["fabric"]["hop"] for name in NAMES}
    assert f"({hops['wse2']} on WSE-2, {hops['wse3']} on WSE-3 †)" in text
    moved = wse3["sram"]["banks"] * wse3["sram"]["bank_bytes"]
    assert f"ceil(bytes / {moved})" in text


def test_the_numbers_of_section_9():
    text = PAGE.read_text("utf-8")
    T = ElementType
    for element, pattern in ((T.F16, "0x7E00"), (T.BF16, "0x7FC0"), (T.F32, "0x7FC00000")):
        assert numbers.FORMATS[element].canonical_nan == int(pattern, 16)
        assert f"{element.source_name} {pattern}" in text
    for value, bits in ((65504.0, 0x7BFF), (65519.99, 0x7BFF), (65520.0, 0x7C00), (2**-24, 1), (2**-25, 0)):
        assert int(f16_from_f64(np.array(value)).view(np.uint16).item()) == bits
