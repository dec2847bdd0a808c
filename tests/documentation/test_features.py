"""The table of features names tests, commands and keys that exist, and says of each row how far it is."""

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path

import click
import pytest

from hvd_elastic.cli import MODULES, VERBS
from hvd_elastic.mpijob.description.keys import KEYS

ROOT = Path(__file__).parents[2]
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in (ROOT / "tests" / "documentation" / "features.md").read_text(encoding="utf-8").splitlines()
    if re.match(r"\| \d+ \|", line)
]
QUOTED = re.compile(r"`([^`]+)`")


@cache
def functions_of(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def test_there_are_as_many_rows_as_things_were_asked_for() -> None:
    assert [int(number) for number, *_ in ROWS] == list(range(1, 42))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row[0]))
def test_a_row_names_what_exists(row: list[str]) -> None:
    _, _, there, commands, held = row
    assert re.match(r"(had|partly: \S|not yet)", there), there
    named = QUOTED.findall(commands)
    assert named
    for name in named:
        words = name.split()
        assert exists(words[1:]) if words[0] == "hvd-elastic" else name in KEYS, name
    tests = QUOTED.findall(held)
    assert tests
    for test in tests:
        path, _, function = test.partition("::")
        assert function in functions_of(path), test


def exists(words: list[str]) -> bool:
    """Whether these are a verb, a verb of that verb, and flags of it."""
    verb, *rest = words
    if verb not in VERBS:
        return False
    command = import_module(MODULES[verb]).command
    if isinstance(command, click.Group) and rest:
        name, *rest = rest
        command = command.commands[name]
    flags = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    return set(rest) <= flags
