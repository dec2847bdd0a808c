"""Edits of a document as values, and how they are applied to its nodes. A safe fix is a list of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from hvd_elastic.mpijob.lint.document.manifest_view import Path
from hvd_elastic.mpijob.yaml_input.yaml_composer import SourceRange, YamlNode


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


def apply(root: YamlNode, edit: ManifestEdit) -> YamlNode:
    """The document with the edit in it. It must be applicable.

    What stays keeps its place in the source. What is new has the place of the mapping or list that it was put into.
    """
    place = _start(root.source_range)
    if isinstance(edit, InsertItems):
        return _changed(root, edit.path, place, lambda items, at: _with_items(items, edit, at))
    *parent, key = edit.path
    return _changed(root, tuple(parent), place, lambda holder, at: _with_entry(holder, key, edit, at))


def _changed(
    node: YamlNode, path: Path, place: SourceRange, change: Callable[[YamlNode, SourceRange], YamlNode]
) -> YamlNode:
    """A copy of the nodes along `path`, the last of which `change` returns. Other nodes are shared with the original.

    `place`: where the node is said to be, which for an entry of a mapping is its key. Missing mappings along the path
    are created.
    """
    if not path:
        return change(node, place)
    key, *rest = path
    if isinstance(node.content, list):
        items = list(node.content)
        item = items[int(key)]
        items[int(key)] = _changed(item, tuple(rest), _start(item.source_range), change)
        return replace(node, content=items)
    below = _entries(node)
    child = below.get(str(key))
    at = node.keys.get(str(key), place)
    if child is None or child.content is None:
        child = YamlNode(child.source_range if child else place, {})
    entries = {**below, str(key): _changed(child, tuple(rest), at, change)}
    return replace(node, content=entries, keys={**node.keys, str(key): at})


def _with_items(node: YamlNode, edit: InsertItems, place: SourceRange) -> YamlNode:
    items = list(node.content) if isinstance(node.content, list) else []
    items[edit.index : edit.index] = [_new(value, place) for value in edit.values]
    return replace(node, content=items)


def _with_entry(
    node: YamlNode, key: str | int, edit: SetValue | RemoveValue | RenameKey, place: SourceRange
) -> YamlNode:
    if isinstance(node.content, list):
        items = list(node.content)
        if isinstance(edit, SetValue):
            items[int(key)] = _new(edit.value, items[int(key)].source_range)
        else:
            del items[int(key)]
        return replace(node, content=items)
    entries, name = _entries(node), str(key)
    if isinstance(edit, RenameKey):
        places = {edit.key: node.keys.get(name, place)}
        entries = {(edit.key if old == name else old): child for old, child in entries.items()}
        return replace(node, content=entries, keys={**node.keys, **places})
    if isinstance(edit, RemoveValue):
        return replace(node, content={old: child for old, child in entries.items() if old != name})
    of_key = node.keys.get(name, place)
    at = entries[name].source_range if name in entries else of_key
    return replace(node, content={**entries, name: _new(edit.value, at)}, keys={**node.keys, name: of_key})


def _entries(node: YamlNode) -> dict[str, YamlNode]:
    return dict(node.content) if isinstance(node.content, dict) else {}


def _start(place: SourceRange) -> SourceRange:
    return SourceRange(place.line, place.column, place.line, place.column + 1)


def _new(value: object, place: SourceRange) -> YamlNode:
    """A value that the source does not have, at the place where it was put."""
    content: Any = value
    if isinstance(value, Mapping):
        content = {str(key): _new(child, place) for key, child in value.items()}
    elif isinstance(value, list | tuple):
        content = [_new(child, place) for child in value]
    return YamlNode(place, content, keys=dict.fromkeys(content, place) if isinstance(content, dict) else {})


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
