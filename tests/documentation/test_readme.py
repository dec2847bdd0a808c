"""The README can be read in two minutes, and what it shows is what the examples and the measurements say."""

import difflib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SYSTEMS = {
    "Stock Horovod": "stock MPI Operator and `horovodrun`",
    "TorchElastic": "TorchElastic, training-operator",
    "Ray Train": "Ray Train",
    "Kueue, fixed size": "fixed size, evicted whole by Kueue",
    "`hvd-elastic`": "`hvd-elastic`, `launch`",
}
"""Their names in the README's table, and in the tables that performance.md has over eight windows."""
FIRST_SCREEN = 25
MOST_WORDS = 650


def goodputs() -> dict[str, str]:
    """The mean of each system over eight windows, from both runs of performance.md."""
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    tables = re.findall(r"^\| over eight windows \| goodput, mean .*\n\| -.*\n((?:\|.*\n)+)", page, re.MULTILINE)
    assert len(tables) == 2
    rows = (line.strip("| ").split(" | ") for table in tables for line in table.splitlines())
    return {name: mean for name, mean, *_ in rows}


def row_of(name: str) -> str:
    """A system's figure in the README's table."""
    (row,) = re.findall(rf"^\| {re.escape(name)} \|(.*)\|$", README, re.MULTILINE)
    return str(row.rpartition("|")[2])


@pytest.mark.parametrize("command", ["make demo", "make test", "hvd-elastic submit job.yaml"])
def test_the_first_screen_shows_what_to_type(command: str) -> None:
    first = README.splitlines()[:FIRST_SCREEN]

    assert any(re.match(rf" {{4}}{re.escape(command)}(?: |$)", line) for line in first)


def test_it_is_read_in_two_minutes() -> None:
    assert len(README.split()) <= MOST_WORDS


def test_the_diff_is_that_of_the_examples() -> None:
    (shown,) = re.findall(r"```diff\n(.*?)```", README, re.DOTALL)

    changes = [line for line in difflib.ndiff(code("digits.py"), code("digits_elastic.py")) if line[0] in "+-"]
    assert sorted(shown.splitlines()) == sorted(line[0] + line[2:] for line in changes if line[2:].strip())


def code(name: str) -> list[str]:
    """An example's lines below its docstring."""
    return (ROOT / "examples" / name).read_text(encoding="utf-8").partition('"""\n')[2].splitlines()


@pytest.mark.parametrize(("name", "measured"), SYSTEMS.items())
def test_what_a_system_kept_is_what_was_measured(name: str, measured: str) -> None:
    assert re.findall(r"[\d.]+%", row_of(name))[0] == goodputs()[measured]


def test_ray_train_stands_beside_ours_of_the_same_run() -> None:
    means = goodputs()

    beside = f"{means['Ray Train']}, without Kubernetes (ours: {means['`hvd-elastic launch`']})"
    assert row_of("Ray Train").strip() == beside


def test_the_six_figures_are_those_of_the_recorded_days() -> None:
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"^\| `hvd-elastic`, `launch` \| (\d.*) \|$", page, re.MULTILINE)
    mean, least, _, repeated, wrong, pause, waits = row.split(" | ")

    figures = re.findall(r"^- \*\*([\d.]+(?:%| s)?)\*\*(.*)", README, re.MULTILINE)
    wrong, epochs = wrong.split(" / ")
    assert [figure for figure, _ in figures] == [mean, least, repeated, wrong, f"{pause} s", f"{waits.split()[0]} s"]
    assert figures[3][1].endswith(f"in {epochs} epochs")
