"""Reads what anyone in the cluster may have written: JSON documents, and single values of them.

Annotations, ledgers and ConfigMaps come from tenants, reports from the job's network. A reader raises ValueError or
TypeError, or returns None, and never works longer than the text is long.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from enum import EnumMeta
from types import NoneType
from typing import Any, Final, get_args

from hvd_elastic.system.plain_words import printable

END_OF_DATES: Final = 253_402_128_000.0
"""Unix seconds, two days before the year 10000, which `datetime` does not know: it looks a day ahead in local time."""
MOST_CHARACTERS: Final = 1 << 20
"""Of a document. The API server keeps 256 KiB of annotations, and 1 MiB in a ConfigMap."""
UNREADABLE: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What it raises to take a value for what it is not."""
_DEEPEST: Final = 32
"""Collections within each other: no document of ours has twenty."""
_BRACKETS: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)
"""Brackets, and texts, within which they mean nothing."""
_DECIMAL: Final = re.compile(r"[0-9]{1,9}")
_MAX_TEXT: Final = 4096
_COUNTS: Final = range(-(10**18), 10**18)
_MOST_SECONDS: Final = 1e16
"""Of a sum: a million GPUs in three hundred years."""
_TIMES: Final = frozenset({"unix", "began", "counts_since", "since", "stepped", "durable", "stall_since"})
"""Fields that are Unix seconds."""


def json_object(text: object) -> dict[str, Any]:
    """The JSON object that a text is. Raises ValueError if it is none, is too long or too deep, or has a number that
    is not finite.
    """
    if not isinstance(text, str) or len(text) > MOST_CHARACTERS:
        raise ValueError("is not a text, or is too long")
    if _is_too_deep(text):
        raise ValueError(f"is nested deeper than {_DEEPEST} levels")
    document = _PLAIN_JSON.decode(text)
    if not isinstance(document, dict):
        raise ValueError("is not a JSON object")  # noqa: TRY004 - as for all else that is not one
    return document


def decimal_count(text: object) -> int | None:
    """The number that a text of decimal digits is, nine at most; else None."""
    return int(text) if isinstance(text, str) and _DECIMAL.fullmatch(text) else None


def _is_too_deep(text: str) -> bool:
    """Whether collections are nested deeper than _DEEPEST. Most texts have fewer of them altogether."""
    if text.count("[") + text.count("{") <= _DEEPEST:
        return False
    depth = 0
    for match in _BRACKETS.finditer(text):
        depth += (match[0] in "[{") - (match[0] in "]}")
        if depth > _DEEPEST:
            return True
    return False


def _finite(text: str) -> float:
    """A number as JSON writes it, or one of the words that Python's JSON has beyond."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is not a finite number")
    return number


_PLAIN_JSON: Final = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)


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
    if found is None and not (value is None and NoneType in get_args(kind)):
        raise TypeError(f"{field.name} is not {kind}")
    if field.name in _TIMES and found is not None and not 0 <= found < END_OF_DATES:
        raise ValueError(f"{field.name} is no time")
    if field.name.endswith("seconds"):
        sums = found.values() if isinstance(found, dict) else (found or 0.0,)
        if any(abs(one) > _MOST_SECONDS for one in sums):
            raise ValueError(f"{field.name} is longer than anything lasts")
    return found


def finite_number(value: object, *, least: float = -math.inf, below: float = math.inf) -> float | None:
    """A finite number within these bounds, or None. `True` is none, although Python counts it as one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and least <= number < below else None


def whole_number(value: object, among: range = _COUNTS) -> int | None:
    """A whole number among these, by default those of eighteen digits at most, or None. `True` is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value in among else None


def text(value: object) -> str:
    """A text as it is. Raises TypeError for anything else, a list that cannot be a key among them."""
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} in place of a text")
    return value


def one_line(value: object, most: int) -> str | None:
    """The first `most` characters of a text, made `printable`; None if it is no text."""
    return printable(value[:most]) if isinstance(value, str) else None


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
    int: whole_number,
    int | None: whole_number,
    bool: _truth,
    bool | None: _truth,
    str: _text,
    tuple[str, ...]: _texts,
    dict[str, float]: _numbers,
    Mapping[str, float]: _numbers,
}
