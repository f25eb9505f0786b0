"""GEMM: any sizes and machines, bits of as many GEMVs, what a token costs, what fits."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from waferloom.fabric.spec import machine
from waferloom.isa.errors import Usage
from waferloom.programs.kernels import Gemm, Gemv

WSE3 = machine("wse3")


@st.composite
def machines(draw):
    """WSE-3 with other latencies and depths, or a preset."""
    name = draw(st.sampled_from(["wse3", "wse2", None]))
    if name:
        return machine(name)
    latency, depth = st.integers(1, 4), st.integers(2, 9)
    fabric = {name: draw(latency) for name in ("hop", "ramp_up", "ramp_down")}
    return dataclasses.replace(
        WSE3,
        fabric=dataclasses.replace(WSE3.fabric, buffer_depth=draw(st.integers(2, 4)), **fabric),
        queues=dataclasses.replace(
            WSE3.queues, in_depth=(draw(depth), draw(depth)), out_depth=(draw(depth),)
        ),
    )


sizes = st.builds(
    Gemm, st.integers(1, 40), st.integers(1, 60), st.integers(1, 6), st.integers(1, 5), st.integers(1, 6)
)


@given(job=sizes, spec=machines(), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_any_size_on_any_machine(job, spec, seed):
    ran = job.run(spec, job.example(seed), engine="fast")
    assert ran.equal
    assert ran.result.cycles == job.cycles(spec)
    assert job.bound(spec).cycles <= ran.result.cycles


def test_every_token_has_the_bits_of_a_gemv():
    job = Gemm(21, 50, 3, 2, 2)
    data = job.example(4)
    together = job.run(WSE3, data, engine="fast").outputs["y"]
    alone = Gemv(21, 50, 2, 2, "f16")
    for x, y in zip(data["x"], together, strict=True):
        assert np.array_equal(alone.run(WSE3, {"w": data["w"], "x": x}, engine="fast").outputs["y"], y)


def test_tokens_share_what_a_gemv_pays_once():
    """One token costs what a GEMV does; many come near what the multiply-adds and the words alone take."""
    one, many = Gemm(576, 576, 1, 18, 18), Gemm(576, 576, 64, 18, 18)
    assert one.cycles(WSE3) == Gemv(576, 576, 18, 18, "f16").cycles(WSE3)
    each = many.cycles(WSE3) / 64
    assert 32 * 32 / 4 + 16 + 32 < each < 0.66 * one.cycles(WSE3)
    assert many.share_of_peak(WSE3, many.cycles(WSE3)) > 0.79


def test_as_many_tokens_as_fit():
    most = Gemm.most_tokens(WSE3, 576, 576, 18, 18)
    full = Gemm(576, 576, most, 18, 18)
    assert full.tile_bytes <= WSE3.sram.bytes < dataclasses.replace(full, tokens=most + 1).tile_bytes
    small = Gemm(40, 30, 7, 2, 2)
    assert max(kernel.sram_bytes for kernel in small.program().kernels) <= small.tile_bytes
    with pytest.raises(Usage, match=r"needs \d+ bytes per PE with one token, 49152 are there"):
        Gemm.most_tokens(WSE3, 576, 576, 2, 2)
    with pytest.raises(Usage, match="this GEMM is for"):
        small.run(WSE3, {**small.example(), "x": np.ones((6, 30), np.float16)}, engine="reference")
