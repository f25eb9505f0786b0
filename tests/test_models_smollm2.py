"""SmolLM2 whole: thirty wafers in a chain against the golden twins, bit for bit, and their times."""

import numpy as np
import pytest
from waferloom.fabric.spec import machine
from waferloom.programs.layers.model_golden import ModelGolden
from waferloom.programs.models import ChainStages, HostHead, describe_model
from waferloom.programs.models.wafers import chain_of_layers, layer_plan
from waferloom.programs.weights import open_gguf

PROMPT = [504, 3575]  # "The capital"


def test_thirty_wafers_give_the_golden_hidden_vectors(smollm2_file):
    """Every bit behind the last layer; host logits; a pipeline whose stages overlap."""
    spec = machine("wse3")
    with open_gguf(smollm2_file) as file:
        config = describe_model(file)
        plan = layer_plan(config, spec, None, 64)
        chain = chain_of_layers(file, config, plan, threads=2)
        head, golden = HostHead(file, config), ModelGolden(file, spec, plan.grid, 64)
    stages = ChainStages(chain, plan)
    items = [stages.send(0, head.embed(token), 0) for token in PROMPT]
    ticks = []
    for token, item in zip(PROMPT, items, strict=True):
        hidden, tick = stages.receive(item)
        want = golden.step(token)
        np.testing.assert_array_equal(hidden.view(np.uint16), want.view(np.uint16))
        np.testing.assert_allclose(head.logits(hidden), golden.logits(want), atol=0.02)
        ticks.append(tick)
    one, two = (sum(stays[item].end - stays[item].start for stays in chain.stays) for item in items)
    hops = 31 * chain.links[0].latency
    assert ticks[0] == pytest.approx(one + hops, rel=0.02)  # one token alone: the sum of its stages
    assert ticks[1] - ticks[0] < 0.1 * two  # the second follows one stage later
