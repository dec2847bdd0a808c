"""The message sizes of a benchmark: powers of two times the smallest."""

from collections.abc import Iterator

from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses.problem import Problem
from hvd_elastic.system.quantity import parse

ELEMENT_BYTES = 4
"""Of a float32."""
MOST_BYTES = 64 * 1024**3
"""More does not fit beside a model, and is a unit mistaken."""


def message_sizes(smallest: str, largest: str) -> tuple[int, ...]:
    """Bytes of each message, ascending: `smallest`, twice that, and so on, up to `largest` (`1Ki`, `1Gi`, `4096`).

    Raises InvalidInputError with every problem of the two.
    """
    problems: list[Problem] = []
    low = _bytes("--min-bytes", smallest, problems)
    high = _bytes("--max-bytes", largest, problems)
    if low and high and high < low:
        problems.append(_problem("--max-bytes", largest, f"is below --min-bytes {smallest}", "swap them"))
    if problems or low is None or high is None:
        raise InvalidInputError(problems)
    return tuple(_doubled(low, high))


def binary(size: int) -> str:
    """A number of bytes as people write it: `64Ki`. One that no unit divides stays a number."""
    for power, unit in ((3, "Gi"), (2, "Mi"), (1, "Ki")):
        if size % 1024**power == 0:
            return f"{size // 1024**power}{unit}"
    return str(size)


def _doubled(low: int, high: int) -> Iterator[int]:
    while low <= high:
        yield low
        low *= 2


def _bytes(flag: str, text: str, problems: list[Problem]) -> int | None:
    try:
        amount = parse(text)
    except ValueError as error:
        problems.append(_problem(flag, text, str(error), "write 4096, 64Ki, 16Mi or 1Gi"))
        return None
    if amount % ELEMENT_BYTES or not ELEMENT_BYTES <= amount <= MOST_BYTES:
        what = f"is not a multiple of {ELEMENT_BYTES} bytes up to {binary(MOST_BYTES)}: numbers are float32"
        problems.append(_problem(flag, text, what, "write 4096, 64Ki, 16Mi or 1Gi"))
        return None
    return int(amount)


def _problem(flag: str, value: str, what: str, way_out: str) -> Problem:
    return Problem(path=flag, value=value, what=what, way_out=way_out)
