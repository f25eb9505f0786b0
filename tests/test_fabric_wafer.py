"""The wafer: loading, symbols by name with their declared type, edge ports, and the result file."""

import gc
import json

import numpy as np
import pytest
from small_programs import kernel, outcome, program, symbol
from waferloom.fabric import sram, wafer, wavelets
from waferloom.fabric.faults import FAULTS, FaultReport
from waferloom.fabric.outcome import FaultCode, FaultRecord, LaneOutput
from waferloom.fabric.result import Result, RunSettings
from waferloom.fabric.spec import machine
from waferloom.fabric.wafer import Wafer
from waferloom.isa.element_types import ElementType
from waferloom.isa.errors import Fault, Mismatch, Rejected, Usage
from waferloom.isa.program import EdgePort, Port

TINY = machine("tiny")
ACC = symbol("acc", "f16", (3,), 0)
COUNT = symbol("count", "i32", (), 8)


def two_kinds(height: int = 3, width: int = 4):
    """Kernel `a` (acc at 0, count at 8) in columns 0 and 1, then `b` (acc at 4), routers in the last."""
    a = kernel(("end", {}, 1), symbols=[ACC, COUNT], data_bytes=12, name="a")
    b = kernel(("end", {}, 1), symbols=[symbol("acc", "f16", (3,), 4)], data_bytes=10, name="b")
    a.data[8:12] = np.array([7], "<i4").view(np.uint8)
    placement = np.full((height, width), -1)
    placement[:, :2], placement[:, 2:-1] = 0, 1
    return program(width, height, [a, b], placement)


def port(element: str, packed: bool, output: bool = False, lanes: int = 2, count: int = 4) -> EdgePort:
    return EdgePort(
        "x", output, Port.W, 0, tuple(range(lanes)), ElementType[element.upper()], (count,), packed
    )


def message(call) -> str:
    with pytest.raises(Usage) as caught:
        call()
    return str(caught.value)


# --- memory ---


def test_initial_data_and_values_of_each_pe():
    made = two_kinds()
    made.pe_values["count"] = np.arange(12, dtype=np.uint32).reshape(3, 4)
    assert Wafer(TINY, two_kinds()).read("count", at=(0, 0, 1, 2)).tolist() == [[7, 7]] * 3
    assert Wafer(TINY, made).read("count", at=(0, 0, 1, 2)).tolist() == [[0, 1], [4, 5], [8, 9]]


def test_write_and_read_over_kernels_with_other_addresses():
    w = Wafer(TINY, two_kinds())
    values = np.arange(36, dtype=np.float16).reshape(3, 4, 3)
    w.write("acc", values)
    assert (w.read("acc")[:, :3] == values[:, :3]).all()
    assert (w.read("acc")[:, 3] == 0).all()
    w.write("acc", np.array([1, 2, 3], np.float16), at=(1, 1, 2, 1))
    assert w.read("acc", at=(2, 1)).tolist() == [1, 2, 3]
    assert w.read("acc", at=(2, 2)).tolist() == values[2, 2].tolist()
    assert w.read("count", at=(0, 0)) == 7


def test_strict_marks_what_was_written():
    w = Wafer(TINY, two_kinds(), strict=True)
    assert w.written is not None
    assert not w.written.any()
    w.write("acc", np.ones(3, np.float16), at=(2, 0))
    assert np.flatnonzero(w.written).tolist() == [2 * w.stride + i for i in range(4, 10)]


@pytest.mark.parametrize("given", ["float32", "uint16", "int16", "float64", "uint8"])
def test_nothing_is_reinterpreted(given):
    """T25: an array of another type is refused, with the declared type and unit."""
    w = Wafer(TINY, two_kinds())
    text = message(lambda: w.write("acc", np.ones(3, given)))
    assert "`acc` is declared f16 (f16 elements of 2 bytes)" in text
    assert given in text
    assert "astype(np.float16)" in text


def test_types_that_numpy_lacks():
    data = [symbol("b", "bf16", (2,), 0), symbol("q", "q4", (2, 64), 4), symbol("p", "q8", (8,), 84, group=8)]
    w = Wafer(TINY, program(1, 1, [kernel(("end", {}, 1), symbols=data, data_bytes=96)]))
    w.write("b", np.array([0x3F80, 0x7FC0], np.uint16))
    assert w.read("b", at=(0, 0)).tolist() == [0x3F80, 0x7FC0]
    groups = np.arange(80, dtype=np.uint8).reshape(2, 2, 20)
    w.write("q", groups)
    assert (w.read("q", at=(0, 0)) == groups).all()
    assert w.read("p", at=(0, 0)).shape == (1, 10)
    assert "bytes of q4 groups" in message(lambda: w.write("q", np.ones((2, 64), np.float16)))


