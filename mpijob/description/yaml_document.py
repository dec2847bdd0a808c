"""A YAML file as a person writes it: plain scalars of YAML 1.2, no key twice, every mistake a Problem."""

from collections.abc import Iterator
from typing import Any, Final

from hvd_elastic.mpijob.yaml_input.yaml_composer import UnreadableError, YamlComposer, YamlNode, plain
from hvd_elastic.mpijob.yaml_input.yaml_scalars import DESCRIPTION
from hvd_elastic.priorityclasses.problem import Problem

_LONGEST_CHARACTERS: Final = 1_000_000


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


def _read(text: str, name: str) -> tuple[object, list[Problem]]:
    """The value, and what is wrong with it; None and the reason if it cannot be read."""
    if len(text) > _LONGEST_CHARACTERS:
        return None, [_unreadable(name, f"has {len(text)} characters, too many for a job description")]
    try:
        roots = list(YamlComposer(DESCRIPTION).compose(text))
    except UnreadableError as error:
        return None, [_unreadable(name, f"cannot be read: {error}")]
    if len(roots) > 1:
        return None, [_unreadable(name, f"is not one document: another begins at line {roots[1].source_range.line}")]
    return (plain(roots[0]), list(_duplicates(roots[0]))) if roots else (None, [])


def _duplicates(root: YamlNode) -> Iterator[Problem]:
    """Keys that one mapping has twice, each once however many aliases lead to it."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen or not isinstance(node.content, dict | list):
            continue
        seen.add(id(node))
        for key, source_range in node.duplicates:
            where, what = f"line {source_range.line}", "appears twice in one mapping"
            yield Problem(path=where, value=key, what=what, way_out="keep one of them")
        waiting += reversed(node.content.values() if isinstance(node.content, dict) else node.content)


def _unreadable(name: str, what: str) -> Problem:
    return Problem(path=name, value="", what=what, way_out="see docs/job.md for an example")
