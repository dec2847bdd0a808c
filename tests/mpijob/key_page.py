"""docs/keys.md: every key of a job description, and what each kind of job takes. `make docs` has it written.

`python -m tests.mpijob.key_page FILE`
"""

import sys
from pathlib import Path
from typing import Any, Final

from pydantic_core import PydanticUndefined

from hvd_elastic.mpijob.description.keys import KEYS, Key
from hvd_elastic.mpijob.description.target import Target
from tests.mpijob.kinds_of_jobs import rows

HEAD: Final = """# All keys

Every key of a [job description](job.md). Each is a flag too: `workers.min` is `--workers-min`.

A duration is in seconds, or a whole number with `s`, `m`, `h` or `d`. A quantity is Kubernetes' own: `500m`, `32Gi`.
"""
KINDS: Final = """## What each kind of job takes

Keys that a [kind of job](job.md#other-kinds-of-jobs) cannot express are errors. All others mean the same in all three.
"""


def page() -> str:
    return "\n".join((HEAD, key_table(), KINDS, kind_table()))


def key_table() -> str:
    """Each key, its default, and the docstring under its field. Keys of which the same is said have one row."""
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


def kind_table() -> str:
    header = f"| key | {' | '.join(f'`{target}`' for target in Target)} |"
    return "\n".join((header, "| --- | --- | --- | --- |", *rows(), ""))


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
