"""Disassembly: `asm(dis(p)) == p`, every word is an instruction that comes back or is reported illegal."""

import math
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_programs import FORMATS, is_legal, random_code, random_instruction, random_program
from waferloom.isa import assembler, floating
from waferloom.isa.assembler import assemble_file, assemble_text
from waferloom.isa.data_text import UnwritableProgram, number_text
from waferloom.isa.disassembler import code_lines, disassemble_kernel, disassemble_words, place_in_data
from waferloom.isa.element_types import ElementType
from waferloom.isa.image import load_image, program_digest, save_image
from waferloom.isa.instructions import INSTRUCTIONS
from waferloom.isa.program import Program, Symbol
from waferloom.isa.records import PROVENANCE, differences, programs_equal
from waferloom.isa.regions import rectangles
from waferloom.isa.source_writer import disassemble
from waferloom.isa.spelling import Names, spell

ROOT = Path(__file__).parent.parent
INCLUDED = {"gemv_grid"}  # no program, but a part of others
MISTAKEN = {"relay_astray", "relay_misspelt"}  # examples of mistakes
EXAMPLES = sorted(
    {
        path
        for places in ("tests/*/ok_*", "tests/run/*", "programs/kernels/*", "programs/examples/*")
        for path in ROOT.glob(f"{places}.loom")
        if path.stem not in INCLUDED | MISTAKEN
    }
)
SEEDS = st.integers(0, (1 << 32) - 1)
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def unchecked(monkeypatch):
    """Random programs make no sense: assemble them without the checks of what a program does."""
    monkeypatch.setattr(assembler, "check", lambda program, **_: [])


def reassembled(program: Program) -> Program:
    return assemble_text(disassemble(program), name=program.name)


def same(a: Program, b: Program) -> None:
    assert list(differences(a, b, PROVENANCE)) == []
    assert program_digest(a) == program_digest(b)


# --- whole programs ---


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_come_back(unchecked, path, tmp_path):
    program = assemble_file(path).program
    same(reassembled(program), program)
    save_image(program, tmp_path / "image")
    loaded = load_image(tmp_path / "image")
    assert programs_equal(loaded, program)
    same(reassembled(loaded), program)
    assert disassemble(reassembled(program)) == disassemble(program)


@QUICK
@given(seed=SEEDS)
def test_random_programs_come_back(unchecked, seed):
    program = random_program(seed)
    same(reassembled(program), program)


@QUICK
@given(seed=SEEDS)
def test_random_programs_survive_an_image(tmp_path_factory, seed):
    program = random_program(seed)
    path = tmp_path_factory.getbasetemp() / "random.image"
    save_image(program, path)
    assert list(differences(load_image(path), program)) == []


# --- code ---

_QUEUES = "\n".join(f"  in i{n}: {n}\n  out o{n}: {n}" for n in range(8))
_TASKS = "\n".join(f"  task t{n} id {n}" for n in range(32))


def assemble_code(lines: list[str]) -> list[int]:
    """The words of code lines in a kernel that has all queues and all tasks."""
    text = f".kernel k\n.queues\n{_QUEUES}\n.code\n{_TASKS}\n" + "\n".join(lines) + "\n.layout\n  grid 1, 1\n"
    return assemble_text(text).kernels[0].code.tolist()


NAMES = Names(in_queue=lambda n: f"i{n}", out_queue=lambda n: f"o{n}")


@pytest.mark.parametrize("row", INSTRUCTIONS, ids=lambda row: row.name)
def test_every_instruction_comes_back(unchecked, row):
    rng = Random(row.opcode)
    code = [word for _ in range(30) for word in random_instruction(rng, row)]
    lines = list(code_lines(code, NAMES))
    assert all(line.decoded and line.decoded.row is row for line in lines)
    assert assemble_code([line.text for line in lines]) == code


@QUICK
@given(seed=SEEDS)
def test_random_code_comes_back(unchecked, seed):
    code = random_code(Random(seed), 100, wild=0.3)
    assert assemble_code([line.text for line in code_lines(code, NAMES)]) == code


@QUICK
@given(words=st.lists(st.integers(0, (1 << 32) - 1), max_size=50))
def test_any_word_comes_back_or_is_reported(unchecked, words):
    for word in words:
        (line, *_) = code_lines([word], NAMES)
        assert (line.remark == "") == is_legal(word)
        assert line.text.startswith(".word") == line.remark.startswith("illegal: ")
    assert assemble_code([line.text for line in code_lines(words, NAMES)]) == words


def test_short_formats_exhaustively(unchecked):
    """All words of two formats, legal or not: `end` with every low bit pattern, `jr` with every register."""
    for opcode, bits in ((76, 10), (26, 9)):
        words = [opcode << 25 | n << (25 - bits) for n in range(1 << bits)]
        assert assemble_code([line.text for line in code_lines(words, NAMES)]) == words


def test_a_label_inside_an_instruction_splits_it(unchecked):
    words = [0x22000000, 0x98000000]  # li32, and its value that is also `end`
    kernel = assemble_text(
        ".kernel k\n.code\n  .word 0x22000000\ninner:\n  .word 0x98000000\n.layout\n grid 1, 1\n"
    ).kernels[0]
    assert kernel.code.tolist() == words
    text = [line.text for line in code_lines(kernel.code, Names(), frozenset(kernel.labels.values()))]
    assert text == [".word 0x22000000", "end"]


