"""`waferloom generate` and `waferloom plan` on a small model: text, figures, bad inputs, Ctrl-C."""

import json
import signal
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner
from tiny_model import write_model
from waferloom.fabric.spec import machine
from waferloom.programs.cli import cli
from waferloom.programs.layers import LayerGolden, layer_weights
from waferloom.programs.models import GoldenStages, Tokenizer, WaferHead, describe_model, generate
from waferloom.programs.models.head_golden import HeadGolden
from waferloom.programs.models.wafers import head_plan, head_weights, layer_plan
from waferloom.programs.weights import open_gguf

SIZE = ("--grid", "2x2", "--kv", "32")


def call(*arguments):
    """Exit code, stdout, stderr."""
    result = CliRunner().invoke(cli, list(arguments), prog_name="waferloom")
    assert "Traceback" not in result.output
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(write_model(tmp_path_factory.mktemp("model") / "m.gguf"))


@pytest.fixture(scope="module")
def golden(model):
    """Tokens that the golden twins of layers and head write after `the 12`."""
    with open_gguf(model) as file:
        config = describe_model(file)
        plan = layer_plan(config, machine("wse3"), (2, 2), 32)
        stages = [LayerGolden(plan, layer_weights(file, n)) for n in range(config.layers)]
        stages.append(HeadGolden(head_plan(config, plan), *head_weights(file, config)))
        prompt = Tokenizer(file).prompt("the 12")
        made = generate(GoldenStages([stages]), WaferHead(file, config), [prompt], 4)
        return made.tokens[0], Tokenizer(file).decode(made.tokens[0])


def test_wafers_write_what_the_golden_twins_write(model, golden):
    code, out, err = call("generate", "the 12", "--model", model, "--tokens", "4", *SIZE)
    assert (code, out) == (0, f"the 12{golden[1]}\n")
    for part in (
        "2 layers on 3 wafers of 2 x 2 PEs (wse3", "the last one is the head", "embedding on the host",
        "first token after", "tokens/s", "wafers busy", "bytes per PE",
    ):  # fmt: skip
        assert part in err


def test_the_document_depends_on_the_host_under_host_only(model, golden):
    told = []
    for threads in ("1", "2"):
        code, out, _ = call(
            "generate", "the 12", "--model", model, "--tokens", "4", "--json", "--threads", threads, *SIZE
        )
        assert code == 0
        told.append(json.loads(out))
        assert told[-1].pop("host")["threads"] == int(threads)
    assert told[0] == told[1]
    sim, token_ids = told[0]["sim"], told[0]["token_ids"]
    assert token_ids == golden[0]
    assert sim["arrival_us"][0] == sim["first_token_us"]
    gaps = np.diff(sim["arrival_us"])
    assert gaps.min() > 2 * 4  # four hops of 2 us
    assert abs(gaps.mean() - sim["token_us"]) < 1e-6
    assert len(sim["busy_share"]) == 3
    assert 0 < min(sim["busy_share"]) <= max(sim["busy_share"]) < 1


def test_the_head_on_the_host_writes_the_same(model, golden):
    code, out, err = call("generate", "the 12", "--model", model, "--tokens", "4", "--head", "host", *SIZE)
    assert (code, out) == (0, f"the 12{golden[1]}\n")
    assert "2 layers on 2 wafers" in err
    assert "embedding and head on the host" in err


def test_requests_in_flight_share_the_wafers(model, golden):
    """Every request writes the same, each with its own KV cache; together they are faster, one is not."""
    ask = ("generate", "the 12", "--model", model, "--tokens", "4", "--json", *SIZE)
    one, three = (json.loads(call(*ask, "--requests", n)[1]) for n in ("1", "3"))
    assert three["request_token_ids"] == [golden[0]] * 3
    assert three["config"]["requests"] == 3
    assert three["sim"]["total_tokens_per_s"] > 1.8 * one["sim"]["total_tokens_per_s"]
    assert three["sim"]["tokens_per_s"] <= 1.01 * one["sim"]["tokens_per_s"]
    assert min(three["sim"]["busy_share"]) > min(one["sim"]["busy_share"])
    code, out, err = call(*ask[:-5], *SIZE, "--requests", "3")
    assert (code, out) == (0, f"the 12{golden[1]}\n")
    assert "3 x 4 prompt tokens" in err
    assert "for all 3" in err


def test_requests_have_seeds_of_their_own(model):
    ask = ("generate", "the", "--model", model, "--tokens", "5", "--temperature", "3", "--json", *SIZE)
    told = json.loads(call(*ask, "--requests", "2", "--seed", "4")[1])["request_token_ids"]
    assert told[0] == json.loads(call(*ask, "--seed", "4")[1])["token_ids"]
    assert told[1] == json.loads(call(*ask, "--seed", "5")[1])["token_ids"]


def test_a_seed_repeats_a_draw(model):
    ask = ("generate", "the", "--model", model, "--tokens", "3", "--temperature", "2", *SIZE)
    texts = [call(*ask, "--seed", seed)[1] for seed in ("1", "1", "2")]
    assert texts[0] == texts[1] != texts[2]


