"""`waferloom doctor`: is this installation in order; versions, caches, host, a self-test of both engines."""

from __future__ import annotations

import json
import os
import platform
import shutil
from pathlib import Path
from typing import Any

import click

from ..terminal import Progress, Terminal


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.option("--no-test", is_flag=True, help="Leave out the self-test, which may compile for half a minute.")
@click.pass_obj
def command(terminal: Terminal, as_json: bool, no_test: bool) -> None:
    """Show versions, caches and the host; run a tiny program on both engines (exit 1 if they differ)."""
    facts = _facts()
    problems: list[str] = []
    if not no_test:
        with Progress(terminal, "self-test", "the first one compiles the engine"):
            problems = _self_test(facts)
    facts["end"] = "mismatch" if problems else "finished"
    if as_json:
        click.echo(json.dumps(facts, indent=1, sort_keys=True))
    else:
        for key, value in facts.items():
            if isinstance(value, dict):
                value = ", ".join(f"{name} {what}" for name, what in value.items())
            click.echo(f"{key.replace('_', ' '):18} {value}")
    if problems:
        from ...isa.errors import Mismatch

        raise Mismatch(
            "the self-test failed",
            notes=problems,
            help="please report this, with what `doctor --json` prints",
        )


def _facts() -> dict[str, Any]:
    from ..report_file import versions
    from ..weights.fetch import cache_folder

    weights = cache_folder() / "weights"
    gcc = shutil.which("gcc") or shutil.which("cc")
    return {
        "schema": 1,
        "versions": {"python": platform.python_version(), **versions()},
        "platform": platform.platform(),
        "cores": os.cpu_count() or 1,
        "usable_cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1,
        "c_compiler": gcc or "none (only the tests' independent oracle needs one)",
        "weights_cache": str(weights),
        "weights_bytes": _size(weights),
    }


def _size(folder: Path) -> int:
    """Bytes of all files below a folder; 0 if there is none."""
    total = 0
    for path in folder.rglob("*") if folder.is_dir() else ():
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue
    return total


def _self_test(facts: dict[str, Any]) -> list[str]:
    """Run the packaged program on both engines and compare every number. Adds what it found to `facts`."""
    import time

    from ...fabric.compare import outcome_differences
    from ...fabric.engine.jit import CACHE_DIRECTORY
    from ...fabric.spec import machine
    from ...fabric.wafer import Wafer
    from ..self_test import program

    made = program()
    found, seconds = {}, {}
    for engine in ("reference", "fast"):
        began = time.perf_counter()
        wafer = Wafer(machine("tiny"), made, engine=engine)
        found[engine] = (wafer.run(), wafer.sram.copy())
        seconds[engine] = round(time.perf_counter() - began, 3)
    facts["engine_cache"] = str(CACHE_DIRECTORY)
    facts["engine_cache_bytes"] = _size(CACHE_DIRECTORY)
    facts["self_test_s"] = seconds
    (a, memory_a), (b, memory_b) = found["reference"], found["fast"]
    problems = outcome_differences(a.outcome, b.outcome)
    if not (memory_a == memory_b).all():
        problems.append("the memory differs")
    if a.end != "finished":
        problems.append(f"the reference engine ended with {a.end}")
    facts["self_test"] = (
        f"{len(problems)} differences" if problems else f"both engines agree ({a.cycles} cycles)"
    )
    return problems
