"""Operands, data, memory and grids as the assembler lays them out (T20, T21, T22)."""

import time
from pathlib import Path

import numpy as np
import pytest
from one_kernel import decoded, findings, kernel, program
from waferloom.isa import AssemblyError, assemble, assemble_text
from waferloom.isa.checks import check_fits
from waferloom.isa.program import Descriptor

ASM = Path(__file__).parent / "asm"


DATA = "  w: f16[4, 8]\n  x: f16[8]\n  acc: f32[4]\n  ring: fifo f16[6]\n  q: q4[2, 64]\n  w2: f16[2, 3, 4]"


@pytest.mark.parametrize(("line", "expected"), [
    ("vmac.f32.f16 acc[i], w[i, j], x[j]", [(0x50, (4, 8), (4, 0)), (0, (32,), (2,)), (0x40, (4, 8),
    (0, 2))]),
    ("vmov.f16 x, w[1, j]", [(0x40, (8,), (2,)), (16, (8,), (2,))]),
    ("vmov.f16 x[2*i + 1], w[3 - i, 0] over i:4", [(0x42, (4,), (4,)), (48, (4,), (-16,))]),
    ("vmov.f16 w2[i, j, k], r1", [(0xC0, (24,), (2,))]),
    ("vmov.f16 w2[i, 1, k], r1", [(0xC8, (2, 4), (24, 2))]),
    ("vmov.f16 w2[i, j, k], r1 over k:4, i:2, j:3", [(0xC0, (4, 6), (2, 8))]),
    ("vdeq.f16.q4 x[j] , q[1, j + 32] over j:32", None),
    ("vdeq.f16.q4 d0, q[1, j + 32] over j:32", [(0x70 + 60, (32,), (0,))]),
    ("vmov.f16 ring, x", [(0x60, (8, 6), (0, 0)), (0x40, (8,), (2,))]),
    ("vmov.f16 x, west", [(0x40, (8,), (2,)), (0, (8,), (0,))]),
    ("vadd.f16 x, x, west.single", [(0x40, (8,), (2,)), (0, (8,), (0,))]),
])  # fmt: skip
def test_descriptors(line: str, expected) -> None:
    if expected is None:
        assert "range" in findings(f"  {line}", DATA)[0]
        return
    k = kernel(f"  {line}", DATA)
    found = []
    for symbol in k.symbols.values():
        if symbol.role == "descriptor":
            d = Descriptor.from_halfwords(k.data[symbol.address :][: symbol.nbytes].view("<u2").tolist())
            found.append((d.base, d.extents, d.strides))
    assert found == expected


def test_equal_descriptors_are_stored_once_and_loaded_once_per_line() -> None:
    k = kernel("  vadd.f32 z, z, z\n  vadd.f32 z[i], z[i], r1")
    assert [d.row.name for d in decoded(k)] == ["ldd", "vadd", "ldd", "vadd", "end"]
    assert sum(symbol.role == "descriptor" for symbol in k.symbols.values()) == 1
    assert decoded(k)[1].values["dd"] == decoded(k)[1].values["db"] == 13


def test_data_layout_and_initial_values() -> None:
    data = """  a: i16 = -2
  b: f32[2] = [1.5, -inf]
  align 32
  c: f16[3] = 2
  o: i16[2] at c + 2
  d: descriptor b[i]
  e: descriptor [1, 2, 3]"""
    k = kernel("  ldd d1, d", data)
    places = {name: (s.address, s.nbytes) for name, s in k.symbols.items()}
    assert places == {"a": (0, 2), "b": (4, 8), "c": (32, 6), "o": (34, 4), "d": (38, 8), "e": (46, 6)}
    assert k.data[:12].view("<u4").tolist() == [0x0000FFFE, 0x3FC00000, 0xFF800000]
    assert k.data[32:38].view("<u2").tolist() == [0x4000] * 3
    assert k.data[38:46].view("<u2").tolist() == [0, 4, 2, 4]
    assert k.initialised.sum() == 2 + 8 + 6 + 8 + 6


