"""The Python builder: the same programs, checks and messages as the assembler's."""

from pathlib import Path

import numpy as np
import pytest
from waferloom.isa.assembler import assemble_file, assemble_text
from waferloom.isa.builder import BF16, F16, F32, I16, I32, Q4, Builder, Code
from waferloom.isa.diagnostics import AssemblyError
from waferloom.isa.errors import Usage
from waferloom.isa.instructions import INSTRUCTIONS
from waferloom.isa.program import Descriptor, DescriptorKind, Program
from waferloom.isa.records import PROVENANCE, differences
from waferloom.isa.source_writer import disassemble

ROOT = Path(__file__).parent.parent


def same(a: Program, b: Program) -> None:
    assert list(differences(a, b, PROVENANCE)) == []


def gemv(cols: int, rows: int, mt: int = 8, nt: int = 8) -> Builder:
    """tests/asm/ok_gemv_tile.loom, written in Python."""
    b = Builder(cols, rows)
    x_down, zeros, _, odd = (b.colour(name) for name in ("x_down", "zeros", "sums_even", "sums_odd"))
    k = b.kernel("tile")
    for queue in ("x_in", "west"):
        k.input(queue)
    k.output("east")
    k.data("w", F16, (mt, nt), export=True)
    k.data("x", F16, (nt,))
    k.data("acc", F32, (mt,))
    with k.task("start", entry=True) as t:
        t.vmov(F16, "x", "x_in")
        t.li("r1", 0)
        t.vmov(F32, "acc", "r1")
        t.vmac(F32, F16, "acc[i]", "w[i, j]", "x[j]")
        t.vadd(F32, "east", "west", "acc")
        t.done()
        t.end()
    # Columns alternate between two colours: as an array, and as an expression.
    column = np.tile(np.arange(cols), (rows, 1))
    in_colour, out_colour = np.where(column % 2, 3, 2), np.where(column % 2, 2, 3)
    b.place(k, x=0, x_in=x_down, west=zeros, east=odd)
    b.place(k, x=range(1, cols), x_in=x_down, west=in_colour, east="x % 2 ? sums_even : sums_odd")
    b.route(x_down, (None, range(0, rows - 1)), "N", "S", "RAMP")
    b.route(x_down, (None, rows - 1), "N", "RAMP")
    b.route(zeros, (0, None), "W", "RAMP")
    b.route(out_colour, (None, None), "RAMP", "E")
    b.route("x % 2 ? sums_odd : sums_even", (range(1, cols), None), "W", "RAMP")
    b.input("x", "north", x_down, F16, (nt,))
    b.input("zero", "west", zeros, F32, (mt,))
    b.output("y", "east", "(3 % 2 ? sums_even : sums_odd)", F32, (mt,))
    return b


def test_builder_and_assembler_make_the_same_program():
    built = gemv(4, 4).build()
    written = assemble_file(ROOT / "tests/asm/ok_gemv_tile.loom").program
    written.parameters = {}
    same(built, written)
    same(assemble_text(disassemble(built)), written)


def test_statements_name_the_python_line():
    source = gemv(4, 4).source
    assert "    vadd.f32 east, west, acc  ; test_isa_builder.py:" in source
    lines = [line for line in source.split("\n") if line.strip() and not line.strip().startswith(".")]
    assert all("; test_isa_builder.py:" in line for line in lines if "grid" not in line)


def test_every_instruction_has_a_method():
    for row in INSTRUCTIONS:
        name = row.name + "_" * (row.name in ("and", "or", "assert"))
        assert callable(getattr(Code("task t"), name))
        assert row.name in dir(Code("task t"))
    with pytest.raises(AttributeError, match="no instruction is called `vexq`; did you mean `vexp`"):
        Code("task t").vexq  # noqa: B018


