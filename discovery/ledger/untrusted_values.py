"""Reads single values of documents that anyone in the job's network may have written."""

import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from enum import EnumMeta
from typing import Any, Final

from hvd_elastic.system.plain_words import printable

END_OF_DATES: Final = 253_402_300_800.0
"""Unix seconds of the year 10000, the first that `datetime` does not know."""
_MAX_TEXT: Final = 4096
_COUNTS: Final = range(-(10**18), 10**18)
_TIMES: Final = frozenset({"unix", "began", "counts_since", "since", "stepped", "durable", "stall_since"})
"""Fields that are Unix seconds."""


def typed_fields(made: type[Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """Those of `document` that the dataclass `made` has, each of its field's type; texts without control characters.

    Raises TypeError or ValueError for a value that is of another type, or out of every range.
    """
    return {each.name: _typed(document[each.name], each) for each in fields(made) if each.name in document}


def _typed(value: object, field: Any) -> Any:
    kind = field.type
    if isinstance(kind, EnumMeta):
        return kind(value)
    found = None if value is None else _READERS[kind](value)
    if found is None and not (value is None and field.default is None):
        raise TypeError(f"{field.name} is not {kind}")
    if field.name in _TIMES and found is not None and not 0 <= found < END_OF_DATES:
        raise ValueError(f"{field.name} is no time")
    return found


def finite_number(value: object) -> float | None:
    """A finite number, or None. `True` is none, although Python counts it as one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def one_line(value: object, most: int) -> str | None:
    """The first `most` characters of a text, made `printable`; None if it is no text."""
    return printable(value[:most]) if isinstance(value, str) else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value in _COUNTS else None


def _truth(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _text(value: object) -> str | None:
    return one_line(value, _MAX_TEXT)


def _texts(value: object) -> tuple[str, ...] | None:
    texts = tuple(map(_text, value)) if isinstance(value, list | tuple) else (None,)
    return None if None in texts else tuple(filter(None, texts))


def _numbers(value: object) -> dict[str, float] | None:
    if not isinstance(value, dict):
        return None
    numbers = {str(_text(name)): finite_number(one) for name, one in value.items()}
    known = {name: one for name, one in numbers.items() if one is not None}
    return known if len(known) == len(numbers) else None


_READERS: Final[Mapping[Any, Callable[[object], Any]]] = {
    float: finite_number,
    float | None: finite_number,
    int: _whole,
    int | None: _whole,
    bool: _truth,
    bool | None: _truth,
    str: _text,
    tuple[str, ...]: _texts,
    dict[str, float]: _numbers,
    Mapping[str, float]: _numbers,
}
