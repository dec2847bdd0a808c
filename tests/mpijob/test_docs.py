"""docs/job.md is true."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import PydanticUndefined

from hvd_elastic.mpijob.description.keys import KEYS, Key
from hvd_elastic.mpijob.job_reader import read_job
from tests.mpijob.examples import EXAMPLES
from tests.mpijob.jobs import refused
from tests.mpijob.pod_fields import published, refused_container_fields, refused_fields

DOCS = Path(__file__).parents[2] / "docs" / "job.md"
HEADING = "## All keys\n"


def table() -> str:
    """Each key, its default, and the docstring under its field. Keys that `data` and `output` share have one row."""
    keys_of: dict[str, list[str]] = {}
    for key in KEYS.values():
        keys_of.setdefault(f"{default_of(key)} | {key.help.replace('|', '&#124;')}", []).append(f"`{key.path}`")
    rows = [f"| {', '.join(keys)} | {cells} |" for cells, keys in keys_of.items()]
    return "\n".join(("| key | default | |", "| --- | --- | --- |", *rows, ""))


def default_of(key: Key) -> str:
    info = key.model.model_fields[key.field]
    if info.is_required():
        return "required"
    value: Any = None if key.section is not None else info.get_default()
    if value is None or value is PydanticUndefined or value in ([], {}):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{list(value)}`" if isinstance(value, list | tuple) else f"`{value}`"


def test_the_table_of_keys_is_that_of_the_code() -> None:
    text = DOCS.read_text(encoding="utf-8")
    start = text.index("| key |", text.index(HEADING))
    if os.environ.get("HVD_ELASTIC_UPDATE_GOLDEN"):
        text = text[:start] + table()
        DOCS.write_text(text, encoding="utf-8")
    assert text[start:] == table()


def fields_and_keys() -> dict[str, str]:
    """Each field of the table of what people know from Kubernetes, and what stands beside it."""
    text = DOCS.read_text(encoding="utf-8")
    rows = text[text.index("| field | key |") : text.index("### Allowed sizes")].splitlines()[2:]
    cells = [row.strip("| ").split(" | ") for row in rows if row]
    return {field: answer for fields, answer in cells for field in re.findall(r"`(\w+)`", fields)}


def test_every_field_of_a_pod_is_in_the_table() -> None:
    known = {*published()["PodSpec"]["properties"], *published()["Container"]["properties"]} - {"name"}
    assert known - set(fields_and_keys()) == set()


def test_the_table_says_what_is_taken_and_what_is_refused() -> None:
    table = fields_and_keys()
    assert {word for answer in table.values() for word in re.findall(r"`([\w.]+)`", answer)} - set(KEYS) == {
        "valueFrom",
        "privileged",
    }
    never = {*refused_fields(), *refused_container_fields()}
    for field in {*published()["PodSpec"]["properties"], *published()["Container"]["properties"]} - {"name"}:
        assert not (field in never and "workers.pod" in table[field]), field
        assert not (field not in never and table[field].startswith("none")), field


@pytest.mark.parametrize("field", sorted(set(fields_and_keys()) - set(KEYS)))
def test_whoever_types_a_field_is_told_what_the_table_says(field: str) -> None:
    answer = fields_and_keys()[field]
    ((_, message),) = refused(**{field: "x"}).items()
    named = re.search(r"did you mean ([\w.]+\w)", message)
    if answer.startswith("none"):
        assert "no job may set it" in message
    elif field in published()["PodSpec"]["properties"] or named:
        assert named is not None, message
        assert f"`{named[1]}`" in answer


def test_the_first_example_is_that_of_the_repository() -> None:
    block = re.search(r"```yaml\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    example = next(example for example in EXAMPLES if example.name == "eks-spot")
    assert read_job(block[1]).as_json() == example.spec().as_json()


def test_the_python_example_runs(capsys: object) -> None:
    block = re.search(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    exec(compile(block[1], str(DOCS), "exec"), {})
