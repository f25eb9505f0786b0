"""The assembler on awkward texts (T32), at the limits of fields and branches (T29, T30)."""

import contextlib
import io
import random
import re
import sys
import time
from pathlib import Path

import pytest
from one_kernel import FRAME, decoded, findings, kernel, program
from waferloom.isa import AssemblyError, assemble, assemble_text
from waferloom.isa.assembler import assemble_file, encode_line
from waferloom.isa.errors import Rejected, Usage
from waferloom.isa.fields import FIELDS, LAUNCH_FIELDS, Field
from waferloom.isa.instructions import BY_NAME, decode

ASM = Path(__file__).parent / "asm"


# --- T32: texts ---
@pytest.mark.parametrize("change", [
    lambda text: text.replace("\n", "\r\n"),
    lambda text: text.replace("\n", "\r"),
    lambda text: "\ufeff" + text,
    lambda text: text.rstrip("\n"),
    lambda text: text.replace("  ", "\t"),
    lambda text: text.replace("; ", "; äöü 織機 "),
], ids=["crlf", "cr", "bom", "no_final_newline", "tabs", "non_ascii"])  # fmt: skip
def test_awkward_texts_give_the_same_program(tmp_path: Path, change) -> None:
    text = (ASM / "ok_gemv_tile.loom").read_text("utf-8")
    path = tmp_path / 'a file\'s "name".loom'
    path.write_bytes(change(text).encode("utf-8"))
    plain, changed = assemble(ASM / "ok_gemv_tile.loom"), assemble(path)
    assert (plain.kernels[0].code == changed.kernels[0].code).all()
    assert (plain.kernels[0].data == changed.kernels[0].data).all()
    assert (plain.in_colour == changed.in_colour).all()


@pytest.mark.parametrize("sum", ["-" * 20_000 + "1", "1" + " + 1" * 20_000], ids=["signs", "terms"])
def test_expressions_beyond_the_recursion_limit_are_rejected(sum) -> None:
    with pytest.raises(Rejected, match="nested too deeply, or has too many terms"):
        assemble(f".const a = {sum}\n.layout\n  grid 1, 1\n")


def test_characters_that_do_not_show_are_named_by_number() -> None:
    with pytest.raises(AssemblyError, match=r"unexpected character U\+00A0"):
        assemble(".layout\n  grid 1,\u00a01\n")


def test_a_grid_beyond_every_machine_is_rejected() -> None:
    with pytest.raises(AssemblyError, match=r"a grid of 32767 x 32767 PEs; at most 4,194,304 PEs"):
        assemble(".layout\n  grid 32767, 32767\n")


def test_standard_input(monkeypatch) -> None:
    text = (ASM / "ok_relay.loom").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert assemble("-").name == "stdin"


@pytest.mark.parametrize("text", ["", "\n", "; only a comment", "\ufeff\r\n"])
def test_an_empty_program_is_one_error(text: str) -> None:
    with pytest.raises(AssemblyError) as caught:
        assemble_text(text)
    assert str(caught.value).startswith("<text>:1:1: error[syntax]: the program declares no grid")


def test_columns_count_characters_and_the_caret_expands_tabs() -> None:
    with pytest.raises(AssemblyError) as caught:
        program("\tshl\tr3, r2, 64\t; é")
    lines = str(caught.value).split("\n")
    assert lines[0] == "<text>:9:14: error[range]: 64 does not fit in field `shift` of `shli` (0..63)"
    assert lines[1] == "   9 |         shl     r3, r2, 64      ; é"
    assert lines[2] == "     |                         ^^"


def test_the_caret_underlines_the_whole_operand() -> None:
    with pytest.raises(AssemblyError) as caught:
        program("  vmov.f32 z[i + 1], r1 over i:4")
    lines = str(caught.value).split("\n")
    assert lines[2].index("^") == lines[1].index("i + 1")
    assert lines[2].count("^") == len("i + 1")


