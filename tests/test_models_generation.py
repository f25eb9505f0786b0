"""Generation: golden layers and wafer chains, requests, limits, interruption, SmolLM2's oracle."""

import json
from pathlib import Path

import numpy as np
import pytest
from plain_llama import PlainLlama
from tiny_model import write_model
from waferloom.fabric.chain import Chain
from waferloom.fabric.spec import machine
from waferloom.fabric.wafer import Wafer
from waferloom.isa.assembler import assemble
from waferloom.isa.errors import Interrupted, Usage
from waferloom.programs.models import ChainStages, GoldenStages, HostHead, Sampler, describe_model, generate
from waferloom.programs.weights import open_gguf

GOLDEN = json.loads((Path(__file__).parent / "golden" / "smollm2_prompt0.json").read_text())["prompts"][0]

DOUBLE = """; a layer: y = x + x, f16, two elements per wavelet on each of two lanes
.colour a, b
.kernel k
.queues
  in  come
  out go
.data
  x: f16[4]
.code
task start entry
  vmov.f16 x, come
  vadd.f16 go, x, x
  done
  end
.layout
  grid 1, 2
  place k at (0, *) { come = a, go = b }
  route a at (0, *): W -> RAMP
  route b at (0, *): RAMP -> E
  input  hidden on west lanes * colour a : f16[4]
  output hidden_out on east lanes * colour b : f16[4]
"""


class Doubling:
    """The golden twin of DOUBLE, and how it lies on lanes."""

    requests = 1

    def step(self, hidden):
        return hidden + hidden

    def to_lanes(self, hidden, request=0):
        return hidden.reshape(2, 4)

    def from_lanes(self, lanes):
        return lanes.reshape(-1)


class Counting:
    """Ends of a toy model of 8 tokens: token t is the t-th unit vector; t + 1 follows t."""

    def embed(self, token):
        return np.eye(8, dtype=np.float16)[token]

    def choose(self, hidden, sampler):
        return sampler.pick(np.roll(hidden, 1).astype(np.float32))


def chain(count=3, threads=1):
    wafers = [Wafer(machine("tiny"), assemble(DOUBLE), engine="reference") for _ in range(count)]
    return Chain(wafers, threads=threads)


def test_golden_and_chain_write_the_same():
    golden = generate(GoldenStages([[Doubling()] * 3]), Counting(), [[3, 4, 5]], 6)
    assert golden.tokens == [[6, 7, 0, 1, 2, 3]]
    seen = []
    wafers = generate(
        ChainStages(chain(), Doubling()), Counting(), [[3, 4, 5]], 6, on_token=lambda *a: seen.append(a)
    )
    assert wafers.tokens == golden.tokens
    assert [(r, t) for r, t, _ in seen] == [(0, t) for t in golden.tokens[0]]
    assert [tick for *_, tick in seen] == wafers.ticks[0]


def test_times_of_tokens():
    """The prompt flows as a pipeline; every new token takes as long as the one before it."""
    stages = ChainStages(chain(), Doubling())
    made = generate(stages, Counting(), [[3, 4, 5]], 5)
    gaps = np.diff(made.ticks[0])
    assert len(set(gaps.tolist())) == 1
    assert gaps[0] == made.ticks_per_token
    assert made.first_tick < 2 * gaps[0]  # three prompt tokens, far less than three passes
    assert made.last_tick == made.first_tick + 4 * gaps[0]


def test_host_threads_write_the_same():
    runs = [generate(ChainStages(chain(threads=n), Doubling()), Counting(), [[1, 2]], 4) for n in (1, 2)]
    assert runs[0] == runs[1]


def test_requests_are_kept_apart():
    class Last:  # gives the token before: a layer with memory
        kept = np.zeros(8, np.float16)

        def step(self, hidden):
            before, self.kept = self.kept, hidden
            return before

    made = generate(GoldenStages([[Last()], [Last()]]), Counting(), [[1, 2, 3], [5, 6]], 3)
    assert made.tokens == [[3, 4, 4], [6, 7, 7]]
    assert made.made == 6


