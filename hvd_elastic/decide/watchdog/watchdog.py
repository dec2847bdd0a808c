"""The watchdog's turn: read, decide, and write the annotation that `kubectl rollout restart` writes."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from hvd_elastic.client.connection.cluster_client import ClusterClient, Json
from hvd_elastic.client.object_reading import ObjectReading
from hvd_elastic.client.report.missing_pods import was_refused
from hvd_elastic.decide.controller_turns import workers_by_owner
from hvd_elastic.decide.watchdog.restart_decision import WaitingJob, to_restart_for
from hvd_elastic.discovery.rules.cluster_views import JobView, unix_seconds
from hvd_elastic.discovery.rules.operator_lag import OperatorLag, operator_work

log = logging.getLogger(__name__)

RESTARTED: Final = "kubectl.kubernetes.io/restartedAt"
"""What `kubectl rollout restart` sets in the pod template (kubectl, `pkg/polymorphichelpers/objectrestarter.go`)."""
REFUSED_SECONDS: Final = 600.0
"""A refusal that stays true is told each five minutes at least (client-go's spam filter of Events)."""
FIELD_MANAGER: Final = "hvd-elastic-watchdog"


class Watchdog:
    """Takes turns. One caller, one thread."""

    def __init__(
        self,
        cluster: ClusterClient,
        *,
        namespace: str,
        deployment: str,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`namespace`, `deployment`: of the operator. `clock` must not jump; by `wall`, restarts are dated."""
        self._cluster, self._clock, self._wall = cluster, clock, wall
        self._operator = f"/apis/apps/v1/namespaces/{namespace}/deployments/{deployment}"
        self._job_reading, self._pod_reading = ObjectReading("MPIJob"), ObjectReading("pod")
        self._lags: dict[str, OperatorLag] = {}
        """By the job's UID."""
        self._tried: set[str] = set()

    def turn(self) -> Sequence[WaitingJob]:
        """The jobs for which the operator was restarted now; empty: it was not. Raises ClusterError."""
        listed = self._cluster.list("/apis/kubeflow.org/v2beta1/mpijobs")
        jobs = dict(self._job_reading.each(listed, lambda job: (JobView.from_json(job), job["metadata"])))
        pods = workers_by_owner(self._cluster, self._pod_reading)
        now = self._clock()
        self._lags = {job.uid: self._lags.get(job.uid, OperatorLag()) for job in jobs}
        for job in jobs:
            self._lags[job.uid].see(operator_work(job, pods[job.uid]), now)
        waiting = list(self._waiting({job.uid: meta for job, meta in jobs.items()}, now))
        self._tried &= {job.uid for job in waiting}
        if not waiting:
            return ()
        operator = self._cluster.get(self._operator)
        chosen = to_restart_for(waiting, tried=self._tried, since_restart=self._since_restart(operator))
        if chosen and (operator.get("status") or {}).get("availableReplicas"):
            self._restart(chosen)
            self._tried |= {job.uid for job in waiting}
            return chosen
        return ()

    def _waiting(self, metas: dict[str, Json], now: float) -> Iterator[WaitingJob]:
        for uid, lag in self._lags.items():
            if wait := lag.wait_seconds(now):
                meta = metas[uid]
                name = f"{meta['namespace']}/{meta['name']}"
                refused = self._is_refused(meta)
                yield WaitingJob(name=name, uid=uid, wait_seconds=wait, work=lag.work.words, is_refused=refused)

    def _is_refused(self, meta: Json) -> bool:
        path = f"/api/v1/namespaces/{meta['namespace']}/events"
        events = list(self._cluster.list(path, fieldSelector=f"involvedObject.name={meta['name']}"))
        return was_refused(events, meta["name"], since=self._wall().timestamp() - REFUSED_SECONDS)

    def _since_restart(self, operator: Json) -> float:
        annotations = operator["spec"]["template"]["metadata"].get("annotations") or {}
        return self._wall().timestamp() - unix_seconds(annotations.get(RESTARTED))

    def _restart(self, jobs: Sequence[WaitingJob]) -> None:
        for job in jobs:
            log.warning("the operator has left %s alone for %.0f s, though %s", job.name, job.wait_seconds, job.work)
        now = self._wall().isoformat(timespec="seconds")
        change = {"spec": {"template": {"metadata": {"annotations": {RESTARTED: now}}}}}
        self._cluster.patch(self._operator, change, fieldManager=FIELD_MANAGER)
        log.warning("the operator is restarted")