def test_errors_name_symbol_shape_and_place():
    w = Wafer(TINY, two_kinds())
    assert "did you mean acc?" in message(lambda: w.read("acx"))
    assert "takes shape (3,)" in message(lambda: w.write("acc", np.ones(4, np.float16)))
    assert "PE (2,0) has no symbol `count`: kernel b has none" in message(
        lambda: w.read("count", at=(0, 0, 2, 0))
    )
    assert "it is only a router" in message(lambda: w.read("acc", at=(2, 0, 3, 0)))
    assert "x in 0..3, y in 0..2" in message(lambda: w.read("acc", at=(4, 0)))
    assert "(x0, y0, x1, y1)" in message(lambda: w.read("acc", at=(1, 2, 3)))
    made = two_kinds()
    made.kernels[1].symbols["acc"] = symbol("acc", "f32", (3,), 0)
    made.kernels[1].data = np.zeros(12, np.uint8)
    assert "in kernel a and .f32[3]" in message(lambda: Wafer(TINY, made).read("acc"))


@pytest.mark.parametrize(("width", "height"), [(1, 1), (1, 7), (7, 1), (3, 5), (16, 16)])
def test_grids_that_fit(width, height):
    """T18: any legal grid loads."""
    made = program(width, height, [kernel(("end", {}, 1), symbols=[ACC, COUNT], data_bytes=12)])
    assert Wafer(TINY, made).read("acc").shape == (height, width, 3)


@pytest.mark.parametrize(
    ("width", "height", "text"), [(0, 4, "0 x 4"), (17, 1, "does not fit on tiny: 16 x 16")]
)
def test_grids_that_do_not_fit(width, height, text):
    with pytest.raises(Rejected, match=text):
        Wafer(TINY, program(width, height, [kernel(("end", {}, 1))]))


def test_sram_exactly_full_and_one_word_over():
    """T20: headroom 0 fits; more is refused with the number of bytes and the largest symbols."""
    symbols = [symbol("big", "f16", (1000,), 0), symbol("small", "f16", (46,), 2000)]
    fits = program(1, 1, [kernel(("end", {}, 1), symbols=symbols, data_bytes=TINY.sram.bytes - 4)])
    Wafer(TINY, fits)
    over = program(
        1, 1, [kernel(("end", {}, 1), ("end", {}, 1), symbols=symbols, data_bytes=TINY.sram.bytes - 4)]
    )
    with pytest.raises(Rejected, match=r"over by 4 bytes \(4096: SRAM of tiny\)(?s:.*)largest: big"):
        Wafer(TINY, over)


def test_more_initial_data_than_the_host_has_left_is_refused(monkeypatch):
    monkeypatch.setattr(sram, "available", lambda: 1 << 30)
    sram.check_room(1 << 30, "the wafer")
    assert "no room for the SRAM of the wafer: 1.5 GiB; this host has 1.0 GiB left" in message(
        lambda: sram.check_room(3 << 29, "the wafer")
    )
    monkeypatch.setattr(sram, "available", lambda: None)  # a host that does not say
    sram.check_room(1 << 60, "the wafer")


def test_sram_is_committed_lazily_and_freed():
    """48 KiB for each PE of a whole wafer are reserved, not used; a view keeps the mapping alive."""

    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    try:
        before = resident()
    except OSError:
        pytest.skip("no /proc on this system")
    arena = sram.allocate(883_350, 49_152)
    arena[1000, :4] = 5
    assert resident() - before < 64 << 20
    view = arena[1000]
    del arena
    gc.collect()
    assert view[:4].tolist() == [5] * 4


# --- edge ports ---


def test_packing_low_half_first():
    x = np.array([[1, 2, 3, -1], [5, 6, 7, 8]], np.int16)
    packed = wavelets.pack(port("i16", True), x)
    assert [w.tolist() for w in packed] == [[0x00020001, 0xFFFF0003], [0x00060005, 0x00080007]]
    single = wavelets.pack(port("i16", False), x)
    assert single[0].tolist() == [1, 1 << 16 | 2, 2 << 16 | 3, 3 << 16 | 0xFFFF]


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("element", ["i16", "f16", "bf16", "i32", "f32"])
def test_unpack_inverts_pack(element, packed):
    rng = np.random.default_rng(3)
    kind = wavelets.dtype_of(ElementType[element.upper()])
    x = np.frombuffer(rng.bytes(8 * kind.itemsize), kind).reshape(2, 4)
    lanes = []
    for words in wavelets.pack(port(element, packed), x):
        control = np.array([True] + [False] * len(words))  # a control wavelet is no data
        lanes.append(LaneOutput(np.r_[np.uint32(9), words], control, np.arange(len(words) + 1)))
    back = wavelets.unpack(port(element, packed, output=True), lanes)
    assert back.dtype == kind
    assert back.tobytes() == x.tobytes()


def test_inputs_are_checked():
    made = two_kinds()
    made.edge_ports["x"] = port("f16", True)
    w = Wafer(TINY, made)
    good = np.ones((2, 4), np.float16)
    assert "no values for input `x` (f16, shape (2, 4))" in message(w.run)
    assert "has no input `y`" in message(lambda: w.run({"x": good, "y": good}))
    assert "`x` is declared f16" in message(lambda: w.run({"x": good.astype(np.float32)}))
    assert "takes shape (2, 4)" in message(lambda: w.run({"x": good[:, :2]}))
    assert "at least 1 cycle" in message(lambda: w.run({"x": good}, 0))
    assert "can be counted" in message(lambda: w.run({"x": good}, 10**18 + 1))
    assert "legal: fast, reference" in message(lambda: Wafer(TINY, made, engine="slow"))


