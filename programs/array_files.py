"""Arrays in files: .npy, .npz and .safetensors in, .npz, .safetensors or a folder of .npy out.

bf16 is written as uint16 bit patterns and read as such. No file is ever unpickled.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from ..isa.errors import Rejected, Usage

__all__ = ["ArrayFileError", "check_writable", "load_all", "load_one", "save_all"]

READ_SUFFIXES = (".npy", ".npz", ".safetensors")
WRITE_SUFFIXES = (".npz", ".safetensors", "a folder (name ending in /)")


class ArrayFileError(Rejected):
    """A file of arrays that cannot be read or written: names the file and the rule."""

    def __init__(self, path: str | os.PathLike[str], text: str, help: str | None = None) -> None:
        super().__init__(f"{os.fspath(path)}: error[format]: {text}", category="format", help=help)


def load_all(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Every array of a file by name; a .npy file's array has the file's own name."""
    return dict(_arrays(Path(path)))


def load_one(path: str, name: str) -> np.ndarray:
    """The array `name` of a file, or the only one there is. `FILE:KEY` picks another one."""
    file, colon, key = path.rpartition(":")
    if not colon or not file.endswith(READ_SUFFIXES):
        file, key = path, ""
    found = load_all(file)
    if key:
        if key not in found:
            raise ArrayFileError(file, f"no array {key!r}; it has {_names(found)}")
        return found[key]
    if name in found:
        return found[name]
    if len(found) == 1:
        return next(iter(found.values()))
    raise ArrayFileError(file, f"no array {name!r}; it has {_names(found)}", help=f"name one: {file}:KEY")


def check_writable(path: str) -> None:
    """Raise Usage if `save_all` could not write there: an unknown kind of file, or no folder to hold it."""
    target = Path(path)
    if path.endswith(("/", os.sep)) or target.is_dir():
        return
    if target.suffix not in (".npz", ".safetensors"):
        raise Usage(f"{path}: unknown kind of output; legal: {', '.join(WRITE_SUFFIXES)}")
    if not target.parent.is_dir():
        raise Usage(f"{path}: cannot be written: there is no folder {target.parent}")


def save_all(path: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays by name; the kind of file follows from the name of `path`."""
    check_writable(path)
    target = Path(path)
    try:
        if path.endswith(("/", os.sep)) or target.is_dir():
            target.mkdir(parents=True, exist_ok=True)
            for name, array in arrays.items():
                np.save(target / f"{name}.npy", array, allow_pickle=False)
        elif target.suffix == ".npz":
            np.savez(target, **dict(arrays))  # type: ignore[arg-type]
        else:
            from safetensors.numpy import save

            target.write_bytes(save({name: np.ascontiguousarray(array) for name, array in arrays.items()}))
    except OSError as error:
        raise Usage(f"{path}: cannot be written: {error.strerror or error}") from None


def _arrays(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    if path.suffix not in READ_SUFFIXES:
        raise Usage(f"{path}: unknown kind of array file; legal: {', '.join(READ_SUFFIXES)}")
    if path.suffix == ".safetensors":
        from .weights import open_safetensors

        with open_safetensors(path) as file:
            for name in file.names:
                tensor = file.tensor(name)
                yield name, np.array(tensor.blocks).reshape(tensor.shape)
        return
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            yield path.stem, loaded
        else:
            with loaded:
                for name in loaded.files:
                    yield name, loaded[name]
    except OSError as error:
        reason = error.strerror or "not a NumPy file"
        raise ArrayFileError(path, f"cannot be read: {reason}") from None
    except Exception as error:  # zipfile, zlib, EOF, ValueError: NumPy passes on whatever its readers raise
        raise ArrayFileError(path, f"not a NumPy file: {error}") from None


def _names(found: Mapping[str, np.ndarray]) -> str:
    return ", ".join(sorted(found)) or "none"
