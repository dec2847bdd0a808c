"""The autoscaler's loop: read, decide, carry out. It changes how many workers jobs ask for, and the size of a buffer.

What it wants is written where `hvd-elastic scale` writes it, so the job's own sidecar drains the workers that go. A
turn that fails changes nothing, and the next one begins from what the cluster says.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Event
from typing import Final

from hvd_elastic.client.connection.cluster_client import ClusterClient, ClusterError, ConflictError, Json
from hvd_elastic.client.operations.resource_paths import mpijob_path
from hvd_elastic.client.operations.submitted_job import MPIJOB_API
from hvd_elastic.decide.autoscale.decision import QUANTILE, AutoscalerMemory, ScaleDecision, decide
from hvd_elastic.decide.autoscale.demand_store import DemandStore
from hvd_elastic.decide.autoscale.reserve_buffer import ReserveBuffer
from hvd_elastic.decide.autoscale.state_reader import StateReader
from hvd_elastic.mpijob.contract import ANNOTATION_AUTOSCALER, ANNOTATION_WANTED_WORKERS
from hvd_elastic.system.plain_words import count_words

log = logging.getLogger(__name__)

FIELD_MANAGER: Final = "hvd-elastic-autoscaler"
PERIOD_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedOut:
    """A decision, and what became of it."""

    decision: ScaleDecision
    failure: str = ""
    """Why it was not carried out; empty: it was, or it was only to be shown."""


class Autoscaler:
    """Takes turns. One caller, one thread."""

    def __init__(
        self,
        cluster: ClusterClient,
        reader: StateReader,
        demand: DemandStore,
        *,
        may_act: Callable[[], bool],
        quantile: float = QUANTILE,
        buffer: ReserveBuffer | None = None,
        dry_run: bool = False,
    ) -> None:
        """`may_act` is asked before each write: whether this autoscaler leads still. `buffer`: follows the reserve."""
        self._cluster, self._reader, self._demand, self._may_act = cluster, reader, demand, may_act
        self._quantile, self._buffer, self._dry_run = quantile, buffer, dry_run
        self._memory: AutoscalerMemory | None = None
        """None: it did not lead until now."""

    def turn(self) -> Sequence[CarriedOut]:
        """One turn. Raises ClusterError if the cluster cannot be read; then nothing was changed."""
        state, now = self._reader.read()
        memory = self._memory or AutoscalerMemory(demand=self._demand.read())
        decisions, self._memory = decide(state, memory, now, quantile=self._quantile)
        # Who gives comes first, so that a turn that is cut off asks for less, not for more.
        decisions = tuple(sorted(decisions, key=lambda one: one.workers > one.job.asked))
        done = [self._carry_out(decision) for decision in decisions]
        if not self._dry_run and self._may_act():
            self._demand.write(self._memory.demand)
            if self._buffer is not None:
                self._buffer.follow(state, self._memory.demand, now, quantile=self._quantile)
        return done

    def run(self, stop: Event, *, period: float = PERIOD_SECONDS, alive: Callable[[], None] = lambda: None) -> None:
        """Turns until `stop`, as long as this autoscaler leads. `alive` is called after each."""
        while not stop.is_set():
            if self._may_act():
                try:
                    self.turn()
                except ClusterError as error:
                    log.warning("no decision this time: %s", error)
            else:
                self._memory = None  # what another has done since is not known
            alive()
            stop.wait(period)

    def _carry_out(self, decision: ScaleDecision) -> CarriedOut:
        job = decision.job
        said = f"{job.name}: from {job.asked} to {count_words(decision.workers, 'worker')}: {decision.reason}"
        if self._dry_run:
            return CarriedOut(decision=decision)
        if not self._may_act():
            log.info("%s: not done, another autoscaler leads", said)
            return CarriedOut(decision=decision, failure="another autoscaler leads")
        try:
            self._write(decision)
        except ConflictError:
            log.info("%s: not done, the job has changed since it was read", said)
            return CarriedOut(decision=decision, failure="the job has changed since it was read")
        except ClusterError as error:
            log.warning("%s: not done: %s", said, error)
            return CarriedOut(decision=decision, failure=str(error))
        log.info("%s", said)
        self._tell(decision)
        return CarriedOut(decision=decision)

    def _write(self, decision: ScaleDecision) -> None:
        """Number and note in one write. A person's `scale` between the reading and this is not overwritten."""
        job = decision.job
        namespace, _, name = job.name.partition("/")
        annotations = {
            ANNOTATION_WANTED_WORKERS: str(decision.workers),
            ANNOTATION_AUTOSCALER: decision.note.to_json(),
        }
        change = {"metadata": {"uid": job.uid, "resourceVersion": job.resource_version, "annotations": annotations}}
        self._cluster.patch(mpijob_path(namespace, name), change, fieldManager=FIELD_MANAGER)

    def _tell(self, decision: ScaleDecision) -> None:
        """An Event, as an HPA writes one. It is no harm if it is not written."""
        namespace = decision.job.name.partition("/")[0]
        try:
            self._cluster.create(f"/api/v1/namespaces/{namespace}/events", _event(decision))
        except ClusterError as error:
            log.debug("no Event: %s", error)


def _event(decision: ScaleDecision) -> Json:
    namespace, _, name = decision.job.name.partition("/")
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{name}.", "namespace": namespace},
        "involvedObject": {
            "apiVersion": MPIJOB_API,
            "kind": "MPIJob",
            "name": name,
            "namespace": namespace,
            "uid": decision.job.uid,
        },
        "reason": "SuccessfulRescale",
        "message": f"from {decision.job.asked} to {count_words(decision.workers, 'worker')}: {decision.reason}",
        "type": "Normal",
        "source": {"component": FIELD_MANAGER},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