def test_raw_wavelets_are_checked_and_passed_on(monkeypatch):
    seen = {}

    def engine(spec, made, memory, inputs, max_cycles, written, interrupted):
        seen.update(inputs)
        return outcome(made, "finished")

    monkeypatch.setattr(wafer, "_engine", lambda name: engine)
    made = two_kinds()
    made.edge_ports["x"] = port("f16", True)
    w = Wafer(TINY, made)
    word, bit = np.array([5], np.uint32), np.array([True])
    w.run(wavelets_in={"x": [(word, None), (word, bit)]})
    assert seen["x"][1][1] is bit
    assert "has 2 lanes" in message(lambda: w.run(wavelets_in={"x": [(word, None)]}))
    assert "uint32" in message(lambda: w.run(wavelets_in={"x": [(word, None), (word.astype(int), None)]}))
    assert "one per payload" in message(lambda: w.run(wavelets_in={"x": [(word, None), (word, bit[:0])]}))
    array = np.ones((2, 4), np.float16)
    assert "given twice" in message(lambda: w.run({"x": array}, wavelets_in={"x": [(word, None)] * 2}))


def finished(words: int = 2) -> Result:
    made = two_kinds()
    made.edge_ports["x"] = port("f16", True, output=True)
    lane = LaneOutput(
        np.full(words, 0x3C003C00, np.uint32), np.zeros(words, bool), np.arange(words, dtype=np.int64)
    )
    return Result(
        TINY,
        made,
        outcome(made, "finished", outputs={"x": [lane, lane]}),
        RunSettings("reference", seconds=1.0),
    )


def test_result_gives_arrays_counters_and_json():
    result = finished()
    assert result["x"].tolist() == [[1.0] * 4] * 2
    assert result.counters.totals["idle"] == 9 * 100
    assert (result.counters["idle"] == np.where(result.placed, 100, 0)).all()
    assert result.microseconds == pytest.approx(100 / 875)
    result.raise_for_end()
    document = json.loads(result.dumps())
    assert (document["schema"], document["end"], document["sim"]["cycles"]) == (1, "finished", 100)
    assert set(document["host"]) == {"run_s"}
    assert result.dumps(host=False) == finished().dumps(host=False)
    with pytest.raises(Usage, match=r"no output `acc`.*\n.*`wafer.read` reads a symbol"):
        result["acc"]
    with pytest.raises(Usage, match="legal: compute, bank"):
        result.counters["sleep"]


def test_wrong_number_of_wavelets_names_the_lane():
    result = finished(words=3)
    with pytest.raises(
        Mismatch, match=r"output `x`, lane 0 \(y = 0\): 3 data wavelets arrived, 2 were declared"
    ):
        result["x"]
    assert len(result.lanes["x"][0].payload) == 3


def test_memory_stays_between_runs(monkeypatch):
    def engine(spec, made, memory, inputs, max_cycles, written, interrupted):
        memory[:, 8] += 1
        return outcome(made, "finished")

    monkeypatch.setattr(wafer, "_engine", lambda name: engine)
    w = Wafer(TINY, two_kinds())
    w.run()
    w.run()
    assert w.read("count", at=(0, 0)) == 9


# --- faults ---


def test_every_fault_code_has_a_text():
    assert set(FAULTS) == set(FaultCode) - {FaultCode.NONE}
    made = two_kinds()
    for code in FAULTS:
        record = FaultRecord(code, 0, 0, 41, 0, 14, (0,))
        text = FaultReport.of(TINY, made, outcome(made, "fault", fault=record)).text()
        assert text.startswith("ring.loom:1:5: error[fault]: ")
        assert "note: PE (0,0), kernel a, cycle 41, pc 0, word 0x" in text
        assert "help: " in text
        assert "{" not in text


def test_uninitialised_read_names_the_symbol():
    """T19, T26: PE, address, symbol, the word, the last instructions."""
    made = two_kinds()
    record = FaultRecord(FaultCode.UNINITIALISED, 1, 2, 41, 0, 4, (0,))
    result = Result(TINY, made, outcome(made, "fault", fault=record), RunSettings("reference", strict=True))
    with pytest.raises(Fault, match=r"byte address 4 .*in `acc`, byte 4 of its 6"):
        result.raise_for_end()
    assert result.to_json()["report"]["fault"] == "uninitialised"
    off = FaultRecord(FaultCode.PC, 1, 2, 41, 1, 1, (0,))
    text = FaultReport.of(TINY, made, outcome(made, "fault", fault=off)).text()
    assert "word address 1, the code has words 0..0" in text
    assert "the last 1 instructions" in text
