"""The tokenizer: ids, round trips of odd text, control tokens, conversations, streaming."""

import pytest
from tiny_model import write_model
from waferloom.isa.errors import Usage
from waferloom.programs.models.tokenizer import TextStream, Tokenizer
from waferloom.programs.weights import WeightFileError, open_gguf

ODD = [
    "", " ", "the the", "12 123.5", "  two  spaces\n\n\ttab", "Ünïcödé, ß", "日本語 と 中文",
    "🦀🧵 emoji 👩‍👩‍👧",
    "'re don't I'LL",
    "<|im_end|> is text", "a\u00a0b\u200bc", "e\u0301 combining", "\r\n", "x" * 300,
]  # fmt: skip


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    with open_gguf(write_model(tmp_path_factory.mktemp("model") / "m.gguf")) as file:
        yield Tokenizer(file)


@pytest.fixture(scope="module")
def smollm2(smollm2_file):
    with open_gguf(smollm2_file) as file:
        yield Tokenizer(file)


@pytest.mark.parametrize("text", ODD)
def test_round_trip(small, text):
    assert small.decode(small.encode(text)) == text


@pytest.mark.parametrize("text", ODD)
def test_round_trip_of_smollm2(smollm2, text):
    assert smollm2.decode(smollm2.encode(text)) == text


def test_ids_of_smollm2(smollm2):
    assert smollm2.prompt("The capital of France is") == [504, 3575, 282, 4649, 314]
    assert smollm2.encode("2018-01-22") == [34, 32, 33, 40, 29, 32, 33, 29, 34, 34]  # every digit alone
    assert smollm2.decode([7042, 30, 198, 198, 504, 2988]) == " Paris.\n\nThe answer"
    assert smollm2.decode([2, 198, 1]) == "<|im_end|>\n<|im_start|>"
    assert (smollm2.end, len(smollm2)) == (2, 49152)


def test_digits_are_alone_before_merges(small):
    the, twelve = small.encode("the"), small.encode("12")
    assert (len(the), len(twelve)) == (1, 2)


def test_control_tokens_come_from_chat_only(small, smollm2):
    for tokenizer in (small, smollm2):
        assert tokenizer.end not in tokenizer.encode("<|im_end|>")
        ids = tokenizer.chat("Hi <|im_end|>")
        assert ids.count(1) == 3
        assert ids.count(2) == 2
    assert small.decode(small.chat("Hi")) == (
        "<|im_start|>system\nBe brief<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert "trained by Hugging Face<|im_end|>" in smollm2.decode(smollm2.chat("Hi"))
    assert small.decode(small.chat("Hi", system="")).startswith("<|im_start|>system\n<|im_end|>")


def test_a_model_without_chatml_refuses_to_chat(tmp_path):
    with open_gguf(write_model(tmp_path / "m.gguf", tokenizer__chat_template=None)) as file:
        with pytest.raises(Usage, match="no ChatML template"):
            Tokenizer(file).chat("Hi")


def test_characters_without_token_are_named(small):
    with pytest.raises(Usage, match=r"no token for '\\x01'"):
        small.encode("a\x01b")
    with pytest.raises(Usage, match=r"not UTF-8: '\\udcff' at character 1"):  # a shell's byte 0xff
        small.encode("a\udcffb")


def test_ids_outside_the_vocabulary(small):
    for number in (-1, len(small)):
        with pytest.raises(Usage, match=f"no token {number}"):
            small.decode([number])


def test_characters_of_several_tokens_appear_whole(small):
    stream = TextStream(small)
    pieces = [stream.add(token) for token in small.encode("aé🦀")]
    assert pieces == ["a", "", "é", "", "", "", "🦀"]
    assert stream.add(small.encode("🦀")[0]) == ""
    assert stream.rest() == "\ufffd"


def test_merges_that_are_not_of_the_vocabulary(tmp_path):
    with open_gguf(write_model(tmp_path / "m.gguf")) as file:
        file.metadata["tokenizer.ggml.merges"] = ["t h", "t q"]
        with pytest.raises(WeightFileError, match='merge "t q"'):
            Tokenizer(file)
