"""Changes of a document, as values: what a safe fix is made of."""

import copy
from dataclasses import dataclass
from typing import Any, TypeAlias

from hvd_elastic.mpijob.lint.document.view import Path


@dataclass(frozen=True, slots=True)
class Set:
    """Puts a value at a path; what is missing above it is made."""

    path: Path
    value: object


@dataclass(frozen=True, slots=True)
class Remove:
    """Takes a path out."""

    path: Path


@dataclass(frozen=True, slots=True)
class Insert:
    """Puts values into the list at `path`, before `index`."""

    path: Path
    index: int
    values: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Rename:
    """Gives a key another name; its place in the mapping stays."""

    path: Path
    key: str


Edit: TypeAlias = Set | Remove | Insert | Rename


def fits(root: object, edit: Edit) -> bool:
    """Whether the edit can be carried out: everything on its way that exists is of the right type."""
    if isinstance(edit, Insert):
        return isinstance(_at(root, edit.path), list)
    *parent, key = edit.path
    if isinstance(edit, Set):
        return _leads(root, edit.path)
    at = _at(root, tuple(parent))
    return _has(at, key)


def apply(root: Any, edit: Edit) -> None:
    """Carries the edit out in place. It must fit."""
    if isinstance(edit, Insert):
        at = _at(root, edit.path)
        at[edit.index : edit.index] = copy.deepcopy(list(edit.values))
    elif isinstance(edit, Set):
        _made(root, edit.path[:-1])[edit.path[-1]] = copy.deepcopy(edit.value)
    elif isinstance(edit, Remove):
        del _at(root, edit.path[:-1])[edit.path[-1]]
    else:
        _rename(_at(root, edit.path[:-1]), str(edit.path[-1]), edit.key)


def _has(at: object, key: str | int) -> bool:
    if isinstance(at, list):
        return isinstance(key, int) and key < len(at)
    return isinstance(at, dict) and key in at


def _at(root: object, path: Path) -> Any:
    """The value at a path, or None."""
    at: Any = root
    for key in path:
        at = at[key] if _has(at, key) else None
    return at


def _leads(root: object, path: Path) -> bool:
    """Whether a value can be put at the path: what exists above it are mappings, lists where the path has indexes."""
    at: Any = root
    for key in path:
        if isinstance(key, int) and not _has(at, key):
            return False
        if isinstance(key, str) and not isinstance(at, dict | None):
            return False
        at = at[key] if _has(at, key) else None
    return True


def _made(root: Any, path: Path) -> Any:
    at = root
    for key in path:
        if isinstance(at, dict) and at.get(str(key)) is None:
            at[str(key)] = {}
        at = at[key]
    return at


def _rename(mapping: dict[str, Any], key: str, new: str) -> None:
    """The entry keeps its place."""
    entries = [(new if name == key else name, value) for name, value in mapping.items()]
    mapping.clear()
    mapping.update(entries)
