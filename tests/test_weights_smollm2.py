"""The real weights, when they can be had: every tensor against the library, and the golden activations."""

from importlib.resources import files
from pathlib import Path

import gguf
import numpy as np
import pytest
from waferloom.programs.weights import open_gguf
from waferloom.programs.weights.groups import groups_of

GOLDEN = Path(__file__).parent / "golden" / "smollm2_prompt0.npz"
STAGES = ("ffn_norm", "gate", "up", "gated", "down")


@pytest.fixture(scope="module")
def weights(smollm2_file):
    with open_gguf(smollm2_file) as opened:
        yield opened


def test_shapes_and_kinds(weights):
    assert weights.key("general.architecture", str) == "llama"
    assert weights.key("llama.block_count", int) == 30
    assert len(weights.key("tokenizer.ggml.merges", list)) == 48_900
    kinds = [weights.tensor(name).kind for name in weights.names]
    assert {kind: kinds.count(kind) for kind in kinds} == {"Q8_0": 1, "F32": 61, "Q4_1": 210}
    assert weights.tensor("blk.0.ffn_down.weight").shape == (576, 1536)
    assert weights.tensor("token_embd.weight").shape == (49152, 576)


def test_one_layer_and_the_embedding_are_bit_equal_to_the_library(weights):
    for name in weights.names:
        if name.startswith("blk.29.") or name == "token_embd.weight":
            tensor = weights.tensor(name)
            if tensor.kind == "F32":
                continue
            rows = slice(0, 2000)
            raw = tensor.blocks[rows].reshape(len(tensor.blocks[rows]), -1)
            want = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[tensor.kind])
            have = groups_of(tensor).to_float32()[rows]
            np.testing.assert_array_equal(have.view(np.uint32), want.view(np.uint32))


def test_every_tensor_converts(weights):
    """No scale, offset or weight of the whole model is refused; also for the grids of the demo."""
    for name in weights.names:
        if weights.tensor(name).kind != "F32":
            assert groups_of(weights.tensor(name)).data.size


def test_golden_feed_forward_of_layer_0(weights):
    """The file's numbers reproduce the stored activations, so rows, nibbles and names are the right ones."""
    golden = {stage: np.load(GOLDEN)[f"p0_L0_{stage}"] for stage in STAGES}
    matrix = {
        n: groups_of(weights.tensor(f"blk.0.ffn_{n}.weight")).to_float32() for n in ("gate", "up", "down")
    }
    gate, up = golden["ffn_norm"] @ matrix["gate"].T, golden["ffn_norm"] @ matrix["up"].T
    gated = gate / (1 + np.exp(-gate)) * up
    for name, have in (("gate", gate), ("up", up), ("gated", gated), ("down", gated @ matrix["down"].T)):
        np.testing.assert_allclose(have, golden[name], rtol=0, atol=2e-5 * np.abs(golden[name]).max())


def test_packaged_activations_are_the_golden_ones():
    """The demo's small data file holds five of the golden arrays, unchanged."""
    golden = np.load(GOLDEN)
    with (files("waferloom.programs") / "data" / "smollm2_prompt0_layer0.npz").open("rb") as handle:
        packaged = np.load(handle)
        assert sorted(packaged.files) == sorted(f"p0_L0_{stage}" for stage in STAGES)
        for name in packaged.files:
            assert packaged[name].dtype == golden[name].dtype
            np.testing.assert_array_equal(packaged[name], golden[name])
