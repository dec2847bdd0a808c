"""No regular expression takes quadratic or exponential time, whatever a stranger writes.

The one test of time in this repository. Patterns that pydantic matches (`Field(pattern=...)`) are not among these: its
engine does not go back.
"""

import re
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final

import pytest

from tests.hvd_elastic.hostile_text import HostileText, hostile_texts
from tests.hvd_elastic.patterns_in_code import FoundPattern, patterns

TIMES: Final = 400
LARGER: Final = 8
MOST_GROWTH: Final = 3 * LARGER
"""Of the time, with LARGER times the text: 8 if it is linear, 64 if it is quadratic."""
NOTICED_SECONDS: Final = 0.002
"""What takes less is linear: with 3,200 repetitions a quadratic one takes 5,000,000 steps."""
LIMIT_SECONDS: Final = 0.5
TRIES: Final = 5

Pattern = re.Pattern[str] | re.Pattern[bytes]


class TooLongError(Exception):
    pass


@cache
def found_patterns() -> list[FoundPattern]:
    """Of the whole product. Only the process that needs them looks for them: it takes seconds."""
    return sorted(patterns(), key=str)


@contextmanager
def limited() -> Iterator[None]:
    """Ends what takes more than LIMIT_SECONDS of this process' CPU time: an exponential one would never end."""

    def end(*_: object) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def calling(pattern: Pattern, method: str, text: str) -> Callable[[], object]:
    given = text if isinstance(pattern.pattern, str) else text.encode("latin-1")
    called = getattr(pattern, method)
    if method in ("sub", "subn"):
        return lambda: called(given[:0], given)
    if method == "finditer":
        return lambda: deque(called(given), maxlen=0)  # a list of all would have Python look for garbage
    return lambda: called(given)


def seconds(call: Callable[[], object]) -> float:
    """Of this thread's CPU time: other work on the machine does not count."""
    begin = time.thread_time()
    call()
    return time.thread_time() - begin


def grows_too_fast(pattern: Pattern, method: str, hostile: HostileText) -> bool:
    """Whether LARGER times the text takes more than MOST_GROWTH times the time, in each of some tries."""
    short, long = (calling(pattern, method, hostile.text(times)) for times in (TIMES, TIMES * LARGER))
    try:
        with limited():
            if seconds(long) < NOTICED_SECONDS:
                return False
    except TooLongError:
        return True
    for _ in range(TRIES):
        before = min(seconds(short) for _ in range(TRIES))
        if seconds(long) <= max(MOST_GROWTH * before, NOTICED_SECONDS):
            return False
    return True


def slow_text(pattern: Pattern, method: str) -> HostileText | None:
    """The first that takes too long."""
    return next((hostile for hostile in hostile_texts(pattern) if grows_too_fast(pattern, method, hostile)), None)


@pytest.mark.thorough
def test_time_grows_with_the_length_of_a_text_and_not_faster() -> None:
    slow = {found: text for found in found_patterns() if (text := slow_text(found.pattern, found.method))}
    assert not slow


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("source", "method"),
    [
        (r"(?:\d+(?:\.\d+)?[smhd]?)+", "fullmatch"),
        (r"\{\{-?\s*(?:[^{}\n]*[\s(])?(?:[.$]*\.(?:Values|Release)\b)", "search"),
        (r"(kubectl|curl|wget)[^|]*\|[^|]", "search"),
        (r"\btimeout\b|\bcurl\b.*\s-m\s", "search"),
        (r"\bset\s+[-\w ]*\bpipefail\b", "search"),
        (r"[+-]?(?:\d+\.?\d*|\.\d+)(?:n|u|m)?", "fullmatch"),
        (r"[;&|\n<>]*[<>][;&|\n<>]*", "fullmatch"),
        (r"\[.*operations\.cc:\d+\].* Horovod background loop uncaught exception: .*", "fullmatch"),
        (r"\bUsing network (.+?)\s*$", "search"),
        (r"\s+\d{4}-\d\d-\d\d$", "sub"),
        (r"(a|a)*b", "fullmatch"),
        (r"(?>\s+)x", "search"),
    ],
)
def test_what_is_quadratic_or_exponential_is_found(source: str, method: str) -> None:
    assert slow_text(re.compile(source), method)
    if not source.startswith("(?>"):
        assert slow_text(re.compile(source.encode()), method)


def test_the_patterns_are_found_in_the_syntax_trees() -> None:
    inline = [found for found in found_patterns() if found.pattern.pattern == r"[.\[\]]"]
    assert [(found.where.partition(":")[0], found.method) for found in inline] == [
        ("hvd_elastic.mpijob.lint.lint_input", "split")
    ]
    assert len(found_patterns()) > 100
