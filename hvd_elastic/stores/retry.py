"""Retries of requests to a store: which failures may pass, and how long to wait before the next attempt."""

import os
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from hvd_elastic.stores.errors import MissingError, StoreError, StoreFullError
from hvd_elastic.system.backoff import Backoff

T = TypeVar("T")

BACKOFF: Final = Backoff(first_seconds=0.2, most_seconds=10.0)
"""With full jitter: jobs that were throttled together do not retry together."""
ATTEMPTS: Final = 8
"""Of a request to an object store: about half a minute."""
MOST_RETRY_AFTER_SECONDS: Final = 30.0
"""A store that asks for more is asked again before: a pod may have no more time than that."""

_TRANSIENT_STATUS: Final = frozenset({408, 409, 429, 500, 502, 503, 504})
_WRONG_CERTIFICATE: Final = ("CERTIFICATE_VERIFY_FAILED", "invalid peer certificate")
"""Of OpenSSL, and of obstore's rustls."""


class TransientError(StoreError):
    """A failure that may be gone at the next attempt: throttling, a broken connection, a time-out."""

    def __init__(self, text: str, *, retry_after_seconds: float = 0.0) -> None:
        """`retry_after_seconds`: the store asks not to be asked before."""
        super().__init__(text)
        self.retry_after_seconds = retry_after_seconds


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
        except TransientError as error:
            asked = min(error.retry_after_seconds, MOST_RETRY_AFTER_SECONDS)
            sleep(asked + BACKOFF.with_jitter(failures))
    return action()


def refusal(
    what: str,
    status: int,
    reason: str,
    *,
    advice: Mapping[int, str],
    retry_after: str | None = None,
    full: bool = False,
    transient: bool = False,
    missing: bool = False,
) -> StoreError:
    """The error that an answer with this status is.

    Args:
        what: the request.
        status: of HTTP.
        reason: the store's code and words.
        advice: ways out, by status.
        retry_after: the header `Retry-After`; a date counts as none.
        full: the code means that the store is full.
        transient: the code means that another attempt may succeed.
        missing: the code means that the object is not there, or not so long.
    """
    text = f"{what}: {status} {reason}".rstrip()
    if full or status == 507:
        return StoreFullError(f"{text}: free space, raise the quota or lower `keep`")
    if transient or status in _TRANSIENT_STATUS:
        seconds = float(retry_after) if retry_after and retry_after.isdecimal() else 0.0
        return TransientError(text, retry_after_seconds=seconds)
    kind = MissingError if missing else StoreError
    return kind(f"{text}: {advice[status]}" if status in advice else text)


def no_credentials(what: str, error: Exception) -> StoreError:
    """The error that missing credentials are.

    A new pod may have some in a moment: GKE's metadata server answers only after some seconds ("Workload Identity
    Federation for GKE", limitations), and so does Azure's ("Azure Instance Metadata Service"). A person has none.
    """
    kind = TransientError if "KUBERNETES_SERVICE_HOST" in os.environ else StoreError
    return kind(f"{what}: no credentials: {error}")


def no_answer(what: str, error: Exception) -> StoreError:
    """The error that a broken connection, an unknown name or silence is. A wrong certificate stays so."""
    text = str(error)
    kind = StoreError if any(words in text for words in _WRONG_CERTIFICATE) else TransientError
    return kind(f"{what}: {text.partition(chr(10))[0]}")
