"""GGUF reading: good files equal the library's own reader, and every damaged file is one clear error."""

import os
import struct
import tracemalloc
from contextlib import suppress

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from waferloom.isa.errors import Rejected, Usage
from waferloom.programs.weights import WeightFileError, open_gguf

Q4_1, Q8_0, F32 = (gguf.GGMLQuantizationType[k].value for k in ("Q4_1", "Q8_0", "F32"))
U8, U32, F64, BOOL, STRING, ARRAY = 0, 4, 12, 7, 8, 9


def text(value):
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(raw)) + raw


def key(name, kind, value):
    return text(name) + struct.pack("<I", kind) + value


def tensor(name="w", dims=(32, 2), kind=Q4_1, offset=0):
    return (
        text(name)
        + struct.pack("<I", len(dims))
        + b"".join(struct.pack("<Q", n) for n in dims)
        + struct.pack("<IQ", kind, offset)
    )


def file(keys=(), tensors=(), data=b"", version=3, magic=b"GGUF", counts=None, align=32):
    counts = counts or (len(tensors), len(keys))
    raw = magic + struct.pack("<IQQ", version, *counts) + b"".join(keys) + b"".join(tensors)
    return raw + bytes(-len(raw) % align) + data


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """A good file with every value type and four tensors, made by the library's writer."""
    path = tmp_path_factory.mktemp("gguf") / "good.gguf"
    rng = np.random.default_rng(1)
    out = gguf.GGUFWriter(str(path), "llama")
    out.add_uint8("t.u8", 250)
    out.add_int8("t.i8", -5)
    out.add_uint16("t.u16", 65_000)
    out.add_int16("t.i16", -30_000)
    out.add_uint32("t.u32", 4_000_000_000)
    out.add_int32("t.i32", -2_000_000_000)
    out.add_uint64("t.u64", 2**63)
    out.add_int64("t.i64", -(2**62))
    out.add_float32("t.f32", 0.1)
    out.add_float64("t.f64", 0.1)
    out.add_bool("t.yes", True)
    out.add_string("t.text", "w\u00e4fer")
    out.add_array("t.words", ["a", "", "\u6708"])
    out.add_array("t.numbers", [1, -2, 3])
    out.add_array("t.flags", [True, False])
    for name, kind in (("a.q4_1", "Q4_1"), ("b.q8_0", "Q8_0"), ("c.q4_0", "Q4_0")):
        values = rng.standard_normal((3, 64)).astype(np.float32)
        kind = gguf.GGMLQuantizationType[kind]
        out.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    out.add_tensor("d.f32", rng.standard_normal(5).astype(np.float32))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return path


@pytest.fixture
def refused(tmp_path):
    """Write bytes to a file, expect the reader to refuse them, return the error."""

    def check(raw):
        path = tmp_path / "bad.gguf"
        path.write_bytes(raw)
        with pytest.raises(WeightFileError) as caught:
            open_gguf(path)
        error = caught.value
        assert error.message.startswith(str(path) + ": ")
        assert "\n" not in error.message
        assert error.help
        assert (error.category, error.exit_code) == ("format", 3)
        return error

    return check


def same_as_library(path):
    reader = gguf.GGUFReader(path)
    with open_gguf(path) as weights:
        fields = {k: f for k, f in reader.fields.items() if not k.startswith("GGUF.")}
        assert set(weights.metadata) == set(fields)
        for name, field in fields.items():
            value = weights.metadata[name]
            assert (list(value) if isinstance(value, np.ndarray) else value) == field.contents()
        assert list(weights.names) == [t.name for t in reader.tensors]
        for theirs in reader.tensors:
            mine = weights.tensor(theirs.name)
            assert mine.shape == tuple(int(n) for n in theirs.shape[::-1])
            assert mine.kind == theirs.tensor_type.name
            assert mine.blocks.tobytes() == theirs.data.tobytes()
    return len(reader.tensors)


def test_good_file_equals_the_librarys_reader(sample):
    assert same_as_library(sample) == 4


def test_metadata_has_plain_types(sample):
    with open_gguf(sample) as weights:
        assert weights.key("t.yes", bool) is True
        assert weights.key("t.text", str) == "w\u00e4fer"
        assert weights.key("t.words", list) == ["a", "", "\u6708"]
        assert weights.key("t.flags", np.ndarray).dtype == np.bool_
        assert weights.key("t.u64", int) == 2**63
        with pytest.raises(WeightFileError, match=r'key "t\.text".*type str'):
            weights.key("t.text", int)
        with pytest.raises(WeightFileError, match=r"t\.text"):
            weights.key("t.txt")


def test_misspelt_tensor_gives_the_nearest_names(sample):
    with open_gguf(sample) as weights, pytest.raises(WeightFileError) as caught:
        weights.tensor("a.q4_2")
    assert caught.value.help.startswith("did you mean a.q4_1")
    assert caught.value.category == "name"


