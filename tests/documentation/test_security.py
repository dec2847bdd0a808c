"""Each promise of SECURITY.md names what keeps it and what tries it, and both are there."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECTION = "## What is promised, and which test holds it\n"


def rows(page: str) -> Iterator[list[str]]:
    """The cells of each promise."""
    table = page.partition(SECTION)[2].partition("\n## ")[0]
    lines = [line for line in table.splitlines() if line.startswith("|")]
    yield from ([cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:])


def paths(cell: str) -> list[str]:
    """What stands in backticks and is no word of a command line: files, and tests by their ids."""
    return [each for each in re.findall(r"`([^`]+)`", cell) if "/" in each or (ROOT / each).is_file()]


@cache
def found_in(file: Path) -> frozenset[str]:
    tree = ast.parse(file.read_text(encoding="utf-8")) if file.is_file() else ast.Module([], [])
    names = {each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)}
    return frozenset(name for name in names if name.startswith("test_"))


def faults(cells: list[str]) -> list[str]:
    """What is wrong with a row."""
    if len(cells) != 3:
        return [f"{len(cells)} cells: {cells}"]
    promise, kept, tried = cells
    missing = [f"{promise}: {path} is not there" for path in paths(kept) if not (ROOT / path).is_file()]
    nobody = [f"{promise}: nothing that keeps it"] if not paths(kept) else []
    untried = [] if paths(tried) else [f"{promise}: no test"]
    for path in paths(tried):
        file, _, name = path.partition("::")
        tests = found_in(ROOT / file)
        if not tests or (name and name not in tests):
            untried.append(f"{promise}: {path} is no test")
    return missing + nobody + untried


def test_every_promise_is_kept_by_files_and_tests_that_are_there() -> None:
    promises = list(rows((ROOT / "SECURITY.md").read_text(encoding="utf-8")))
    assert len(promises) > 20
    assert [fault for cells in promises for fault in faults(cells)] == []


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ("| a | `uv.lock` |", "2 cells: ['a', '`uv.lock`']"),
        ("| a | by care | `tests/documentation/test_security.py` |", "a: nothing that keeps it"),
        ("| a | `tools/gone.sh` | `tests/documentation/test_security.py` |", "a: tools/gone.sh is not there"),
        ("| a | `uv.lock` | by hand |", "a: no test"),
        ("| a | `uv.lock` | `tests/gone.py` |", "a: tests/gone.py is no test"),
        (
            "| a | `uv.lock` | `tests/tools/test_hashes.py::test_gone` |",
            "a: tests/tools/test_hashes.py::test_gone is no",
        ),
    ],
)
def test_a_row_that_promises_too_much_is_found(row: str, fault: str) -> None:
    (cells,) = rows(f"{SECTION}\n| promise | how | test |\n| --- | --- | --- |\n{row}\n\n## Next\n")
    (found,) = faults(cells)
    assert found.startswith(fault)