def test_words_for_people():
    kernel = assemble_file(ROOT / "tests/asm/ok_gemv_tile.loom").program.kernels[0]
    lines = disassemble_kernel(kernel)
    assert lines[0] == "0000: 59a00580           ldd d13, 176                        ; _d0"
    assert lines[-1].split() == ["000f:", "98000000", "end"]
    text = disassemble_words([0x30000003, 0xFE000000], {"loop": 3})
    assert text[0].endswith("jmp . + 3                           ; to loop")
    assert text[1].endswith("; illegal: no instruction has opcode 127")


def test_a_byte_belongs_to_the_innermost_symbol():
    symbols = {
        "a": Symbol("a", ElementType.F32, (4,), 0, 16),
        "b": Symbol("b", ElementType.I16, (2,), 8, 4),
        "c": Symbol("c", ElementType.I16, (0,), 16, 0),
    }
    assert [place_in_data(n, symbols) for n in (0, 7, 8, 11, 12, 16, 17)] == [
        "a", "a+7", "b", "b+3", "a+12", "c", None,
    ]  # fmt: skip


def test_mnemonics_are_spelled_as_documented():
    def line(name: str, **values: int) -> str:
        from waferloom.isa.instructions import decode, encode

        return spell(decode(encode(name, values), 0), 0, NAMES)

    f16, f32 = ElementType.F16, ElementType.F32
    assert line("recv", queue=3, ra=2) == "recv r2, i3"
    assert line("ld", rd=1, ra=2, disp=-4, type=f32) == "ld.f32 r1, [r2 - 4]"
    assert line("ldm", rd=1, address=8, type=f16) == "ldm.f16 r1, 8"
    assert line("li32", rd=1, value=0xFFFFFFFF) == "li32 r1, 0xffffffff"
    assert line("beq", rd=1, ra=2, offset=-3) == "beq r1, r2, . - 3"
    assert line("setd", dd=3, ra=1, part=0) == "setd d3, r1, base"
    assert line("vmac", dd=1, da=2, db=3, type=f32, source=f16) == "vmac.f32.f16 d1, d2, d3"
    assert line("vmac", dd=1, da=2, db=3, type=f16, source=f16, scalar=1) == "vmac.f16 d1, d2, r3"
    launch = {"asynchronous": 1, "thread": 2, "priority": 1, "completion": 1, "launch_task": 5}
    assert line("vadd", dd=1, da=2, db=3, type=f32, advance_d=1, **launch) == (
        "vadd.f32 d1+, d2, d3 @ 2 priority high then activate 5"
    )
    assert line("vdeq", dd=1, da=2, type=f16, source=ElementType.Q4, group=3) == "vdeq.f16.q4 d1, d2 group 4"


# --- data and layout ---


@pytest.mark.parametrize("element", [ElementType.F16, ElementType.BF16])
def test_every_number_of_16_bits_comes_back(element):
    texts = []
    for bits in range(0, 1 << 16, 7):
        infinity = 0x7C00 if element is ElementType.F16 else 0x7F80
        if bits & 0x7FFF > infinity and bits != floating.bits_from_double(FORMATS[element], math.nan):
            with pytest.raises(UnwritableProgram, match="has no decimal spelling"):
                number_text(bits, element)
        else:
            texts.append((bits, number_text(bits, element)))
    shape = f"{element.source_name}[{len(texts)}]"
    values = ", ".join(text for _, text in texts)
    kernel = assemble_text(
        f".kernel k\n.data\n s: {shape} = [{values}]\n.code\n.layout\n grid 1, 1\n"
    ).kernels[0]
    assert kernel.data[: 2 * len(texts)].view("<u2").tolist() == [bits for bits, _ in texts]


def test_gaps_that_source_cannot_say_are_named(unchecked):
    program = random_program(1)
    program.kernels = [
        assemble_text(".kernel k\n.data\n a: i16[2] = 1\n.code\n.layout\n grid 1, 1\n").kernels[0]
    ]
    program.placement[:] = -1
    program.pe_values = {}
    program.kernels[0].symbols["a"].address = 6
    program.kernels[0].data = np.zeros(12, np.uint8)
    program.kernels[0].initialised = np.zeros(12, bool)
    with pytest.raises(UnwritableProgram, match="the data of kernel `k` has a gap") as caught:
        disassemble(program)
    assert caught.value.category == "unsupported"


@QUICK
@given(seed=SEEDS)
def test_rectangles_cover_exactly(seed):
    rng = np.random.default_rng(seed)
    height, width = rng.integers(1, 12, 2)
    y, x = np.indices((height, width))
    labels = [rng.integers(0, 3, (height, width)), (x + y) % 2, x % 2 + 1, (x > 2) * (y > 3) + 0][seed % 4]
    seen, count = np.zeros_like(labels), np.zeros_like(labels)
    for rectangle, label in rectangles(labels, 0):
        seen[rectangle.slices] = label
        count[rectangle.slices] += 1
    assert (seen == labels).all()
    assert count.max() <= 1


def test_a_checkerboard_is_few_rectangles():
    y, x = np.indices((200, 300))
    assert [str(r) for r, _ in rectangles((x + y) % 2, 0)] == [
        "(1..299 step 2, 0..198 step 2)",
        "(0..298 step 2, 1..199 step 2)",
    ]
