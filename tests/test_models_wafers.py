"""Several layers of a model on each wafer: `--wafers` of `generate` and `plan`."""

import json

import numpy as np
import pytest
import tiny_model
from click.testing import CliRunner
from waferloom.fabric.spec import machine
from waferloom.isa.errors import Usage
from waferloom.programs.cli import cli
from waferloom.programs.layers import PlanError
from waferloom.programs.models import describe_model
from waferloom.programs.models.wafers import chain_of_layers, layer_plan, layers_per_wafer
from waferloom.programs.weights import open_gguf

SIZE = ("--grid", "3x2", "--kv", "32")


def call(*arguments):
    """Exit code, stdout, stderr."""
    result = CliRunner().invoke(cli, list(arguments), prog_name="waferloom")
    assert "Traceback" not in result.output
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A file with four layers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(tiny_model.SIZES, "layers", 4)
        return str(tiny_model.write_model(tmp_path_factory.mktemp("model") / "m.gguf"))


def generated(model, *more):
    code, out, err = call("generate", "the 12", "--model", model, "--tokens", "4", "--json", *SIZE, *more)
    assert code == 0, err
    return json.loads(out)


def test_tokens_do_not_depend_on_the_number_of_wafers(model):
    four, two, three = (generated(model, *more) for more in ((), ("--wafers", "2"), ("--wafers", "3")))
    for told, shares in ((four, [1, 1, 1, 1]), (two, [2, 2]), (three, [2, 1, 1])):
        assert told["config"]["layers_of_wafer"] == shares
        assert told["config"]["wafers"] == len(shares) + 1 == len(told["sim"]["busy_share"])
        assert told["request_token_ids"] == four["request_token_ids"]
    assert two["sim"]["layer_cycles_mean"] == pytest.approx(four["sim"]["layer_cycles_mean"], rel=0.05)
    saved = four["sim"]["token_us"] - two["sim"]["token_us"]
    assert 2 * 2.0 < saved < 2 * 2.2  # two hops of 2 us less, and departures that meet arrivals
    several = [
        generated(model, "--requests", "2", "--wafers", wafers)["request_token_ids"] for wafers in "24"
    ]
    assert several[0] == several[1] == four["request_token_ids"] * 2


def test_the_summary_tells_how_many_layers_share_a_wafer(model):
    code, out, err = call(
        "generate", "the", "--model", model, "--tokens", "1", "--wafers", "1", "--head", "host", *SIZE
    )
    assert code == 0
    assert out.startswith("the")
    assert "4 layers on 1 wafer of up to 4 regions of 3 x 2 PEs" in err


def test_the_plan_expects_what_is_measured(model):
    ask = ("plan", model, *SIZE, "--wafers")
    told = json.loads(call(*ask, "2", "--json")[1])
    assert (told["wafers"], told["layers_of_wafer"]) == (3, [2, 2])
    one = json.loads(call(*ask, "4", "--json")[1])
    assert told["weight_bytes_per_wafer"] == 2 * one["weight_bytes_per_wafer"]
    assert told["layer"] == one["layer"]
    assert 1.8 < told["expected"]["wafer_us"] / one["expected"]["wafer_us"] < 2
    assert told["expected"]["token_us"] < one["expected"]["token_us"] - 2 * 2.0
    assert "2 layers side by side on each, 3 x 2 PEs per layer" in call(*ask, "2")[1]
    assert "1 or 2 layers side by side on each" in call(*ask, "3")[1]
    with open_gguf(model) as file:
        config = describe_model(file)
        plan = layer_plan(config, machine("wse3"), (3, 2), 32)
        chain = chain_of_layers(file, config, plan, wafers=2)
    item = chain.send({"hidden": plan.to_lanes(np.ones(config.hidden, np.float16))})
    chain.receive(item)  # one token
    measured = [stays[0].cycles / plan.spec.clock_mhz for stays in chain.stays]
    assert told["expected"]["wafer_us"] == pytest.approx(max(measured), rel=0.08)


def test_layers_are_spread_evenly(model):
    with open_gguf(model) as file:
        config = describe_model(file)
    plan = layer_plan(config, machine("wse3"), (3, 2), 32)
    assert layers_per_wafer(config, plan) == [1, 1, 1, 1]
    assert layers_per_wafer(config, plan, 3) == [2, 1, 1]
    for wafers in (0, 5):
        with pytest.raises(Usage, match=f"{wafers} wafers for 4 layers; 1 to 4"):
            layers_per_wafer(config, plan, wafers)
    wide = layer_plan(config, machine("wse3"), (200, 2), 32)
    assert layers_per_wafer(config, wide, 2) == [2, 2]
    with pytest.raises(PlanError, match="need 800 columns, wse3 has 755"):
        layers_per_wafer(config, wide, 1)


@pytest.mark.parametrize("command", [("generate", "the", "--model"), ("plan",)])
def test_too_few_wafers_are_refused_before_a_run(model, command):
    code, out, err = call(*command, model, "--grid", "200x2", "--kv", "32", "--wafers", "1")
    assert code != 0
    assert out == ""
    assert "4 layers on 1 wafer: " in err
    assert "at least 2 wafers" in err
