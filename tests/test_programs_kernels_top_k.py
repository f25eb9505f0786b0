"""Top k: equal values, zeros, infinities and NaNs; cycles that do not depend on the values."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from waferloom.fabric.spec import machine
from waferloom.isa.errors import Usage
from waferloom.programs.kernels import TopK
from waferloom.programs.kernels.top_k import keys_of, values_of

WSE3 = machine("wse3")
AWKWARD = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, 2**-149, -(2**-149), 3e38, -3e38, np.nan]


@st.composite
def jobs(draw):
    values = draw(st.integers(1, 60))
    k = draw(st.integers(1, min(16, values)))
    return TopK(values, draw(st.integers(1, 5)), draw(st.integers(1, 4)), k)


@given(job=jobs(), spec=st.sampled_from(["tiny", "wse2", "wse3"]), data=st.data())
@settings(max_examples=60, deadline=None)
def test_any_values_take_the_same_cycles(job, spec, data):
    few = data.draw(st.lists(st.sampled_from(AWKWARD), min_size=1, max_size=4))
    picks = data.draw(st.lists(st.sampled_from(few), min_size=job.values, max_size=job.values))
    ran = job.run(machine(spec), {"v": np.float32(picks)}, engine="fast")
    assert ran.equal
    assert ran.result.cycles == job.cycles(machine(spec))


def test_equal_values_come_in_the_order_of_their_indices():
    job = TopK(30, 3, 2, 16)
    ran = job.run(WSE3, {"v": np.full(30, -2.5, np.float32)}, engine="reference")
    assert np.array_equal(ran.outputs["indices"], np.arange(16))
    assert (ran.outputs["values"] == -2.5).all()


@pytest.mark.parametrize("at", [0, 7, 8, 31, 32, 62])
def test_arg_max_is_numpys(at):
    v = np.random.default_rng(at).standard_normal(63).astype(np.float32)
    v[at] = 10
    ran = TopK(63, 4, 2).run(WSE3, {"v": v}, engine="fast")
    assert ran.outputs["indices"].tolist() == [np.argmax(v)]


def test_keys_order_as_values_do():
    v = np.sort(np.float32([x for x in AWKWARD if x == x]))
    keys = keys_of(v)
    assert (np.diff(keys.astype(np.int64)) >= 0).all()
    assert keys_of(np.float32([-0.0]))[0] == -1 < keys_of(np.float32([0.0]))[0]
    assert np.array_equal(values_of(keys).view(np.uint32), v.view(np.uint32))


def test_a_k_beyond_16_or_beyond_the_values_is_refused():
    with pytest.raises(Usage, match="k is 17"):
        TopK(100, 2, 2, 17)
    with pytest.raises(Usage, match="at most the 3 values"):
        TopK(3, 2, 2, 4)
    with pytest.raises(Usage, match="float32"):
        TopK(3, 1, 1).run(WSE3, {"v": np.ones(3, np.float16)}, engine="reference")
