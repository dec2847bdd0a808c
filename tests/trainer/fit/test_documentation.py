"""docs/trainer.md has every argument of the Trainer, every field of its groups, and every moment."""

import dataclasses
import inspect
import re
from pathlib import Path

import pytest

from hvd_elastic.trainer.fit.flat_arguments import FLAT
from hvd_elastic.trainer.fit.moments import MomentKind
from hvd_elastic.trainer.fit.trainer import Trainer
from hvd_elastic.trainer.fit.trainer_options import Checkpointing, Computation, Evaluation, Reporting

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "trainer.md").read_text(encoding="utf-8")
UPGRADING = (ROOT / "docs" / "upgrading.md").read_text(encoding="utf-8")


def default(value: object) -> str:
    if value in (inspect.Parameter.empty, dataclasses.MISSING):
        return ""
    return f'`"{value}"`' if isinstance(value, str) else f"`{value}`"


def rows(title: str) -> list[tuple[str, str]]:
    """Names and defaults of the table below a title."""
    section = re.split(r"\n##", PAGE.partition(f"\n{title}\n")[2])[0]
    return re.findall(r"^\| `(\w+)` \| (\S*) ?\|", section, re.MULTILINE)


def test_the_page_has_every_argument_with_its_default() -> None:
    parameters = list(inspect.signature(Trainer).parameters.values())[:-1]
    assert rows("## Arguments") == [(each.name, default(each.default)) for each in parameters]


@pytest.mark.parametrize("group", [Evaluation, Computation, Checkpointing, Reporting])
def test_the_page_has_every_field_with_its_default(group: type) -> None:
    assert rows(f"### {group.__name__}") == [(each.name, default(each.default)) for each in dataclasses.fields(group)]


def test_the_page_of_upgrades_has_every_former_argument() -> None:
    table = UPGRADING.partition("### Arguments of the Trainer")[2].partition("\n###")[0]
    flat = {name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert flat == set(FLAT)


def test_the_docstring_has_every_argument() -> None:
    arguments = (inspect.getdoc(Trainer) or "").partition("Args:")[2].partition("Raises:")[0]
    named = re.findall(r"^    (\w+): ", arguments, re.MULTILINE)
    assert sorted(named) == sorted(inspect.signature(Trainer).parameters)


def test_the_page_has_every_moment() -> None:
    assert re.findall(r'^\| `"(\w+)"` \|', PAGE, re.MULTILINE) == [kind.value for kind in MomentKind]


@pytest.mark.parametrize("tracker", ["mlflow", "wandb"])
def test_the_page_shows_the_callback_that_the_example_has(tracker: str) -> None:
    example = (ROOT / "examples" / f"track_{tracker}.py").read_text(encoding="utf-8")
    (body,) = re.findall(r'^def track\(moment\):\n    """.*?"""\n((?:    .*\n)+)', example, re.MULTILINE)
    assert f"def track(moment):\n{body}" in PAGE
