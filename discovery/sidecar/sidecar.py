"""The sidecar: threads that receive, and one state behind one lock that decides and writes.

    watch of the pods ──────────────────┐                           ┌─► ListUpdater: snapshot, log
    watch of the job ───┐               ▼         ┌─► Reconciler ───┼─► WorkerContact: whom to probe, what to say
    watch of the nodes ─┼─► inbox ─► the loop ────┤                 └─► Maintenance ─► ActionExecutor: reap, scale ──┐
    Prober ─────────────┤               ▲         └─► JobRecorder: ledger, live status, Events                       │
    SIGTERM ────────────┴───────────────┼◄───────────────────────────────────────────────────────────────────────────┘
                                      clock

The thread that receives news of pods also acts on it: waking another thread for it would cost an eighth of a busy
sidecar's CPU. SIGTERM ends the sidecar at once: it is PID 1 of its container, where an unhandled SIGTERM is ignored
and every launcher pod would take its whole grace period to end.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final

from hvd_elastic.discovery.hosts_script import write_script
from hvd_elastic.discovery.kube import watch
from hvd_elastic.discovery.kube.api_server import Access, ApiServer
from hvd_elastic.discovery.rules.cluster_views import JobView, NodeView, PodView, WorkerView
from hvd_elastic.discovery.rules.eligibility import EligibleHosts
from hvd_elastic.discovery.rules.inventory import Inventory
from hvd_elastic.discovery.rules.pod_verdict import EligibilityRules
from hvd_elastic.discovery.sidecar.cluster_actions import ActionExecutor, ActionResult
from hvd_elastic.discovery.sidecar.cluster_state import ClusterState
from hvd_elastic.discovery.sidecar.inbox import (
    InboxItem,
    StopRequest,
    ThreadCrash,
    UpdatePending,
    WatchBatch,
    WorkerAnswers,
)
from hvd_elastic.discovery.sidecar.launcher.launcher_job import LauncherJob
from hvd_elastic.discovery.sidecar.publisher import Publisher
from hvd_elastic.discovery.sidecar.reconciler import Reconciler
from hvd_elastic.discovery.sidecar.record.job_recorder import JobRecorder
from hvd_elastic.discovery.sidecar.resource_watcher import NODES, watch_resource
from hvd_elastic.discovery.sidecar.sidecar_metrics import JobFigures, Metrics, ScrapeCollector
from hvd_elastic.discovery.sidecar.sidecar_options import SidecarOptions
from hvd_elastic.discovery.sidecar.slow_worker_replacement import SlowWorkerReplacement
from hvd_elastic.discovery.sidecar.workers.succession_notices import LOOK_SECONDS, SuccessionNotices
from hvd_elastic.discovery.sidecar.workers.worker_contact import WorkerContact
from hvd_elastic.mpijob.contract import SNAPSHOT_MAX_AGE_SECONDS
from hvd_elastic.system.background_threads import error_words, start_thread
from hvd_elastic.system.job_key import NO_KEY

log = logging.getLogger(__name__)

STALLED_SECONDS: Final = 10.0
"""The sidecar counts as dead if its loop has not turned for this long."""
CONCLUDE_SECONDS: Final = 3.0
"""At most, for the sidecar's last requests."""


