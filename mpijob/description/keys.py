"""Every key of a job description: its dotted path, its shape, and the docstring under its field."""

import ast
import inspect
import sys
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.description.section import Section


class Shape(StrEnum):
    """What a key holds, in as much detail as flags need."""

    VALUE = "value"
    SWITCH = "switch"
    LIST = "list"
    PAIR = "pair"
    MAPPING = "mapping"
    TREE = "tree"
    SECTION = "section"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key of a job description."""

    path: str
    """Dotted: `workers.min`."""
    shape: Shape
    model: type[Section]
    """The section that has the key."""
    field: str
    """The name of the field in that class. It differs from the key where the key is a Python keyword."""
    section: type[Section] | None = None
    """The section under the key, if there is one."""

    @property
    def help(self) -> str:
        """The docstring under the field, on one line."""
        return docstrings(self.model).get(self.field, "")


def _plain(annotation: Any) -> Any:
    """The type inside `Annotated` and `| None`."""
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation = get_args(annotation)[0]
        elif origin in {Union, UnionType}:
            annotation = next(argument for argument in get_args(annotation) if argument is not type(None))
        else:
            return annotation


def _shape(annotation: Any) -> Shape:
    plain = _plain(annotation)
    if isinstance(plain, type) and issubclass(plain, Section):
        return Shape.SECTION
    if get_origin(plain) is dict and get_args(plain)[1] is Any:
        return Shape.TREE
    shapes = {list: Shape.LIST, dict: Shape.MAPPING, tuple: Shape.PAIR}
    return shapes.get(get_origin(plain), Shape.SWITCH if plain is bool else Shape.VALUE)


def _keys(model: type[Section], prefix: str = "") -> list[Key]:
    found: list[Key] = []
    for field, info in model.model_fields.items():
        path = f"{prefix}{info.alias or field}"
        shape = _shape(info.annotation)
        section = _plain(info.annotation) if shape is Shape.SECTION else None
        found.append(Key(path=path, shape=shape, model=model, field=field, section=section))
        if section is not None:
            found += _keys(section, f"{path}.")
    return found


KEYS: Final = {key.path: key for key in _keys(JobSpec)}
"""All keys by dotted path, in the order of the fields. Items of lists have no keys here."""

_SECTIONS: Final = {(key.model, key.path.rpartition(".")[2]): key.section for key in KEYS.values()}


def section_of(model: type[Section], key: str) -> type[Section] | None:
    """The section under `key` of `model`. None for a plain value or an unknown key."""
    return _SECTIONS.get((model, key))


def flag_of(path: str) -> str:
    """`workers.min` -> `--workers-min`."""
    return "--" + path.replace(".", "-").replace("_", "-")


@cache
def docstrings(model: type[Section]) -> dict[str, str]:
    """Each field's docstring on one line, inherited fields too. Parses source files: only help and schema call it."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, Section) and base is not Section:
            found |= _class_docs(base.__module__).get(base.__name__, {})
    return found


@cache
def _class_docs(module: str) -> dict[str, dict[str, str]]:
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: _field_docs(node) for node in tree.body if isinstance(node, ast.ClassDef)}


def _field_docs(node: ast.ClassDef) -> dict[str, str]:
    docs: dict[str, str] = {}
    for statement, following in zip(node.body, node.body[1:], strict=False):
        match statement, following:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                docs[name] = " ".join(text.split())
    return docs
