"""Keeps the job's ledger, its live status and its Events, in a thread of its own with a connection of its own.

    watches, prober ──► queue ──► JobHistory ──► entries ──► LedgerStore (ConfigMap)
                                      ▲                  └─► StatusPublisher (the MPIJob's annotation and Events)
    rank 0's figures ─────────────────┘

Nothing here keeps training from going on. While the API server is away entries wait; a ledger that is missing is said
once; an error that nobody has foreseen ends the record, and not the sidecar.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import Final

from hvd_elastic.discovery.kube.api_server import ApiError, ApiServer
from hvd_elastic.discovery.kube.watch import Changed, Listed, Message
from hvd_elastic.discovery.ledger.entries import Departure, Entry, WorkerLeaving
from hvd_elastic.discovery.ledger.history.job_history import GONE, JobHistory
from hvd_elastic.discovery.ledger.history.stall_history import StallHistory
from hvd_elastic.discovery.ledger.launcher_view import LauncherView, ends_job
from hvd_elastic.discovery.rules.cluster_views import JobView, PodView
from hvd_elastic.discovery.rules.restart_budget import DEFAULT_BACKOFF_LIMIT
from hvd_elastic.discovery.sidecar.inbox import WatchBatch, WorkerAnswers
from hvd_elastic.discovery.sidecar.launcher.launcher_pods import LauncherPods, exit_code_of
from hvd_elastic.discovery.sidecar.record.ledger_store import LedgerMissingError, LedgerStore, LedgerTakenOverError
from hvd_elastic.discovery.sidecar.record.preemptor_lookup import PreemptorLookup
from hvd_elastic.discovery.sidecar.record.status_publisher import StatusPublisher
from hvd_elastic.discovery.sidecar.sidecar_options import SidecarOptions
from hvd_elastic.discovery.sidecar.workers.worker_report import WorkerReport

log = logging.getLogger(__name__)

TURN_SECONDS: Final = 0.5
BATCH_SECONDS: Final = 1.0
"""Entries wait so long for others, and are written together."""
BYTES_PER_SECOND: Final = 64 * 1024
"""Each write sends the whole text, and etcd keeps each for minutes: a long ledger is written less often."""
RETRY_SECONDS: Final = 5.0
NODES_SECONDS: Final = 5.0
"""At most, for the first list of nodes: a worker's binding is told with its machine."""
PREEMPTOR_SECONDS: Final = 5.0
"""At most, for the Event that names a preemptor; it comes a moment after the deletion."""
MAX_NAMED: Final = 10
"""Preemptors that are asked for in a turn."""
FIGURES_SECONDS: Final = 5.0
SOON_SECONDS: Final = 1.0
"""Between questions for rank 0's figures; the second while the world is about to change."""
WAITS_SECONDS: Final = 2.0
"""Between questions for the ranks' waits, while no step gets done."""
MAX_ASKED: Final = 8
"""Workers that are asked for figures at a time, where it is not known which is rank 0's; or for a process's end."""


