"""The assembler's other outputs: listing, bytes, hex words, symbols, JSON."""

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
from waferloom.isa.assembler import assemble_text
from waferloom.isa.errors import Usage
from waferloom.isa.image import program_digest
from waferloom.isa.instructions import decode
from waferloom.isa.listing import FORMATS, cost, emit, listing

WSE3 = tomllib.loads((Path(__file__).parent.parent / "fabric/machines/wse3.toml").read_text())
SOURCE = """\
.colour c
.kernel tile
.queues
  out east
.data
  acc: f32[4] export = 1
  k: i16 = -1
.code
task start entry
  li r1, 100_000
loop:
  vmov.f32 east, acc  ; three words
  jmp loop
.layout
  grid 1, 1
  place tile at (0, 0) { east = c }
  route c at (0, 0): RAMP -> E
  output y on east lanes 0 colour c: f32[4]
"""


@pytest.fixture
def program():
    return assemble_text(SOURCE, name="small")


def test_listing(program):
    assert listing(program, WSE3).split("\n")[:12] == [
        "kernel tile: 36 bytes of data, 6 words of code, 60 bytes of SRAM",
        "addr  words              cost                             line  source",
        " " * 62 + "  task start (id 0)",
        "0000  22200000 000186a0  1 cycle                            10  li r1, 100_000",
        " " * 62 + "  loop:",
        "0002  59a00090           1 cycle                            12  vmov.f32 east, acc  ; three words",
        "0003  59c000d0           1 cycle                            12    ldd d14, 26",
        "0004  5fbc0003           8 + n / 4                          12    vmov.f32 d13, d14",
        "0005  3001fffd           6 cycles                           13  jmp loop",
        "",
        "symbols",
        "kernel          symbol               address   bytes  type",
    ]  # fmt: skip


def test_listing_without_machine_or_source(program):
    program.sources = {}
    text = listing(program)
    assert "0004  5fbc0003           copy + n / f32_add                     vmov.f32 d13, d14" in text
    assert "0005  3001fffd           branch_taken                           jmp . - 3" in text


def test_symbol_table(program):
    lines = emit(program, "symbols").decode().split("\n")
    assert [line.split() for line in lines[:4]] == [
        ["kernel", "symbol", "address", "bytes", "type"],
        ["tile", "acc", "0", "16", "f32[4]", "export"],
        ["tile", "k", "16", "2", "i16"],
        ["tile", "_d0", "18", "8", "descriptor"],
    ]
    assert "label (word)" in emit(program, "symbols").decode()
    assert "local task 0 (word)" in emit(program, "symbols").decode()


def test_bytes_are_the_sram(program):
    content = emit(program, "bin")
    assert len(content) == program.kernels[0].sram_bytes
    assert np.frombuffer(content[:16], "<f4").tolist() == [1] * 4
    assert np.frombuffer(content[36:], "<u4").tolist() == program.kernels[0].code.tolist()
    words = [line for line in emit(program, "hex").decode().split("\n") if line and line[0] not in "/@"]
    assert b"".join(int(word, 16).to_bytes(4, "little") for word in words) == content


def test_json(program):
    tree = json.loads(emit(program, "json"))
    assert tree["schema"] == 1
    assert tree["digest"] == program_digest(program)
    kernel = tree["program"]["kernels"][0]
    assert kernel["code"][0] == "22200000"
    assert kernel["symbols"]["acc"]["shape"] == [4]
    assert kernel["instructions"][-1] == "jmp . - 3"
    assert tree["program"]["placement"] == [{"kernel": "tile", "region": "(0, 0)"}]
    assert tree["program"]["routes"] == {"0": [{"region": "(0, 0)", "route": 0}]}


def test_costs():
    def of(word: int) -> tuple[str, str]:
        decoded = decode([word], 0)
        return cost(decoded), cost(decoded, WSE3)

    assert of(0x5FBC0003) == ("copy + n / f32_add", "8 + n / 4")
    assert of(0x5FBC1003) == ("fill + n / f32_add", "8 + n / 4")
    assert of(80 << 25) == ("1 cycle", "1 cycle")


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_is_deterministic(program, form):
    assert emit(program, form) == emit(assemble_text(SOURCE, name="small"), form)


def test_wrong_calls(program):
    with pytest.raises(Usage, match="no output format `elf`"):
        emit(program, "elf")
    with pytest.raises(Usage, match="no kernel is called `tie`"):
        emit(program, "bin", kernel="tie")
    program.kernels.append(program.kernels[0])
    with pytest.raises(Usage, match="those of one kernel; the program has 2: tile, tile"):
        emit(program, "bin")
