"""A wait of hours at an API server that fails now and then: what passes by itself, and when it is tried again."""

import logging
import time
from collections.abc import Callable
from typing import Final, TypeVar

from hvd_elastic.client.connection.cluster_errors import (
    ClusterError,
    CredentialsError,
    ForbiddenError,
    RefusedError,
    UnreachableError,
)
from hvd_elastic.system.backoff import Backoff

log = logging.getLogger(__name__)

_T = TypeVar("_T")

BACKOFF: Final = Backoff(first_seconds=0.5, most_seconds=5.0)
MOST_RETRY_AFTER_SECONDS: Final = 30.0
"""The API server asks for a second or some. What stands before it may ask for an hour."""
TELL_SECONDS: Final = 5.0
"""What is over sooner is not worth a line."""
REFUSED_SECONDS: Final = 60.0
"""How long a refusal of what was granted before may last. An API server that starts answers 401 and 403 until it has
loaded its keys and roles (kubernetes/kubernetes#121635, #101422)."""


class LongWait:
    """One wait: whoever waits looks through it again and again. One thread.

    A look is tried again for as long as it takes if the API server is not reached, asks for time (429, with
    Retry-After), or fails (5xx). Refused credentials (401), which the verb's first request has shown to be good, and
    a right (403) with which this wait has had an answer before, are tried again for REFUSED_SECONDS.
    """

    def __init__(
        self,
        *,
        say: Callable[[str], None] = log.warning,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`say` is told of a fault that lasts, and of its end."""
        self._say, self._sleep, self._clock = say, sleep, clock
        self._was_answered = False
        self._failures = 0
        """In a row."""
        self._since = 0.0
        """When the first of them was."""
        self._refused_since: float | None = None
        """When the first refusal in a row was; None: the last fault was of another kind. A server that was away for
        long may refuse as it starts."""
        self._has_told = False

    def look(self, question: Callable[[], _T], *, until: float | None = None) -> _T:
        """The answer to a question that may be asked twice, at `until` at the latest (of the clock; None: no limit).

        Raises ClusterError if it does not pass by itself, or it is `until`.
        """
        while True:
            try:
                answer = question()
            except ClusterError as error:
                seconds = self.failed(error)
                left = None if until is None else until - self._clock()
                if left is not None and left <= 0:
                    raise
                self._sleep(seconds if left is None else min(seconds, left))
                continue
            self.answered()
            return answer

    def answered(self) -> None:
        """The API server has answered."""
        if self._has_told:
            self._say("the API server answers again")
        self._was_answered, self._failures, self._has_told, self._refused_since = True, 0, False, None

    def failed(self, error: ClusterError) -> float:
        """Seconds until the next try. Raises the error if it does not pass by itself."""
        now = self._clock()
        if not self._failures:
            self._since = now
        if not isinstance(error, CredentialsError | ForbiddenError):
            self._refused_since = None
        elif self._refused_since is None:
            self._refused_since = now
        if not self._passes(error, now):
            raise error
        self._failures += 1
        if now - self._since >= TELL_SECONDS and not self._has_told:
            self._has_told = True
            self._say(f"{error}: trying again")
        after = error.retry_after_seconds if isinstance(error, RefusedError) else 0.0
        return min(after, MOST_RETRY_AFTER_SECONDS) + BACKOFF.with_jitter(self._failures, least=0.5)

    def _passes(self, error: ClusterError, now: float) -> bool:
        if self._refused_since is not None:
            # Who has no right to ask this learns it at once.
            was_granted = self._was_answered or isinstance(error, CredentialsError)
            return was_granted and now - self._refused_since < REFUSED_SECONDS
        return isinstance(error, UnreachableError) or (isinstance(error, RefusedError) and error.is_passing)
