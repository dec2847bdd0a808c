"""Keeps the job's ledger, its live status and its Events, in a thread of its own with a connection of its own.

    watches, prober ──► queue ──► JobHistory ──► entries ──► LedgerWriter (ConfigMap)
                                      ▲                  └─► StatusPublisher (the MPIJob's annotation and Events)
    workers' reports ──► WorkerInquiry
                    launcher ──► LAST_FIGURES_FILE, at the end

Nothing here keeps training from going on. While the API server is away entries wait. A ledger that is missing is said
at once, and the live status goes on without it. An error that nobody has foreseen is said, and costs what it struck (a
message, a part of a turn): the record goes on.
"""

import logging
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final, ParamSpec

from hvd_elastic.discovery.kube.api_server import ApiError, ApiServer
from hvd_elastic.discovery.kube.watch import Changed, Deleted, Listed, Message
from hvd_elastic.discovery.ledger.entries import RankSlow, RecordLost
from hvd_elastic.discovery.ledger.history.job_history import JobHistory
from hvd_elastic.discovery.ledger.history.worker_replacements import worker_replacements
from hvd_elastic.discovery.ledger.record_gap import has_gap
from hvd_elastic.discovery.rules.cluster_views import JobView, PodView
from hvd_elastic.discovery.rules.operator_lag import OperatorLag, operator_work
from hvd_elastic.discovery.sidecar.inbox import SlowWorkerReplaced, WatchBatch, WorkerAnswers
from hvd_elastic.discovery.sidecar.launcher.launcher_pods import LauncherPods
from hvd_elastic.discovery.sidecar.record.launcher_reports import has_registered, last_figures
from hvd_elastic.discovery.sidecar.record.ledger_store import LedgerTakenOverError
from hvd_elastic.discovery.sidecar.record.ledger_writer import LedgerWriter
from hvd_elastic.discovery.sidecar.record.slewed_clock import SlewedClock
from hvd_elastic.discovery.sidecar.record.status_publisher import StatusPublisher
from hvd_elastic.discovery.sidecar.record.worker_inquiry import WorkerInquiry
from hvd_elastic.discovery.sidecar.sidecar_options import SidecarOptions
from hvd_elastic.discovery.sidecar.workers.worker_report import WorkerReport
from hvd_elastic.system.background_threads import ErrorLog

log = logging.getLogger(__name__)

P = ParamSpec("P")

_Item = WatchBatch | WorkerAnswers | SlowWorkerReplaced

