"""Opens the durable tier beside training: the workers hold the state, so nothing waits for a store that is away."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from hvd_elastic.stores.retry import StoppedError
from hvd_elastic.system.backoff import Backoff
from hvd_elastic.trainer.checkpoint import Checkpoints, CheckpointUrlError, FencedError, PrefixOwnedError
from hvd_elastic.trainer.checkpoint.errors import CheckpointError

logger = logging.getLogger(__name__)

BACKOFF: Final = Backoff(first_seconds=1.0, most_seconds=30.0)
"""Between two attempts, each of which retries its own requests (`stores.retry`)."""


class TierOpening:
    """Attempts to open the durable tier, in a thread, until one succeeds or the opening is given up."""

    def __init__(
        self,
        open_tier: Callable[[threading.Event], Checkpoints],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Set up the opening; `start` begins it.

        Args:
            open_tier: one attempt, which blocks and ends early once the event is set (`open_checkpoints`).
            clock: monotonic seconds, for the log.
        """
        self._open_tier, self._clock = open_tier, clock
        self._given_up = threading.Event()
        self._lock = threading.Lock()
        self._opened: Checkpoints | None = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="checkpoint-open", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait(self, timeout_seconds: float) -> None:
        """Wait until the tier is open, or will not be."""
        self._thread.join(max(0.0, timeout_seconds))

    def take(self) -> Checkpoints | None:
        """Return the open tier, once; None before that.

        Raises:
            CheckpointError: it will not be open: this process is not, or no longer, the one to write there.
        """
        with self._lock:
            if self._error is not None:
                raise self._error
            opened, self._opened = self._opened, None
            return opened

    def give_up(self) -> None:
        """End the attempts. Another process may be about to open the tier, so this one must not claim it after that."""
        self._given_up.set()
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.close(timeout_seconds=0)

    def _run(self) -> None:
        began, failures = self._clock(), 0
        while not self._given_up.is_set():
            try:
                opened = self._open_tier(self._given_up)
            except StoppedError:
                return
            except (FencedError, PrefixOwnedError, CheckpointUrlError) as error:
                self._end(error=error)
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, training goes on and the next attempt follows
                failures += 1
                if failures == 1:
                    _warn(error)
                self._given_up.wait(BACKOFF.with_jitter(failures, least=0.5))
            else:
                if failures:
                    logger.warning("the durable tier is open, %.0f s late: commits are stored", self._clock() - began)
                self._end(opened=opened)
                return

    def _end(self, *, opened: Checkpoints | None = None, error: Exception | None = None) -> None:
        with self._lock:
            if not self._given_up.is_set():
                self._opened, self._error = opened, error
                return
        if opened is not None:
            opened.close(timeout_seconds=0)


def _warn(error: Exception) -> None:
    logger.warning(
        "the durable tier cannot be opened, training continues without it and tries again until it can: %s",
        error,
        exc_info=not isinstance(error, CheckpointError),
    )
