"""What the sidecar's threads have received so far, and when."""

import logging
from typing import Any, Final

from hvd_elastic.discovery.kube import watch
from hvd_elastic.discovery.rules.cluster_views import JobView
from hvd_elastic.discovery.rules.inventory import Inventory
from hvd_elastic.discovery.sidecar.inbox import WatchBatch, WorkerAnswers
from hvd_elastic.discovery.sidecar.resource_watcher import NODES, is_forbidden
from hvd_elastic.discovery.sidecar.sidecar_metrics import Metrics

log = logging.getLogger(__name__)

_NODES_REFUSED: Final = (
    "nodes may not be read, which is tried again every few minutes: draining and spot nodes show only by what happens"
    " to their pods"
)


class ClusterState:
    """The job and its inventory. All times are of the clock that the batches carry. Not thread-safe."""

    def __init__(self, inventory: Inventory, metrics: Metrics) -> None:
        self.inventory = inventory
        self.job: JobView | None = None
        self.pods_listed: float | None = None
        """When the pods were first listed."""
        self.last_contact: float | None = None
        """When the API server last confirmed the pods."""
        self.oldest_change: float | None = None
        """When the oldest change came that is not published yet."""
        self._watch_health = WatchHealth(metrics)

    def contact_age(self, now: float) -> float:
        """Seconds since the API server last confirmed the pods; infinite before it has."""
        return float("inf") if self.last_contact is None else now - self.last_contact

    def take_answers(self, answers: WorkerAnswers) -> None:
        self.note_change(self.inventory.update_workers(answers.views), answers.received)

    def take_batch(self, batch: WatchBatch) -> None:
        for message in batch.messages:
            self._watch_health.take(batch.resource, message)
            if isinstance(message, watch.WatchFault):
                continue
            match batch.resource:
                case "pods":
                    self._take_pods(message, batch.received)
                case "nodes":
                    self.note_change(self.inventory.update_nodes(message), batch.received)
                case _:
                    self._take_job(message, batch.received)

    def note_change(self, changed: bool, received: float) -> None:
        """Remember that something is to be published, if anything changed."""
        if changed and self.oldest_change is None:
            self.oldest_change = received

    def _take_pods(self, message: watch.Message[Any], received: float) -> None:
        self.last_contact = received
        if self.pods_listed is None and isinstance(message, watch.Listed):
            self.pods_listed = received
        self.note_change(self.inventory.update_pods(message), received)

    def _take_job(self, message: watch.Message[Any], received: float) -> None:
        match message:
            case watch.Listed(objects=(JobView() as job,)) | watch.Changed(object=JobView() as job):
                # A successor of the same name is another job, which brings its own launcher and sidecar.
                if self.job is None or self.job.uid == job.uid:
                    self.job = job
                    self.note_change(self.inventory.update_owner(job.uid), received)


class WatchHealth:
    """Which watches fail at present: counted, and logged when it changes."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._faults: dict[str, str] = {}
        """Resource to what was said of it."""

    def take(self, resource: str, message: watch.Message[Any]) -> None:
        """Count a message of the watch of `resource`; log its first fault of a kind and its recovery."""
        if isinstance(message, watch.WatchFault):
            self._take_fault(resource, message)
            return
        if isinstance(message, watch.Listed):
            self._metrics.lists.labels(resource).inc()
        if self._faults.pop(resource, None):
            log.info("%s: the API server answers again", resource)

    def _take_fault(self, resource: str, fault: watch.WatchFault) -> None:
        self._metrics.faults.labels(resource).inc()
        is_refused = resource == NODES and is_forbidden(fault)
        sentence = _NODES_REFUSED if is_refused else f"{resource}: {fault.error}; trying again"
        if self._faults.get(resource) != sentence:
            self._faults[resource] = sentence
            log.log(logging.INFO if is_refused else logging.WARNING, "%s", sentence)