def test_unreadable_files_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(Rejected, match="cannot read the file"):
        assemble(tmp_path / "missing.loom")
    bad = tmp_path / "latin.loom"
    bad.write_bytes(b"; ok\n; caf\xe9\n")
    with pytest.raises(Rejected, match=r"latin.loom:2:6: error\[format\]: byte 0xe9"):
        assemble(bad)


def test_at_most_twenty_findings_are_printed_and_the_rest_counted() -> None:
    with pytest.raises(AssemblyError) as caught:
        program("\n".join("  foo" for _ in range(30)))
    assert len(caught.value.diagnostics) == 30
    text = str(caught.value)
    assert text.count("error[name]") == 20
    assert text.endswith("10 more findings not shown")


def test_findings_are_sorted_and_deduplicated() -> None:
    lines = findings("  bar r1\n  repeat i in 0..9 {\n    li r1, nope\n  }\n  foo r1")
    assert [line.split(":")[0] for line in lines] == ["9", "11", "13"]


def test_findings_as_json() -> None:
    with pytest.raises(AssemblyError) as caught:
        program("  foo r1")
    row = caught.value.diagnostics[0].as_json()
    assert (row["category"], row["line"], row["column"], row["length"]) == ("name", 9, 3, 3)
    assert caught.value.exit_code == 3


def test_warnings_become_errors_with_strict() -> None:
    text = FRAME.format(data="  z: f32[4]", code="  end\ntask idle\n  nop")
    assert assemble_text(text)
    with pytest.raises(AssemblyError, match=r"error\[resource\]: task `idle` is never activated"):
        assemble_text(text, strict=True)


# --- parameters, includes, blocks ---
def test_parameters() -> None:
    text = ".const b = 2 * a\n.param a = 3\n.layout\n  grid a, b\n"
    assert (assemble_text(text).width, assemble_text(text).height) == (3, 6)
    assert assemble_text(text, a=5).height == 10
    with pytest.raises(Usage, match="no parameter"):
        assemble_text(text, aa=5)


def test_includes(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "sizes.loom").write_text(".param n = 3\n.const m = n +\n")
    main = tmp_path / "main.loom"
    main.write_text('.include "sizes.loom"\n.include "sizes.loom"\n.layout\n  grid n, m\n')
    with pytest.raises(AssemblyError, match=r"no file `sizes.loom`"):
        assemble(main)
    with pytest.raises(AssemblyError) as caught:
        assemble(main, include_dirs=[tmp_path / "lib"])
    assert [d.location.file.rsplit("/")[-1] for d in caught.value.diagnostics] == ["sizes.loom"]
    (tmp_path / "lib" / "sizes.loom").write_text(".param n = 3\n.const m = n + 1\n")
    assert assemble(main, include_dirs=[tmp_path / "lib"]).height == 4
    (tmp_path / "lib" / "sizes.loom").write_text('.include "../main.loom"\n.param n = 3\n')
    with pytest.raises(AssemblyError, match=r"includes itself"):
        assemble(main, include_dirs=[tmp_path / "lib"])


def test_blocks() -> None:
    code = """  repeat i in 0..2 { addi r1, r1, i }
  if 1 > 2 {
    trap 1
  } else if 2 > 1 {
    repeat j in 4..0 { trap 2 }
    trap 3
  } else { trap 4 }"""
    names = [f"{d.row.name} {d.values.get('imm', d.values.get('trap_code'))}" for d in decoded(kernel(code))]
    assert names == ["addi 0", "addi 1", "addi 2", "trap 3", "end None"]


# --- T29: fields ---


