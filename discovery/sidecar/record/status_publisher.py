"""Tells people of the job on its MPIJob: the live status as an annotation, and Events for what has changed."""

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

from hvd_elastic.discovery.kube.api_server import ApiError, ApiServer, ApiStatusError
from hvd_elastic.discovery.ledger.entries import Entry, WorldChanged
from hvd_elastic.discovery.ledger.history.job_history import JobHistory
from hvd_elastic.discovery.ledger.history.stall_history import StallHistory
from hvd_elastic.discovery.ledger.job_news import JobNews, News, SaveNews
from hvd_elastic.discovery.ledger.live_status import Activity, LiveStatus
from hvd_elastic.discovery.ledger.present_status import PresentStatus, activity
from hvd_elastic.discovery.rules.operator_lag import OperatorLag
from hvd_elastic.discovery.sidecar.sidecar_options import SidecarOptions
from hvd_elastic.mpijob.contract import ANNOTATION_STATUS
from hvd_elastic.system.backoff import jitter

log = logging.getLogger(__name__)

STATUS_SECONDS: Final = 30.0
"""Between two statuses while nothing changes."""
JITTER: Final = 0.2
"""Of it: a thousand jobs that began together shall not write together."""
GAP_SECONDS: Final = 2.0
"""At least, between two."""
RETRY_SECONDS: Final = 5.0
UNSEEN_SECONDS: Final = 60.0
"""For so long after the last one a status is only written onto the MPIJob as it was seen: a change of it that was not
seen yet gives the operator work, which a write would disturb. Later it is written all the same."""


class StatusPublisher:
    """Writes to one MPIJob. Not thread-safe. What cannot be written is said once, and is out of date soon anyway."""

    def __init__(self, server: ApiServer, options: SidecarOptions, *, random: Callable[[], float] = jitter) -> None:
        """`random` gives the jitter: 0 to 1."""
        self._server, self._place, self._random = server, options.place, random
        self._job_uid = ""
        self._news = JobNews(min_workers=options.min_workers, max_workers=options.max_workers)
        self._status = PresentStatus(())
        self._told: tuple[Activity, tuple[str, ...], int, str, bool, str, Mapping[str, float]] | None = None
        """Activity, workers, wanted, the words of a stall, whether it has run, the words of a failed save, and the slow
        workers, as they were last written."""
        self._next_status = self._earliest = 0.0
        self._wrote = float("-inf")
        self._is_stalled = False
        self._said: set[str] = set()
        self._saves = SaveNews()
        self._at_once: list[News] = []
        """Events that wait for no others."""

    def last_told(self) -> LiveStatus | None:
        """What the MPIJob says by now, which an earlier sidecar has written. Raises ApiError."""
        if not self._place.may_be_patched:
            return None
        annotations = self._server.get(self._place.path)["metadata"].get("annotations") or {}
        return LiveStatus.from_json(annotations.get(ANNOTATION_STATUS) or "")

    def begin(self, job_uid: str, ledger: Sequence[Entry]) -> None:
        """Start from the ledger of an earlier sidecar."""
        self._job_uid = job_uid
        self._status = PresentStatus(ledger)
        worlds = (entry.workers for entry in reversed(ledger) if isinstance(entry, WorldChanged))
        self._news.begin(next(worlds, ()))

    def warn(self, sentence: str) -> None:
        """Tell of what is wrong with the ledger itself, as an Event of its own."""
        self._at_once.append(News(reason="LedgerLost", message=sentence, is_warning=True))

    def take(self, entries: Sequence[Entry]) -> None:
        self._news.take(entries)
        self._next_status = 0.0

    def publish(
        self,
        history: JobHistory,
        stall: StallHistory,
        entries: Sequence[Entry],
        now: float,
        moment: float,
        *,
        lag: OperatorLag,
        slow: Mapping[str, float],
    ) -> None:
        """Write what is due by `moment`, of a clock that does not jump.

        Args:
            history: of the job.
            stall: what its ranks say of their waits.
            entries: all of the ledger.
            now: Unix seconds.
            moment: seconds of that clock.
            lag: the operator's, by the same clock. The status waits where the operator must not be disturbed.
            slow: since when a worker's rank is slow, by pod.
        """
        doing = activity(history, ended=False, now=now)
        if doing is Activity.STALLED and not self._is_stalled:
            self._news.stall(now - (history.world.stepped or now))
        self._is_stalled = doing is Activity.STALLED
        figures = history.world.figures
        if figures and (told := self._saves.take(figures)):
            self._at_once.append(told)
        self._write_events(moment)
        failing = figures.save_error if figures else ""
        present = doing, history.world.world, history.wanted, stall.words, history.world.has_run, failing, slow
        is_due = moment >= self._earliest and (moment >= self._next_status or present != self._told)
        if is_due and not lag.holds_back(moment, wrote=self._wrote):
            version = history.job.version if history.job and moment - self._wrote < UNSEEN_SECONDS else ""
            self._write_status(self._status.status(history, entries, now, stall, slow), moment, version=version)
            self._told = present

    def conclude(self, history: JobHistory, entries: Sequence[Entry], now: float) -> None:
        self._write_status(self._status.status(history, entries, now), moment=0.0)
        self._write_events(float("inf"))

    def _write_events(self, moment: float) -> None:
        while self._at_once:
            self._write_event(self._at_once.pop(0))
        if news := self._news.due(moment):
            self._write_event(news)

    def _write_status(self, status: LiveStatus, moment: float, *, version: str = "") -> None:
        """`version`: of the MPIJob that is to be written onto; empty: whichever there is."""
        self._earliest = moment + GAP_SECONDS
        self._next_status = moment + STATUS_SECONDS * (1 + JITTER * (self._random() - 0.5))
        if not self._place.may_be_patched:
            return
        only = {"resourceVersion": version} if version else {}
        change = {"metadata": {**only, "annotations": {ANNOTATION_STATUS: status.to_json()}}}

        def write() -> None:
            try:
                self._server.patch(self._place.path, change)
                self._wrote = moment
            except ApiStatusError as error:
                if not version or error.status != HTTPStatus.CONFLICT:
                    raise
                self._next_status = self._earliest  # somebody has changed it: perhaps the operator has work now

        if not self._attempt("the MPIJob does not tell its status", write):
            self._next_status = self._earliest = moment + RETRY_SECONDS

    def _write_event(self, news: News) -> None:
        event = self._event(news, datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"))
        self._attempt(
            "the MPIJob has no Events of its own", lambda: self._server.create(f"{self._place.core}/events", event)
        )

    def _event(self, news: News, now: str) -> dict[str, Any]:
        """A core/v1 Event. `now`: RFC 3339."""
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{self._place.job}.", "namespace": self._place.namespace},
            "involvedObject": {**self._place.reference(self._job_uid), "namespace": self._place.namespace},
            "reason": news.reason,
            "message": news.message,
            "type": "Warning" if news.is_warning else "Normal",
            "source": {"component": "hvd-elastic-discovery"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }

    def _attempt(self, otherwise: str, request: Callable[[], object]) -> bool:
        try:
            request()
        except ApiError as error:
            if otherwise not in self._said:
                self._said.add(otherwise)
                log.info("%s: %s", otherwise, error)
            return False
        return True
