"""SmolLM2 whole: wafers in a chain against the golden twins, bit for bit, and their times."""

import json
from pathlib import Path

import numpy as np
import pytest
from waferloom.fabric.spec import machine
from waferloom.programs.layers.llama_cycles import cycles_of_regions
from waferloom.programs.layers.model_golden import ModelGolden
from waferloom.programs.models import ChainStages, HostHead, WaferHead, describe_model, generate
from waferloom.programs.models.head_golden import HeadGolden
from waferloom.programs.models.wafers import chain_of_layers, head_plan, head_weights, layer_plan
from waferloom.programs.weights import open_gguf

PROMPT = [504, 3575]  # "The capital"


def test_thirty_layers_and_a_head_give_the_golden_answers(smollm2_file):
    """Every bit behind the head, the same token as the host's head, and a pipeline whose stages overlap."""
    spec = machine("wse3")
    with open_gguf(smollm2_file) as file:
        config = describe_model(file)
        plan = layer_plan(config, spec, None, 64)
        of_head = head_plan(config, plan)
        chain = chain_of_layers(file, config, plan, head=of_head, threads=2)
        ends, host = WaferHead(file, config), HostHead(file, config)
        golden = ModelGolden(file, spec, plan.grid, 64)
        golden_head = HeadGolden(of_head, *head_weights(file, config))
    stages = ChainStages(chain, plan)
    items = [stages.send(0, ends.embed(token), 0) for token in PROMPT]
    ticks = []
    for token, item in zip(PROMPT, items, strict=True):
        answer, tick = stages.receive(item)
        hidden = golden.step(token)
        np.testing.assert_array_equal(answer.view(np.uint32), golden_head.step(hidden).view(np.uint32))
        np.testing.assert_allclose(host.logits(hidden), golden_head.logits(hidden), atol=0.03)
        assert answer[0] == np.argmax(host.logits(hidden))
        ticks.append(tick)
    one, two = (sum(stays[item].end - stays[item].start for stays in chain.stays) for item in items)
    hops = 32 * chain.links[0].latency
    assert ticks[0] == pytest.approx(one + hops, rel=0.02)  # one token alone: the sum of its stages
    assert ticks[1] - ticks[0] < 0.1 * two  # the second follows one stage later


def test_three_layers_on_each_of_ten_wafers_write_the_golden_tokens(smollm2_file):
    """The first of the 32; a wafer takes as long as the formulas say of three layers."""
    text = (Path(__file__).parent / "golden" / "smollm2_prompt0.json").read_text()
    prompt = json.loads(text)["prompts"][0]
    spec = machine("wse3")
    with open_gguf(smollm2_file) as file:
        config = describe_model(file)
        plan = layer_plan(config, spec, None, 64)
        of_head = head_plan(config, plan)
        chain = chain_of_layers(file, config, plan, wafers=10, head=of_head, threads=2)
        ends = WaferHead(file, config)
    made = generate(ChainStages(chain, plan), ends, [prompt["prompt_ids"]], 4)
    assert len(chain.wafers) == 11
    assert made.tokens[0] == prompt["greedy32"][:4]
    for stays in chain.stays[:10]:
        assert stays[0].cycles == pytest.approx(cycles_of_regions(plan, 3), rel=0.02)
