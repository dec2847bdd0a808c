"""JSON that every parser reads, of whatever a script has logged."""

import json
import math
from collections.abc import Mapping
from typing import Any


def strict_json(values: Mapping[str, object], **options: Any) -> str:
    """Return `json.dumps` of values of any kind, as RFC 8259 has it.

    A tensor or numpy value of one element is its number, a number that is not finite is null, and what JSON has no word
    for is a text. `options` are those of `json.dumps`.
    """
    return json.dumps(_plain(values), allow_nan=False, **options)


def single_value(value: Any) -> Any:
    """Return the element of a tensor or array that has just one, and anything else as it is."""
    try:
        return value.item() if callable(getattr(value, "item", None)) else value
    except Exception:  # noqa: BLE001 - each library has its own for more than one element, and for none
        return value


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    single = single_value(value)
    if isinstance(single, float):
        return single if math.isfinite(single) else None
    return single if single is None or isinstance(single, str | int) else str(value)
