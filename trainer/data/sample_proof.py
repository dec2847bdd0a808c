"""Examines the certificate of samples at the end of each epoch, while training goes on: for the log and `status`."""

import logging
import threading
from typing import Final

from hvd_elastic.system.background_threads import ErrorLog
from hvd_elastic.trainer.data.sample_certificate import Certificate, examine

logger = logging.getLogger(__name__)


class SampleProof:
    """What the certificate of this process last proved. `words` may be read from any thread."""

    def __init__(self) -> None:
        self.words = ""
        """Empty: nothing was examined."""
        self._lock = threading.Lock()
        self._next: Certificate | None = None
        self._examined = Certificate()
        self._thread: threading.Thread | None = None
        self._is_wrong = False
        self._errors = ErrorLog(logger)

    def begin(self, certificate: Certificate) -> None:
        """Examine a certificate in the background. It takes some 50 ms for a million samples of its new epochs.

        What was found of earlier ones is noted in it, and so in the next commit.
        Of those that come while another is examined the newest is next. It says what the others would have said.
        """
        with self._lock:
            certificate.learn(self._examined)
            self._next = certificate.copy()
            # One that a fork has left behind is there and not alive.
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._examine_all, name="sample-proof", daemon=True)
                self._thread.start()

    def wait(self, seconds: float | None = None) -> None:
        """Until all that was begun is examined, for at most so many seconds."""
        thread = self._thread
        if thread is not None:
            thread.join(seconds)

    def _examine_all(self) -> None:
        while (certificate := self._take()) is not None:
            try:
                self._examine(certificate)
            except Exception as error:  # noqa: BLE001 - what was proved before says nothing of this certificate
                self.words = f"not examined: {type(error).__name__}"
                self._errors.say("a certificate of samples was not examined", error)

    def _take(self) -> Certificate | None:
        with self._lock:
            taken, self._next = self._next, None
            if taken is None:
                self._thread = None
            return taken

    def _examine(self, certificate: Certificate) -> None:
        finding = examine(certificate)
        self._examined = certificate
        self.words = finding.words if finding.holds else f"WRONG: {finding.words}"
        if not finding.holds and not self._is_wrong:
            logger.warning("the certificate of samples does not hold: %s", finding.words)
        self._is_wrong = not finding.holds


THIS_PROCESS: Final = SampleProof()
"""A State begins it and the figures of `elastic.run` tell it: a script makes each of them without the other."""


def words_of_this_process() -> str:
    """What was last proved; empty on a worker that is not rank 0."""
    return THIS_PROCESS.words