def test_arrays_are_read_only_and_outlive_the_file(sample):
    with open_gguf(sample) as weights:
        blocks = weights.tensor("a.q4_1").blocks
    assert blocks.shape == (3, 2, 20)
    assert blocks.sum() > 0
    with pytest.raises(ValueError, match="read-only"):
        blocks[0, 0, 0] = 1
    with pytest.raises(Usage, match="already closed"):
        weights.tensor("a.q4_1")


def test_a_file_that_changes_while_open_is_refused(sample, tmp_path):
    path = tmp_path / "w.gguf"
    path.write_bytes(sample.read_bytes())
    with open_gguf(path) as weights:
        with path.open("ab") as handle:
            handle.write(b"more")
        with pytest.raises(WeightFileError, match="changed while it was open"):
            weights.tensor("a.q4_1")


def test_truncation_anywhere(sample, refused):
    raw = sample.read_bytes()
    with open_gguf(sample) as weights:
        tensor = weights.tensor("d.f32")
    end = raw.rindex(tensor.blocks.tobytes()) + tensor.blocks.nbytes
    for size in range(end):
        refused(raw[:size])


def opens_or_refuses(path, raw):
    """Any bytes at all: either a file whose tensors can all be read, or one WeightFileError."""
    path.write_bytes(raw)
    with suppress(WeightFileError), open_gguf(path) as weights:
        for name in weights.names:
            assert weights.tensor(name).blocks.size >= 0


def test_every_header_byte_damaged(sample, tmp_path):
    raw = sample.read_bytes()
    for at in range(raw.index(b"d.f32") + 40):
        for value in (0, 0xFF, raw[at] ^ 1, raw[at] ^ 0x80):
            opens_or_refuses(tmp_path / "bad.gguf", raw[:at] + bytes([value]) + raw[at + 1 :])


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_damage(sample, tmp_path, data):
    raw = bytearray(sample.read_bytes())
    header = raw.index(b"d.f32") + 40
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, header))
        patch = data.draw(st.binary(min_size=1, max_size=8))
        if data.draw(st.booleans()):
            raw[at : at + len(patch)] = patch
        else:
            raw[at:at] = patch
    opens_or_refuses(tmp_path / "bad.gguf", bytes(raw))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=st.binary(max_size=200), start=st.sampled_from([b"", b"GGUF", b"GGUF\x03\0\0\0"]))
def test_random_bytes(tmp_path, raw, start):
    opens_or_refuses(tmp_path / "bad.gguf", start + raw)


def one(count, kind=U8):
    """An array key that claims `count` elements and has none."""
    return key("k", ARRAY, struct.pack("<IQ", kind, count))


