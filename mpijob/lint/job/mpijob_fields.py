"""The known fields of an MPIJob and their types, and a check of a manifest against them."""

import difflib
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Final, TypeAlias

from hvd_elastic.mpijob.lint.document.manifest_view import ManifestView
from hvd_elastic.mpijob.lint.job.linted_job import MPIJobVersion

Table: TypeAlias = Mapping[str, Mapping[str, str]]

_CLOSE_ENOUGH: Final = 0.6
_AMOUNTS: Final = ("cpu", "memory", "ephemeral-storage")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownField:
    """A field that its parent's type does not have."""

    view: ManifestView
    parent: ManifestView
    nearest: str
    """The known field that was probably meant; empty if none is similar."""
    inside: str = ""
    """The field of the same parent that has a field of this very name; empty if none has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongFieldType:
    """A value whose type is not that of its field."""

    view: ManifestView
    expected: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BadQuantity:
    """Text that is not a Kubernetes quantity, where one must be."""

    view: ManifestView


FieldError: TypeAlias = UnknownField | WrongFieldType | BadQuantity


@functools.cache
def field_table() -> Table:
    """The fields of each type and their types, from mpijob_fields.txt."""
    rows: dict[str, Mapping[str, str]] = {}
    for line in (
        files("hvd_elastic.mpijob.lint.job").joinpath("mpijob_fields.txt").read_text(encoding="utf-8").splitlines()
    ):
        if line and not line.startswith("#"):
            name, *fields = line.split()
            rows[name] = dict(field.split(":", 1) for field in fields)
    return rows


def field_errors(job: ManifestView, version: MPIJobVersion) -> Iterator[FieldError]:
    """Every unknown field and every value of a wrong type, from the root down. Values below them are skipped."""
    return _walk(job, f"MPIJob/{version}")


def _walk(view: ManifestView, kind: str) -> Iterator[FieldError]:
    if view.value is None or kind == "any":
        return
    if kind.startswith("["):
        yield from _walk_list(view, kind[1:-1])
    elif kind.startswith("{"):
        yield from _walk_map(view, kind[1:-1])
    elif kind in field_table():
        yield from _walk_object(view, field_table()[kind])
    elif not _has_type(view.value, kind):
        yield WrongFieldType(view=view, expected=_TYPE_NAMES[kind])
    elif kind == "quantity" and view.text is not None and view.amount is None:
        yield BadQuantity(view=view)


def _walk_list(view: ManifestView, kind: str) -> Iterator[FieldError]:
    if not isinstance(view.value, list):
        yield WrongFieldType(view=view, expected="a list")
        return
    for item in view.items():
        if item.value is None:
            yield WrongFieldType(view=item, expected=_TYPE_NAMES.get(kind, "a mapping"))
        yield from _walk(item, kind)


def _walk_map(view: ManifestView, kind: str) -> Iterator[FieldError]:
    if not isinstance(view.value, dict):
        yield WrongFieldType(view=view, expected="a mapping")
        return
    for _, item in view.pairs():
        yield from _walk(item, kind)


def _walk_object(view: ManifestView, fields: Mapping[str, str]) -> Iterator[FieldError]:
    if not isinstance(view.value, dict):
        yield WrongFieldType(view=view, expected="a mapping")
        return
    for key, item in view.pairs():
        if key in fields:
            yield from _walk(item, fields[key])
        else:
            inside = next((name for name, kind in fields.items() if _may_hold(kind, key)), "")
            yield UnknownField(view=item, parent=view, nearest=nearest_field(key, fields), inside=inside)


def _may_hold(kind: str, key: str) -> bool:
    return key in field_table().get(kind, ()) or (kind == "{quantity}" and (key in _AMOUNTS or "/" in key))


def nearest_field(key: str, fields: Mapping[str, str]) -> str:
    """The known field that `key` probably misspells, ignoring case; empty if none is similar."""
    by_fold = {field.casefold(): field for field in fields}
    close = difflib.get_close_matches(key.casefold()[:100], by_fold, n=1, cutoff=_CLOSE_ENOUGH)
    return by_fold[close[0]] if close else ""


_TYPE_NAMES: Final = {
    "string": "text (quote it)",
    "int": "a whole number",
    "number": "a number",
    "bool": "true or false",
    "quantity": "a quantity such as 500m or 16Gi",
    "intstr": "a whole number or text",
}


def _has_type(value: object, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "bool"
    wanted: dict[str, tuple[type, ...]] = {
        "string": (str,),
        "int": (int,),
        "number": (int, float),
        "quantity": (str, int, float),
        "intstr": (str, int),
    }
    return isinstance(value, wanted.get(kind, ()))
