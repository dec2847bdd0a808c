import io
import json

import click
import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.cli.output import Column, Format, Result, of_manifests, output_option, render, show
from testbed.terminal import HOSTILE, steering

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
    assert json.loads(render(Result(data=ROWS[0]), Format.JSON)) == ROWS[0]


@given(st.text(st.characters(exclude_categories=())))
def test_data_comes_back_whole_and_steers_nothing(text: str) -> None:
    found = render(Result(rows=[{text: text}]), Format.JSON)
    assert json.loads(found) == [{text: text}]
    assert not steering(found)


@given(st.text())
def test_yaml_comes_back_whole_and_steers_nothing(text: str) -> None:
    found = render(Result(rows=[{text: text}]), Format.YAML)
    assert yaml.safe_load(found) == [{text: text}]
    assert not steering(found)


def test_names() -> None:
    assert render(Result(names=["job/a", "job/longer"]), Format.NAME) == "job/a\njob/longer\n"
    assert render(Result(), Format.NAME) == ""
    (line,) = render(Result(names=[HOSTILE]), Format.NAME).splitlines()
    assert not steering(line)


@given(st.text())
def test_a_cell_is_one_line_that_steers_nothing(text: str) -> None:
    lines = render(Result(rows=[{"name": text}], columns=COLUMNS[:1]), Format.TABLE).split("\n")
    assert len(lines) == 3
    assert not steering("".join(lines))


def test_a_wide_table_is_neither_cut_nor_wrapped() -> None:
    rows = [{"name": "n" * 300, "size": 1, "why": "[bold]:smile: " + "w" * 2000}]
    assert render(Result(rows=rows, columns=COLUMNS), Format.TABLE).splitlines() == [
        "NAME" + " " * 296 + "   WORKERS   WHY",
        "n" * 300 + "         1   [bold]:smile: " + "w" * 2000,
    ]


@pytest.mark.parametrize("name", ["FORCE_COLOR", "TTY_COMPATIBLE"])
def test_a_table_has_no_styles(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1")
    monkeypatch.setenv("COLUMNS", "10")
    monkeypatch.setattr("sys.stdout", stdout := io.StringIO())
    show(Result(rows=ROWS, columns=COLUMNS), Format.TABLE)
    assert stdout.getvalue() == "NAME     WORKERS   WHY\na              3   -\nlonger        12   x, y\n"


def test_manifests_are_what_kubectl_reads() -> None:
    manifests = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}},
        {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": "b"}},
    ]
    result = of_manifests(manifests)
    assert json.loads(render(result, Format.JSON)) == {"apiVersion": "v1", "kind": "List", "items": manifests}
    assert list(yaml.safe_load_all(render(result, Format.YAML))) == manifests
    assert render(result, Format.NAME) == "configmap/a\nmpijob.kubeflow.org/b\n"


def test_a_verb_may_write_a_format_itself() -> None:
    result = Result(written={Format.TEXT: lambda: "text\n", Format.JSON: lambda: "{}\n"})
    assert [render(result, output) for output in (Format.TEXT, Format.JSON)] == ["text\n", "{}\n"]
    with pytest.raises(ValueError, match="sarif"):
        render(result, Format.SARIF)


def test_a_verb_has_only_the_formats_that_it_declares() -> None:
    @click.command
    @output_option(Format.JSON, Format.NAME, default=Format.JSON)
    def command(output: Format) -> None:
        show(Result(data=[output], names=["a"]), output)

    assert json.loads(CliRunner().invoke(command).stdout) == ["json"]
    assert CliRunner().invoke(command, ["--format", "name"]).stdout == "a\n"
    refused = CliRunner().invoke(command, ["-o", "table"])
    assert (refused.exit_code, refused.stdout) == (2, "")
