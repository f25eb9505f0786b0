"""GEMV: shapes that do not fit the grid, slices, order of accumulation, awkward numbers, real weights."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from waferloom.fabric.spec import machine
from waferloom.isa.errors import Usage
from waferloom.programs.kernels import Gemv
from waferloom.programs.kernels.gemv import widest_group
from waferloom.programs.weights import Groups, groups_of, open_gguf

WSE3 = machine("wse3")


@st.composite
def jobs(draw):
    kind = draw(st.sampled_from(["q4", "q8", "f16", "f32"]))
    return Gemv(
        outputs=draw(st.integers(1, 50)),
        inputs=draw(st.integers(1, 130)),
        cols=draw(st.integers(1, 5)),
        rows=draw(st.integers(1, 6)),
        kind=kind,
        group=draw(st.sampled_from([4, 8, 16, 32])),
        slice_rows=draw(st.sampled_from([0, 8, 16])) if kind in ("q4", "q8") else 0,
    )


@st.composite
def machines(draw):
    """WSE-3 with other latencies and depths, or a preset."""
    name = draw(st.sampled_from(["wse3", "wse2", None]))
    if name:
        return machine(name)
    latency, depth = st.integers(1, 4), st.integers(2, 9)
    return dataclasses.replace(
        WSE3,
        fabric=dataclasses.replace(
            WSE3.fabric, hop=draw(latency), ramp_up=draw(latency), ramp_down=draw(latency),
            buffer_depth=draw(depth),
        ),
        queues=dataclasses.replace(
            WSE3.queues, in_depth=(draw(depth), draw(depth)), out_depth=(draw(depth),)
        ),
    )  # fmt: skip


@given(job=jobs(), spec=machines(), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_any_size_gives_golden_bits_and_the_cycles_of_the_formula(job, spec, seed):
    ran = job.run(spec, job.example(seed), engine="fast")
    assert ran.equal
    assert ran.result.cycles == job.cycles(spec)
    assert job.bound(spec).cycles <= ran.result.cycles


@pytest.mark.parametrize("kind", ["q4", "q8", "f16", "f32"])
def test_padding_never_reaches_results(kind):
    """Prime inputs, more PEs than rows, every activation an infinity or a NaN where it may be."""
    job = Gemv(3, 211, 4, 5, kind, 8)
    data = dict(job.example(5))
    dense = data["w"].to_float32() if isinstance(data["w"], Groups) else data["w"].astype(np.float32)
    y = job.run(WSE3, data, engine="fast").outputs["y"]
    assert y.shape == (3,)
    np.testing.assert_allclose(y, dense @ data["x"].astype(np.float32), rtol=2e-3, atol=2e-2)
    data["x"] = np.full(211, np.inf, data["x"].dtype)
    ran = job.run(WSE3, data, engine="fast")
    assert ran.equal
    assert not np.isfinite(ran.outputs["y"]).any()
    data["x"] = np.full(211, -0.0, data["x"].dtype)
    ran = job.run(WSE3, data, engine="fast")
    assert ran.equal
    assert (ran.outputs["y"] == 0).all()


def test_weights_behind_the_last_input_do_not_count():
    """The last group of a row may hold weights beyond `inputs`: they meet zero activations."""
    job = Gemv(8, 33, 2, 1, "q4", 32)
    data = job.example(2)
    clean = data["w"].data.copy()
    clean[:, -1, 4 + 1 :] = 0  # the codes of weights 34 and later; weight 33 shares a byte with 32
    other = dataclasses.replace(data["w"], data=clean)
    first = job.run(WSE3, data, engine="fast").outputs["y"]
    second = job.run(WSE3, {**data, "w": other}, engine="fast").outputs["y"]
    assert np.array_equal(first.view(np.uint32), second.view(np.uint32))


def test_order_of_accumulation_is_inputs_then_columns():
    """4,096 ones after a large number are lost in f32 in this order, and only in this order."""
    w = np.ones((1, 64), np.float16)
    x = np.ones(64, np.float16)
    w[0, 0], x[0] = 2.0**14, 2.0**10  # 2 ** 24: adding 1 to it changes nothing
    along = Gemv(1, 64, 1, 1, "f16").run(WSE3, {"w": w, "x": x}, engine="fast")
    assert along.equal
    assert along.outputs["y"][0] == 2.0**24
    split = Gemv(1, 64, 2, 1, "f16").run(WSE3, {"w": w, "x": x}, engine="fast")
    assert split.equal
    assert split.outputs["y"][0] == 2.0**24 + 32
    turned = Gemv(1, 64, 1, 1, "f16").run(WSE3, {"w": w[:, ::-1].copy(), "x": x[::-1].copy()}, engine="fast")
    assert turned.equal
    assert turned.outputs["y"][0] == 2.0**24 + 64  # 63 ones first, then rounded to even


def test_a_tile_that_does_not_fit_at_once_is_turned_in_slices():
    whole = Gemv.on(WSE3, 64, 256, 1, 1, kind="q4")
    assert whole.slices == 1
    job = Gemv.on(WSE3, 128, 256, 1, 1, kind="q4")
    assert (job.slices, job.slice) == (4, 32)
    assert whole.tile_bytes <= WSE3.sram.bytes
    assert job.tile_bytes <= WSE3.sram.bytes
    data = job.example(1)
    ran = job.run(WSE3, data, engine="fast")
    assert ran.equal
    assert ran.result.cycles == job.cycles(WSE3)
    for rows in (8, 16, 40):
        other = dataclasses.replace(job, slice_rows=rows)
        sliced = other.run(WSE3, data, engine="fast")
        assert sliced.equal
        assert sliced.result.cycles == other.cycles(WSE3) >= ran.result.cycles
        assert np.array_equal(sliced.outputs["y"], ran.outputs["y"])
    assert max(k.sram_bytes for k in job.program().kernels) <= job.tile_bytes


@pytest.mark.parametrize("kind", ["q4", "q8", "f16", "f32"])
def test_what_does_not_fit_is_refused_with_its_size(kind):
    with pytest.raises(Usage, match=r"needs \d+ bytes per PE, 49152 are there") as caught:
        Gemv.on(WSE3, 400, 512, 1, 1, kind=kind)
    assert "more than 1 x 1 PEs" in caught.value.help


def test_multiplying_reaches_the_published_rate():
    """f16 x f16 + f32 at 4 elements per cycle: two cycles per input and 8 outputs, two more per 8 outputs."""
    short, long = Gemv(64, 64, 1, 1, "f16"), Gemv(64, 128, 1, 1, "f16")
    assert long.cycles(WSE3) - short.cycles(WSE3) == 64 * 64 // 4 + 64 // 2
    assert short._groups(WSE3) == 8 * (2 * 64 + 2)
    assert Gemv(64, 6, 1, 1, "f16")._groups(WSE3) == 8 * (2 * 6 + 2)


def test_operands_of_another_kind_are_refused():
    job, other = Gemv(8, 32, 1, 1, "q4"), Gemv(8, 32, 1, 1, "q8")
    with pytest.raises(Usage, match="q8 groups"):
        job.run(WSE3, other.example(), engine="reference")
    with pytest.raises(Usage, match="tiling is for"):
        job.run(WSE3, Gemv(8, 64, 1, 1, "q4").example(), engine="reference")
    with pytest.raises(Usage, match="float16"):
        job.run(WSE3, {**job.example(), "x": np.ones(32, np.float32)}, engine="reference")


def test_widest_group():
    assert widest_group(576, 18) == 32
    assert widest_group(576, 12) == 16
    assert widest_group(576, 16) == 4
    assert widest_group(1, 1) == 4


def test_real_weights(smollm2_file):
    """One real matrix, part of it, on the reference engine as well."""
    with open_gguf(smollm2_file) as opened:
        whole = groups_of(opened.tensor("blk.0.attn_k.weight"))
    part = Groups("part", "q4", 32, 96, np.ascontiguousarray(whole.data[:24, :3]))
    x = np.random.default_rng(0).standard_normal(96).astype(np.float16)
    job = Gemv(24, 96, 3, 2, "q4", 32)
    for engine in ("reference", "fast"):
        ran = job.run(WSE3, {"w": part, "x": x}, engine=engine)
        assert ran.equal
        assert ran.result.cycles == job.cycles(WSE3)
        exact = part.to_float32().astype(np.float64) @ x.astype(np.float64)
        assert np.sqrt(np.mean((ran.outputs["y"] - exact) ** 2) / np.mean(exact**2)) < 1e-3
    full = Gemv.on(WSE3, *whole.shape, 6, 8, kind="q4", group=32)
    x = np.random.default_rng(1).standard_normal(576).astype(np.float16)
    ran = full.run(WSE3, {"w": whole, "x": x}, engine="fast")
    assert ran.equal
    assert ran.result.cycles == full.cycles(WSE3)