DATA = bytes(40)
HUGE = 2**62
BAD = {
    "empty": (b"", "empty"),
    "magic": (file(magic=b"ABCD"), "not a GGUF file"),
    "short magic": (b"GG", "ends inside the magic"),
    "older format": (file(magic=b"tjgg"), "older GGJT"),
    "version 1": (file(version=1), "version 1 is not supported"),
    "version 4": (file(version=4), "version 4 is not supported"),
    "version 0": (file(version=0), "version 0"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    "huge tensor count": (file(counts=(HUGE, 0)), "tensors cannot fit"),
    "huge key count": (file(counts=(0, HUGE)), "keys cannot fit"),
    "key too long": (file([struct.pack("<Q", HUGE) + b"k" * 99]), "key's name at byte"),
    "key of 65,536 bytes": (file([key("k" * 65_536, U8, b"\1")]), "at most 65535"),
    "empty key": (file([key("", U8, b"\1")]), "is empty"),
    "key not UTF-8": (file([key(b"\xff\xfe", U8, b"\1")]), "not UTF-8"),
    "duplicate key": (file([key("k", U8, b"\1")] * 2), '"k": the key occurs twice'),
    "value type": (file([key("k", 13, b"\1")]), '"k": unknown value type 13'),
    "truth value": (file([key("k", BOOL, b"\2")]), '"k": a truth value'),
    "string too long": (file([key("k", STRING, struct.pack("<Q", HUGE))]), '"k": the value at byte'),
    "string not UTF-8": (file([key("k", STRING, text(b"\xc3"))]), '"k": the value is not UTF-8'),
    "huge array": (file([one(HUGE)]), '"k": 4611686018427387904 array elements cannot fit'),
    "huge array of strings": (file([one(HUGE, STRING)]), '"k": 4611686018427387904 strings cannot fit'),
    "array whose size overflows 64 bits": (file([one(2**61, F64)]), "cannot fit"),
    "array of arrays": (file([one(1, ARRAY)]), "arrays of arrays"),
    "array element type": (file([one(1, 99)]), "unknown element type 99"),
    "array truth value": (file([one(2, BOOL) + b"\1\7"]), "truth value 1 of the array"),
    "alignment 0": (file([key("general.alignment", U32, bytes(4))]), "power of two, not 0"),
    "alignment 24": (file([key("general.alignment", U32, b"\x18\0\0\0")]), "power of two, not 24"),
    "alignment of another type": (file([key("general.alignment", STRING, text("x"))]), "power of two"),
    "tensor name empty": (file([], [tensor("")], DATA), "empty name"),
    "duplicate tensor": (file([], [tensor(), tensor(offset=64)], bytes(200)), '"w": the tensor occurs twice'),
    "dimensions": (file([], [tensor(dims=(1,) * 5)], DATA), '"w": 5 dimensions'),
    "huge dimension count": (file([], [text("w") + b"\xff" * 20]), "4294967295 dimensions"),
    "tensor type": (file([], [tensor(kind=4)], DATA), '"w": unknown tensor type 4'),
    "type of the future": (file([], [tensor(kind=9999)], DATA), '"w": unknown tensor type 9999'),
    "not whole blocks": (file([], [tensor(dims=(33, 2))], bytes(400)), '"w": rows of 33'),
    "a quantised scalar": (file([], [tensor(dims=())], DATA), '"w": rows of 1'),
    "misaligned offset": (file([], [tensor(offset=4)], bytes(200)), "offset 4 is not a multiple"),
    "offset outside": (file([], [tensor(offset=2**20)], DATA), "past the end of the file"),
    "huge offset": (file([], [tensor(offset=2**64 - 32)], DATA), "past the end of the file"),
    "data past the end": (file([], [tensor()], DATA[:-1]), '"w": its 40 bytes end at byte'),
    "more rows than data": (file([], [tensor(dims=(32, 3))], DATA), '"w": its 60 bytes'),
    "huge tensor": (file([], [tensor(dims=(32, 2**40))], DATA), '"w": its'),
    "shape that overflows": (file([], [tensor(dims=(2**32,) * 4)], DATA), "too many elements"),
    "zero hides overflow": (file([], [tensor(dims=(2**62, 2**62, 0), kind=F32)]), "too many elements"),
    "overlap": (file([], [tensor(), tensor("v", offset=32)], bytes(200)), '"v": its bytes .* overlap'),
    "same place": (file([], [tensor(), tensor("v")], bytes(200)), 'overlap those of tensor "[vw]"'),
}


@pytest.mark.parametrize("case", BAD)
def test_damage_is_named_without_large_allocation(case, refused):
    raw, rule = BAD[case]
    tracemalloc.start()
    error = refused(raw)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert error.message
    with pytest.raises(WeightFileError, match=rule):
        raise error
    assert peak < 2_000_000  # bytes


def test_names_from_the_file_cannot_break_the_message(refused):
    name = 'a\n"\x1b[31m' + "x" * 300
    error = refused(file([], [tensor(name, dims=(33,))], bytes(400)))
    assert "\x1b" not in error.message
    assert len(error.item) < 120


@pytest.mark.parametrize("kind", [Q8_0, F32])
def test_tensors_without_weights_load(kind, tmp_path):
    path = tmp_path / "zero.gguf"
    path.write_bytes(file([], [tensor(dims=(0, 4), kind=kind), tensor("v", dims=(32, 0), kind=kind)]))
    with open_gguf(path) as weights:
        assert weights.tensor("w").to_float32().shape == (4, 0)
        assert weights.tensor("v").to_float32().shape == (0, 32)


@pytest.mark.parametrize("bits", [0x7C00, 0xFC00, 0x7E00])
def test_weights_that_are_not_finite_are_refused(bits, tmp_path):
    path = tmp_path / "inf.gguf"
    path.write_bytes(file([], [tensor()], bytes(20) + struct.pack("<H", bits) + bytes(18)))
    with open_gguf(path) as weights, pytest.raises(WeightFileError, match=r'"w": element \(1, 0\)'):
        weights.tensor("w").to_float32()


def test_what_is_not_a_file(tmp_path, monkeypatch):
    with pytest.raises(WeightFileError, match="directory"):
        open_gguf(tmp_path)
    with pytest.raises(WeightFileError, match="no such file"):
        open_gguf(tmp_path / "none" / "x.gguf")
    (tmp_path / "model.gguf").write_bytes(b"x")
    with pytest.raises(WeightFileError, match=r"did you mean model\.gguf"):
        open_gguf(tmp_path / "modle.gguf")
    for path in ("a\0b", "x" * 5000):
        with pytest.raises(WeightFileError, match="cannot be opened"):
            open_gguf(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this platform")
def test_a_pipe_does_not_block(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(WeightFileError, match="not a regular file"):
        open_gguf(tmp_path / "pipe")


def test_no_permission(sample, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(Rejected, match="no permission"):
        open_gguf(sample)
