"""From what is known of the cluster to what follows from it: the list, the actions, and whom the sidecar asks."""

import logging
from collections.abc import Callable
from typing import Final

from hvd_elastic.discovery.rules.cluster_views import JobView
from hvd_elastic.discovery.rules.first_list import FirstList
from hvd_elastic.discovery.rules.operator_lag import operator_work
from hvd_elastic.discovery.rules.succession import without_successor
from hvd_elastic.discovery.rules.unused_hosts import UnusedHosts
from hvd_elastic.discovery.sidecar.beginning_record import BeginningRecord
from hvd_elastic.discovery.sidecar.cluster_actions import ActionResult, ClusterAction
from hvd_elastic.discovery.sidecar.cluster_state import ClusterState
from hvd_elastic.discovery.sidecar.inbox import WatchBatch, WorkerAnswers
from hvd_elastic.discovery.sidecar.launcher.launcher_drain import LauncherDrain
from hvd_elastic.discovery.sidecar.list_updater import TURN_SECONDS, ListUpdater
from hvd_elastic.discovery.sidecar.maintenance import Maintenance
from hvd_elastic.discovery.sidecar.publisher import Publisher
from hvd_elastic.discovery.sidecar.sidecar_metrics import Metrics
from hvd_elastic.discovery.sidecar.sidecar_options import SidecarOptions
from hvd_elastic.discovery.sidecar.slow_worker_replacement import SlowWorkerReplacement
from hvd_elastic.discovery.sidecar.workers.worker_contact import WorkerContact

log = logging.getLogger(__name__)

WITHHELD_TURN_SECONDS: Final = 0.1
"""Between two turns while something is withheld for a time (the launcher's end, too), in place of TURN_SECONDS."""


class Reconciler:
    """Acts on the state of the cluster, again and again. Not thread-safe."""

    def __init__(
        self,
        state: ClusterState,
        publisher: Publisher,
        workers: WorkerContact,
        options: SidecarOptions,
        metrics: Metrics,
        *,
        submit: Callable[[ClusterAction], None],
        slow_workers: SlowWorkerReplacement | None = None,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        """`submit` has an action carried out. Without `slow_workers` no slow worker is replaced. `clock` must not
        jump; `wall` gives Unix seconds and may.
        """
        self.state = state
        self._workers, self._clock, self._wall = workers, clock, wall
        self.updater = ListUpdater(
            publisher,
            FirstList(
                max_workers=options.max_workers,
                settle_seconds=options.settle_seconds,
                had_hosts=bool(publisher.hosts),
            ),
            requests=workers.requests,
            metrics=metrics,
            clock=clock,
        )
        self._maintenance = Maintenance(submit, metrics, options)
        self._slow_workers = slow_workers
        self._beginning = BeginningRecord(submit, options)
        self._drain = LauncherDrain(options.run_dir)
        self._unused_hosts = UnusedHosts() if options.offer_again else None
        self._last_maintenance = self.last_turn = clock()

    @property
    def is_pending(self) -> bool:
        """Whether a list is to go out soon."""
        return self.state.oldest_change is not None or self.updater.is_withholding

    def wait_seconds(self) -> float:
        """Until something is due, if nothing comes meanwhile."""
        if self.state.oldest_change is not None:
            return max(0.0, self.updater.earliest - self._clock())
        return WITHHELD_TURN_SECONDS if self.updater.is_withholding or self._drain.is_under_way else TURN_SECONDS

    def without_successor(self) -> dict[str, str]:
        """UID to address of the workers that leave, if no other one can take their state over."""
        inventory = self.state.inventory
        if self.state.job is None or self.updater.eligible.hosts:  # an offered worker does not leave
            return {}
        uids = without_successor(inventory.own_pods(), age_seconds=self.state.contact_age(self._clock()))
        return {uid: inventory.addresses[uid] for uid in sorted(uids & inventory.addresses.keys())}

    def take(self, item: WatchBatch | WorkerAnswers | ActionResult) -> None:
        """Something was received; `act` acts on it."""
        match item:
            case ActionResult():
                self._maintenance.take_result(item)
            case WorkerAnswers():
                self.state.take_answers(item)
            case WatchBatch():
                self.state.take_batch(item)

    def act(self) -> None:
        """Do what is due. Raises OSError."""
        now = self.last_turn = self._clock()
        job, listed = self.state.job, self.state.pods_listed
        if job is None or listed is None:
            return
        is_maintained = now - self._last_maintenance >= TURN_SECONDS
        # Before any list goes out: a launcher that finds one must know whether the job has begun before.
        # That it begins now is looked for once a second: it means a look at every worker.
        self._beginning.update(
            job,
            lambda: is_maintained and self.state.inventory.is_training(),
            now,
            has_work=lambda: not is_maintained or bool(operator_work(job, self.state.inventory.pods.values())),
        )
        self._drain_launcher(now)
        if is_maintained:
            self._maintain(job, now)
        if self.updater.is_due(self.state, now):
            self._workers.update_expected(self.state.inventory)
            self.updater.update(self.state, listed, now)
        self._workers.update_targets(self.state.inventory)

    def _drain_launcher(self, now: float) -> None:
        """Have training leave before the launcher does: first the workers hear of it, then the list is empty."""
        inventory = self.state.inventory
        if self._drain.begins(now):
            addresses = tuple(inventory.addresses.values())
            told = self._workers.requests.request_leave(addresses)
            log.warning("the launcher's pod is about to end: %d of %d workers were told", told, len(addresses))
            self.state.note_change(inventory.end_with_launcher(), now)
        self._drain.end_if_due(lambda: inventory.is_training(self._workers.prober.results.silent), now)

    def _maintain(self, job: JobView, now: float) -> None:
        self._last_maintenance = now
        inventory, probes = self.state.inventory, self._workers.prober.results
        self._maintenance.reap(inventory, probes.silent, self._wall())
        self.state.note_change(self._maintenance.scale(job, inventory, now), now)
        if self._slow_workers is not None:
            self._slow_workers.look(inventory, self.updater.eligible.hosts, now=self._wall(), moment=now)
        if self._unused_hosts is not None:
            answers = probes.views
            offered = {host.uid for host in self.updater.eligible.hosts}
            usable = {uid: answers[uid] for uid in (offered | inventory.withdrawn()) & answers.keys()}
            self.state.note_change(inventory.withdraw(self._unused_hosts.look(usable, now)), now)
        self._workers.log_suspicion()
