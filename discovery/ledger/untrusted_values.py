"""Reads single values of documents that anyone in the job's network may have written."""

import math


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
    """The first `most` characters of a text, without what a terminal would not show as it is; None if it is no text."""
    return "".join(each for each in value[:most] if each.isprintable()) if isinstance(value, str) else None
