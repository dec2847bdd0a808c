"""The launcher's README describes every module, and none that does not exist."""

import re
from pathlib import Path

import hvd_elastic.launcher

PACKAGE = Path(hvd_elastic.launcher.__file__).parent
PAGE = PACKAGE / "README.md"


def test_the_page_has_a_line_for_every_module() -> None:
    table = PAGE.read_text().partition("## The modules")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(?:\w+/)*(\w+\.py)`", table))
    assert named == {path.name for path in PACKAGE.rglob("*.py")} - {"__init__.py"}
