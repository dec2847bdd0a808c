"""Retries of requests to a store."""

from collections.abc import Callable
from typing import Final, TypeVar

from hvd_elastic.stores.errors import StoreError
from hvd_elastic.system.backoff import Backoff

T = TypeVar("T")

BACKOFF: Final = Backoff(first_seconds=0.2, most_seconds=10.0)
"""With full jitter: jobs that were throttled together do not retry together."""


class TransientError(StoreError):
    """A failure that may be gone at the next attempt: throttling, a broken connection, a time-out."""


class StoppedError(StoreError):
    """The tier is being closed: work in progress is given up."""


def call_with_retries(action: Callable[[], T], *, attempts: int, sleep: Callable[[float], object]) -> T:
    """Return the result of `action`, called again after each TransientError.

    Args:
        action: the request.
        attempts: most calls of `action`. The TransientError of the last call is raised.
        sleep: waits for a number of seconds.
    """
    for failures in range(1, attempts):
        try:
            return action()
        except TransientError:
            sleep(BACKOFF.with_jitter(failures))
    return action()
