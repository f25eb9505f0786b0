"""The image file: a whole program as one safetensors file, without pickle and without compression.

Arrays are tensors (`kernels.0.code`, `placement`, `routes.3`, ...); everything else is JSON under the
metadata key `waferloom`. Equal programs give identical bytes. An image is untrusted: whatever is wrong with
it is one `ImageError`.

The JSON object has `schema`, `program` (the tree of records.py), `digest` (what the program means) and
`checksum` (everything the file says, source places included). Index tables whose values are small are stored
as narrower unsigned integers, which halves a big grid.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
from safetensors.numpy import save

from .errors import Rejected
from .program import Program
from .records import PROVENANCE, RecordError, from_tree, to_tree
from .wellformed import violations

__all__ = ["ImageError", "load_image", "program_digest", "save_image"]

SCHEMA = 1
KEY = "waferloom"
# Tables stored narrower where all values fit, and their type in the program.
_WIDE: dict[str, np.dtype] = {"routes": np.dtype(np.uint16), "pe_values": np.dtype(np.uint32)}
_REMAKE = "make the image again with `waferloom asm`"


class ImageError(Rejected):
    """A file that is no usable image: names the file, the tensor or key, and the violated rule."""

    def __init__(self, path: str | os.PathLike[str], item: str, rule: str, help: str = _REMAKE) -> None:
        where = f"{item}: " if item else ""
        super().__init__(f"{os.fspath(path)}: error[format]: {where}{rule}", category="format", help=help)


def program_digest(program: Program) -> str:
    """sha256 over everything that the program does or names; not over file names, source text and places."""
    arrays: dict[str, np.ndarray] = {}
    tree = to_tree(program, arrays, omit=PROVENANCE)
    return _digest(tree, _hashes(arrays))


def save_image(program: Program, path: str | os.PathLike[str]) -> None:
    """Write `program` to `path`; the file appears only when it is complete.

    Raises ImageError for a program that could not be loaded again, OSError if the file cannot be written.
    """
    for key, rule in violations(program):
        raise ImageError(path, f"key `{key}`", rule, "this program cannot be an image")
    arrays: dict[str, np.ndarray] = {}
    tree = to_tree(program, arrays)
    stored = {name: _narrow(name, array) for name, array in arrays.items()}
    hashes = _hashes(arrays)
    body: dict[str, Any] = {
        "schema": SCHEMA,
        "program": tree,
        "digest": _digest(to_tree(program, {}, omit=PROVENANCE), hashes),
    }
    body["checksum"] = _digest(body, hashes)
    blob = save(stored, {KEY: _canonical(body)})
    target = Path(path)
    handle, partial = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with open(handle, "wb") as file:
            file.write(blob)
        os.chmod(partial, 0o644)
        os.replace(partial, target)
    except BaseException:
        os.unlink(partial)
        raise


def load_image(path: str | os.PathLike[str]) -> Program:
    """Read the program in an image file. Raises ImageError for anything that `save_image` did not write."""
    metadata, arrays = _read(path)
    if KEY not in metadata:
        raise ImageError(path, "", f"no program image: a safetensors file without the metadata key `{KEY}`")
    try:
        body = json.loads(metadata[KEY], object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        text = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ImageError(path, f"metadata `{KEY}`", f"not JSON: {text}") from None
    if not isinstance(body, dict):
        raise ImageError(path, f"metadata `{KEY}`", "not a JSON object")
    if body.get("schema") != SCHEMA or type(body.get("schema")) is not int:
        rule = f"version {body.get('schema')!r}; this program reads version {SCHEMA}"
        raise ImageError(path, "key `schema`", rule)
    for key in ("program", "digest", "checksum"):
        if key not in body:
            raise ImageError(path, f"key `{key}`", "the key is missing")
    for key in sorted(body.keys() - {"schema", "program", "digest", "checksum"}):
        raise ImageError(path, f"key `{key}`", "no such key")
    arrays = {name: _widen(name, array) for name, array in arrays.items()}
    try:
        program: Program = from_tree(Program, body["program"], arrays)
    except RecordError as error:
        raise ImageError(path, _item(error.key, arrays), error.rule) from None
    for key, rule in violations(program):
        raise ImageError(path, _item(key, arrays), rule)
    written: dict[str, np.ndarray] = {}
    to_tree(program, written)
    for name in sorted(arrays.keys() - written.keys()):
        raise ImageError(path, f"tensor `{name}`", "the program has no such tensor")
    hashes = _hashes(arrays)
    if body.pop("checksum") != _digest(body, hashes):
        raise ImageError(path, "key `checksum`", "the contents do not match it: the file was altered")
    if body["digest"] != _digest(to_tree(program, {}, omit=PROVENANCE), hashes):
        raise ImageError(path, "key `digest`", "the program does not match it: the file was altered")
    return program


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """Metadata and tensors of a safetensors file, or ImageError."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > size - 8:
                rule = f"no safetensors header fits in {size} bytes: truncated or not an image"
                raise ImageError(path, "", rule)
            json.loads(file.read(length), object_pairs_hook=_no_duplicates)
        with safetensors.safe_open(path, "np") as opened:
            return opened.metadata() or {}, {name: opened.get_tensor(name) for name in opened.keys()}
    except ImageError:
        raise
    except OSError as error:
        raise ImageError(path, "", f"cannot be read: {error.strerror or error}", "check the path") from None
    except Exception as error:  # the library raises classes of its own, TypeError for bf16, ValueError
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ImageError(path, "", f"not a valid safetensors file: {text}") from None


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        twice = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
        raise ValueError(f"key `{twice}` occurs twice")
    return result


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON number")


def _item(key: str, arrays: dict[str, np.ndarray]) -> str:
    return f"tensor `{key}`" if key in arrays else f"key `{key}`"


def _narrow(name: str, array: np.ndarray) -> np.ndarray:
    array = np.ascontiguousarray(array)
    if name.split(".", 1)[0] in _WIDE and array.size:
        narrow: np.dtype = np.min_scalar_type(int(array.max()))
        return array.astype(narrow, copy=False)
    return array


def _widen(name: str, array: np.ndarray) -> np.ndarray:
    wide = _WIDE.get(name.split(".", 1)[0])
    if wide is not None and array.dtype.kind == "u" and array.dtype.itemsize < wide.itemsize:
        return array.astype(wide)
    return array


def _hashes(arrays: dict[str, np.ndarray]) -> dict[str, str]:
    """sha256 of each array's little-endian bytes, type and shape; narrow storage gives the same as wide."""
    result = {}
    for name, array in arrays.items():
        hasher = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode())
        hasher.update(_narrow(name, array).data)
        result[name] = hasher.hexdigest()
    return result


def _digest(tree: Any, hashes: dict[str, str]) -> str:
    return hashlib.sha256(_canonical({"tree": tree, "arrays": hashes}).encode()).hexdigest()


def _canonical(tree: Any) -> str:
    return json.dumps(tree, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
