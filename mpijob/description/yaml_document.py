"""A YAML file as a person writes it: plain scalars of YAML 1.2, no key twice, every mistake a Problem.

PyYAML reads YAML 1.1, in which `workers: 1:4` is the number 64, `standby: off` is false and `2026-01-01` is a date.
Kubernetes' tools and editors are closer to YAML 1.2, and so is this reader.
"""

import re
from collections.abc import Hashable
from typing import Any, Final

import yaml

from hvd_elastic.priorityclasses.problem import Problem

_LONGEST_CHARACTERS: Final = 1_000_000
_DEEPEST: Final = 32


class _Loader(yaml.CSafeLoader):
    """Reads plain scalars as YAML 1.2 does, and collects keys that appear twice."""

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
                raise yaml.constructor.ConstructorError(None, None, "a key that is not text", key.start_mark)
            if key.value in seen:
                self.problems.append(
                    Problem(
                        path=where, value=key.value, what="appears twice in one mapping", way_out="keep one of them"
                    )
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
    """The number in decimal, as it looks: `010` is ten, not eight. A number of 19 characters or more stays text."""
    text = str(loader.construct_scalar(node))
    return int(text) if len(text) < 19 else text


_Loader.add_constructor("tag:yaml.org,2002:int", _whole_number)


def parse(text: str, *, name: str) -> tuple[dict[str, Any], list[Problem]]:
    """The mapping that `text` consists of, and what is wrong with it. Messages begin with `name`."""
    value, problems = _read(text, name)
    if isinstance(value, dict):
        return value, problems
    return {}, problems or [_unreadable(name, "is not a mapping: write `key: value` lines")]


def parse_list(text: str, *, name: str) -> tuple[list[Any], list[Problem]]:
    """The list that `text` consists of, and what is wrong with it. Messages begin with `name`."""
    value, problems = _read(text, name)
    if isinstance(value, list):
        return value, problems
    way_out = "write `- {key: value}` lines"
    return [], problems or [Problem(path=name, value="", what="is not a list", way_out=way_out)]


def _read(text: str, name: str) -> tuple[Any, list[Problem]]:
    """The value, and what is wrong with it; None and the reason if it cannot be read."""
    if len(text) > _LONGEST_CHARACTERS:
        return None, [_unreadable(name, f"has {len(text)} characters, too many for a job description")]
    try:
        if _is_too_deep(text):
            return None, [_unreadable(name, f"is nested deeper than {_DEEPEST} levels")]
        loader = _Loader(text)
        value = loader.get_single_data()
    except yaml.YAMLError as error:
        return None, [_unreadable(name, f"is not YAML: {_reason(error)}")]
    return value, loader.problems


def _is_too_deep(text: str) -> bool:
    """Whether the text is nested too deep. Asks the event parser, as libyaml's composer would overflow the stack."""
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
