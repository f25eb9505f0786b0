"""safetensors reading: odd but valid files load, each invalid one is a sentence with tensor and rule."""

import json
import struct
from contextlib import suppress

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from waferloom.programs.weights import WeightFileError, open_safetensors


def entry(begin, end, dtype="F32", shape=(2,)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def file(header, data=b"", pad=b"", length=None):
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    raw += pad
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


A8 = {"a": entry(0, 8)}
TWICE = b"{" + json.dumps(A8)[1:-1].encode() + b', "a": {"dtype": "F32", "shape": [2], "data_offsets": [%s]}}'
PAIR = struct.pack("<2f", 1.5, -2)

GOOD = {
    "plain": (file(A8, PAIR), "F32", (2,)),
    "empty metadata": (file({"__metadata__": {}, **A8}, PAIR), "F32", (2,)),
    "scalar": (file({"a": entry(0, 4, shape=())}, PAIR[:4]), "F32", ()),
    "zero-size": (file({"a": entry(0, 0, shape=(0, 5))}), "F32", (0, 5)),
    "BF16": (file({"a": entry(0, 4, "BF16")}, b"\xc0\x3f\0\xc0"), "BF16", (2,)),
    "padded header": (file(A8, PAIR, pad=b" " * 13), "F32", (2,)),
    "reverse order": (file({"b": entry(8, 16), "a": entry(0, 8)}, PAIR * 2), "F32", (2,)),
    "big header": (file({"__metadata__": {"x": "y" * 10**6}, **A8}, PAIR), "F32", (2,)),
}

BAD = {
    "empty": (b"", "empty"),
    "seven bytes": (b"1234567", "at least 8 bytes"),
    "duplicate key": (file(TWICE % b"8,16", PAIR * 2), '"a": it occurs twice'),
    "duplicate key, same data": (file(TWICE % b"0,8", PAIR), '"a": it occurs twice'),
    "overlap": (file({"a": entry(0, 8), "b": entry(4, 12)}, bytes(12)), '"b": its bytes .* overlap .* "a"'),
    "gap": (file({"a": entry(0, 8), "b": entry(12, 20)}, bytes(20)), '"b": a gap of 4 bytes'),
    "gap at the start": (file({"a": entry(4, 12)}, bytes(12)), '"a": a gap of 4 bytes'),
    "trailing bytes": (file(A8, PAIR + b"x"), "1 trailing bytes"),
    "only trailing bytes": (file({}, b"x"), "1 trailing bytes"),
    "reversed offsets": (file({"a": entry(8, 0)}, PAIR), '"a": offsets .* reversed'),
    "negative offset": (file({"a": entry(-8, 0)}, PAIR), r'"a": offsets \[-8, 0\] must be two integers'),
    "offsets not integers": (file({"a": entry(0.0, 8.0)}, PAIR), '"a": offsets .* integers'),
    "truth values": (file({"a": entry(False, True, "U8", (1,))}, b"x"), '"a": offsets .* integers'),
    "one offset": (file({"a": {**A8["a"], "data_offsets": [8]}}, PAIR), '"a": offsets'),
    "size and shape": (file({"a": entry(0, 12)}, bytes(12)), '"a": .* span 12 bytes, but F32 .* takes 8'),
    "header length": (file(A8, PAIR, length=10**6), "header of 1000000 bytes does not fit"),
    "huge header length": (file(A8, PAIR, length=2**63), "does not fit"),
    "header an array": (file([1, 2]), "must be a JSON object, not an array"),
    "header a number": (file(7), "must be a JSON object"),
    "header not JSON": (file(b"{'a': 1}"), "not JSON"),
    "header not UTF-8": (file(b'{"\xff":1}'), "not UTF-8"),
    "deep header": (file(b"[" * 100_000), "not JSON"),
    "number without end": (file(b'{"a":' + b"9" * 10_000 + b"}"), "not JSON"),
    "truncated data": (file(A8, PAIR[:-1]), '"a": its data end'),
    "shape overflows": (file({"a": entry(0, 8, shape=(2**63, 2**63))}, PAIR), '"a": .* too many elements'),
    "zero hides overflow": (file({"a": entry(0, 0, shape=(0, 2**62))}), '"a": .* too many elements'),
    "dimensions": (file({"a": entry(0, 4, shape=(1,) * 65)}, PAIR[:4]), '"a": 65 dimensions'),
    "negative shape": (file({"a": entry(0, 8, shape=(-2,))}, PAIR), '"a": shape'),
    "type": (file({"a": entry(0, 8, "Q9")}, PAIR), '"a": type "Q9" is not supported'),
    "type not a string": (file({"a": entry(0, 8, 9)}, PAIR), '"a": type "9" is not supported'),
    "entry not an object": (file({"a": 1}), '"a": its entry'),
    "no shape": (
        file({"a": {"dtype": "F32", "data_offsets": [0, 8]}}, PAIR),
        '"a": its entry has no "shape"',
    ),
    "metadata not strings": (file({"__metadata__": {"x": 1}, **A8}, PAIR), "__metadata__.*a string"),
    "metadata not an object": (file({"__metadata__": 3, **A8}, PAIR), "__metadata__.*object"),
    "only the library minds": (file(A8, PAIR, pad=b"\n\x0c"), "not JSON|refused by the safetensors library"),
}


@pytest.mark.parametrize("case", GOOD)
def test_valid_files_load(case, tmp_path):
    raw, kind, shape = GOOD[case]
    path = tmp_path / "w.safetensors"
    path.write_bytes(raw)
    with open_safetensors(path) as weights:
        tensor = weights.tensor("a")
    assert (tensor.kind, tensor.shape) == (kind, shape)
    np.testing.assert_array_equal(
        tensor.to_float32().reshape(-1), np.float32([1.5, -2])[: tensor.blocks.size]
    )


@pytest.mark.parametrize("case", BAD)
def test_each_violated_rule_is_one_sentence(case, tmp_path):
    raw, rule = BAD[case]
    path = tmp_path / "w.safetensors"
    path.write_bytes(raw)
    with pytest.raises(WeightFileError, match=rule) as caught:
        open_safetensors(path)
    assert caught.value.message.startswith(f"{path}: ")
    assert "\n" not in caught.value.message
    assert caught.value.help


def test_what_the_library_writes_is_read_back(tmp_path):
    path = tmp_path / "w.safetensors"
    arrays = {
        name: np.arange(6).reshape(2, 3).astype(name)
        for name in ("float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")
    }
    safetensors.numpy.save_file(arrays, path, {"made": "here"})
    with open_safetensors(path) as weights:
        assert weights.metadata == {"made": "here"}
        for name, array in arrays.items():
            assert weights.tensor(name).blocks.tobytes() == array.tobytes()
            assert weights.tensor(name).shape == (2, 3)
        with pytest.raises(WeightFileError, match="no weights"):
            weights.tensor("int8").to_float32()


@pytest.fixture(scope="module")
def sample():
    return file({"__metadata__": {"k": "v"}, "a": entry(0, 8), "b": entry(8, 12, "F16")}, bytes(12))


def test_truncation_anywhere(sample, tmp_path):
    path = tmp_path / "w.safetensors"
    for size in range(len(sample)):
        path.write_bytes(sample[:size])
        with pytest.raises(WeightFileError):
            open_safetensors(path)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 170), patch=st.binary(min_size=1, max_size=6), insert=st.booleans())
def test_random_damage(sample, tmp_path, at, patch, insert):
    path = tmp_path / "w.safetensors"
    path.write_bytes(sample[:at] + patch + sample[at if insert else at + len(patch) :])
    with suppress(WeightFileError), open_safetensors(path) as weights:
        for name in weights.names:
            assert weights.tensor(name).blocks.size >= 0
