"""Bench: SmolLM2 writes 32 golden tokens on 31 wafers; emulated and host time. Aims: 2 s, 6 GiB."""

import json
import time
from pathlib import Path

import pytest
from report import figure, peak_memory_gib
from waferloom.fabric.spec import machine
from waferloom.programs.models import ChainStages, WaferHead, describe_model, generate
from waferloom.programs.models.wafers import chain_of_layers, head_plan, layer_plan
from waferloom.programs.weights import open_gguf
from waferloom.programs.weights.fetch import fetch

GOLDEN = Path(__file__).parents[1] / "tests/golden/smollm2_prompt0.json"


@pytest.mark.large
def test_the_model_speaks(benchmark):
    prompt = json.loads(GOLDEN.read_text())["prompts"][0]
    with open_gguf(fetch("smollm2")) as file:
        config = describe_model(file)
        plan = layer_plan(config, machine("wse3"), None, 512)
        of_head = head_plan(config, plan)
        chain = chain_of_layers(file, config, plan, head=of_head, threads=2)
        ends = WaferHead(file, config)
    arrivals = []
    cores = time.process_time()
    made = benchmark.pedantic(
        generate,
        args=(ChainStages(chain, plan), ends, [prompt["prompt_ids"]], 32),
        kwargs={"on_token": lambda *_: arrivals.append(time.perf_counter())},
        rounds=1,
    )
    cores = time.process_time() - cores
    assert made.tokens == [prompt["greedy32"]]
    token_us = made.ticks_per_token * chain.microseconds(1)
    figure("SmolLM2", "first token after", chain.microseconds(made.first_tick), "us emulated")
    figure("SmolLM2", "token after token", token_us, "us emulated")
    figure("SmolLM2", "one request", 1e6 / token_us, "tokens/s emulated")
    figure("SmolLM2", "host, from token to token", (arrivals[-1] - arrivals[0]) / 31, "s", 2)
    figure("SmolLM2", "host, one core takes per token", cores / 36, "s")
    pes = [wafer.program.width * wafer.program.height for wafer in chain.wafers]
    cycles = sum(n * stay.cycles for n, stays in zip(pes, chain.stays, strict=True) for stay in stays)
    figure("SmolLM2", "host, PE-cycles per core second", cycles / cores, "1/s")
    figure("SmolLM2", "peak memory", peak_memory_gib(), "GiB", 6)
