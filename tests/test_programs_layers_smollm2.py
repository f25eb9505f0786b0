"""SmolLM2's layers with their real weights: stage errors, the wafer against its twin, the whole model."""

import json
from pathlib import Path

import numpy as np
import pytest
from waferloom.fabric.spec import machine
from waferloom.fabric.wafer import Wafer
from waferloom.programs.kernels.job import same_bits
from waferloom.programs.layers.llama import LayerGolden, build_layer, layer_weights, load_layer, plan_layer
from waferloom.programs.layers.model_golden import ModelGolden, config_of, error_table, stage_errors
from waferloom.programs.weights import open_gguf

GOLDEN = Path(__file__).parent / "golden"
WSE3 = machine("wse3")
RELATIVE = 2.0**-9  # rms error over rms: x, weights, q, k, v, softmax each round with 2^-11 / sqrt(3)


@pytest.fixture(scope="module")
def file(smollm2_file):
    with open_gguf(smollm2_file) as opened:
        yield opened


@pytest.fixture(scope="module")
def tensors():
    return np.load(GOLDEN / "smollm2_prompt0.npz")


@pytest.mark.parametrize("layer", [0, 29])
def test_every_stage_is_as_exact_as_f16_storage(file, tensors, layer):
    golden = LayerGolden(plan_layer(config_of(file), WSE3), layer_weights(file, layer))
    prefix = f"p0_L{layer}_"
    want = {name.removeprefix(prefix): tensors[name] for name in tensors.files if name.startswith(prefix)}
    have: dict[str, list] = {}
    for hidden in want["x_in"]:
        golden.step(hidden.astype(np.float16))
        for stage, value in golden.stages.items():
            have.setdefault(stage, []).append(value)
    table = error_table(stage_errors(have, want), RELATIVE)
    assert "every stage is within" in table, table


@pytest.mark.parametrize(("grid", "kind"), [((12, 12), "q4"), ((24, 24), "f16"), ((24, 18), "q4")])
def test_layer_0_on_the_wafer_is_bit_equal(file, tensors, grid, kind):
    plan = plan_layer(config_of(file), WSE3, grid, kind)
    weights = layer_weights(file, 0)
    wafer, golden = Wafer(WSE3, build_layer(plan)), LayerGolden(plan, weights)
    load_layer(wafer, plan, weights)
    for number, hidden in enumerate(tensors["p0_L0_x_in"].astype(np.float16)):
        result = wafer.run({"hidden": plan.to_lanes(hidden)})
        assert same_bits(plan.from_lanes(result["hidden_out"]), golden.step(hidden))
        assert result.cycles == pytest.approx(plan.cycles(number + 1), rel=0.04)


def test_the_default_grid_reaches_three_fifths_of_the_bound(file):
    plan = plan_layer(config_of(file), WSE3)
    assert plan.bound(1) / plan.cycles(1) > 0.6


def test_the_model_writes_the_golden_tokens(file, tensors):
    prompt = json.loads((GOLDEN / "smollm2_prompt0.json").read_text())["prompts"][0]
    model = ModelGolden(file, WSE3)
    residuals: list[np.ndarray] = []
    for token in prompt["prompt_ids"]:
        residuals.clear()
        hidden = model.step(
            token, lambda _, layer: residuals.extend(layer.stages[s] for s in ("x_mid", "x_out"))
        )
    errors = model.logits(hidden) - tensors["p0_logits_last"]
    assert np.sqrt(np.mean(errors**2)) < 0.012  # the aim is 0.03
    for half, (have, want) in enumerate(zip(residuals, tensors["p0_resid_last_token"][1:], strict=True)):
        rms = np.sqrt(np.mean((have - want) ** 2) / np.mean(want**2))
        assert rms < 3e-3, f"half-layer {half}"
    for layer in model.layers:
        layer.reset()
    assert model.greedy(prompt["prompt_ids"], 32) == prompt["greedy32"]
