"""A YAML file as a person writes it: YAML 1.2's plain scalars, no key twice, every mistake a Problem.

PyYAML reads YAML 1.1, in which `workers: 1:4` is the number 64, `standby: off` is false and `2026-01-01` a date. What
Kubernetes' own tools and editors read is closer to YAML 1.2, and so is this.
"""

import re
from collections.abc import Hashable
from typing import Any, Final

import yaml

from hvd_elastic.priorityclasses.problem import Problem

_LONGEST_CHARACTERS: Final = 1_000_000
_DEEPEST: Final = 32


class _Loader(yaml.CSafeLoader):
    """Collects keys that stand twice or are no text."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own attribute

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.problems: list[Problem] = []

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        self.flatten_mapping(node)
        seen: set[str] = set()
        for key, _ in node.value:
            where = f"line {key.start_mark.line + 1}"
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key that is no text", key.start_mark)
            if key.value in seen:
                self.problems.append(
                    Problem(path=where, value=key.value, what="stands twice in one mapping", way_out="keep one of them")
                )
            seen.add(key.value)
        return {key.value: self.construct_object(value, deep=True) for key, value in node.value}


for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?", list("-+.0123456789")),
    ("merge", r"<<", ["<"]),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), _first)


def _whole_number(loader: yaml.CSafeLoader, node: yaml.ScalarNode) -> int | str:
    """In decimal, as it looks: `010` is ten, not eight. Numbers that nobody means stay text."""
    text = str(loader.construct_scalar(node))
    return int(text) if len(text) < 19 else text


_Loader.add_constructor("tag:yaml.org,2002:int", _whole_number)


def parse(text: str, *, name: str) -> tuple[dict[str, Any], list[Problem]]:
    """The one mapping that `text` holds, and what is wrong with it. `name` stands in front of the messages."""
    if len(text) > _LONGEST_CHARACTERS:
        return {}, [_unreadable(name, f"has {len(text)} characters: that is no job description")]
    try:
        if _is_too_deep(text):
            return {}, [_unreadable(name, f"is nested deeper than {_DEEPEST} levels")]
        loader = _Loader(text)
        value = loader.get_single_data()
    except yaml.YAMLError as error:
        return {}, [_unreadable(name, f"is no YAML: {_reason(error)}")]
    if not isinstance(value, dict):
        return {}, [_unreadable(name, "is no mapping: write `key: value` lines")]
    return value, loader.problems


def _is_too_deep(text: str) -> bool:
    """Asked of the event parser, and only so far: libyaml's composer overflows the stack on hostile input."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            return True
    return False


def _unreadable(name: str, what: str) -> Problem:
    return Problem(path=name, value="", what=what, way_out="see docs/job.md for an example")


def _reason(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    reason = getattr(error, "problem", None) or str(error).partition("\n")[0]
    return f"line {mark.line + 1}, column {mark.column + 1}: {reason}" if mark else str(reason)
