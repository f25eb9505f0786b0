"""A wheel holds every file of the three packages and nothing else; it works where only it is installed.

Both need pip to get the build tools; without a package index they are skipped. `--fresh` (what .ci/run uses)
runs the slower one as well.
"""

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = ("isa", "fabric", "programs")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel of this tree, built from a copy so that nothing is left behind in it."""
    import shutil

    source = tmp_path_factory.mktemp("source") / "waferloom"
    leave = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for layer in LAYERS:
        shutil.copytree(ROOT / layer, source / layer, ignore=leave)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        if "setuptools" in done.stderr and "No matching distribution" in done.stderr:
            pytest.skip("no package index: pip cannot get the build tools")
        pytest.fail(done.stderr)
    return next(folder.glob("*.whl"))


def test_every_file_is_in_the_wheel(wheel: Path):
    names = zipfile.ZipFile(wheel).namelist()
    there = {name.removeprefix("waferloom/") for name in names if ".dist-info/" not in name}
    wanted = {
        path.relative_to(ROOT).as_posix()
        for layer in LAYERS
        for path in (ROOT / layer).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert there == wanted
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_wheel_works_alone(wheel: Path, tmp_path: Path, fresh: bool):
    """In an environment of its own, far from this folder."""
    if not fresh:
        pytest.skip("only with --fresh")
    venv.create(tmp_path / "env", with_pip=True)
    scripts = tmp_path / "env" / ("Scripts" if sys.platform == "win32" else "bin")
    subprocess.run([scripts / "python", "-m", "pip", "install", "-q", wheel], check=True)

    def say(*words: str) -> str:
        done = subprocess.run(
            [scripts / "waferloom", *words], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return done.stdout

    assert say("--version").startswith("waferloom, version ")
    assert "vectors.loom" in say("isa", "vsub")
    assert "rows within their tolerance" in say("calibrate", "--engine", "reference")
    assert "both engines agree" in say("doctor")
