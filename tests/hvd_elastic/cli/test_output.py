import json

import yaml
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.cli.output import Column, Format, Result, render

COLUMNS = (
    Column(title="name", key="name"),
    Column(title="workers", key="size", right=True),
    Column(title="why", key="why"),
)
ROWS = ({"name": "a", "size": 3, "why": None}, {"name": "longer", "size": 12, "why": ["x", "y"]})


def test_a_table() -> None:
    assert render(Result(rows=ROWS, columns=COLUMNS), Format.TABLE).splitlines() == [
        "NAME     WORKERS   WHY",
        "a              3   -",
        "longer        12   x, y",
    ]


def test_an_empty_table_keeps_its_titles() -> None:
    assert render(Result(rows=(), columns=COLUMNS), Format.TABLE) == "NAME   WORKERS   WHY\n"


def test_data() -> None:
    assert json.loads(render(Result(rows=ROWS), Format.JSON)) == list(ROWS)
    assert yaml.safe_load(render(Result(rows=ROWS), Format.YAML)) == list(ROWS)
    assert json.loads(render(Result(rows=ROWS[:1], single=True), Format.JSON)) == ROWS[0]


def test_names() -> None:
    assert render(Result(rows=ROWS, kind="job"), Format.NAME) == "job/a\njob/longer\n"
    assert render(Result(rows=()), Format.NAME) == ""


@given(st.text())
def test_a_cell_is_one_printable_line(text: str) -> None:
    lines = render(Result(rows=[{"name": text}], columns=COLUMNS[:1]), Format.TABLE).split("\n")
    assert len(lines) == 3
    assert all(line.isprintable() for line in lines)
