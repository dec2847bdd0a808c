"""Examines the certificate of samples at the end of each epoch, while training goes on: for the log and `status`."""

import logging
import threading
from typing import Final

from hvd_elastic.trainer.data.sample_certificate import Certificate, examine

logger = logging.getLogger(__name__)


class SampleProof:
    """What the certificate of this process last proved. `words` may be read from any thread."""

    def __init__(self) -> None:
        self.words = ""
        """Empty: nothing was examined."""
        self._thread: threading.Thread | None = None
        self._is_wrong = False

    def begin(self, certificate: Certificate) -> None:
        """Examine a certificate in the background. One that comes while another is examined is left to the next epoch:
        it takes some 50 ms for a million samples.
        """
        if self._thread is None or not self._thread.is_alive():
            own = certificate.copy()
            self._thread = threading.Thread(target=self._examine, args=(own,), name="sample-proof", daemon=True)
            self._thread.start()

    def wait(self) -> None:
        """Wait for what was begun."""
        if self._thread is not None:
            self._thread.join()

    def _examine(self, certificate: Certificate) -> None:
        finding = examine(certificate)
        self.words = finding.words if finding.holds else f"WRONG: {finding.words}"
        if not finding.holds and not self._is_wrong:
            logger.warning("the certificate of samples does not hold: %s", finding.words)
        self._is_wrong = not finding.holds


THIS_PROCESS: Final = SampleProof()


def words_of_this_process() -> str:
    """What was last proved; empty on a worker that is not rank 0."""
    return THIS_PROCESS.words