def boot_clock() -> float:
    """Seconds since boot, suspended time included: the clock of /proc/uptime, which does not jump."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Sidecar:
    """Build it, then `run()` until `stop()`. Threads start in `run`."""

    def __init__(
        self,
        options: SidecarOptions,
        access: Access,
        metrics: Metrics,
        *,
        clock: Callable[[], float] = boot_clock,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`clock` must not jump; `wall` gives Unix seconds and may."""
        self._options, self._access, self._clock = options, access, clock
        self._inbox: SimpleQueue[InboxItem] = SimpleQueue()
        self._stopped = threading.Event()
        publisher = Publisher(options.run_dir, wall=wall)
        # Hosts of the last snapshot count as answering until they miss: a restarted sidecar drops no running worker.
        known = {host.uid: WorkerView(generation=host.generation) for host in publisher.hosts}
        rules = EligibilityRules(
            slots=options.slots, min_workers=options.min_workers, sizes=options.sizes, at_risk=options.at_risk
        )
        self._workers = WorkerContact(options, known, self._deliver_answers)
        self._executor = ActionExecutor(ApiServer(access), options.place, self._inbox.put)
        self._recorder = (
            JobRecorder(options, ApiServer(access), ask=self._workers.read_report, wall=wall, clock=clock)
            if options.pod_uid
            else None
        )
        self._lock = threading.Lock()
        """Guards the reconciler: its state, and what it does."""
        self._reconciler = Reconciler(
            ClusterState(Inventory(rules, known), metrics),
            publisher,
            self._workers,
            options,
            metrics,
            submit=self._executor.submit,
            slow_workers=(
                SlowWorkerReplacement(self._recorder, self._executor.submit, options)
                if options.replace_slow and self._recorder is not None
                else None
            ),
            clock=clock,
            wall=wall,
        )
        self._launcher_job = LauncherJob(ApiServer(access), options) if options.looks_after_launcher else None
        figures = ScrapeCollector(lambda: self.eligible, self._workers.prober, self._contact_age, self._figures)
        metrics.registry.register(figures)

    @property
    def eligible(self) -> EligibleHosts:
        """The last decision."""
        return self._reconciler.updater.eligible

    @property
    def is_alive(self) -> bool:
        """Whether the loop turns."""
        return self._clock() - self._reconciler.last_turn < STALLED_SECONDS

    @property
    def is_ready(self) -> bool:
        """Whether this sidecar has written a snapshot and it is fresh."""
        return self._reconciler.updater.has_published and self._contact_age() <= SNAPSHOT_MAX_AGE_SECONDS

    def stop(self) -> None:
        """End `run` soon. Safe in a signal handler, because `SimpleQueue.put` is reentrant."""
        self._inbox.put(StopRequest())

    def run(self) -> None:
        """Serve until stopped. Raises what a vital thread died of, and OSError if the folder cannot be written."""
        write_script(self._options.run_dir)
        if self._launcher_job is not None and self._workers.requests.key == NO_KEY:
            log.warning(
                "no ssh key at %s: workers that have one refuse requests for checkpoints", self._options.ssh_key
            )
        for name, work in self._vital_threads():
            _start(name, partial(self._guarded, work))
        for name, work in self._threads():
            start_thread(name, work, log=log, stopped=self._stopped)
        last_words = [] if self._recorder is None else [start_thread("recorder", self._recorder.run, log=log)]
        try:
            while self.turn():
                pass
        finally:
            with self._lock:
                self._stopped.set()
                self._reconciler.updater.close()
        self._workers.prober.stop()
        self._executor.stop()
        self._conclude(last_words)

    def _conclude(self, last_words: list[threading.Thread]) -> None:
        """The launcher has ended: kubelets stop a native sidecar after the main container."""
        deadline = self._clock() + CONCLUDE_SECONDS
        if self._recorder is not None:
            self._recorder.stop()
        if self._launcher_job is not None:
            # With a connection of its own: that of `run` may be in use.
            launcher_job = LauncherJob(ApiServer(self._access), self._options)
            last_words.append(start_thread("conclude", launcher_job.conclude, log=log))
        for thread in last_words:
            thread.join(max(0.0, deadline - self._clock()))

    def _look_for_successors(self) -> None:
        """Have workers that keep their state in vain told so. A thread of its own: the loop waits for none of them."""
        requests = self._workers.requests
        if requests.key == NO_KEY:  # no worker would believe it
            return
        notices = SuccessionNotices(requests.announce_no_successor)
        while not self._stopped.wait(LOOK_SECONDS):
            with self._lock:
                leaving = self._reconciler.without_successor()
            notices.take(leaving)

    def turn(self) -> bool:
        """Wait for an item or until something is due, and act on it; return False once stopped."""
        try:
            item = self._inbox.get(timeout=self._reconciler.wait_seconds())
        except Empty:
            item = None
        with self._lock:
            going = item is None or self._take(item)
            try:
                while going:
                    going = self._take(self._inbox.get_nowait())
            except Empty:
                pass
            self._reconciler.act()
        return going

    def _vital_threads(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """No list can be trusted without them: an unforeseen error in one of them ends the sidecar."""
        pods = watch.workers_of(self._options.place, PodView.from_json)
        yield "pods", lambda: self._watch("pods", pods, self._take_at_once)
        yield "prober", self._workers.prober.run

    def _threads(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """Those that are started again after an unforeseen error."""
        job = watch.one_job(self._options.place, JobView.from_json)
        yield "job", lambda: self._watch("job", job, self._inbox.put)
        if self._options.nodes:
            yield NODES, lambda: self._watch(NODES, watch.nodes(NodeView.from_json), self._inbox.put)
        yield "actions", self._executor.run
        yield "presence", lambda: self._workers.keep_announcing(self._stopped)
        yield "succession", self._look_for_successors
        launcher_job = self._launcher_job
        if launcher_job is not None:
            yield "launcher-job", lambda: launcher_job.run(self._stopped)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - handed to the loop, which raises it
            log.warning("the sidecar ends: thread %s failed: %s", threading.current_thread().name, error_words(error))
            self._inbox.put(ThreadCrash(error))

    def _watch(self, resource: str, selection: watch.Selection[Any], deliver: Callable[[WatchBatch], None]) -> None:
        server = ApiServer(self._access)
        watch_resource(resource, selection, server, deliver, stopped=self._stopped, clock=self._clock)

    def _take_at_once(self, batch: WatchBatch) -> None:
        """Act on a batch in the thread that received it."""
        with self._lock:
            if self._stopped.is_set():
                return
            self._take(batch)
            self._reconciler.act()
            pending = self._reconciler.is_pending
        if pending:
            self._inbox.put(UpdatePending())

    def _deliver_answers(self, views: Mapping[str, WorkerView]) -> None:
        self._inbox.put(WorkerAnswers(views, self._clock()))

    def _take(self, item: InboxItem) -> bool:
        match item:
            case StopRequest():
                return False
            case ThreadCrash(error=error):
                raise error
            case WatchBatch() | WorkerAnswers() | ActionResult():
                self._reconciler.take(item)
        if self._recorder is not None and isinstance(item, WatchBatch | WorkerAnswers):
            self._recorder.take(item)
        return True

    def _figures(self) -> JobFigures:
        job, launcher_job = self._reconciler.state.job, self._launcher_job
        return JobFigures(
            min_workers=self._options.min_workers,
            max_workers=self._options.max_workers,
            wanted_workers=None if job is None else job.wanted_workers,
            launcher_failures=None if launcher_job is None else launcher_job.failures,
            operator_wait_seconds=None if self._recorder is None else self._recorder.operator_wait_seconds,
            slow_ranks=() if self._recorder is None else self._recorder.slow_ranks,
        )

    def _contact_age(self) -> float:
        return self._reconciler.state.contact_age(self._clock())


def _start(name: str, work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread
