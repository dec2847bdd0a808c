"""docs/job.md is true."""

import os
import re
from pathlib import Path
from typing import Any

from pydantic_core import PydanticUndefined

from hvd_elastic.mpijob.description.job_json import as_json
from hvd_elastic.mpijob.description.keys import KEYS, Key
from hvd_elastic.mpijob.job_reader import read_job
from tests.mpijob.examples import EXAMPLES

DOCS = Path(__file__).parents[2] / "docs" / "job.md"
HEADING = "## All keys\n"


def table() -> str:
    """Each key, its default, and the docstring under its field."""
    rows = [f"| `{key.path}` | {default_of(key)} | {key.help.replace('|', '&#124;')} |" for key in KEYS.values()]
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


def test_the_first_example_is_that_of_the_repository() -> None:
    block = re.search(r"```yaml\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    example = next(example for example in EXAMPLES if example.name == "eks-spot")
    assert as_json(read_job(block[1])) == as_json(example.spec())


def test_the_python_example_runs(capsys: object) -> None:
    block = re.search(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    exec(compile(block[1], str(DOCS), "exec"), {})
