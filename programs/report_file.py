"""The report file of a bug in this tool: what was asked, versions, the traceback; never sent by itself."""

from __future__ import annotations

import json
import platform
import sys
import tempfile
import traceback
from pathlib import Path

__all__ = ["write_report"]


def write_report(error: BaseException) -> str:
    """Write the report of an unexpected exception; the message that names the file and asks to send it."""
    text = json.dumps(
        {
            "schema": 1,
            "end": "internal",
            "command": sys.argv,
            "versions": {"python": platform.python_version(), **versions()},
            "platform": platform.platform(),
            "traceback": traceback.format_exception(error),
        },
        indent=1,
        sort_keys=True,
    )
    what = f"error[internal]: a bug in waferloom, not in your program: {type(error).__name__}: {error}"
    for folder in (Path.cwd(), Path(tempfile.gettempdir())):
        try:
            handle, name = tempfile.mkstemp(prefix="waferloom-report-", suffix=".json", dir=folder)
            with open(handle, "w", encoding="utf-8") as file:
                file.write(text)
        except OSError:
            continue
        return f"{what}\nhelp: please send {name} and the input files to the project's issue tracker"
    return f"{what}\n{text}\nhelp: please send this text to the project's issue tracker"


def versions() -> dict[str, str]:
    """Versions of this package and of what it stands on."""
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in (
        "waferloom",
        "numba",
        "llvmlite",
        "numpy",
        "cffi",
        "click",
        "lark",
        "gguf",
        "safetensors",
        "rich",
    ):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
