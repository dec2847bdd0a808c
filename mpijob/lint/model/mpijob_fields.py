"""The known fields of an MPIJob and their types, and a walk that finds what does not fit them."""

import difflib
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Final, TypeAlias

from hvd_elastic.mpijob.lint.document.view import View
from hvd_elastic.mpijob.lint.model.linted_job import Version

Table: TypeAlias = Mapping[str, Mapping[str, str]]

_CLOSE_ENOUGH: Final = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """A field that its type does not have."""

    view: View
    parent: View
    nearest: str
    """The known field that was probably meant, or nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistyped:
    """A value of another type than its field's."""

    view: View
    expected: str


@functools.cache
def table() -> Table:
    """Type name to its fields and their types, from fields.txt."""
    rows: dict[str, Mapping[str, str]] = {}
    for line in files("hvd_elastic.mpijob.lint").joinpath("fields.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, *fields = line.split()
            rows[name] = dict(field.split(":", 1) for field in fields)
    return rows


def misfits(job: View, version: Version) -> Iterator[Unknown | Mistyped]:
    """Every unknown field and every value of a wrong type, from the root down. Nothing below a misfit is looked at."""
    return _walk(job, f"MPIJob/{version}")


def _walk(view: View, kind: str) -> Iterator[Unknown | Mistyped]:
    if view.value is None or kind == "any":
        return
    if kind.startswith("["):
        yield from _walk_list(view, kind[1:-1])
    elif kind.startswith("{"):
        yield from _walk_map(view, kind[1:-1])
    elif kind in table():
        yield from _walk_object(view, table()[kind])
    elif not _fits(view.value, kind):
        yield Mistyped(view=view, expected=_SPOKEN[kind])


def _walk_list(view: View, kind: str) -> Iterator[Unknown | Mistyped]:
    if not isinstance(view.value, list):
        yield Mistyped(view=view, expected="a list")
        return
    for item in view.items():
        if item.value is None:
            yield Mistyped(view=item, expected=_SPOKEN.get(kind, "a mapping"))
        yield from _walk(item, kind)


def _walk_map(view: View, kind: str) -> Iterator[Unknown | Mistyped]:
    if not isinstance(view.value, dict):
        yield Mistyped(view=view, expected="a mapping")
        return
    for _, item in view.pairs():
        yield from _walk(item, kind)


def _walk_object(view: View, fields: Mapping[str, str]) -> Iterator[Unknown | Mistyped]:
    if not isinstance(view.value, dict):
        yield Mistyped(view=view, expected="a mapping")
        return
    for key, item in view.pairs():
        if key in fields:
            yield from _walk(item, fields[key])
        else:
            yield Unknown(view=item, parent=view, nearest=nearest(key, fields))


def nearest(key: str, fields: Mapping[str, str]) -> str:
    """The known field that `key` is a slip of. Case counts for little."""
    by_fold = {field.casefold(): field for field in fields}
    close = difflib.get_close_matches(key.casefold()[:100], by_fold, n=1, cutoff=_CLOSE_ENOUGH)
    return by_fold[close[0]] if close else ""


_SPOKEN: Final = {
    "string": "text (quote it)",
    "int": "a whole number",
    "number": "a number",
    "bool": "true or false",
    "quantity": "a quantity such as 500m or 16Gi",
    "intstr": "a whole number or text",
}


def _fits(value: object, kind: str) -> bool:
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