def test_all_kinds_of_statements():
    b = Builder(2, 1, name="kinds", machine="tiny")
    k = b.kernel("k")
    k.input("from", 3)
    k.output("to", 1)
    k.data("i", I16, (2, 2), init=[[1, -2], [3, 4]])
    k.data("f", BF16, (3,), init=1.5, align=16)
    k.data("q", Q4, (8,), group=8)
    k.data("o", I32, at="i + 4")
    k.data("v", F32, init=-2)
    k.fifo("ring", F16, 6)
    k.descriptor("walk", "i[a, 0]", over={"a": 2})
    k.descriptor("raw", Descriptor(DescriptorKind.MEMORY, 2, (3,), (-2,)))
    t = k.task("main", entry=True, high=True, id=5)
    t.ldd("d0", "walk")
    t.label("again")
    t.assert_("r1", 3)  # noqa: PT009
    t.add("r1", "r1", -1)
    t.bne("r1", "r2", "again")
    t.jmp("past")
    t.word(0xFFFFFFFF, 1)
    t.label("past")
    t.vmov(F16, "ring[2]", "d1+", thread=1, unblock="later")
    t.vdeq(F16, Q4, "d1", "d2", group=8)
    t.li("r3", 0.5)
    t.end()
    k.task("later", blocked=True).end()
    k.task("steer", control=9).end()
    k.task("hear", data="from").end()
    b.place(k, bind={"from": "none", "to": "none"}, v=np.array([[0.25, 1e-3]]))
    program = b.build()
    text = """
.machine tiny
.kernel k
.queues
  in from: 3
  out to: 1
.data
  i: i16[2, 2] = [1, -2, 3, 4]
  f: bf16[3] align 16 = 1.5
  q: q4[8] group 8
  o: i32 at i + 4
  v: f32 = -2
  ring: fifo f16[6]
  walk: descriptor i[a, 0] over a: 2
  raw: descriptor [0, 2, 3, -2]
.code
  task main id 5 entry priority high
    ldd d0, walk
  again:
    assert r1, 3
    add r1, r1, -1
    bne r1, r2, again
    jmp past
    .word 0xffffffff, 1
  past:
    vmov.f16 ring[2], d1+ @1 then unblock later
    vdeq.f16.q4 d1, d2 group 8
    li r3, 0.5
    end
  task later blocked
    end
  task steer control 9
    end
  task hear data from
    end
.layout
  grid 2, 1
  place k at (*, *) { from = none, to = none, v = x ? 1e-3 : 0.25 }
"""
    same(program, assemble_text(text, name="kinds"))


def test_arrays_are_cut_to_the_region():
    b = Builder(5, 4)
    k = b.kernel("k")
    k.data("rank", I32, init=-1)
    k.task("main", entry=True).end()
    rank = np.arange(20).reshape(4, 5)
    mask = rank % 3 == 0
    b.place(k, x=range(1, 5, 2), y=range(1, 4), where=mask, rank=rank)
    program = b.build()
    inside = np.zeros((4, 5), bool)
    inside[1:4, 1:5:2] = True
    inside &= mask
    assert ((program.placement == 0) == inside).all()
    assert (program.pe_values["rank"] == np.where(inside, rank, 0)).all()


def test_switches_and_masks():
    b = Builder(3, 1)
    b.colour("c")
    b.switch(
        "c", (1, 0), ("W", "RAMP", "E"), (("N", "S"), "RAMP"), ring=True, pop=True, merge=True, swap=True
    )
    assert "route c at (1, 0): W -> RAMP, E | N, S -> RAMP ring pop merge swap" in b.source
    b.route(1, np.array([[True, False, True]]), "RAMP", "N")
    assert "route 1 at (*, *) where _a0: RAMP -> N" in b.source


def test_errors_are_those_of_the_assembler():
    b = Builder(1, 1)
    k = b.kernel("k")
    k.data("acc", F32, (4,))
    with k.task("main", entry=True) as t:
        t.vadd(F16, "acc", "acc", "acc")
        t.shl("r1", "r2", 64)
        t.jmp("nowhere")
    with pytest.raises(AssemblyError) as caught:
        b.build()
    assert {"type", "range", "name"} <= {d.category for d in caught.value.diagnostics}
    assert "; test_isa_builder.py:" in str(caught.value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda b, k: b.place(k, v=np.zeros((2, 2))), r"shape \[2, 2\], the grid \[y, x\] is \[1, 3\]"),
        (lambda b, k: b.place(k, x="0..1", v=np.zeros((1, 3))), "needs a region of numbers, not `0..1`"),
        (lambda b, k: b.place(k, where="x > 1", v=np.zeros((1, 3))), "needs a region of numbers"),
        (lambda b, k: b.place(k, x=range(3, 0, -1)), "the step of a region is at least 1"),
        (
            lambda b, k: k.data("w", I16, (2,), init=[1, 2, 3]),
            r"`w` has shape \[2\], its values have shape \[3\]",
        ),
        (lambda b, k: k.task("t").vadd(F32, "a", "b", "c", lane=3), "`vadd` has no `lane=`"),
    ],
)
def test_wrong_calls(call, message):
    b = Builder(3, 1)
    k = b.kernel("k")
    with pytest.raises(Usage, match=message):
        call(b, k)
