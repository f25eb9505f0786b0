"""Descriptions of models: sizes from metadata, and one message with everything that is not supported."""

import contextlib

import numpy as np
import pytest
from tiny_model import SIZES, write_model
from waferloom.programs.models.description import describe_model
from waferloom.programs.models.tokenizer import Tokenizer
from waferloom.programs.weights import WeightFileError, open_gguf


def described(path):
    with open_gguf(path) as file:
        return describe_model(file)


@pytest.mark.parametrize(("kind", "wanted"), [("Q4_0", "q4"), ("Q4_1", "q4"), ("Q8_0", "q8"), ("F16", "f16")])
def test_sizes_and_kind(tmp_path, kind, wanted):
    config = described(write_model(tmp_path / "m.gguf", kind))
    assert (config.layers, config.hidden, config.heads, config.kv_heads) == (2, 64, 4, 2)
    assert (config.head_dim, config.ffn, config.context, config.vocabulary) == (16, 96, SIZES["context"], 262)
    assert (config.kind, config.tied) == (wanted, True)
    assert not described(write_model(tmp_path / "n.gguf", tied=False)).tied


def test_everything_unsupported_is_in_one_message(tmp_path):
    path = write_model(
        tmp_path / "m.gguf", "Q5_0",
        llama__expert_count=8, llama__rope__scaling__type="yarn", llama__rope__dimension_count=8,
        llama__attention__sliding_window=128, tokenizer__ggml__pre="qwen2", llama__context_length=None,
        drop=["blk.1.ffn_norm.weight"], add=["blk.0.attn_q.bias"],
    )  # fmt: skip
    with pytest.raises(WeightFileError) as caught:
        described(path)
    text = str(caught.value)
    for part in (
        "8 experts", "scaled rotation", "rotation of 8 of 16 dimensions", "sliding-window", "'qwen2'",
        "key llama.context_length is missing", "missing tensors: blk.1.ffn_norm.weight",
        "tensors that are not used: blk.0.attn_q.bias", "cannot be multiplied: blk.0.attn_k.weight Q5_0",
        "and 10 more", "help: a GGUF file of the llama architecture",
    ):  # fmt: skip
        assert part in text
    assert caught.value.category == "unsupported"


def test_other_architectures_are_named_and_nothing_else(tmp_path):
    with pytest.raises(WeightFileError, match='architecture "qwen2" is not llama') as caught:
        described(write_model(tmp_path / "m.gguf", architecture="qwen2"))
    assert ";" not in caught.value.rule


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"llama__attention__head_count_kv": 3}, "4 heads do not share 3 KV heads"),
        ({"llama__attention__head_count": 0}, "head_count is 0"),
        ({"llama__block_count": 3}, "missing tensors: blk.2.attn_k.weight"),
        ({"llama__block_count": 4_000_000_000}, "tensors that are not used"),
        ({"llama__feed_forward_length": 95}, "another shape: blk.0.ffn_down.weight 64x96"),
        ({"tokenizer__ggml__model": "llama"}, "not byte-level BPE"),
        ({"llama__embedding_length": None}, "key llama.embedding_length is missing"),
        ({"llama__attention__layer_norm_rms_epsilon": "x"}, "epsilon has a str"),
        ({"llama__attention__value_length": 8}, "different lengths"),
    ],
)
def test_single_problems(tmp_path, changes, text):
    with pytest.raises(WeightFileError, match=text):
        described(write_model(tmp_path / "m.gguf", **changes))


def test_smollm2(smollm2_file):
    config = described(smollm2_file)
    assert (config.layers, config.hidden, config.heads, config.kv_heads, config.head_dim) == (
        30,
        576,
        9,
        3,
        64,
    )
    assert (config.ffn, config.vocabulary, config.kind, config.tied) == (1536, 49152, "q4", True)
    assert (config.rope_base, round(config.eps, 9)) == (100_000, 1e-5)


ODD = ["x", -1, 0, 2**40, 1.5, float("nan"), True, None, ["a", "b"], np.array([1, 2], np.int32)]


@pytest.mark.parametrize("odd", ODD, ids=[repr(o)[:12] for o in ODD])
def test_odd_metadata_is_refused_in_words_or_read(tmp_path, odd):
    """Any key may hold anything: a description (a tokenizer) or a WeightFileError, nothing else."""
    with open_gguf(write_model(tmp_path / "m.gguf", llama__attention__key_length=16)) as file:
        whole = dict(file.metadata)
        more = (
            "llama.attention.value_length", "llama.expert_count", "llama.rope.scaling.type", "general.name",
            "tokenizer.ggml.add_bos_token", "llama.logit_scale", "tokenizer.ggml.bos_token_id",
        )  # fmt: skip
        for key in [*whole, *more]:
            file.metadata = whole | {key: odd}
            for made in (describe_model, Tokenizer):
                with contextlib.suppress(WeightFileError):
                    made(file)
