"""Every command and every output of README.md is real; .ci/run uses its test command.

Commands that make an environment run in a copy of the project with --fresh; without it only what follows the
last `&&` does, in the environment of this test.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from shown_commands import ROOT, Command, check, check_python, commands, folder_of_links

PAGE = ROOT / "README.md"
SHOWN = commands(PAGE)
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", "__pycache__", "*.egg-info", ".hypothesis", ".benchmarks", ".*_cache", "build", "dist"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return folder_of_links(tmp_path_factory.mktemp("readme"))


@pytest.mark.parametrize("command", SHOWN, ids=lambda command: command.place)
def test_command(command: Command, folder: Path, smollm2_file, fresh: bool, tmp_path: Path):
    if not command.makes_environment:
        check(command, folder)
        return
    if "pytest" in command.text:
        pytest.skip("this is the command that runs the tests")
    if fresh:
        copy = tmp_path / "waferloom"
        shutil.copytree(ROOT, copy, ignore=LEFT_OUT)
        check(command, copy)
        return
    job = command.text.rpartition("&& ")[2].replace(".venv/bin/", "")
    check(Command(job, command.output, command.place), folder)


def test_python(tmp_path: Path):
    check_python(PAGE, folder_of_links(tmp_path))


def test_the_two_commands_of_a_fresh_machine():
    job, tests = (command.text for command in SHOWN if command.makes_environment)
    assert job.endswith("waferloom demo")
    assert re.search(r"pytest( -q)?$", tests)
    assert not re.search(r"\b(make|uv|conda|docker)\b", job + tests)


def test_ci_runs_the_test_command():
    script = (ROOT / ".ci/run").read_text("utf-8")
    pattern = re.search(r"sed -n '(.*)' README\.md", script).group(1)
    found = subprocess.run(["sed", "-n", pattern, str(PAGE)], capture_output=True, text=True).stdout
    (tests,) = (command.text for command in SHOWN if "pytest" in command.text)
    assert f"python3 {found.strip()}" == tests


def test_the_count_of_calibration_rows():
    from waferloom.fabric.calibration import ROWS

    exact = sum(row.limit == "exact" for row in ROWS)
    assert f"{len(ROWS)} rows; {exact} exact" in PAGE.read_text("utf-8")
