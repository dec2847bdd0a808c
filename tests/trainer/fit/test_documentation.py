"""docs/trainer.md has every argument of the Trainer with its default, and every moment."""

import inspect
import re
from pathlib import Path

import pytest

from hvd_elastic.trainer.fit.moments import MomentKind
from hvd_elastic.trainer.fit.trainer import Trainer

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "trainer.md").read_text(encoding="utf-8")


def default(parameter: inspect.Parameter) -> str:
    value = parameter.default
    if value is inspect.Parameter.empty:
        return ""
    return f'`"{value}"`' if isinstance(value, str) else f"`{value}`"


def test_the_page_has_every_argument_with_its_default() -> None:
    parameters = list(inspect.signature(Trainer).parameters.values())[:-1]
    rows = re.findall(
        r"^\| `(\w+)` \| (\S*) ?\|", PAGE.partition("## Arguments")[2].partition("\n## ")[0], re.MULTILINE
    )
    assert rows == [(each.name, default(each)) for each in parameters]


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
