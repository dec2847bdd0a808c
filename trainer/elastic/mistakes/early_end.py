"""A rank that has left its training function, while others wait for it in theirs: an error of the script.

Whoever has left says so at the launcher's store, again and again. Whoever waits in training looks there: a value that
changes comes from a process that lives, and will not take part in what this one waits for. Nothing depends on a clock
that two processes share, and a process that is still computing, for however long, is left alone.
"""

import contextlib
import logging
import threading
from collections.abc import Iterator
from typing import Final

from hvd_elastic.mpijob.contract import ENDED_SCOPE
from hvd_elastic.system.background_threads import start_thread
from hvd_elastic.trainer.elastic.world import rendezvous_client

logger = logging.getLogger(__name__)

_SAY_SECONDS: Final = 1.0
_KEY: Final = "any"
"""One rank that has left is enough to know, whichever says so last."""
_FIELDS: Final = 3


class EarlyEnd:
    """What one process says of itself, and what it finds of others."""

    def __init__(self) -> None:
        self._spell = -1
        self._last: str | None = None

    @contextlib.contextmanager
    def ended(self, rank: int, step: int) -> Iterator[None]:
        """Say for the duration of the block that this process has left its training function."""
        over = threading.Event()

        def say() -> None:
            count = 0
            while True:
                rendezvous_client.publish(ENDED_SCOPE, _KEY, f"{rank} {step} {count}")
                count += 1
                if over.wait(_SAY_SECONDS):
                    return

        if rendezvous_client.launched():
            start_thread("ended", say, log=logger, stopped=over)
        try:
            yield
        finally:
            over.set()

    def find(self, spell: int) -> str | None:
        """Who has left its training function, while this process waits; None: nobody is known to.

        Args:
            spell: a number of this wait. What was said before it does not count, so at least two calls are needed.
        """
        said = rendezvous_client.published(ENDED_SCOPE, _KEY) if rendezvous_client.launched() else None
        before, self._last = self._last if spell == self._spell else None, said
        self._spell = spell
        if said is None or before is None or said == before:
            return None
        words = said.split()
        if len(words) != _FIELDS or not all(word.lstrip("-").isdecimal() for word in words):
            return None
        rank, step, _ = words
        return f"rank {rank} has left its training function after step {step}"


THIS_PROCESS: Final = EarlyEnd()
"""A process is in one world."""
