"""Edits change only what they name, and only where they apply."""

from typing import Any

import pytest

from hvd_elastic.mpijob.lint.document.manifest_edit import (
    InsertItems,
    ManifestEdit,
    RemoveValue,
    RenameKey,
    SetValue,
    apply,
    is_applicable,
)
from hvd_elastic.mpijob.lint.document.manifest_reader import Document, read
from hvd_elastic.mpijob.lint.document.manifest_view import Path
from hvd_elastic.mpijob.yaml_input.yaml_composer import plain

SOURCE = "a:\n  b:\n  - 1\n  - 2\nc: 3\n"


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (SetValue(("a", "new", "deep"), 1), {"a": {"b": [1, 2], "new": {"deep": 1}}, "c": 3}),
        (SetValue(("a", "b", 1), 5), {"a": {"b": [1, 5]}, "c": 3}),
        (RemoveValue(("a", "b", 0)), {"a": {"b": [2]}, "c": 3}),
        (InsertItems(("a", "b"), 1, (8, 9)), {"a": {"b": [1, 8, 9, 2]}, "c": 3}),
        (RenameKey(("a",), "z"), {"z": {"b": [1, 2]}, "c": 3}),
    ],
)
def test_an_applicable_edit_changes_what_it_names(edit: ManifestEdit, expected: Any) -> None:
    (document,), _ = read(SOURCE)
    assert is_applicable(document.value, edit)
    after: Any = plain(apply(document.node, edit))
    assert (after, list(after)) == (expected, list(expected))
    assert document.value == plain(document.node) == {"a": {"b": [1, 2]}, "c": 3}


@pytest.mark.parametrize(
    ("edit", "path", "line"),
    [
        (SetValue(("a", "new", "deep"), 1), ("c",), 5),
        (SetValue(("a", "new", "deep"), 1), ("a", "new", "deep"), 1),
        (InsertItems(("a", "b"), 0, (8, 9)), ("a", "b", 2), 3),
        (RemoveValue(("a", "b", 0)), ("a", "b", 0), 4),
        (RenameKey(("a",), "z"), ("z", "b", 1), 4),
    ],
)
def test_what_an_edit_leaves_keeps_its_place_in_the_source(edit: ManifestEdit, path: Path, line: int) -> None:
    (document,), _ = read(SOURCE)
    node = apply(document.node, edit)
    assert Document(source="-", node=node, value=plain(node)).source_range(path).line == line


def test_an_edit_of_one_place_leaves_an_alias_of_it_alone() -> None:
    (document,), _ = read("a: &x {b: 1}\nc: *x\n")
    assert plain(apply(document.node, SetValue(("a", "b"), 2))) == {"a": {"b": 2}, "c": {"b": 1}}


@pytest.mark.parametrize(
    "edit",
    [
        SetValue(("c", "d"), 1),
        SetValue(("a", "b", 7), 1),
        RemoveValue(("a", "x")),
        InsertItems(("c",), 0, (1,)),
        RenameKey(("x",), "z"),
    ],
)
def test_an_edit_does_not_apply_where_the_manifest_has_another_shape(edit: ManifestEdit) -> None:
    assert not is_applicable({"a": {"b": [1, 2]}, "c": 3}, edit)