class JobRecorder:
    """`run` blocks, so it needs a thread of its own; the other methods are safe from any thread."""

    def __init__(
        self,
        options: SidecarOptions,
        server: ApiServer,
        *,
        ask: Callable[[str], WorkerReport],
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`ask` asks the worker at an address. `wall` gives Unix seconds, and may jump; by `clock`, which may not, it
        is decided when to write.
        """
        self._options, self._ask, self._wall, self._clock = options, ask, wall, clock
        self._store = LedgerStore(server, options.place, launcher_uid=options.pod_uid)
        self._launchers = LauncherPods(server, options.place)
        self._preemptors = PreemptorLookup(server, options.place)
        self._status_publisher = StatusPublisher(
            server, options.place, min_workers=options.min_workers, max_workers=options.max_workers
        )
        self._history = JobHistory(
            min_workers=options.min_workers, max_workers=options.max_workers, slots=options.slots
        )
        self._stalls = StallHistory()
        self._queue: SimpleQueue[WatchBatch | WorkerAnswers] = SimpleQueue()
        self._pending: list[Entry] = []
        self._unnamed: dict[str, float] = {}
        """UIDs of workers whose preemptor is looked for, and until when, by the clock."""
        self._stopping = threading.Event()
        self._has_begun = self._is_over = False
        self._is_stored = True
        """Whether there is a ledger to write to."""
        self._next_try = self._next_write = 0.0
        self._figures_asked = self._waits_asked = -FIGURES_SECONDS
        self._waits_since: float | None = None

    def take(self, item: WatchBatch | WorkerAnswers) -> None:
        """Something was received. It is dropped once the record has ended."""
        if not self._is_over:
            self._queue.put(item)

    def stop(self) -> None:
        """End `run` after the last entries: the launcher has ended."""
        self._stopping.set()

    def run(self) -> None:
        """Record until stopped."""
        try:
            while not self._stopping.is_set():
                self._turn()
            self._begin_if_due()
            if self._has_begun:
                self._conclude()
        except LedgerTakenOverError as error:
            log.warning("this launcher's record ends here: %s", error)
        except Exception:
            log.exception("the job's record ends here")
        finally:
            self._is_over = True

    def _turn(self) -> None:
        self._receive()
        self._begin_if_due()
        if not self._has_begun:
            return
        self._ask_for_figures()
        self._ask_for_exits(self._history.unexplained()[:MAX_ASKED])
        self._ask_for_waits()
        self._note(self._history.pass_time(self._now()))
        moment = self._clock()
        self._name_preemptors(moment)
        self._write(moment)
        entries = (*self._store.ledger.entries, *self._pending)
        self._status_publisher.publish(self._history, self._stalls, entries, self._now(), moment)

    def _receive(self) -> None:
        """Let a turn pass, and take all that has come: many changes of one pod cost little more than one."""
        self._stopping.wait(TURN_SECONDS)
        try:
            while True:
                self._take(self._queue.get_nowait())
        except Empty:
            pass

    def _take(self, item: WatchBatch | WorkerAnswers) -> None:
        now = self._now()
        match item:
            case WorkerAnswers(views=views):
                self._history.take_answers(views, now)
            case WatchBatch(resource="pods", messages=messages):
                for message in messages:
                    self._note(self._history.take_pods(message, now))
            case WatchBatch(resource="nodes", messages=messages):
                for message in messages:
                    self._history.take_nodes(message)
            case WatchBatch(messages=messages):
                for message in messages:
                    self._take_job(message, now)

    def _take_job(self, message: Message[JobView], now: float) -> None:
        match message:
            case Listed(objects=(job,)) | Changed(object=job):
                self._note(self._history.take_job(job, now))

    def _begin_if_due(self) -> None:
        job, moment = self._history.job, self._clock()
        if job is None or self._has_begun or not self._history.pods_known:
            return
        self._waits_since = moment if self._waits_since is None else self._waits_since
        waits_for_nodes = self._options.nodes and not self._history.nodes_known and not self._stopping.is_set()
        if moment >= self._next_try and not (waits_for_nodes and moment < self._waits_since + NODES_SECONDS):
            self._next_try = moment + RETRY_SECONDS
            self._begin(job)

    def _begin(self, job: JobView) -> None:
        """Read the ledger, and tell what has happened since its last entry."""
        try:
            self._store.read(job.uid)
        except LedgerMissingError as error:
            self._is_stored = False
            log.info("this job has no ledger: %s", error)
        except ApiError as error:
            log.info("the ledger cannot be read yet: %s", error)
            return
        if (launchers := self._launchers.read()) is None:
            return
        ledger = self._store.ledger.entries
        self._status_publisher.begin(job.uid, ledger)
        self._stalls = StallHistory.resume(ledger)
        own = launchers.get(self._options.pod_uid, self._unseen_launcher)
        self._note(self._history.begin(ledger, own, launchers, self._now()))
        self._has_begun = True

    def _note(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if not self._pending:
                self._next_write = self._clock() + BATCH_SECONDS + len(self._store.ledger.text) / BYTES_PER_SECOND
            self._pending.append(entry)
            if isinstance(entry, WorkerLeaving) and entry.why is Departure.PREEMPTED and not entry.detail:
                self._unnamed[entry.uid] = self._clock() + PREEMPTOR_SECONDS

    def _ask_for_figures(self) -> None:
        moment = self._clock()
        if moment < self._figures_asked + (SOON_SECONDS if self._history.world.is_unsettled else FIGURES_SECONDS):
            return
        self._figures_asked = moment
        for pod in self._history.likely_rank0(MAX_ASKED):
            if figures := self._ask(pod.ip).figures:
                if not self._history.world.world:  # what it does again is known from who was there before
                    self._ask_for_exits(self._history.likely_rank0(MAX_ASKED))
                self._note(self._history.take_figures(pod.uid, figures, self._now()))
                return

    def _ask_for_exits(self, pods: Iterable[PodView]) -> None:
        for pod in pods:
            if end := self._ask(pod.ip).last_exit:
                self._history.take_exit(pod.uid, end, self._now())

    def _ask_for_waits(self) -> None:
        """While no step gets done, ask workers what their ranks do."""
        moment = self._clock()
        if moment < self._waits_asked + WAITS_SECONDS:
            return
        self._waits_asked = moment
        world, now = self._history.world, self._now()
        trains = {uid: pod for uid in world.candidates() if (pod := self._history.pods.get(uid)) and pod.ip}
        for uid in self._stalls.next_to_ask(list(trains), MAX_ASKED, stepped=world.stepped, now=now):
            self._stalls.take(uid, self._ask(trains[uid].ip).waits, self._now())
        step = world.figures.step if world.figures else -1
        self._note(self._stalls.pass_time(step, self._now()))

    def _name_preemptors(self, moment: float) -> None:
        """Entries keep their order, so all wait while a preemptor may still be named."""
        for number, (uid, until) in enumerate(list(self._unnamed.items())):
            found = self._find_preemptor(uid) if number < MAX_NAMED else ""
            if found or moment >= until or not self._preemptors.is_allowed:
                del self._unnamed[uid]
                self._pending = [_preempted_by(entry, uid, found) for entry in self._pending]

    def _find_preemptor(self, uid: str) -> str:
        try:
            return self._preemptors.find(uid) if self._preemptors.is_allowed else ""
        except ApiError:
            return ""

    def _write(self, moment: float) -> None:
        """Write what is pending, unless it waits for others, for a name or for the API server."""
        if self._pending and not self._unnamed and moment >= self._next_write:
            self._next_write = moment + RETRY_SECONDS
            self._append()

    def _append(self) -> bool:
        try:
            if self._is_stored:
                self._store.append(self._pending)
        except LedgerMissingError as error:
            self._is_stored = False
            log.warning("the job's ledger is no longer there: %s", error)
        except LedgerTakenOverError:
            raise
        except ApiError as error:
            log.info("%d entries of the ledger wait: %s", len(self._pending), error)
            return False
        if not self._is_stored:
            self._store.ledger = self._store.ledger.append(self._pending)
        self._status_publisher.take(self._pending)
        self._pending = []
        return True

    def _conclude(self) -> None:
        """The launcher has ended: kubelets stop a native sidecar after the main container."""
        own, others = self._own_end()
        self._note(self._history.end(own, for_good=self._is_last(own, others), now=self._now()))
        self._name_preemptors(self._clock() + PREEMPTOR_SECONDS)
        if not self._append():
            self._append()  # once more: another version may have been written meanwhile
        self._status_publisher.conclude(self._history, self._store.ledger.entries, self._now())

    def _own_end(self) -> tuple[LauncherView, dict[str, LauncherView]]:
        """How this launcher has ended, as far as it is known; and the pods of the others."""
        left, uid = exit_code_of(self._options.run_dir), self._options.pod_uid
        launchers = self._launchers.read() if left is not None else self._launchers.await_end(uid)
        if launchers is None:
            return replace(self._unseen_launcher, exit_code=left), {}
        own = launchers.pop(uid, replace(self._unseen_launcher, is_over=True, reason=GONE))
        return own if own.is_over else replace(own, exit_code=left), launchers

    def _is_last(self, own: LauncherView, others: dict[str, LauncherView]) -> bool:
        limit = self._history.job.backoff_limit if self._history.job else None
        restarts = DEFAULT_BACKOFF_LIMIT if limit is None else limit
        # The legacy operator's launcher is a bare pod, which nobody makes again.
        return ends_job(own, others.values(), restarts=restarts if self._options.version == "v2beta1" else 0)

    @property
    def _unseen_launcher(self) -> LauncherView:
        return LauncherView(pod=f"{self._options.job}-launcher", uid=self._options.pod_uid)

    def _now(self) -> float:
        return round(self._wall(), 3)


def _preempted_by(entry: Entry, uid: str, found: str) -> Entry:
    return replace(entry, by=found) if isinstance(entry, WorkerLeaving) and entry.uid == uid else entry
