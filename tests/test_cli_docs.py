"""docs/command-line.md says what the command does: its commands, its exit codes, its hang report."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from waferloom.fabric.heatmap import METRICS
from waferloom.isa.errors import ENDS
from waferloom.programs.cli import COMMANDS

ROOT = Path(__file__).parents[1]
OPTIONS = ("--engine", "reference", "--machine", "tiny")
TEXT = (ROOT / "docs/command-line.md").read_text("utf-8")


def test_commands_and_exit_codes():
    assert set(re.findall(r"^\| `([a-z]+)[ `]", TEXT, re.M)) == set(COMMANDS)
    codes = {name: int(code) for code, name in re.findall(r"^\| (\d+) \| `(\w+)` \|", TEXT, re.M)}
    assert codes == {end.name: end.exit_code for end in ENDS.values()}


def test_metrics_are_named():
    assert all(re.search(rf"\b{metric}\b", TEXT) for metric in METRICS)


def test_the_hang_report_is_real():
    done = subprocess.run(
        [sys.executable, "-m", "waferloom.programs.cli", "run", "hang_both_receive_first.loom", *OPTIONS],
        cwd=ROOT / "tests" / "run", capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 4
    assert done.stderr.strip() in TEXT


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminal")
def test_progress_shows_on_a_terminal_only():
    """After a second, on stderr, and wiped at the end."""
    import os
    import pty

    leader, follower = pty.openpty()
    command = [sys.executable, "-c", PROGRESS]
    process = subprocess.Popen(command, stderr=follower, stdout=subprocess.PIPE)
    os.close(follower)
    shown = b""
    try:
        while part := os.read(leader, 4096):
            shown += part
    except OSError:  # the other end is closed
        pass
    assert process.wait() == 0
    os.close(leader)
    assert b"working: half, 1 s" in shown
    assert shown.endswith(b"\r\x1b[K")
    assert subprocess.run(command, capture_output=True).stderr == b""


PROGRESS = """
import time
from waferloom.programs.terminal import Progress, Terminal
with Progress(Terminal(), "working") as progress:
    progress.tick("half")
    time.sleep(1.5)
"""
