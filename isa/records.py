"""The program model's dataclasses as a JSON tree plus named arrays, and back again with every value checked.

Derived from the type hints of program.py: a new field of any of its classes is written, read, compared and
digested without a line here. Nothing is guessed on the way back: a missing, unknown or ill-typed key is a
`RecordError`.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator
from enum import IntEnum
from functools import cache
from typing import Any

import numpy as np

from .program import Location

# Fields that say where something was written, not what it is. A program is named after its file.
PROVENANCE = frozenset({"location", "locations", "sources", "Program.name"})


class RecordError(ValueError):
    """A tree that does not describe the wanted class: `key` names the place, `rule` what is violated."""

    def __init__(self, key: str, rule: str) -> None:
        super().__init__(f"{key}: {rule}")
        self.key = key
        self.rule = rule


def _join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def _hints(cls: Any) -> dict[str, Any]:
    return _hints_of(cls)


def _kept(cls: type, omit: frozenset[str]) -> list[str]:
    """The fields of a class but those in `omit`, which names fields or `Class.field`s."""
    return [name for name in _hints(cls) if not {name, f"{cls.__name__}.{name}"} & omit]


@cache
def _hints_of(cls: type) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def to_tree(
    value: Any, arrays: dict[str, np.ndarray], path: str = "", omit: frozenset[str] = frozenset()
) -> Any:
    """`value` as JSON; each array is left in `arrays` under its path, the tree holds that name.

    Enum members are written by name, sets sorted, locations as `[file, line, column, length]`. Fields named
    in `omit` are left out.
    """

    def inner(item: Any, key: object) -> Any:
        return to_tree(item, arrays, _join(path, key), omit)

    if isinstance(value, np.ndarray):
        arrays[path] = value
        return path
    if isinstance(value, Location):
        return [value.file, value.line, value.column, value.length]
    if dataclasses.is_dataclass(value):
        return {name: inner(getattr(value, name), name) for name in _kept(type(value), omit)}
    if isinstance(value, IntEnum):
        return value.name
    if isinstance(value, frozenset):
        return [inner(item, i) for i, item in enumerate(sorted(value))]
    if isinstance(value, dict):
        return {str(int(k)) if isinstance(k, int) else k: inner(item, k) for k, item in value.items()}
    if isinstance(value, list | tuple):
        return [inner(item, i) for i, item in enumerate(value)]
    if isinstance(value, np.integer):
        return int(value)
    return value


def from_tree(hint: Any, tree: Any, arrays: dict[str, np.ndarray], path: str = "") -> Any:
    """The value of type `hint` that `tree` describes. Raises RecordError; leaves used arrays in `arrays`."""

    def inner(kind: Any, item: Any, key: object) -> Any:
        return from_tree(kind, item, arrays, _join(path, key))

    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        if tree is None:
            return None
        return from_tree(next(a for a in arguments if a is not type(None)), tree, arrays, path)
    if hint is np.ndarray:
        if tree != path or path not in arrays:
            raise RecordError(path, "the tensor is missing")
        return arrays[path]
    if hint is Location:
        items = _expect(list, tree, path)
        if len(items) != 4:
            raise RecordError(path, "a location is [file, line, column, length]")
        return Location(_expect(str, items[0], path), *(_expect(int, item, path) for item in items[1:]))
    if dataclasses.is_dataclass(hint):
        wanted = _hints(typing.cast(type, hint))
        keys = _expect(dict, tree, path)
        for name in keys:
            if name not in wanted:
                raise RecordError(_join(path, name), "no such key")
        for name in wanted:
            if name not in keys:
                raise RecordError(_join(path, name), "the key is missing")
        values = {name: inner(kind, keys[name], name) for name, kind in wanted.items()}
        return typing.cast(type, hint)(**values)
    if isinstance(hint, type) and issubclass(hint, IntEnum):
        if not isinstance(tree, str) or tree not in hint.__members__:
            raise RecordError(path, f"{_shown(tree)} is none of {', '.join(hint.__members__)}")
        return hint[tree]
    if origin is dict:
        entries = _expect(dict, tree, path)
        if arguments[0] is str:
            return {key: inner(arguments[1], item, key) for key, item in entries.items()}
        for key in entries:
            if not key.isdecimal() or str(int(key)) != key:
                raise RecordError(f"{path}.{key}", "the key is not a whole number")
        return {key: inner(arguments[1], entries[str(key)], key) for key in sorted(map(int, entries))}
    if origin in (list, tuple, frozenset):
        return origin(inner(arguments[0], item, i) for i, item in enumerate(_expect(list, tree, path)))
    return _expect(hint, tree, path)


_NAMES = {int: "a whole number", str: "a string", bool: "true or false", list: "a list", dict: "an object"}


def _expect(kind: type, value: Any, path: str) -> Any:
    if type(value) is not kind:
        raise RecordError(path, f"{_shown(value)} is not {_NAMES[kind]}")
    return value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def differences(a: Any, b: Any, omit: frozenset[str] = frozenset(), path: str = "") -> Iterator[str]:
    """Every place where two records differ, as `key: one value / the other`; dtypes of arrays count."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        if a.dtype != b.dtype or a.shape != b.shape:
            yield f"{path}: {a.dtype}{list(a.shape)} / {b.dtype}{list(b.shape)}"
        elif not np.array_equal(a, b):
            at = tuple(int(i) for i in np.argwhere(a != b)[0])
            yield f"{path}{list(at)}: {a[at]} / {b[at]}"
    elif type(a) is not type(b):
        yield f"{path}: {_shown(a)} / {_shown(b)}"
    elif dataclasses.is_dataclass(a):
        for name in _kept(type(a), omit):
            yield from differences(getattr(a, name), getattr(b, name), omit, _join(path, name))
    elif isinstance(a, dict):
        for key in sorted({*a, *b}):
            if key in a and key in b:
                yield from differences(a[key], b[key], omit, _join(path, key))
            else:
                yield f"{path}.{key}: only in the {'first' if key in a else 'second'}"
    elif isinstance(a, list | tuple):
        if len(a) != len(b):
            yield f"{path}: {len(a)} items / {len(b)} items"
        for i, (left, right) in enumerate(zip(a, b, strict=False)):
            yield from differences(left, right, omit, f"{path}.{i}")
    elif a != b:
        yield f"{path}: {_shown(a)} / {_shown(b)}"


def programs_equal(a: Any, b: Any, provenance: bool = True) -> bool:
    """Two programs (or kernels, routes ...) are equal field by field; `provenance`: source places as well."""
    return next(differences(a, b, frozenset() if provenance else PROVENANCE), None) is None
