"""The compilation policy: where compiled code is cached, and what makes it stale."""

from __future__ import annotations

import os
import subprocess
import sys

from waferloom.fabric.engine import jit

SHOW = """
import numba
from waferloom.fabric.engine import jit
print(jit.CACHE_DIRECTORY)
print(numba.config.CACHE_DIR)
"""


def test_digest_covers_the_engine_and_what_it_imports_from_isa():
    names = {path.name for path in jit.compiled_sources(sorted(jit.ENGINE.glob("*.py")))}
    assert {"arithmetic.py", "jit.py", "special.py", "numbers.py", "floating.py", "element_types.py"} <= names


def test_an_edit_changes_the_digest(tmp_path, monkeypatch):
    (tmp_path / "kernel.py").write_text("x = 1\n")
    monkeypatch.setattr(jit, "ENGINE", tmp_path)
    before = jit.source_digest()
    assert jit.source_digest() == before
    (tmp_path / "kernel.py").write_text("x = 2\n")
    assert jit.source_digest() != before


def test_the_users_cache_directory_is_the_base_and_stays_his(tmp_path):
    """Compiled code goes below it; the process's own Numba setting is not changed."""
    run = subprocess.run(
        [sys.executable, "-c", SHOW],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
    )
    ours, users = run.stdout.split()
    assert ours == str(tmp_path / "waferloom" / jit.source_digest())
    assert users == str(tmp_path)


def test_pruning_keeps_the_newest_and_the_recent(tmp_path):
    for age in range(6):
        folder = tmp_path / f"{age:016x}"
        folder.mkdir()
        stamp = folder.stat().st_mtime - age * 2 * jit.CACHE_MIN_AGE
        os.utime(folder, (stamp, stamp))
    (tmp_path / "not a digest").mkdir()
    jit.prune(tmp_path, keep=f"{5:016x}")
    assert sorted(int(d.name, 16) for d in tmp_path.iterdir() if d.name != "not a digest") == [0, 1, 2, 5]
    assert (tmp_path / "not a digest").is_dir()


def test_two_processes_agree_on_the_directory():
    run = subprocess.run([sys.executable, "-c", SHOW], capture_output=True, text=True, check=True)
    assert run.stdout.split()[0] == str(jit.CACHE_DIRECTORY)