TURN_SECONDS: Final = 0.5
RETRY_SECONDS: Final = 5.0
NODES_SECONDS: Final = 5.0
"""At most, for the first list of nodes: a worker's binding is told with its machine."""


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
        self._unix, self._clock, self._run_dir = SlewedClock(wall, clock), clock, options.run_dir
        self._launchers = LauncherPods(server, options)
        self._status_publisher = StatusPublisher(server, options)
        self._ledger = LedgerWriter(
            server,
            options,
            is_launcher=self._launchers.has,
            on_written=self._status_publisher.take,
            on_trouble=self._status_publisher.warn,
            clock=clock,
        )
        self._history = JobHistory(
            min_workers=options.min_workers, max_workers=options.max_workers, slots=options.slots
        )
        self._inquiry = WorkerInquiry(ask, self._history, now=self._now, clock=clock)
        self._queue: SimpleQueue[_Item] = SimpleQueue()
        self.earlier_replacements = worker_replacements(())
        """Slow workers that earlier sidecars have replaced."""
        self._stopping = threading.Event()
        self._has_begun = self._is_over = False
        self._next_try = 0.0
        self._nodes_seconds = NODES_SECONDS if options.nodes else 0.0
        self._waits_since: float | None = None
        self._lag = OperatorLag()
        self._errors = ErrorLog(log)

    def take(self, item: _Item) -> None:
        """Something was received. It is dropped once the record has ended."""
        if not self._is_over:
            self._queue.put(item)

    def stop(self) -> None:
        """End `run` after the last entries: the launcher has ended."""
        self._stopping.set()

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                self.turn()
            self._attempt("its beginning", self._begin_if_due)
            if self._has_begun:
                self._conclude()
        except LedgerTakenOverError as error:
            log.warning("this launcher's record ends here: %s", error)
        self._is_over = True

    def turn(self) -> None:
        """Let a moment pass, take what has come, and do what is due by now."""
        self._receive()
        self._attempt("its beginning", self._begin_if_due)
        if not self._has_begun:
            return
        self._attempt("what the operator has to do", self._see_operator)
        self._history.world.has_registered = has_registered(self._run_dir)
        self._attempt("what the workers say", lambda: self._ledger.add(self._inquiry.ask_all()))
        self._attempt("what time tells", lambda: self._ledger.add(self._history.world.pass_time(self._now())))
        self._attempt("what it would have written now", self._ledger.write_if_due)
        self._attempt("the live status", self._publish_status)

    def _publish_status(self) -> None:
        # Its sums are never ahead of the ledger: what it counts more was lost (`record_gap.py`).
        self._status_publisher.publish(
            self._history,
            self._inquiry.stalls,
            self._ledger.written,
            self._now(),
            self._clock(),
            lag=self._lag,
            slow=self._inquiry.slow_ranks.since_by_pod,
        )

    @property
    def operator_wait_seconds(self) -> float:
        """For how long the MPI Operator has had pods to make or delete, and has done neither; 0: it has none."""
        return self._lag.wait_seconds(self._clock())

    @property
    def slow_ranks(self) -> tuple[RankSlow, ...]:
        """Those for which the others wait."""
        return tuple(self._inquiry.slow_ranks.slow.values())

    @property
    def excluded_nodes(self) -> tuple[str, ...]:
        """Those that workers to come keep off."""
        return self._history.job.excluded_nodes if self._history.job else ()

    def _see_operator(self) -> None:
        if self._history.job is not None and self._history.pods_known:
            self._lag.see(operator_work(self._history.job, self._history.pods.values()), self._clock())

    def _attempt(self, lost: str, work: Callable[P, None], *arguments: P.args, **named: P.kwargs) -> None:
        """Do a part of a turn. An error costs this part alone; one that comes each turn is said ever less often."""
        try:
            work(*arguments, **named)
        except LedgerTakenOverError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the record goes on
            self._errors.say(f"the job's record goes on without {lost}", error)

    def _receive(self) -> None:
        """Let a turn pass, and take all that has come: many changes of one pod cost little more than one."""
        self._stopping.wait(TURN_SECONDS)
        try:
            while True:
                self._take(self._queue.get_nowait())
        except Empty:
            pass

    def _take(self, item: _Item) -> None:
        now = self._now()
        match item:
            case WorkerAnswers(views=views):
                for uid, view in views.items():
                    self._attempt("a worker's answer", self._history.take_answers, {uid: view}, now)
            case SlowWorkerReplaced(uid=uid):
                self._history.note_replaced(uid)
            case WatchBatch(resource="pods", messages=messages):
                for message in messages:
                    self._attempt("news of a pod", self._take_pods, message, now)
            case WatchBatch(resource="nodes", messages=messages):
                for message in messages:
                    self._attempt("news of a node", self._history.take_nodes, message)
            case WatchBatch(messages=messages):
                for message in messages:
                    self._attempt("news of the job", self._take_job, message, now)

    def _take_pods(self, message: Message[PodView], now: float) -> None:
        self._ledger.add(self._history.take_pods(message, now))

    def _take_job(self, message: Message[JobView], now: float) -> None:
        match message:
            case Listed(objects=(job,)) | Changed(object=job):
                self._ledger.add(self._history.take_job(job, now))
            case Deleted(object=job) if self._history.job is not None and job.uid == self._history.job.uid:
                self._ledger.job_is_gone()

    def _begin_if_due(self) -> None:
        job, moment = self._history.job, self._clock()
        if job is None or self._has_begun or not self._history.pods_known:
            return
        self._waits_since = moment if self._waits_since is None else self._waits_since
        waits_for_nodes = not self._history.nodes_known and not self._stopping.is_set()
        if moment >= self._next_try and not (waits_for_nodes and moment < self._waits_since + self._nodes_seconds):
            self._next_try = moment + RETRY_SECONDS
            self._begin(job)

    def _begin(self, job: JobView) -> None:
        """Read the ledger, and tell what has happened since its last entry."""
        if not self._ledger.read(job.uid) or (launchers := self._launchers.read()) is None:
            return
        try:
            told = self._status_publisher.last_told()
        except ApiError as error:
            log.info("the job's last status cannot be read yet: %s", error)
            return
        now, ledger = self._now(), self._ledger.entries
        if has_gap(ledger, told):
            log.warning("entries of the job's ledger were lost: its sums count from here on")
            self._ledger.add([RecordLost(unix=now)])
        self._status_publisher.begin(job.uid, ledger)
        self._inquiry.begin(ledger)
        self.earlier_replacements = worker_replacements(ledger)
        own = launchers.get(self._launchers.own.uid, self._launchers.own)
        self._ledger.add(self._history.begin(ledger, own, launchers, now, told=told))
        self._has_begun = True

    def _conclude(self) -> None:
        """The launcher has ended: kubelets stop a native sidecar after the main container."""
        self._attempt("its last figures", self._add_last_figures)
        self._attempt("its last words", self._add_end)
        self._attempt("what it would have written at the end", self._ledger.conclude)
        self._attempt(
            "the last status",
            lambda: self._status_publisher.conclude(self._history, self._ledger.entries, self._now()),
        )

    def _add_last_figures(self) -> None:
        if figures := last_figures(self._run_dir):
            self._ledger.add(self._history.world.take_last_figures(figures, self._now()))

    def _add_end(self) -> None:
        limit = self._history.job.backoff_limit if self._history.job else None
        own, for_good = self._launchers.own_end(limit)
        self._ledger.add(self._history.end(own, for_good=for_good, now=self._now()))

    def _now(self) -> float:
        return round(self._unix(), 3)