NUMBERS = [
    ("addi r1, r2, {}", "imm"),
    ("muli r1, r2, {}", "imm"),
    ("andi r1, r2, {}", "imm"),
    ("add r1, r2, {}", "imm"),
    ("shli r1, r2, {}", "shift"),
    ("sar r1, r2, {}", "shift"),
    ("ld.f32 r1, [r2 + {}]", "disp"),
    ("st.i16 r1, [r2 + {}]", "disp"),
    ("ldm.f32 r1, {}", "address"),
    ("ldd d1, {}", "address"),
    ("trap {}", "trap_code"),
    ("assert r1, {}", "trap_code"),
    ("activate {}", "task"),
    ("vadd.f32 d0, d1, d2 @{}", "thread"),
    ("jmp {}", "jump"),
    ("bne r1, r2, {}", "offset"),
]


@pytest.mark.parametrize(("line", "field_name"), NUMBERS, ids=[line for line, _ in NUMBERS])
def test_exactly_the_legal_numbers_are_accepted(line: str, field_name: str) -> None:
    field: Field = FIELDS.get(field_name) or LAUNCH_FIELDS[field_name]
    for value in (field.minimum, field.minimum + 1, 0, field.maximum):
        words = encode_line(line.format(value))
        assert decode(words, 0).values[field_name] == value
    for value in (field.minimum - 1, field.maximum + 1, 0xFFFFFFFF, 1 << 40):
        with pytest.raises(AssemblyError) as caught:
            encode_line(line.format(value))
        finding = caught.value.diagnostics[0]
        assert finding.category == "range"
        assert f"{field.minimum}..{field.maximum}" in finding.text
        assert finding.location.column - 1 <= line.index("{}")


@pytest.mark.parametrize(("value", "register"), [
    (0, 0), (0xFFFF, 0xFFFF), (-1, 0xFFFFFFFF), (-65536, 0xFFFF0000), (65536, 65536), (-65537, 0xFFFEFFFF),
    (0xFFFFFFFF, 0xFFFFFFFF), (1 << 31, 1 << 31), (-(1 << 31), 1 << 31),
    ("1.5f", 0x3FC00000), ("-1.5", 0xBFC00000), ("f16(1.5)", 0x3E00), ("f16(-0.0)", 0x8000),
    ("-inf", 0xFF800000),
    ("bf16(1)", 0x3F80), ("'A'", 65), ("0b1010", 10), ("0o17", 15), ("1_000", 1000),
    ("hi(0x12345678)", 0x1234),
])  # fmt: skip
def test_li_takes_every_32_bit_value_in_the_fewest_words(value, register: int) -> None:
    words = encode_line(f"li r1, {value}")
    row = decode(words, 0)
    assert row.values.get("imm", row.values.get("value")) & 0xFFFFFFFF == register
    short = register < 1 << 16 or register >= (1 << 32) - (1 << 16)
    assert len(words) == (1 if short else 2)


@pytest.mark.parametrize("value", [1 << 32, -(1 << 31) - 1, "f16(65520)", "f32(1e39)", "1e39"])
def test_li_refuses_what_has_no_32_bits(value) -> None:
    with pytest.raises(AssemblyError, match=r"error\[range\]"):
        encode_line(f"li r1, {value}")


@pytest.mark.parametrize(("text", "same"), [
    ("add r1, r2, 5", "addi r1, r2, 5"), ("sub r1, r2, 5", "addi r1, r2, -5"),
    ("shl r1, r2, 3", "shli r1, r2, 3"),
    ("mov r1, r2", "addi r1, r2, 0"), ("mov r1, 7", "li r1, 7"), ("nop", "addi r0, r0, 0"),
    ("ld.f32 r1, 8", "ldm.f32 r1, 8"), ("ld.f32 r1, [r2]", "ld.f32 r1, [r2 + 0]"),
    ("ld.f32 r1, [4 + r2 - 8]", "ld.f32 r1, [r2 - 4]"), ("li r1, 2 + 3 * 4 << 1 == 28 ? 1 : 0", "li r1, 1"),
    ("li r1, -7 / 2", "li r1, -4"), ("li r1, -7 % 4", "li r1, 1"), ("li r1, ~5 & 0xF", "li r1, 10"),
    ("li r1, 1 ? 2 : 1 / 0", "li r1, 2"), ("li r1, min(3, 2) + max(1, 9)", "li r1, 11"),
])  # fmt: skip
def test_spellings(text: str, same: str) -> None:
    assert encode_line(text) == encode_line(same)


