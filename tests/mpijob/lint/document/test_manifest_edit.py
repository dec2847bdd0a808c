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
    document: Any = {"a": {"b": [1, 2]}, "c": 3}
    assert is_applicable(document, edit)
    apply(document, edit)
    assert (document, list(document)) == (expected, list(expected))


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
