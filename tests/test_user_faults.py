"""Inputs users of such tools tripped over and no example file can show: machine files, models, chains."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from test_fabric_chain import NS, chain_of, everything, numbers
from tiny_model import write_model
from waferloom.fabric.spec import machine
from waferloom.fabric.wafer import ENGINES, Wafer
from waferloom.isa.assembler import assemble_file, assemble_text
from waferloom.programs.cli import cli
from waferloom.programs.models import Tokenizer
from waferloom.programs.weights import open_gguf

ROOT = Path(__file__).parents[1]
RELAY = ROOT / "tests" / "run" / "ok_relay.loom"


def call(*arguments: str):
    """Exit code, stdout, stderr."""
    result = CliRunner().invoke(cli, list(arguments), prog_name="waferloom")
    assert "Traceback" not in result.output
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("command", ["check", "run"])
@pytest.mark.parametrize(
    ("reserved", "found"), [("[0]", {0: 39}), ("[1, 5]", {1: 11}), ("[2, 23]", {2: 40}), ("[3, 23]", {})]
)
def test_colours_that_a_machine_file_reserves(tmp_path, command, reserved, found):
    """T10: each use is one error with its place and all legal colours, before anything runs."""
    preset = (ROOT / "fabric" / "machines" / "tiny.toml").read_text("utf-8")
    path = tmp_path / "mine.toml"
    path.write_text(
        preset.replace("reserved_colours = []", f"reserved_colours = {reserved}").replace("tiny", "mine")
    )
    np.save(tmp_path / "x.npy", np.arange(4, dtype=np.int32)[None])
    given = ["--input", f"x={tmp_path / 'x.npy'}", "--engine", "reference"] if command == "run" else []
    code, _, err = call(command, str(RELAY), "--machine", str(path), *given)
    assert code == (3 if found else 0)
    assert err.count("error[") == len(found)
    for colour, line in found.items():
        assert f"{RELAY}:{line}:" in err
        assert f"error[range]: colour {colour} (`" in err
        assert "is reserved on mine" in err
        listed = err.split("legal colours: ")[1].split("\n")[0]
        assert set(map(int, listed.split(", "))) == set(range(24)) - set(json.loads(reserved))


def test_a_wafer_that_waits_a_million_cycles_for_another():
    """T12: a long way between wafers is no hang, and changes nothing but times."""
    far = dataclasses.replace(NS, latency_ns=1_500_000)  # 1.3 million cycles
    chain = chain_of(2, far)
    item = chain.send({"x": numbers(1)})
    got = chain.receive(item)
    assert got.outputs["y"].tolist() == (numbers(1) + 2).tolist()
    first, second = chain.stays[0][0], chain.stays[1][0]
    cycle = (first.end - first.start) // first.cycles
    assert second.start - first.start > 1_300_000 * cycle
    assert everything(chain_of(2, far), 3)[0] == everything(chain_of(2), 3)[0]


PATTERNS = """\
.kernel k
.data
  a: {t}[16384] export
  s: {t}[4] export
.code
task start entry
  ld.{t}   r1, s
  st.{t}   r1, s + 2
  vmov.{t} a, a
{more}
  end
.layout
  grid 4, 1
  place k at (*, *) {{}}
"""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("t", ["f16", "bf16"])
def test_all_patterns_pass_loads_stores_and_moves(engine, t):
    """T27: moves, negate and absolute keep every bit, a NaN's too."""
    more = "  vneg.f16 a, a\n  vneg.f16 a, a\n  vabs.f16 a, a" if t == "f16" else ""
    wafer = Wafer(machine("wse3"), assemble_text(PATTERNS.format(t=t, more=more)), engine=engine)
    every = np.arange(65536, dtype=np.uint16).reshape(1, 4, 16384)
    kind = np.float16 if t == "f16" else np.uint16
    wafer.write("a", every.view(kind))
    some = np.array([0x7C01, 0, 0xFFFF, 0x8001], np.uint16)
    wafer.write("s", some.view(kind), at=(0, 0))
    assert wafer.run().end == "finished"
    got = wafer.read("a").view(np.uint16)
    assert (got == (every & 0x7FFF if more else every)).all()
    assert wafer.read("s", at=(0, 0)).view(np.uint16)[:2].tolist() == [0x7C01, 0x7C01]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return str(write_model(tmp_path_factory.mktemp("model") / "m.gguf"))


@pytest.mark.parametrize("new", [1, 3])
def test_the_last_token_that_fits_the_cache(model, new):
    """T39: as many tokens as the KV cache holds, on several wafers; one more is refused before any runs."""
    with open_gguf(model) as file:
        prompt = len(Tokenizer(file).prompt("the 12"))
    holds = prompt + new - 1  # the last token made is not fed back
    ask = ("generate", "the 12", "--model", model, "--grid", "2x2", "--kv", str(holds))
    code, _, err = call(*ask, "--tokens", str(new))
    assert code == 0, err
    code, out, err = call(*ask, "--tokens", str(new + 1))
    assert (code, out) == (2, "")
    assert f"error[capacity]: a prompt of {prompt} tokens and {new + 1} new ones" in err
    assert f"it holds {holds}" in err


def test_a_cache_of_one_token(model):
    """T39"""
    with open_gguf(model) as file:
        tokenizer = Tokenizer(file)
        text = next(c for c in "the 12" if len(tokenizer.prompt(c)) == 1)
    ask = ("generate", text, "--model", model, "--grid", "2x2", "--kv", "1")
    assert call(*ask, "--tokens", "1")[0] == 0
    assert "error[capacity]" in call(*ask, "--tokens", "2")[2]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["hang_wavelets_left", "fault_bounds", "limit_branch_to_self"])
def test_a_run_after_a_bad_end(engine, name):
    """T11: nothing of a run is left but SRAM: the second one ends like the first."""
    made = assemble_file(ROOT / "tests" / "run" / f"{name}.loom").program
    wafer = Wafer(machine("tiny"), made, engine=engine)
    inputs = {port: np.zeros((1, *made.edge_ports[port].shape), np.int32) for port in made.edge_ports}
    first, second = (wafer.run(inputs, max_cycles=500) for _ in range(2))
    assert first.end == name.split("_")[0]
    assert first.dumps(host=False) == second.dumps(host=False)
