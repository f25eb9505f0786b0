"""Expected results in their own file: arrays in .npz or .safetensors, values or a result file in .json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..isa.errors import Mismatch, Rejected, Usage
from . import array_files, values
from .expectations import Directive, Expectations, differences

if TYPE_CHECKING:
    from ..fabric.result import Result
    from ..fabric.wafer import Wafer

__all__ = ["check_readable", "differences_from_file"]

LEGAL = (".npz", ".safetensors", ".json", ".loom")


def check_readable(path: str) -> None:
    """Raise before the run if the file cannot be used after it."""
    if not path.endswith(LEGAL):
        raise Usage(f"--expect {path}: unknown kind of file; legal: {', '.join(LEGAL)}")
    if not (_json(path) if path.endswith(".json") else array_files.load_all(path)):
        raise array_files.ArrayFileError(path, "it expects nothing: there is no name in it")


def differences_from_file(path: str, wafer: Wafer, result: Result) -> list[str]:
    """One line per output, symbol or number that is not as the file says."""
    if path.endswith(".json"):
        document = _json(path)
        if "sim" in document and "schema" in document:
            return _from_result_file(path, document, result)
        found = Expectations(path, expects=[Directive(k, None, v, 1, 1) for k, v in document.items()])
        return differences(found, wafer, result)
    lines = []
    for name, wanted in array_files.load_all(path).items():
        if name == "cycles":
            if wanted.size != 1 or wanted.ravel()[0] != result.cycles:
                lines.append(f"{path}: cycles = {result.cycles}, expected {wanted}")
            continue
        try:
            got = result[name] if name in result.outputs else wafer.read(name)
        except Mismatch as error:  # not everything arrived; how the run ended says why
            lines.append(f"{path}: {name}: {error.message}")
            continue
        if got.dtype != wanted.dtype or got.shape != wanted.shape:
            lines.append(
                f"{path}: {name} is {got.dtype} {got.shape}, the file has {wanted.dtype} {wanted.shape}"
            )
        elif text := values.first_difference(got, wanted):
            lines.append(f"{path}: {name}{text}")
    return lines


def _from_result_file(path: str, document: dict[str, Any], result: Result) -> list[str]:
    """Everything that another run's result file says, except settings and host."""
    now = result.to_json(host=False)
    lines: list[str] = []
    for key in ("end", "sim", "outputs"):
        lines += _differ(f"{path}: {key}", document.get(key), now[key])
    program = document.get("program")
    digest = program.get("digest") if isinstance(program, dict) else None
    if lines and digest != now["program"]["digest"]:
        lines.append(f"{path}: it is the result of another program (digest {str(digest)[:12]}...)")
    return lines


def _differ(where: str, wanted: Any, got: Any) -> list[str]:
    if isinstance(wanted, dict) and isinstance(got, dict):
        keys = sorted(wanted.keys() | got.keys())
        return [line for key in keys for line in _differ(f"{where}.{key}", wanted.get(key), got.get(key))]
    return [] if wanted == got else [f"{where} = {got}, expected {wanted}"]


def _json(path: str) -> dict[str, Any]:
    try:
        document = json.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise Usage(f"--expect {path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise Rejected(f"{path}: error[format]: not JSON: {error}", category="format") from None
    if not isinstance(document, dict):
        raise Rejected(f"{path}: error[format]: an object of names and values is wanted", category="format")
    return document
