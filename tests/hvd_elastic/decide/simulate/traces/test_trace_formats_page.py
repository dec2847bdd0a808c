"""The page about simulating names every format that is read."""

from pathlib import Path

import pytest

from hvd_elastic.decide.simulate.traces.trace_file import FORMATS, TraceFormat

PAGE = Path(__file__).parents[5] / "docs" / "simulate.md"


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.title)
def test_the_page_shows_the_first_line_of_the_format(form: TraceFormat) -> None:
    assert f"| `{form.shown}` |" in PAGE.read_text(encoding="utf-8")
