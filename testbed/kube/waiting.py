"""Waiting on a condition, never for a length of time."""

import time
from collections.abc import Callable
from typing import TypeVar

from testbed.kube.errors import DeadlineError

Answer = TypeVar("Answer")


def until(
    what: str,
    probe: Callable[[], Answer | None],
    *,
    within_seconds: float,
    every_seconds: float = 0.2,
    seen: Callable[[], str] = lambda: "",
) -> Answer:
    """Ask `probe` until it answers something true, and return that.

    Raises:
        DeadlineError: nothing true came within `within_seconds`; `seen` tells what there was instead.

    """
    deadline = time.monotonic() + within_seconds
    while not (answer := probe()):
        if time.monotonic() > deadline:
            raise DeadlineError(f"not within {within_seconds:g} s: {what}\n{seen()}".rstrip())
        time.sleep(every_seconds)
    return answer


def reached(probe: Callable[[], bool], within_seconds: float, *, every_seconds: float = 0.2) -> bool:
    """Whether it came to that in time."""
    try:
        return until("", probe, within_seconds=within_seconds, every_seconds=every_seconds)
    except DeadlineError:
        return False
