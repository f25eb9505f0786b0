"""Groups: exact conversion of GGUF blocks, smaller groups, tiles of any size, awkward scales."""

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from waferloom.isa.dequantise import dequantise_q4, dequantise_q8
from waferloom.isa.errors import Usage
from waferloom.programs.weights import Tensor, Tiling, WeightFileError, group_bytes, groups_of

BLOCK = {"Q4_0": 18, "Q4_1": 20, "Q8_0": 34}


def tensor(kind, rows, blocks, seed=0):
    """Random blocks whose scales and offsets are random finite f16 values of moderate size."""
    rng = np.random.default_rng(seed)
    raw = rng.integers(0, 256, (rows, blocks, BLOCK[kind]), dtype=np.uint8)
    for at in (0, 2)[: 2 if kind == "Q4_1" else 1]:
        exponent = rng.integers(0, 22, (rows, blocks)).astype(np.uint16) << 10  # includes subnormals
        bits = exponent | rng.integers(0, 1024, (rows, blocks)) | rng.integers(0, 2, (rows, blocks)) << 15
        raw[..., at : at + 2] = bits.astype("<u2")[..., None].view(np.uint8)
    return Tensor("w.gguf", "w", (rows, blocks * 32), kind, raw)


def one_block(kind, raw):
    return Tensor("w.gguf", "w", (1, 32), kind, np.frombuffer(bytes(raw), np.uint8).reshape(1, 1, -1))


def with_halves(kind, *halves):
    """One block with the given f16 bit patterns in front and codes 0, 1, 2, ... behind."""
    head = np.array(halves, "<u2").tobytes()
    return one_block(kind, head + bytes(range(BLOCK[kind] - len(head))))


def bits(values):
    return (np.asarray(values, np.float32) + np.float32(0)).view(np.uint32)  # -0 counts as +0