def test_values_per_pe() -> None:
    text = """.kernel k
.data
  i: i16 = 7
  s: f16 = 1
.code
task start entry
  end
.layout
  grid 3, 2
  place k at (0..1, *) { s = x ? y / x : 0.5 }
  place k at (2, *) { i = x - 10 * y }
"""
    p = assemble_text(text)
    assert p.pe_values["i"].tolist() == [[7, 7, 2], [7, 7, 0xFFF8]]
    assert p.pe_values["s"].tolist() == [[0x3800, 0, 0x3C00], [0x3800, 0x3C00, 0x3C00]]


def test_the_longest_vectors_assemble() -> None:
    for count in (16383, 16384, 65535):
        assert "vmov" in [d.row.name for d in decoded(kernel(f"  vmov.f32 east[{count}], r1"))]


# --- T20, T21: memory ---
def test_memory_that_just_fits_and_one_word_more() -> None:
    p = program("", "  big: f32[1021]\n  small: f16[2]")
    assert p.kernels[0].sram_bytes == 4092
    check_fits(p, 4092)
    with pytest.raises(AssemblyError) as caught:
        check_fits(p, 4088)
    text = str(caught.value)
    assert "takes 4092 bytes, over by 4 bytes" in text
    assert "map of one PE" in text
    assert "largest: big: f32[1021] 4084 bytes, small: f16[2] 4 bytes, code 4 bytes" in text


def test_code_that_does_not_fit_has_its_own_message() -> None:
    p = program("  repeat i in 1..1100 { nop }", "  small: f16[2]")
    with pytest.raises(
        AssemblyError, match="the code of kernel `k` alone takes 4404 bytes, over by 308 bytes"
    ):
        check_fits(p, 4096)


def test_machine_limits() -> None:
    p = assemble(ASM / "ok_gemv_tile.loom")
    check_fits(p, 49152, grid=(4, 4), in_queues=2, out_queues=1, reserved_colours=[23])
    for limits, text in (
        ({"grid": (3, 4)}, "a grid of 4 x 4 PEs does not fit on tiny: 3 x 4"),
        ({"in_queues": 1}, "input queue 1 (`west`) does not exist on tiny; legal: 0..0"),
        ({"reserved_colours": [0, 23]}, "colour 0 (`x_down`) is reserved on tiny"),
    ):
        with pytest.raises(AssemblyError) as caught:
            check_fits(p, 49152, machine="tiny", **limits)
        assert text in str(caught.value)
    assert "legal colours: 1, 2, 3" in str(caught.value)


# --- big and odd grids ---
@pytest.mark.parametrize(("cols", "rows"), [(1, 1), (1, 7), (7, 1), (3, 5)])
@pytest.mark.parametrize("name", ["ok_gemv_tile", "ok_row_broadcast", "ok_column_reduction"])
def test_odd_grids(name: str, cols: int, rows: int) -> None:
    p = assemble(ASM / f"{name}.loom", cols=cols, rows=rows)
    assert (p.width, p.height) == (cols, rows)
    assert (p.placement >= 0).all()


def test_a_full_wafer_assembles_quickly() -> None:
    assemble(ASM / "ok_gemv_tile.loom")
    start = time.perf_counter()
    p = assemble(ASM / "ok_gemv_tile.loom", cols=755, rows=1170)
    assert time.perf_counter() - start < 5
    assert np.unique(p.in_colour[..., 1]).tolist() == [1, 2, 3]


def test_a_finding_on_a_big_grid_is_one_rectangle() -> None:
    text = (ASM / "ok_gemv_tile.loom").read_text("utf-8").replace("N -> S, RAMP", "N -> S")
    with pytest.raises(AssemblyError) as caught:
        assemble_text(text, cols=700, rows=900)
    texts = [finding.text for finding in caught.value.diagnostics]  # one for each `place`
    assert "at PEs (0, 0..898)" in texts[0]
    assert "at PEs (1..699, 0..898)" in texts[1]
    assert len(texts) == 2
