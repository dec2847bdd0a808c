"""Times of a day as people write and read them."""

import math
import re
from typing import Final

_UNITS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")
_WHOLE: Final = re.compile(r"(?:\d++(?:\.\d+)?[smhd]?)++")


def seconds_of(text: str) -> float:
    """`90`, `1.5h` or `1h30m` in seconds. Raises ValueError."""
    parts = _PART.findall(text) if _WHOLE.fullmatch(text) else [("inf", "")]
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if math.isinf(seconds):  # so is a number of 400 digits
        raise ValueError("is not a time: write seconds, or numbers with s, m, h or d: 90, 2h, 1h30m")
    return seconds


def clock_time(second: float) -> str:
    """`H:MM:SS` of the day; hours go on after 24."""
    whole = round(second)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