# --- T30: branches ---
@pytest.mark.parametrize("row", ["bne r1, r2,", "jmp", "jal r3,"])
def test_branches_reach_their_field_and_not_further(row: str) -> None:
    field = FIELDS["offset" if row.startswith("bne") else "jump"]
    for distance in (field.maximum, field.minimum, 0):
        words = encode_line(f"{row} . + {distance}", pc=1 << 17)
        decoded_row = decode(words, 0)
        assert decoded_row.values[field.name] == distance
    for distance in (field.maximum + 1, field.minimum - 1):
        with pytest.raises(AssemblyError, match=f"is {distance} words away; `.*` reaches {field.legal}"):
            encode_line(f"{row} . + {distance}", pc=1 << 17)


def test_a_far_label_names_use_and_definition() -> None:
    reach = FIELDS["offset"].maximum
    near = f"  beq r1, r2, far\n  repeat i in 2..{reach} {{ nop }}\nfar:"
    assert decoded(kernel(near))[0].values["offset"] == reach
    with pytest.raises(AssemblyError) as caught:
        program(near.replace("2..", "1.."))
    finding = caught.value.diagnostics[0]
    assert finding.location.line == 9
    assert finding.notes[0][1].line == 11


def test_backwards_across_many_lines_is_fast() -> None:
    lines = "\n".join("; nothing" if n % 2 else "" for n in range(100_000))
    start = time.perf_counter()
    k = kernel(f"back:\n{lines}\n  jmp back")
    assert decoded(k)[0].values["jump"] == 0
    assert time.perf_counter() - start < 5


def test_warnings_are_given_to_tools(tmp_path: Path) -> None:
    path = tmp_path / "p.loom"
    path.write_text(FRAME.format(data="", code="  end\ntask idle\n  nop"))
    assert [w.text for w in assemble_file(path).diagnostics.warnings] == ["task `idle` is never activated"]


def test_every_instruction_has_a_message_for_missing_operands() -> None:
    for name, row in BY_NAME.items():
        suffix = "".join(f".{t.source_name}" for t in dict.fromkeys(row.types[0])) if row.types else ""
        with pytest.raises(AssemblyError) as caught:
            encode_line(f"{name}{suffix} r1, r2, r3, r4, r5")
        assert caught.value.diagnostics[0].category == "syntax", name


def test_the_documentation_shows_the_example_file() -> None:
    page = (ASM.parents[1] / "docs" / "language.md").read_text("utf-8")
    assert (ASM / "ok_gemv_tile.loom").read_text("utf-8") in page


def test_a_semicolon_between_bindings_is_explained() -> None:
    text = FRAME.format(data="", code="").replace("none, east", "none; east")
    with pytest.raises(AssemblyError, match="separate with commas or new lines") as caught:
        assemble_text(text)
    assert [d.text for d in caught.value.diagnostics] == ["`{` is not closed"]


def test_mutilated_sources_are_rejected_in_words() -> None:
    """Whatever a slip of the hand makes of a program: a program or findings, never another exception."""
    rng = random.Random(20)
    texts = [path.read_text("utf-8") for path in sorted(ASM.glob("*.loom"))]
    words = [word for text in texts for word in re.findall(r"\w+|[^\w\s]", text)]
    for _ in range(400):
        parts = re.findall(r"\w+|[^\w\s]|\s+", rng.choice(texts))
        for _ in range(rng.choice((1, 1, 2, 4))):
            place = rng.randrange(len(parts))
            parts[place : place + rng.randrange(2)] = [rng.choice(words)] * rng.randrange(2)
        with contextlib.suppress(AssemblyError):
            assemble_text("".join(parts))
