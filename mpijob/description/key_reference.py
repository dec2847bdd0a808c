"""The table of all keys for docs/job.md."""

from typing import Any

from pydantic_core import PydanticUndefined

from hvd_elastic.mpijob.description.keys import KEYS, Key


def table() -> str:
    """A Markdown table: each key, its default, and the docstring under its field."""
    rows = [f"| `{key.path}` | {_default(key)} | {key.help.replace('|', '&#124;')} |" for key in KEYS.values()]
    return "\n".join(("| key | default | |", "| --- | --- | --- |", *rows, ""))


def _default(key: Key) -> str:
    info = key.model.model_fields[key.field]
    if info.is_required():
        return "required"
    if key.section is not None:
        return ""
    return _shown(info.get_default())


def _shown(value: Any) -> str:
    if value is None or value is PydanticUndefined or value in ([], {}):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{list(value)}`" if isinstance(value, list | tuple) else f"`{value}`"
