"""Compilation policy of the engine: every compiled function comes from here, and so does its cache.

No function is compiled with fastmath, so LLVM neither reorders nor contracts floating-point operations, and
the result does not depend on the host. Numba's own index does not notice an edit in a function that a
cached one calls; therefore the cache directory carries a digest of every source file compiled code can
depend on.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba import config

ENGINE = Path(__file__).resolve().parent
PACKAGES = {name: ENGINE.parents[1] / name for name in ("isa", "fabric", "programs")}
CACHES_KEPT = 3  # newest digests that stay on disk
CACHE_MIN_AGE = 3600  # seconds; a younger directory may belong to a running process and is never removed


def compiled_sources(roots: list[Path]) -> list[Path]:
    """The files compiled code depends on: `roots` and every waferloom module they import, transitively."""
    found: set[Path] = set()
    waiting = list(roots)
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.ImportFrom):
                module = _absolute(path, node.level, node.module)
                names = [module, *(f"{module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            waiting.extend(file for file in map(_module_file, names) if file is not None)
    return sorted(found)


def _absolute(path: Path, level: int, module: str | None) -> str:
    """Full name of the module an import statement in `path` names; level counts its leading dots."""
    if not level:
        return module or ""
    package = ("waferloom", *path.relative_to(ENGINE.parents[1]).parts[:-1])
    return ".".join([*package[: len(package) - level + 1], *([module] if module else [])])


def _module_file(name: str) -> Path | None:
    """File of a waferloom module, or None when it is another package's or a name inside a module."""
    parts = name.split(".")
    if len(parts) < 2 or parts[0] != "waferloom" or parts[1] not in PACKAGES:
        return None
    base = PACKAGES[parts[1]].joinpath(*parts[2:])
    for file in (base.with_suffix(".py"), base / "__init__.py"):
        if file.is_file():
            return file
    return None


def source_digest() -> str:
    """Digest of the engine's sources, what they import, and the compiler's versions: 16 hex digits."""
    digest = hashlib.sha256(f"numba {numba.__version__} llvmlite {llvmlite.__version__}".encode())
    for path in compiled_sources(sorted(ENGINE.glob("*.py"))):
        digest.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def user_cache_directory() -> Path:
    """The user's cache directory by the platform's convention."""
    home = Path(os.path.expanduser("~"))
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    if sys.platform == "darwin":
        return home / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")


def cache_directory() -> Path:
    """Create and return `<base>/waferloom/<digest>`; the base is the user's NUMBA_CACHE_DIR if set."""
    base = Path(os.environ.get("NUMBA_CACHE_DIR") or user_cache_directory())
    chosen = base / "waferloom" / source_digest()
    try:
        chosen.mkdir(parents=True, exist_ok=True)
        os.utime(chosen)  # marks it as in use for pruning
    except OSError:  # a read-only home: compile once per boot rather than fail
        chosen = Path(tempfile.gettempdir()) / f"waferloom-{source_digest()}"
        chosen.mkdir(parents=True, exist_ok=True)
        return chosen
    prune(chosen.parent, keep=chosen.name)
    return chosen


def prune(directory: Path, keep: str) -> None:
    """Remove digests of old sources, except the newest few, recent ones and `keep`."""
    now = time.time()
    with contextlib.suppress(OSError):  # another process may be pruning too
        old = [d for d in directory.iterdir() if d.is_dir() and re.fullmatch("[0-9a-f]{16}", d.name)]
        old.sort(key=lambda d: d.stat().st_mtime, reverse=True)
        for d in old[CACHES_KEPT:]:
            if d.name != keep and now - d.stat().st_mtime > CACHE_MIN_AGE:
                shutil.rmtree(d, ignore_errors=True)


CACHE_DIRECTORY = cache_directory()


@contextlib.contextmanager
def _engine_cache() -> Iterator[None]:
    """Numba reads its cache directory when a function is decorated; the process keeps its own setting."""
    settings: Any = config  # its attributes are made at run time
    before, settings.CACHE_DIR = settings.CACHE_DIR, str(CACHE_DIRECTORY)
    try:
        yield
    finally:
        settings.CACHE_DIR = before


def jit(function: Callable[..., Any]) -> Any:
    """Compile by the engine's one policy: cached, GIL released, IEEE division, no fastmath, no bounds
    check.

    NUMBA_BOUNDSCHECK=1 in the environment still turns bounds checks on. Small functions called from a
    compiled loop are inlined by LLVM without being asked; Numba's own inline='always' multiplies compile
    time and is not used.
    """
    with _engine_cache():
        return numba.njit(cache=True, nogil=True, error_model="numpy")(function)


def jit_inline(function: Callable[..., Any]) -> Any:
    """As `jit`, and LLVM must inline every call: for one-line operations inside vectorised loops."""
    with _engine_cache():
        return numba.njit(cache=True, nogil=True, error_model="numpy", forceinline=True)(function)
