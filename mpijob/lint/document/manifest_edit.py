"""Edits of a document as values. A safe fix is a list of them."""

import copy
from dataclasses import dataclass
from typing import Any, TypeAlias

from hvd_elastic.mpijob.lint.document.manifest_view import Path


@dataclass(frozen=True, slots=True)
class SetValue:
    """Sets the value at `path`. Missing mappings above it are created."""

    path: Path
    value: object


@dataclass(frozen=True, slots=True)
class RemoveValue:
    """Removes the key or list item at `path`."""

    path: Path


@dataclass(frozen=True, slots=True)
class InsertItems:
    """Inserts values into the list at `path`, before `index`."""

    path: Path
    index: int
    values: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class RenameKey:
    """Renames the key at `path`. It keeps its position in the mapping."""

    path: Path
    key: str


ManifestEdit: TypeAlias = SetValue | RemoveValue | InsertItems | RenameKey


def is_applicable(root: object, edit: ManifestEdit) -> bool:
    """Whether the edit can be applied: every value that exists along its path has the right type."""
    if isinstance(edit, InsertItems):
        return isinstance(_value_at(root, edit.path), list)
    *parent, key = edit.path
    if isinstance(edit, SetValue):
        return _can_create(root, edit.path)
    return _has(_value_at(root, tuple(parent)), key)


def apply(root: Any, edit: ManifestEdit) -> None:
    """Applies the edit in place. It must be applicable."""
    if isinstance(edit, InsertItems):
        target = _value_at(root, edit.path)
        target[edit.index : edit.index] = copy.deepcopy(list(edit.values))
    elif isinstance(edit, SetValue):
        _value_or_mapping_at(root, edit.path[:-1])[edit.path[-1]] = copy.deepcopy(edit.value)
    elif isinstance(edit, RemoveValue):
        del _value_at(root, edit.path[:-1])[edit.path[-1]]
    else:
        _rename(_value_at(root, edit.path[:-1]), str(edit.path[-1]), edit.key)


def _has(container: object, key: str | int) -> bool:
    if isinstance(container, list):
        return isinstance(key, int) and key < len(container)
    return isinstance(container, dict) and key in container


def _value_at(root: object, path: Path) -> Any:
    """The value at `path`, or None if there is none."""
    value: Any = root
    for key in path:
        value = value[key] if _has(value, key) else None
    return value


def _can_create(root: object, path: Path) -> bool:
    """Whether a value can be set at `path`: mappings above its keys, if anything, and existing items at its indexes."""
    value: Any = root
    for key in path:
        if isinstance(key, int) and not _has(value, key):
            return False
        if isinstance(key, str) and not isinstance(value, dict | None):
            return False
        value = value[key] if _has(value, key) else None
    return True


def _value_or_mapping_at(root: Any, path: Path) -> Any:
    """The value at `path`. Missing mappings along it are created."""
    value = root
    for key in path:
        if isinstance(value, dict) and value.get(str(key)) is None:
            value[str(key)] = {}
        value = value[key]
    return value


def _rename(mapping: dict[str, Any], key: str, new: str) -> None:
    """Renames a key. The entry keeps its position."""
    entries = [(new if name == key else name, value) for name, value in mapping.items()]
    mapping.clear()
    mapping.update(entries)
