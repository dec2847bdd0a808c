"""What discovery does to the cluster: it reaps, records, and sets a job's replicas. Nothing here decides."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from queue import SimpleQueue

from hvd_elastic.discovery.kube.api_server import ApiError, ApiServer, ApiStatusError
from hvd_elastic.discovery.rules.reaper import Reap

log = logging.getLogger(__name__)

GONE_ALREADY = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT})
"""The pod is no more, or its name is another pod's by now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetReplicas:
    """Set the number of workers on the MPIJob."""

    replicas: int


Chore = Reap | SetReplicas


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A chore was tried; `error` is empty where it worked."""

    chore: Chore
    error: str = ""


class ClusterActions:
    """Carries out one chore after the other. `run` blocks: give it a thread of its own."""

    def __init__(
        self, server: ApiServer, *, job: str, namespace: str, version: str, report: Callable[[Done], None]
    ) -> None:
        self._server, self._report = server, report
        self._namespace = namespace
        self._job_path = f"/apis/kubeflow.org/{version}/namespaces/{namespace}/mpijobs/{job}"
        self._queue: SimpleQueue[Chore | None] = SimpleQueue()

    def put(self, chore: Chore) -> None:
        """Have it done soon; a Done follows."""
        self._queue.put(chore)

    def run(self) -> None:
        """Work until stopped."""
        while (chore := self._queue.get()) is not None:
            self.do(chore)

    def stop(self) -> None:
        """End `run` after what is put already."""
        self._queue.put(None)

    def do(self, chore: Chore) -> None:
        """Do one chore and report."""
        try:
            if isinstance(chore, Reap):
                self._reap(chore)
            else:
                self._server.patch(
                    self._job_path, {"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": chore.replicas}}}}
                )
        except ApiError as error:
            self._report(Done(chore=chore, error=str(error)))
        else:
            self._report(Done(chore=chore))

    def _reap(self, reap: Reap) -> None:
        self._record(reap)
        try:
            self._server.delete(
                f"/api/v1/namespaces/{self._namespace}/pods/{reap.pod.name}",
                {"apiVersion": "v1", "kind": "DeleteOptions", **reap.delete_options()},
            )
        except ApiStatusError as error:
            if error.status not in GONE_ALREADY:
                raise

    def _record(self, reap: Reap) -> None:
        event = reap.event(self._namespace, datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"))
        try:
            self._server.create(f"/api/v1/namespaces/{self._namespace}/events", event)
        except ApiStatusError as error:
            # The log keeps the record as well; a missing right to write Events must not keep the dead pod.
            log.warning("no Event for %s: %s", reap.pod.name, error)
