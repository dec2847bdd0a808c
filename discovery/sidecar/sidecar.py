"""The sidecar: threads that receive, and one state behind one lock that decides and writes.

    watch of the pods ──────────────────┐
    watch of the job ───┐               ▼         ┌─► ListUpdater: snapshot, log
    watch of the nodes ─┼─► inbox ─► the loop ────┼─► JobRecorder: ledger, live status, Events
    Prober ─────────────┤               ▲         └─► Maintenance ─► ActionExecutor: reap, set replicas ──┐
    SIGTERM ────────────┴───────────────┼◄──────────────────────────────────────────────────────────────┘
                                      clock

The thread that receives news of pods also acts on it: waking another thread for it would cost an eighth of a busy
sidecar's CPU. SIGTERM ends the sidecar at once: it is PID 1 of its container, where an unhandled SIGTERM is ignored
and every launcher pod would take its whole grace period to end.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from queue import Empty, SimpleQueue
from typing import Any, Final

from hvd_elastic.discovery.expected_workers import write_expected
from hvd_elastic.discovery.hosts_script import write_script
from hvd_elastic.discovery.job_beginning import mark_begun
from hvd_elastic.discovery.kube import watch
from hvd_elastic.discovery.kube.api_server import Access, ApiServer
from hvd_elastic.discovery.kube.mpijob_place import MPIJobPlace
from hvd_elastic.discovery.rules.cluster_views import JobView, NodeView, PodView, WorkerView
from hvd_elastic.discovery.rules.eligibility import EligibleHosts
from hvd_elastic.discovery.rules.inventory import Inventory
from hvd_elastic.discovery.rules.pod_verdict import EligibilityRules
from hvd_elastic.discovery.rules.succession import without_successor
from hvd_elastic.discovery.rules.unused_hosts import UnusedHosts
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
from hvd_elastic.discovery.sidecar.launcher.launcher_drain import LauncherDrain
from hvd_elastic.discovery.sidecar.launcher.launcher_job import LauncherJob
from hvd_elastic.discovery.sidecar.list_updater import ListUpdater
from hvd_elastic.discovery.sidecar.maintenance import Maintenance
from hvd_elastic.discovery.sidecar.publisher import Publisher
from hvd_elastic.discovery.sidecar.record.job_recorder import JobRecorder, RecordedJob, WorkerQuestions
from hvd_elastic.discovery.sidecar.resource_watcher import NODES, watch_resource
from hvd_elastic.discovery.sidecar.sidecar_metrics import JobFigures, Metrics
from hvd_elastic.discovery.sidecar.sidecar_options import SidecarOptions
from hvd_elastic.discovery.sidecar.watch_health import WatchHealth
from hvd_elastic.discovery.sidecar.workers.prober import Prober
from hvd_elastic.discovery.sidecar.workers.succession_notices import LOOK_SECONDS, SuccessionNotices
from hvd_elastic.discovery.sidecar.workers.worker_questions import read_figures, read_last_exit, read_waits
from hvd_elastic.discovery.sidecar.workers.worker_requests import (
    announce_launcher,
    announce_no_successor,
    request_checkpoint,
    request_leave,
)
from hvd_elastic.mpijob.contract import SNAPSHOT_MAX_AGE_SECONDS
from hvd_elastic.system.job_key import NO_KEY

log = logging.getLogger(__name__)

MIN_GAP_SECONDS: Final = 0.01
"""At least, between two lists."""
TURN_SECONDS: Final = 1.0
"""How often the loop turns if nothing comes: ages, reaping and scaling go by the clock."""
WITHHELD_TURN_SECONDS: Final = 0.1
"""The same while something is withheld for a time (the first list, an address in quarantine, the launcher's end)."""
STALLED_SECONDS: Final = 10.0
"""The sidecar counts as dead if its loop has not turned for this long."""
ANNOUNCE_SECONDS: Final = 30.0
"""How often the workers are told that their launcher is there; far below the time that they wait for one."""
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
        self._options, self._access, self._metrics = options, access, metrics
        self._clock, self._wall = clock, wall
        self._inbox: SimpleQueue[InboxItem] = SimpleQueue()
        self._lock = threading.Lock()
        """Guards all that follows."""
        self._publisher = Publisher(options.run_dir, wall=wall)
        # Hosts of the last snapshot count as answering until they miss: a restarted sidecar drops no running worker.
        known = {host.uid: WorkerView(generation=host.generation) for host in self._publisher.hosts}
        rules = EligibilityRules(slots=options.slots, min_workers=options.min_workers, at_risk=options.at_risk)
        self._state = ClusterState(Inventory(rules, known), WatchHealth(metrics))
        self._prober = Prober(self._deliver_answers, known=known, port=options.ready_port)
        self._executor = ActionExecutor(
            ApiServer(access),
            job=options.job,
            namespace=options.namespace,
            version=options.version,
            report=self._inbox.put,
        )
        self._updater = ListUpdater(
            self._publisher,
            request_checkpoint=lambda addresses, reason: request_checkpoint(
                addresses, reason, options.request_key, port=options.ready_port
            ),
            metrics=metrics,
            max_workers=options.max_workers,
            settle_seconds=options.settle_seconds,
        )
        self._maintenance = Maintenance(
            self._executor.submit,
            metrics,
            min_workers=options.min_workers,
            max_workers=options.max_workers,
            reap=options.reap,
            stuck_seconds=options.stuck_seconds,
        )
        self._place = MPIJobPlace(job=options.job, namespace=options.namespace, version=options.version)
        self._recorder = self._job_recorder() if options.pod_uid else None
        self._unused_hosts = UnusedHosts() if options.offer_again else None
        self._last_update = self._last_turn = self._last_maintenance = clock()
        self._is_withholding = False
        self._was_suspect = False
        self._has_begun = False
        self._launcher_drain = LauncherDrain(options.run_dir)
        self._targets_version = self._expected_version = 0
        self._stopped = threading.Event()
        self._launchers = self._launcher_job() if options.looks_after_launcher else None
        metrics.observe(lambda: self.eligible, self._prober, self._contact_age, self._figures)

    @property
    def eligible(self) -> EligibleHosts:
        """The last decision."""
        return self._updater.eligible

    @property
    def is_alive(self) -> bool:
        """Whether the loop turns."""
        return self._clock() - self._last_turn < STALLED_SECONDS

    @property
    def is_ready(self) -> bool:
        """Whether this sidecar has written a snapshot and it is fresh."""
        written = self._publisher.last is not None and not self._publisher.inherited
        return written and self._contact_age() <= SNAPSHOT_MAX_AGE_SECONDS

    def stop(self) -> None:
        """End `run` soon. Safe in a signal handler, because `SimpleQueue.put` is reentrant."""
        self._inbox.put(StopRequest())

    def run(self) -> None:
        """Serve until stopped. Raises the error that a thread died of, and OSError if the folder cannot be written."""
        write_script(self._options.run_dir)
        if self._options.looks_after_launcher and self._options.request_key == NO_KEY:
            log.warning(
                "no ssh key at %s: workers that have one refuse requests for checkpoints", self._options.ssh_key
            )
        for name, work in self._threads():
            threading.Thread(target=self._guarded, args=(work,), name=name, daemon=True).start()
        recording = None
        if self._recorder is not None:
            recording = threading.Thread(target=self._recorder.run, name="recorder", daemon=True)
            recording.start()
        try:
            while self.turn():
                pass
        finally:
            with self._lock:
                self._stopped.set()
                self._updater.close()
        self._prober.stop()
        self._executor.stop()
        self._conclude([recording] if recording else [])

    def _conclude(self, last_words: list[threading.Thread]) -> None:
        """The launcher has ended: kubelets stop a native sidecar after the main container."""
        deadline = self._clock() + CONCLUDE_SECONDS
        if self._recorder is not None:
            self._recorder.stop()
        if self._options.looks_after_launcher:
            last_word = threading.Thread(target=self._launcher_job().conclude, name="conclude", daemon=True)
            last_word.start()
            last_words.append(last_word)
        for thread in last_words:
            thread.join(max(0.0, deadline - self._clock()))

    def _announce(self) -> None:
        while not self._stopped.wait(ANNOUNCE_SECONDS):
            announce_launcher(tuple(self._prober.targets.values()), port=self._options.ready_port)

    def _look_for_successors(self) -> None:
        """Have workers that keep their state in vain told so. A thread of its own: the loop waits for none of them."""
        key, port = self._options.request_key, self._options.ready_port
        if key == NO_KEY:  # no worker would believe it
            return
        notices = SuccessionNotices(lambda addresses: announce_no_successor(addresses, key, port=port))
        while not self._stopped.wait(LOOK_SECONDS):
            with self._lock:
                leaving = self._without_successor()
            notices.take(leaving)

    def _without_successor(self) -> dict[str, str]:
        """UID to address of the workers that leave, if no other one can take their state over."""
        inventory = self._state.inventory
        if self._state.job is None or self.eligible.hosts:  # an offered worker does not leave
            return {}
        uids = without_successor(inventory.own_pods(), age_seconds=self._contact_age())
        return {uid: inventory.addresses[uid] for uid in sorted(uids & inventory.addresses.keys())}

    def _launcher_job(self) -> LauncherJob:
        options = self._options
        return LauncherJob(
            ApiServer(self._access),
            job=options.job,
            namespace=options.namespace,
            pod_uid=options.pod_uid,
            owned=options.owned,
            run_dir=options.run_dir,
        )

    def _job_recorder(self) -> JobRecorder:
        options = self._options
        job = RecordedJob(
            place=self._place,
            launcher_uid=options.pod_uid,
            run_dir=options.run_dir,
            min_workers=options.min_workers,
            max_workers=options.max_workers,
            slots=options.slots,
            nodes=options.nodes,
        )
        return JobRecorder(
            job,
            ApiServer(self._access),
            ask=WorkerQuestions(
                figures=lambda address: read_figures(address, port=options.ready_port),
                last_exit=lambda address: read_last_exit(address, port=options.ready_port),
                waits=lambda address: read_waits(address, port=options.ready_port),
            ),
            wall=self._wall,
        )

    def turn(self) -> bool:
        """Wait for an item or until something is due, and act on it; return False once stopped."""
        try:
            item = self._inbox.get(timeout=self._wait_seconds())
        except Empty:
            item = None
        with self._lock:
            going = item is None or self._take(item)
            try:
                while going:
                    going = self._take(self._inbox.get_nowait())
            except Empty:
                pass
            self._act()
        return going

    def _threads(self) -> Iterator[tuple[str, Callable[[], None]]]:
        options = self._options
        pods = watch.workers_of(options.job, options.namespace, options.version, PodView.from_json)
        yield "pods", lambda: self._watch("pods", pods, self._take_at_once)
        job = watch.one_job(options.job, options.namespace, options.version, JobView.from_json)
        yield "job", lambda: self._watch("job", job, self._inbox.put)
        if options.nodes:
            yield NODES, lambda: self._watch(NODES, watch.nodes(NodeView.from_json), self._inbox.put)
        yield "prober", self._prober.run
        yield "actions", self._executor.run
        yield "presence", self._announce
        yield "succession", self._look_for_successors
        launchers = self._launchers
        if launchers is not None:
            yield "launcher-job", lambda: launchers.run(self._stopped)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - handed to the loop, which raises it
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
            self._act()
            pending = self._state.oldest_change is not None or self._is_withholding
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
            case ActionResult():
                self._maintenance.take_result(item)
            case WorkerAnswers():
                self._state.take_answers(item)
            case WatchBatch():
                self._state.take_batch(item)
        if self._recorder is not None and isinstance(item, WatchBatch | WorkerAnswers):
            self._recorder.take(item)
        return True

    def _wait_seconds(self) -> float:
        if self._state.oldest_change is not None:
            return max(0.0, self._last_update + MIN_GAP_SECONDS - self._clock())
        is_waiting = self._is_withholding or self._launcher_drain.is_under_way
        return WITHHELD_TURN_SECONDS if is_waiting else TURN_SECONDS

    def _act(self) -> None:
        now = self._last_turn = self._clock()
        if self._state.job and self._state.pods_listed is not None:
            self._note_beginning(self._state.job, now)
            self._drain(now)
            self._maintain(self._state.job, now)
            self._update_list(self._state.pods_listed, now)
            self._update_targets()

    def _note_beginning(self, job: JobView, now: float) -> None:
        """Before any list goes out: a launcher that finds one must know whether the job has begun before.

        That it begins now is looked for once a second: it means a look at every worker.
        """
        is_due = now - self._last_maintenance >= TURN_SECONDS
        if not self._has_begun and (job.begun or (is_due and self._state.inventory.is_training())):
            mark_begun(self._options.run_dir)
            self._has_begun = True
        if self._has_begun and self._place.may_be_patched:
            self._maintenance.record_beginning(job, now)

    def _drain(self, now: float) -> None:
        """Have training leave before the launcher does: first the workers hear of it, then the list is empty."""
        inventory = self._state.inventory
        if self._launcher_drain.begins(now):
            addresses = tuple(inventory.addresses.values())
            told = request_leave(addresses, self._options.request_key, port=self._options.ready_port)
            log.warning("the launcher's pod is about to end: %d of %d workers were told", told, len(addresses))
            self._state.note_change(inventory.end_with_launcher(), now)
        self._launcher_drain.end_if_due(lambda: inventory.is_training(self._prober.silent), now)

    def _maintain(self, job: JobView, now: float) -> None:
        if now - self._last_maintenance < TURN_SECONDS:
            return
        self._last_maintenance = now
        self._maintenance.reap(self._state.inventory, self._prober.silent, self._wall())
        self._state.note_change(self._maintenance.scale(job, self._state.inventory, now), now)
        if self._unused_hosts is not None:
            self._offer_unused_again(self._unused_hosts, now)
        suspect = self._prober.is_own_network_suspect
        if suspect != self._was_suspect:
            self._was_suspect = suspect
            log.warning(
                "no worker answers: the fault may be on this side, so the list stays" if suspect else "workers answer"
            )

    def _offer_unused_again(self, unused: UnusedHosts, now: float) -> None:
        inventory, answers = self._state.inventory, self._prober.views
        usable = {uid: answers[uid] for uid in inventory.usable() & answers.keys()}
        self._state.note_change(inventory.withdraw(unused.look(usable, now)), now)

    def _update_list(self, listed: float, now: float) -> None:
        due = self._state.oldest_change is not None or self._is_withholding or now >= self._last_update + TURN_SECONDS
        if not due or now < self._last_update + MIN_GAP_SECONDS:
            return
        assert self._state.last_contact is not None
        self._update_expected()
        before = self._publisher.last
        complete = self._updater.update(
            self._state.inventory, listed=listed, last_contact=self._state.last_contact, now=now
        )
        self._last_update, self._is_withholding = now, not complete
        if self._state.oldest_change is not None and self._publisher.last is not before:
            self._metrics.latency.observe(self._clock() - self._state.oldest_change)
        self._state.oldest_change = None

    def _update_expected(self) -> None:
        inventory = self._state.inventory
        if self._expected_version != inventory.expected_changes:
            self._expected_version = inventory.expected_changes
            write_expected(self._options.run_dir, inventory.expected)

    def _update_targets(self) -> None:
        inventory = self._state.inventory
        if self._targets_version != inventory.address_changes:
            self._targets_version = inventory.address_changes
            self._prober.set_targets(dict(inventory.addresses))

    def _figures(self) -> JobFigures:
        job, launchers = self._state.job, self._launchers
        return JobFigures(
            min_workers=self._options.min_workers,
            max_workers=self._options.max_workers,
            wanted_workers=None if job is None else job.wanted_workers,
            launcher_failures=None if launchers is None else launchers.failures,
        )

    def _contact_age(self) -> float:
        last_contact = self._state.last_contact
        return float("inf") if last_contact is None else self._clock() - last_contact