def test_stop_token_is_kept_and_ends():
    made = generate(GoldenStages([[Doubling()]]), Counting(), [[3]], 6, stop=6)
    assert made.tokens == [[4, 5, 6]]


def test_what_cannot_be_asked():
    stages = GoldenStages([[Doubling()]])
    for prompts, count, options, text in (
        ([[1, 2]], 0, {}, "at least 1"),
        ([[]], 1, {}, "prompt of request 0 is empty"),
        ([[1], [2]], 1, {}, "2 requests; these stages keep 1 apart"),
        ([], 1, {}, "0 requests"),
        (
            [[1, 2, 3]],
            4,
            {"capacity": 5},
            "prompt of 3 tokens and 4 new ones need a KV cache of 6 tokens; it holds 5",
        ),
    ):
        with pytest.raises(Usage, match=text):
            generate(stages, Counting(), prompts, count, **options)
    assert generate(stages, Counting(), [[1, 2, 3]], 3, capacity=5).made == 3


def test_interrupted_keeps_what_was_made():
    class Stops(GoldenStages):
        def receive(self, item):
            if item == 4:
                raise Interrupted("stop")
            return super().receive(item)

    made = generate(Stops([[Doubling()]]), Counting(), [[0, 1, 2]], 9)
    assert (made.end, made.tokens) == ("interrupted", [[3, 4]])


def test_sampling():
    logits = np.array([0, 2, 1, 2], np.float32)
    assert Sampler().pick(logits) == 1
    draws = [[Sampler(1.0, seed).pick(logits) for _ in range(1)] for seed in (5, 5, 6)]
    assert draws[0] == draws[1]
    sampler = Sampler(1.0, 7)
    counts = np.bincount([sampler.pick(logits) for _ in range(4000)], minlength=4) / 4000
    chances = np.exp(logits) / np.exp(logits).sum()
    assert np.abs(counts - chances).max() < 0.03
    assert Sampler(1e-3).pick(np.array([1, 5, 2], np.float32)) == 1
    for bad in (-1.0, float("nan"), float("inf")):
        with pytest.raises(Usage, match="temperature"):
            Sampler(bad)
    with pytest.raises(Usage, match="seed"):
        Sampler(1, -1)
    with pytest.raises(Usage, match="not finite"):
        Sampler().pick(np.array([1, np.nan], np.float32))


@pytest.mark.parametrize("tied", [True, False])
def test_both_ends_against_float32(tmp_path, tied):
    with open_gguf(write_model(tmp_path / "m.gguf", tied=tied)) as file:
        head = HostHead(file, describe_model(file))
        plain = PlainLlama(file)
        rows = plain.w["token_embd.weight"]
        hidden = np.random.default_rng(1).normal(0, 3, 64).astype(np.float16)
        want = plain.head @ plain.norm(hidden.astype(np.float32), plain.w["output_norm.weight"])
        assert head.embed(7).dtype == np.float16
        np.testing.assert_allclose(head.embed(7), rows[7], rtol=1e-3)
        np.testing.assert_allclose(head.logits(hidden), want, atol=5e-3 * np.abs(want).max())


def test_the_oracle_gives_the_golden_tokens_of_smollm2(smollm2_file):
    """The independent float32 model reproduces the 32 golden tokens and the first logits."""
    with open_gguf(smollm2_file) as file:
        plain = PlainLlama(file)
    for token in GOLDEN["prompt_ids"]:
        logits = plain.step(token)
    for number, wanted in GOLDEN["top5"]["numpy_fp32"]:
        assert abs(logits[number] - wanted) < 1e-3
    tokens = []
    for _ in range(32):
        tokens.append(int(np.argmax(logits)))
        logits = plain.step(tokens[-1])
    assert tokens == GOLDEN["greedy32"]