@pytest.mark.parametrize("kind", BLOCK)
@pytest.mark.parametrize("size", [32, 16, 8, 4])
def test_bit_equal_to_the_librarys_dequantise(kind, size):
    t = tensor(kind, 7, 5)
    want = gguf.quants.dequantize(t.blocks.reshape(7, -1), gguf.GGMLQuantizationType[kind])
    groups = groups_of(t, size)
    have = groups.to_float32()
    assert have.shape == (7, 160)
    assert groups.data.shape == (7, 160 // size, group_bytes(groups.kind, size))
    np.testing.assert_array_equal(bits(have), bits(want))
    if kind != "Q4_0":  # whose zeros the library signs like the scale
        np.testing.assert_array_equal(have.view(np.uint32), want.view(np.uint32))
    np.testing.assert_array_equal(t.to_float32(), want)


@pytest.mark.parametrize("kind", BLOCK)
@pytest.mark.parametrize("size", [32, 16, 8, 4])
def test_the_machine_reads_these_groups(kind, size):
    """The machine's f16 weights are the exact ones rounded once, whatever the group size."""
    groups = groups_of(tensor(kind, 7, 5), size)
    scale = groups.scale_bits.view(np.float16).astype(np.float64)[..., None]
    offset = groups.offset_bits.view(np.float16).astype(np.float64)[..., None]
    exact = scale * groups.codes + offset  # at most 11 + 5 bits over 29 exponents: float64 holds it
    machine = (dequantise_q4 if groups.kind == "q4" else dequantise_q8)(groups.data)
    np.testing.assert_array_equal(machine, exact.astype(np.float16))


def test_interleaved_nibbles_are_told_from_halves():
    """T40: elements 0..15 are -4 to 3.5 and 16..31 the reverse."""
    t = one_block("Q4_0", bytes.fromhex("0038f0e1d2c3b4a5968778695a4b3c2d1e0f"))
    ramp = np.arange(-4, 4, 0.5)
    groups = groups_of(t)
    np.testing.assert_array_equal(groups.to_float32()[0], np.concatenate([ramp, ramp[::-1]]))
    assert groups.data.tobytes().hex() == "003800c4" + "1032547698badcfe" + "efcdab8967452301"


def test_layout_of_groups():
    """Weight 2i is the low nibble of byte i; scale and offset come first, little-endian."""
    t = with_halves("Q4_1", 0x3C00, 0xC000)  # w = q - 2
    raw = groups_of(t).data[0, 0]
    weights = groups_of(t).to_float32()[0]
    assert raw[:4].tolist() == [0x00, 0x3C, 0x00, 0xC0]
    for i, byte in enumerate(raw[4:]):
        assert (byte & 15, byte >> 4) == (weights[2 * i] + 2, weights[2 * i + 1] + 2)
    assert groups_of(with_halves("Q8_0", 0x3C00)).data[0, 0, 2:].tolist() == list(range(32))


@pytest.mark.parametrize(("size", "nbytes"), [(32, 20), (16, 12), (8, 8), (4, 6)])
def test_smaller_groups_repeat_scale_and_offset(size, nbytes):
    groups = groups_of(tensor("Q4_1", 2, 3), size)
    whole = groups_of(tensor("Q4_1", 2, 3))
    assert group_bytes("q4", size) == nbytes
    assert group_bytes("q8", size) == 2 + size
    np.testing.assert_array_equal(groups.scale_bits, np.repeat(whole.scale_bits, 32 // size, axis=1))
    np.testing.assert_array_equal(groups.offset_bits, np.repeat(whole.offset_bits, 32 // size, axis=1))
    np.testing.assert_array_equal(groups.codes.ravel(), whole.codes.ravel())
    np.testing.assert_array_equal(
        groups_of(tensor("Q4_1", 2, 3), 32).regroup(8).regroup(4).data, whole.regroup(4).data
    )


@pytest.mark.parametrize("size", [0, 1, 2, 3, 5, 64, -4])
def test_other_sizes_are_refused(size):
    with pytest.raises(Usage, match=f"group size {size} "):
        groups_of(tensor("Q4_1", 1, 1), size)


def test_groups_are_not_joined():
    with pytest.raises(Usage, match="cannot be joined"):
        groups_of(tensor("Q4_1", 1, 1), 8).regroup(16)


@pytest.mark.parametrize("kind", BLOCK)
@pytest.mark.parametrize("half", [0x7C00, 0xFC00, 0x7C01, 0x7E00, 0xFFFF])
def test_scale_that_is_not_finite(kind, half):
    """T42"""
    t = with_halves(kind, half, 0)
    with pytest.raises(
        WeightFileError, match=r'tensor "w": block 0 of row 0: the scale (-?inf|nan) must be finite'
    ):
        groups_of(t)


@pytest.mark.parametrize("half", [0x7C00, 0xFC00, 0x7E00])
def test_offset_that_is_not_finite(half):
    with pytest.raises(WeightFileError, match=r"the offset (-?inf|nan) must be finite"):
        groups_of(with_halves("Q4_1", 0x3C00, half))


@pytest.mark.parametrize("kind", BLOCK)
@pytest.mark.parametrize("half", [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400])
def test_zero_and_subnormal_scales_are_exact(kind, half):
    """T42: an all-equal group has scale 0; subnormal scales are numbers like others."""
    t = with_halves(kind, half, 0x3555)
    want = gguf.quants.dequantize(t.blocks.reshape(1, -1), gguf.GGMLQuantizationType[kind])
    np.testing.assert_array_equal(bits(groups_of(t).to_float32()), bits(want))


def test_all_q4_0_scales():
    """Every f16 pattern as scale: an exact offset, or an error exactly where it or a weight overflows."""
    for half in range(0, 0x10000, 7):
        scale = np.uint16(half).view(np.float16)
        t = with_halves("Q4_0", half)
        if np.isfinite(scale) and abs(float(scale)) * 8 < 65520:
            groups = groups_of(t)
            offset = groups.offset_bits.view(np.float16)[0, 0]
            assert float(offset) == -8 * float(scale)
        else:
            with pytest.raises(WeightFileError, match="block 0 of row 0"):
                groups_of(t)


def test_overflowing_offset_names_the_block():
    t = tensor("Q4_0", 3, 4)
    t.blocks[1, 2, :2] = np.frombuffer(np.float16(8192).tobytes(), np.uint8)
    with pytest.raises(WeightFileError, match=r"block 2 of row 1: the scale 8192\.0 makes the offset"):
        groups_of(t)


@pytest.mark.parametrize(("kind", "halves"), [("Q4_1", (0x6C00, 0x7BFF)), ("Q8_0", (0x7000,))])
def test_weights_that_overflow_f16_are_refused(kind, halves):
    t = with_halves(kind, *halves)
    t = one_block(kind, t.blocks.tobytes()[:-1] + b"\x7f")
    with pytest.raises(WeightFileError, match="block 0 of row 0: a weight is too large for f16"):
        groups_of(t)


def test_kinds_without_groups_are_refused():
    t = Tensor("w.gguf", "n", (4,), "F32", np.zeros(4, "<f4"))
    with pytest.raises(WeightFileError, match='"n": kind F32 has no groups'):
        groups_of(t)
    empty = Tensor("w.gguf", "n", (0, 32), "Q4_1", np.zeros((0, 1, 20), np.uint8))
    with pytest.raises(WeightFileError, match="holds no weights"):
        groups_of(empty)


@settings(max_examples=60, deadline=None)
@given(
    outputs=st.integers(1, 20),
    blocks=st.integers(1, 4),
    out_parts=st.integers(1, 7),
    in_parts=st.integers(1, 7),
    kind=st.sampled_from(sorted(BLOCK)),
    size=st.sampled_from([4, 8, 16, 32]),
)
def test_tiles_of_any_grid_multiply_like_the_matrix(outputs, blocks, out_parts, in_parts, kind, size):
    groups = groups_of(tensor(kind, outputs, blocks, seed=outputs), size)
    matrix = groups.to_float32()
    tiling = Tiling.of(outputs, groups.inputs, out_parts, in_parts, size)
    tiles = tiling.split_groups(groups)
    assert tiles.shape[:3] == (out_parts, in_parts, tiling.out_tile)
    assert tiling.in_tile == tiles.shape[3] * size
    plain = tiling.split_matrix(matrix)
    seen = np.zeros((out_parts * tiling.out_tile, in_parts * tiling.in_tile), np.float32)
    for p in range(out_parts):
        for q in range(in_parts):
            tile = type(groups)("tile", groups.kind, size, tiling.in_tile, tiles[p, q])
            np.testing.assert_array_equal(tile.to_float32(), plain[p, q])
            rows, columns = p * tiling.out_tile, q * tiling.in_tile
            seen[rows : rows + tiling.out_tile, columns : columns + tiling.in_tile] = plain[p, q]
    np.testing.assert_array_equal(seen[:outputs, : groups.inputs], matrix)
    assert not seen[outputs:].any()
    assert not seen[:, groups.inputs :].any()
    x = np.random.default_rng(0).integers(-3, 4, groups.inputs)
    y = np.einsum("pqoi,qi->po", plain.astype(np.float64), tiling.split_input(x))
    np.testing.assert_allclose(tiling.join_output(y), matrix.astype(np.float64) @ x, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(1, 1), (33, 33), (211, 7), (5, 211)])
@pytest.mark.parametrize("parts", [(1, 1), (3, 2), (8, 16)])
def test_padding_of_plain_matrices_never_reaches_results(shape, parts):
    """T28b: primes, 1 x 1, more PEs than rows."""
    matrix = np.arange(1, shape[0] * shape[1] + 1, dtype=np.float64).reshape(shape)
    tiling = Tiling.of(*shape, *parts)
    y = np.einsum("pqoi,qi->po", tiling.split_matrix(matrix), tiling.split_input(np.ones(shape[1])))
    np.testing.assert_array_equal(tiling.join_output(y), matrix.sum(axis=1))


def test_padding_groups_are_exact_zeros():
    groups = groups_of(tensor("Q4_1", 1, 1))
    tiles = Tiling.of(1, 32, 2, 2, 32).split_groups(groups)
    assert not tiles[1].any()
    assert not tiles[0, 1].any()
    empty = type(groups)("tile", "q4", 32, 32, tiles[1, 1]).to_float32()
    assert (empty.view(np.uint32) == 0).all()


@pytest.mark.parametrize("bad", [(0, 1, 1, 1), (1, 0, 1, 1), (1, 1, 0, 4), (1, 1, 4, 0), (1, 1, 1, -1)])
def test_tilings_without_parts_are_refused(bad):
    with pytest.raises(Usage, match="must be at least 1"):
        Tiling.of(*bad)


def test_tiling_refuses_other_shapes():
    tiling = Tiling.of(4, 64, 2, 2, 32)
    with pytest.raises(Usage, match=r"groups is \(4, 32, 32\), this tiling is for \(4, 64, 32\)"):
        tiling.split_groups(groups_of(tensor("Q4_1", 4, 1)))
    with pytest.raises(Usage, match="x is"):
        tiling.split_input(np.ones(63))
    with pytest.raises(Usage, match="y is"):
        tiling.join_output(np.ones(4))