def test_slow_links_take_longer(model, tmp_path):
    slow = tmp_path / "slow.toml"
    slow.write_text(
        'name = "slow"\nlatency_ns = 9_000\nbandwidth_gbit_s = 1_200\nword_bits = 32\nbuffer_words = 4096\n'
    )
    ask = ("generate", "the", "--model", model, "--tokens", "2", "--json", *SIZE)
    fast, late = (json.loads(call(*ask, *more)[1])["sim"]["token_us"] for more in ((), ("--link", str(slow))))
    assert late - fast == pytest.approx(4 * 7.0)  # four hops, 7 us more each


def test_chat(model):
    code, out, _ = call(
        "generate", "the", "--chat", "--model", model, "--tokens", "2", "--grid", "2x2", "--kv", "64"
    )
    assert code == 0
    assert "im_start" not in out.splitlines()[0][:9]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("the 12", "--tokens", "40", *SIZE), 2, "need a KV cache of 43 tokens; it holds 32"),
        (("the" * 80, "--tokens", "1", "--grid", "2x2", "--kv", "99"), 2, "it holds 64"),  # made for 64
        (("a\x01b", *SIZE), 2, r"no token for '\x01'"),
        (("", *SIZE), 2, "prompt of request 0 is empty"),
        (("the", "--grid", "two"), 2, "--grid two: COLUMNSxROWS"),
        (("the", "--grid", "1x1"), 2, "cannot hold 2 KV heads"),
        (("the", "--grid", "2x2", "--kv", "9999"), 2, "over by"),
        (("the", "--temperature", "-1", *SIZE), 2, "temperature -1"),
        (("the", "--temperature", "1", "--head", "wafer", *SIZE), 2, "most probable token only"),
        (("the", "--machine", "nowhere.toml", *SIZE), 3, "nowhere.toml"),
        (("the", "--link", "nowhere.toml", *SIZE), 3, "nowhere.toml"),
    ],
)
def test_bad_inputs_are_one_message(model, arguments, code, text):
    got, _out, err = call("generate", *arguments, "--model", model)
    assert got == code
    assert text in err
    assert err.count("error[") == 1


def test_bad_files_are_one_message(tmp_path, model):
    cut = tmp_path / "cut.gguf"
    with open(model, "rb") as whole:
        cut.write_bytes(whole.read()[:-20_000])
    other = write_model(tmp_path / "other.gguf", llama__expert_count=4, tokenizer__ggml__pre="qwen2")
    for path, text in (
        (str(cut), "past the end of the file"),
        (str(tmp_path / "none.gguf"), "no such file"),
        (str(other), "4 experts; tokenizer splits text by 'qwen2'"),
    ):
        for command in (("generate", "the", "--model", path), ("plan", path)):
            code, out, err = call(*command)
            assert (code, out) == (3, "")
            assert text in err
            assert err.count("error[") == 1
    code, out, err = call("plan", "smolm2")
    assert (code, out) == (2, "")
    assert "no model 'smolm2'\nhelp: a GGUF file, or a pinned one: smollm2" in err


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT for a child")
def test_ctrl_c_keeps_what_was_made(tmp_path):
    longer = str(write_model(tmp_path / "long.gguf", llama__context_length=4096))
    command = [sys.executable, "-m", "waferloom.programs.cli", "generate", "the", "--model", longer]
    process = subprocess.Popen(
        [*command, "--tokens", "2000", "--grid", "2x4", "--kv", "2048"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    written = process.stdout.read(5)  # the prompt and the first of the model's own text
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert written + out
    assert b"end: interrupted" in err
    assert b"interrupted after" in err


# --- plan ---


def test_plan(model):
    code, out, _ = call("plan", model, "--kv", "32", "--grid", "2x2")
    assert code == 0
    assert "3 wafers (wse3): one layer on each, 2 x 2 PEs; the head on the last" in out
    assert any(line.endswith("% <") and "2 x 2" in line for line in out.splitlines())
    _, out, _ = call("plan", model, "--kv", "32", "--grid", "2x2", "--json")
    told = json.loads(out)
    assert told["layer"]["grid_pes"] == [2, 2]
    assert told["layer"]["sram_bytes_per_pe"] < 49152
    assert told["layer"] in told["grids"]


def test_plan_expects_what_generate_measures(model):
    expected = json.loads(call("plan", model, *SIZE, "--json")[1])
    measured = json.loads(call("generate", "the", "--model", model, "--tokens", "2", "--json", *SIZE)[1])
    cycles = measured["sim"]["layer_cycles_mean"]
    assert cycles == pytest.approx(expected["layer"]["cycles_expected"], rel=0.05)
    assert expected["expected"]["token_us"] == pytest.approx(measured["sim"]["token_us"], rel=0.1)


def test_plan_of_smollm2(smollm2_file):
    code, out, _ = call("plan", str(smollm2_file))
    assert code == 0
    assert "31 wafers (wse3): one layer on each" in out


def test_a_missing_tokenizers_package_is_named_with_the_way_to_install_it(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)  # as if it were not installed
    code, out, err = call("generate", "the 12", "--model", model, "--tokens", "1", *SIZE)
    assert (code, out) == (3, "")
    assert "error[unsupported]: the Python package `tokenizers`" in err
    assert "python -m pip install 'tokenizers>=0.20'" in err
