"""The command line as a user meets it: exit codes, messages, files in and out."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from waferloom.programs import cli as cli_module
from waferloom.programs.cli import COMMANDS, cli

RUN = Path(__file__).parent / "run"
RELAY = str(RUN / "ok_relay.loom")
ENGINE = ("--engine", "reference")  # small programs; the fast engine would only add its start-up
X = np.array([[1, 2, 3, 4]], np.int32)


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch, tmp_path):
    """Nothing that a command writes lands in the project."""
    monkeypatch.chdir(tmp_path)


def call(*arguments: str, **options):
    """Exit code, stdout, stderr of one command in this process."""
    result = CliRunner().invoke(cli, list(arguments), prog_name="waferloom", **options)
    assert "Traceback" not in result.output
    return result.exit_code, result.stdout, result.stderr


def spawn(*arguments: str, **options) -> subprocess.CompletedProcess:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "waferloom.programs.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)


@pytest.fixture
def x(tmp_path: Path) -> str:
    np.save(tmp_path / "x.npy", X)
    return f"x={tmp_path / 'x.npy'}"


# --- the group ---


def test_help_names_every_command_and_exit_code():
    code, out, _ = call("--help")
    assert code == 0
    assert all(f"  {name} " in out for name in COMMANDS)
    assert "_WAFERLOOM_COMPLETE=bash_source" in out
    for code_text in ("1 mismatch", "4 hang", "70 internal", "130 interrupted"):
        assert code_text in out


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_has_help(name):
    code, out, _ = call(name, "--help")
    assert code == 0
    assert out.startswith(f"Usage: waferloom {name} ")


def test_help_imports_nothing_heavy():
    text = (
        "import sys\nfrom waferloom.programs.cli import cli\n"
        "try:\n cli(['run', '--help'])\nexcept SystemExit: pass\n"
        "heavy = {'numpy', 'numba', 'lark', 'gguf', 'rich'} & set(sys.modules)\nassert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", text], check=True, capture_output=True)


def test_help_is_quick():
    best = 9.0
    for _ in range(5):
        began = time.perf_counter()
        assert spawn("--help").returncode == 0
        best = min(best, time.perf_counter() - began)
    assert best < 0.3


def test_completion_script():
    environment = dict(os.environ, _WAFERLOOM_COMPLETE="bash_source")
    done = subprocess.run(
        [sys.executable, "-c", "from waferloom.programs.cli import main; main()"],
        capture_output=True, text=True, env=environment,
    )  # fmt: skip
    assert "_WAFERLOOM_COMPLETE=bash_complete" in done.stdout


# --- exit codes ---


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["run", str(RUN / "ok_idle_pe.loom"), *ENGINE], 0, ""),
        (["rnu"], 2, "Did you mean"),
        (["run"], 2, "Missing argument"),
        (["run", RELAY, *ENGINE], 2, "no values for input `x` (i32, shape (1, 4))"),
        (["run", "nowhere.loom"], 2, "nowhere.loom"),
        (["run", RELAY, "-D", "rows=x"], 2, "NAME=NUMBER is wanted"),
        (["run", RELAY, "-D", "rows=2"], 2, "no parameter `rows`"),
        (["run", RELAY, "--machine", "nosuch.toml"], 3, "error[format]"),
        (["run", str(RUN / "hang_both_receive_first.loom"), *ENGINE], 4, "cycle of 2"),
        (
            ["run", str(RUN / "limit_branch_to_self.loom"), "--max-cycles", "99", *ENGINE],
            5,
            "limit at cycle 99",
        ),
        (["run", str(RUN / "fault_bounds.loom"), *ENGINE], 6, "error[fault]: bounds"),
        (["run", str(RUN / "ok_idle_pe.loom"), "--map", "heat", *ENGINE], 2, "no metric 'heat'"),
        (["run", RELAY, "--read", "onw", *ENGINE], 2, "no PE has a symbol `onw`"),
        (["run", RELAY, "--max-cycles", "99999999999999999999", *ENGINE], 2, "can be counted"),
        (["run", RELAY, "--output", "nowhere/a.npz", *ENGINE], 2, "nowhere/a.npz: cannot be written"),
        (["run", RELAY, "--output", "a.txt", *ENGINE], 2, "unknown kind of output"),
        (["run", RELAY, "--result", "nowhere/a.json", *ENGINE], 2, "there is no folder nowhere"),
        (["fetch", "smolm"], 2, "no pinned weights"),
    ],
)
def test_exit_codes(arguments, code, text):
    """In a process of their own: what the shell sees."""
    done = spawn(*arguments)
    assert done.returncode == code
    assert text in done.stderr
    assert "Traceback" not in done.stderr


def test_assembly_errors_are_rejected(tmp_path):
    source = tmp_path / "a.loom"
    source.write_text(".kernel k\n.code\ntask t entry\n  shl r1, r2, 640\n  adf r1, r1, r2\n  end\n")
    code, out, err = call("check", str(source))
    assert (code, out) == (3, "")
    assert f"{source}:4:" in err
    assert "error[range]" in err
    assert f"{source}:5:" in err
    code, out, _ = call("check", str(source), "--json")
    assert code == 3
    assert {finding["line"] for finding in json.loads(out)["findings"]} >= {4, 5}


def test_a_bug_writes_a_report_and_exits_70(monkeypatch, tmp_path):
    def broken(*arguments, **options):
        raise RuntimeError("boom")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("waferloom.programs.program_file.load", broken)
    code, _, err = call("run", RELAY)
    assert code == 70
    assert "a bug in waferloom, not in your program: RuntimeError: boom" in err
    (report,) = tmp_path.glob("waferloom-report-*.json")
    assert str(report) in err
    assert "boom" in json.loads(report.read_text())["traceback"][-1]


def test_ctrl_c_keeps_results(tmp_path):
    """T34: exit 130, the end and the result file say interrupted, with the cycles so far."""
    result = tmp_path / "r.json"
    command = [sys.executable, "-m", "waferloom.programs.cli", "run", str(RUN / "limit_branch_to_self.loom")]
    process = subprocess.Popen(
        [*command, *ENGINE, "--result", str(result)],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted at cycle" in err
    assert "interrupted after" in out
    document = json.loads(result.read_text())
    assert document["end"] == "interrupted"
    assert document["sim"]["cycles"] > 100


# --- run ---


def test_run_reads_and_writes_arrays(tmp_path, x):
    own = tmp_path / "own.npz"
    np.savez(own, other=np.zeros(2), base=np.array([10, 20, 30, 40], np.int32))
    for name in ("out.npz", "out.safetensors", "out/"):
        target = f"{tmp_path}/{name}"
        code, _, err = call(
            "run",
            RELAY,
            *ENGINE,
            "--input",
            x,
            "--write",
            f"own={own}:base",
            "--read",
            "own",
            "--output",
            target,
        )
        assert code == 0, err
    with np.load(tmp_path / "out.npz") as found:
        assert found["y"].tolist() == [[11, 22, 33, 44]]
        assert found["own"][0, 1].tolist() == [10, 20, 30, 40]
    assert np.load(tmp_path / "out" / "y.npy").tolist() == [[11, 22, 33, 44]]
    code, _, _ = call("-q", "run", RELAY, *ENGINE, "--input", f"x={tmp_path}/out.safetensors:y")
    assert code == 0


def test_run_refuses_an_array_of_another_type(tmp_path):
    """T25: at the command line too."""
    np.save(tmp_path / "x.npy", X.astype(np.float32))
    code, _, err = call("run", RELAY, *ENGINE, "--input", f"x={tmp_path / 'x.npy'}")
    assert code == 2
    assert "error[type]: `x` is declared i32 (i32 elements of 4 bytes); the array given is float32" in err


def test_array_files_that_are_none(tmp_path):
    for name, content in (("x.npy", b"no"), ("x.npz", b"PK\x03\x04rest"), ("x.safetensors", b"\0" * 20)):
        (tmp_path / name).write_bytes(content)
        code, _, err = call("run", RELAY, *ENGINE, "--input", f"x={tmp_path / name}")
        assert code == 3, err
        assert name in err
    assert call("run", RELAY, *ENGINE, "--input", "x=x.csv")[0] == 2


def test_json_is_the_same_twice_without_host(x):
    """T33: twice, and in another process: equal but for `host`."""
    documents = [json.loads(call("run", RELAY, *ENGINE, "--input", x, "--json")[1]) for _ in range(2)]
    documents.append(json.loads(spawn("run", RELAY, *ENGINE, "--input", x, "--json").stdout))
    for document in documents:
        document.pop("host")
    assert documents[0] == documents[1] == documents[2]
    assert documents[0]["sim"]["cycles"] == 19


@pytest.mark.parametrize("suffix", [".npz", ".json", ".safetensors"])
def test_expect_files(tmp_path, x, suffix):
    from safetensors.numpy import save_file

    def write(values, name):
        path = tmp_path / f"{name}{suffix}"
        if suffix == ".npz":
            np.savez(path, y=values, cycles=19)
        elif suffix == ".json":
            path.write_text(json.dumps({"y": values.tolist(), "cycles": 19, "end": "finished"}))
        else:
            save_file({"y": values}, path)
        return str(path)

    right = np.array([[1, 2, 3, 4]], np.int32)  # `own` was never written: zeros
    assert call("run", RELAY, *ENGINE, "--input", x, "--expect", write(right, "right"))[0] == 0
    wrong = right.copy()
    wrong[0, 2] = -1
    code, out, err = call("run", RELAY, *ENGINE, "--input", x, "--expect", write(wrong, "wrong"), "--json")
    assert code == 1
    assert "y[0, 2] is 0x00000003 (3), expected 0xffffffff (-1); 1 of 4 elements differ" in err
    assert json.loads(out)["end"] == "mismatch"


def test_expect_a_result_file(tmp_path, x):
    kept = str(tmp_path / "r.json")
    assert call("run", RELAY, *ENGINE, "--input", x, "--result", kept)[0] == 0
    assert call("run", RELAY, *ENGINE, "--input", x, "--expect", kept)[0] == 0
    np.save(tmp_path / "x.npy", X + 1)
    code, _, err = call("run", RELAY, *ENGINE, "--input", x, "--expect", kept)
    assert code == 1
    assert "outputs.y.payload_sha256" in err


@pytest.mark.parametrize(
    "name", ["ok_relay", "hang_both_receive_first", "fault_bounds", "limit_branch_to_self"]
)
def test_expect_comments(name):
    """Whatever end a file expects is success."""
    path = str(RUN / f"{name}.loom")
    code, _, err = call("run", path, *ENGINE, "--expect", path)
    assert (code, err) == (0, "")


def test_expect_comments_that_do_not_hold(tmp_path):
    text = Path(RELAY).read_text().replace("cycles = 19", "cycles = 18").replace("[[11, 22", "[[11, 23")
    (tmp_path / "wrong.loom").write_text(text)
    code, _, err = call("run", RELAY, *ENGINE, "--expect", str(tmp_path / "wrong.loom"))
    assert code == 1
    assert "wrong.loom:6: y[0, 1] is 0x00000016 (22), expected 0x00000017 (23)" in err
    assert "wrong.loom:8: cycles = 19, expected 18" in err


def test_heat_map_and_quiet(x):
    code, out, err = call("-q", "run", RELAY, *ENGINE, "--input", x, "--map", "busy", "--map", "east")
    assert (code, err) == (0, "")
    assert "engine busy: 2 x 1 PEs, cycles" in out
    assert "links to the east" in out
    assert "finished after" not in out
    assert "\x1b" not in out
    _, out, _ = call("--color", "always", "run", RELAY, *ENGINE, "--input", x, "--map", "busy")
    assert "\x1b[48;2;" in out
    assert "finished after 19 cycles (21.7 ns at 875 MHz)" in out


def test_awkward_expected_files(tmp_path, x):
    np.savez(tmp_path / "nothing.npz")
    np.savez(tmp_path / "cycles.npz", cycles=np.zeros(3))
    (tmp_path / "nothing.json").write_text("{}")
    (tmp_path / "odd.json").write_text('{"sim": 1, "schema": 1, "program": []}')
    for name, code, text in (
        ("nothing.npz", 3, "it expects nothing"),
        ("nothing.json", 3, "it expects nothing"),
        ("cycles.npz", 1, "expected [0. 0. 0.]"),
        ("odd.json", 1, "result of another program"),
    ):
        got = call("run", RELAY, *ENGINE, "--input", x, "--expect", str(tmp_path / name))
        assert got[0] == code
        assert text in got[2]


def test_a_hang_stays_a_hang_whatever_was_expected(tmp_path):
    kept = str(tmp_path / "y.npz")
    np.savez(kept, y=np.full((1, 5), 42, np.int32))
    hang = str(RUN.parents[1] / "programs" / "examples" / "relay_hang.loom")
    code, _, err = call("run", hang, *ENGINE, "--expect", kept)
    assert code == 4
    assert "0 data wavelets arrived" in err
    assert "root blocker" in err


# --- asm, dis, check, isa, doctor ---


def test_image_round_trip(tmp_path, x):
    image = str(tmp_path / "relay.wafer")
    assert call("asm", RELAY, "-o", image, "-l", str(tmp_path / "relay.lst"))[0] == 0
    assert "kernel left" in (tmp_path / "relay.lst").read_text()
    code, out, _ = call("run", image, *ENGINE, "--input", x, "--json")
    assert code == 0
    assert json.loads(out)["sim"] == json.loads(call("run", RELAY, *ENGINE, "--input", x, "--json")[1])["sim"]
    assert "parameters are fixed" in call("run", image, "-D", "a=1")[2]
    source = call("dis", image, "--asm")[1]
    again = tmp_path / "again.loom"
    again.write_text(source)
    assert call("dis", str(again))[1] == call("dis", image)[1]
    (tmp_path / "relay.wafer").write_bytes((tmp_path / "relay.wafer").read_bytes()[:4])
    assert "truncated or not an image" in call("run", image)[2]


@pytest.mark.parametrize("form", ["hex", "listing", "json", "symbols"])
def test_other_forms_go_to_stdout(form):
    code, out, err = call("asm", RELAY, "-f", form)
    assert (code, err) == (0, "")
    assert "own" in out or form == "hex"


def test_raw_bytes_of_one_kernel():
    done = subprocess.run(
        [sys.executable, "-m", "waferloom.programs.cli", "asm", RELAY, "-f", "bin", "--kernel", "left"],
        capture_output=True,
    )
    assert done.returncode == 0
    assert len(done.stdout) == 36
    assert call("asm", RELAY, "-f", "bin")[0] == 2


def test_source_from_standard_input():
    code, out, _ = call("dis", "-", input=Path(RELAY).read_text())
    assert code == 0
    assert "vmov.i32" in out
    assert call("check", "-", input="")[0] == 3


def test_check_shows_what_fits():
    code, out, _ = call("check", RELAY, "--machine", "tiny")
    assert code == 0
    assert "fits tiny" in out
    assert "4,060 free" in out
    wse3 = json.loads(call("check", RELAY, "--machine", "wse3", "--json")[1])
    assert wse3["kernels"][0]["free_bytes"] == 49_116


def test_isa_in_three_forms():
    assert "vmac" in call("isa")[1]
    assert call("isa", "-f", "markdown")[1].startswith("#")
    assert json.loads(call("isa", "-f", "json")[1])["schema"] == 1
    assert "fused" in call("isa", "fmac")[1] or "one rounding" in call("isa", "fmac")[1]
    assert call("isa", "fmca")[0] == 2


def test_doctor_without_the_self_test():
    code, out, _ = call("doctor", "--no-test", "--json")
    assert code == 0
    document = json.loads(out)
    assert document["versions"]["numpy"] == np.__version__
    assert document["cores"] >= 1


def test_doctor_compares_both_engines():
    code, out, err = call("doctor")
    assert (code, err) == (0, "")
    assert "both engines agree" in out


def test_every_command_file_is_listed():
    folder = Path(cli_module.__file__).parent / "commands"
    assert {path.stem for path in folder.glob("*.py")} - {"__init__"} == set(COMMANDS)
