"""Entries on their way into the ledger: they wait for others, for a preemptor's name, and for the API server."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from hvd_elastic.discovery.kube.api_server import ApiError, ApiServer
from hvd_elastic.discovery.ledger.entries import Departure, Entry, WorkerLeaving
from hvd_elastic.discovery.sidecar.record.ledger_store import LedgerRefusedError, LedgerStore, LedgerTakenOverError
from hvd_elastic.discovery.sidecar.record.preemptor_lookup import PreemptorLookup
from hvd_elastic.discovery.sidecar.sidecar_options import SidecarOptions
from hvd_elastic.system.plain_words import count_words

log = logging.getLogger(__name__)

BATCH_SECONDS: Final = 1.0
"""Entries wait so long for others, and are written together."""
BYTES_PER_SECOND: Final = 64 * 1024
"""Each write sends the whole text, and etcd keeps each for minutes: a long ledger is written less often."""
RETRY_SECONDS: Final = 5.0
CHECK_SECONDS: Final = 30.0
"""Between two looks at whether the ConfigMap is still there, and as it was written."""
PREEMPTOR_SECONDS: Final = 5.0
"""At most, for the Event that names a preemptor; it comes a moment after the deletion."""
MAX_NAMED: Final = 10
"""Preemptors that are asked for in a turn."""


class LedgerWriter:
    """Keeps their order. Not thread-safe. Its methods raise LedgerTakenOverError."""

    def __init__(
        self,
        server: ApiServer,
        options: SidecarOptions,
        *,
        is_launcher: Callable[[str], bool],
        on_written: Callable[[Sequence[Entry]], None],
        on_trouble: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        """`is_launcher` and `on_trouble`: as LedgerStore has them. `on_written` gets entries that stand in the ledger,
        or in memory only. `clock` must not jump.
        """
        self._on_trouble = on_trouble
        self._store = LedgerStore(
            server, options.place, launcher_uid=options.pod_uid, is_launcher=is_launcher, on_trouble=self._complain
        )
        self._preemptors = PreemptorLookup(server, options.place, clock=clock)
        self._on_written, self._clock = on_written, clock
        self._pending: list[Entry] = []
        self._unnamed: dict[str, float] = {}
        """UIDs of workers whose preemptor is looked for, and until when."""
        self._complaint = ""
        """What was said last of a ledger that cannot be written."""
        self._next_write = self._next_check = 0.0

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All, those included that are not written yet."""
        return (*self._store.ledger.entries, *self._pending)

    @property
    def written(self) -> tuple[Entry, ...]:
        """Those that wait for nothing: in the ConfigMap, or in memory only where it cannot be written."""
        return self._store.ledger.entries

    def read(self, job_uid: str) -> bool:
        """Begin with the ledger of this MPIJob; return whether it is known what it has."""
        self._next_check = self._clock() + CHECK_SECONDS
        return self._attempt(lambda: self._store.read(job_uid), "the ledger cannot be read yet")

    def job_is_gone(self) -> None:
        """Make no ledger for it any more."""
        self._store.has_job = False

    def add(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if not self._pending:
                self._next_write = self._clock() + BATCH_SECONDS + len(self._store.ledger.text) / BYTES_PER_SECOND
            self._pending.append(entry)
            if isinstance(entry, WorkerLeaving) and entry.why is Departure.PREEMPTED and not (entry.detail or entry.by):
                self._unnamed[entry.uid] = self._clock() + PREEMPTOR_SECONDS

    def write_if_due(self) -> None:
        """Write what is pending, unless it waits for others, for a name or for the API server."""
        moment = self._clock()
        self._name_preemptors(moment)
        if self._pending and not self._unnamed and moment >= self._next_write:
            self._next_write = moment + RETRY_SECONDS
            self._write()
        elif moment >= self._next_check and (self._store.was_found or not self._pending):
            self._next_check = moment + CHECK_SECONDS
            self._attempt(self._store.check, "the ledger cannot be looked at")

    def conclude(self) -> None:
        self._name_preemptors(self._clock() + PREEMPTOR_SECONDS)
        self._write()

    def _name_preemptors(self, moment: float) -> None:
        """Entries keep their order, so all wait while a preemptor may still be named."""
        for number, (uid, until) in enumerate(list(self._unnamed.items())):
            found = self._find_preemptor(uid) if number < MAX_NAMED else ""
            if found or max(moment, self._preemptors.next_try) >= until:
                del self._unnamed[uid]
                self._pending = [_preempted_by(entry, uid, found) for entry in self._pending]

    def _find_preemptor(self, uid: str) -> str:
        try:
            return self._preemptors.find(uid)
        except ApiError:
            return ""

    def _write(self) -> None:
        if self._attempt(lambda: self._store.append(self._pending), f"{count_words(len(self._pending), 'entry')} wait"):
            self._on_written(self._pending)
            self._pending = []

    def _attempt(self, request: Callable[[], None], otherwise: str) -> bool:
        """Return whether the ledger has what is pending, be it in memory only: an API server that refuses to keep it
        is not waited for.
        """
        try:
            request()
        except LedgerTakenOverError:
            raise
        except LedgerRefusedError as error:
            self._complain(
                f"the ledger, ConfigMap {self._store.name}, cannot be kept, and lives in memory only ({error}); "
                "`hvd-elastic submit` with the job's description makes it, and the right to it, again"
            )
        except ApiError as error:
            log.info("%s: %s", otherwise, error)
            return False
        else:
            if self._complaint:
                log.info("the ledger, ConfigMap %s, is kept again", self._store.name)
            self._complaint = ""
        return True

    def _complain(self, sentence: str) -> None:
        """Once for as long as the same is wrong. The ledger of a job that is gone goes with it."""
        if sentence != self._complaint and self._store.has_job:
            self._complaint = sentence
            log.warning("%s", sentence)
            self._on_trouble(sentence)


def _preempted_by(entry: Entry, uid: str, found: str) -> Entry:
    return replace(entry, by=found) if isinstance(entry, WorkerLeaving) and entry.uid == uid else entry
