"""A read-only view of a value in a manifest and the path to it. Missing or mistyped values read as None."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias

from hvd_elastic.system import quantity

Path: TypeAlias = tuple[str | int, ...]
"""Keys and indexes from the document's root."""

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def json_path(path: Path) -> str:
    """The path as RFC 9535 writes it: `$.spec.containers[0].args[2]`, `$.metadata.labels['a.b/c']`."""
    return "$" + "".join(_step(key) for key in path)


def _step(key: str | int) -> str:
    if isinstance(key, int):
        return f"[{key}]"
    if _PLAIN_KEY.fullmatch(key):
        return f".{key}"
    escaped = key.replace("\\", "\\\\").replace("'", "\\'")
    return f"['{escaped}']"


@dataclass(frozen=True, slots=True)
class ManifestView:
    """Reading never raises: a hand-written manifest can hold anything anywhere, and the schema rules report that."""

    value: object
    path: Path = ()

    def get(self, *keys: str) -> "ManifestView":
        """The view of the value below `keys`; its value is None if a key is missing."""
        value = self.value
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return ManifestView(value, self.path + keys)

    def items(self) -> Iterator["ManifestView"]:
        """The items of a list; none if this is not a list."""
        if isinstance(self.value, list):
            for index, value in enumerate(self.value):
                yield ManifestView(value, (*self.path, index))

    def pairs(self) -> Iterator[tuple[str, "ManifestView"]]:
        """The entries of a mapping; none if this is not a mapping."""
        if isinstance(self.value, dict):
            for key, value in self.value.items():
                yield key, ManifestView(value, (*self.path, key))

    def named(self, name: str) -> "ManifestView":
        """The list item whose field `name` equals `name`, else an empty view."""
        return next((item for item in self.items() if item.get("name").value == name), ManifestView(None, self.path))

    @property
    def exists(self) -> bool:
        """Whether there is a value other than null."""
        return self.value is not None

    @property
    def text(self) -> str | None:
        """The value, if it is text."""
        return self.value if isinstance(self.value, str) else None

    @property
    def number(self) -> int | None:
        """The value, if it is a whole number."""
        return self.value if isinstance(self.value, int) and not isinstance(self.value, bool) else None

    @property
    def amount(self) -> Decimal | None:
        """The value, if it is a Kubernetes quantity."""
        try:
            return quantity.parse(str(self.value)) if isinstance(self.value, str | int | float) else None
        except ValueError:
            return None
