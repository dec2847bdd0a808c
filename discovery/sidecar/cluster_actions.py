"""What discovery changes in the cluster: it deletes dead pods, records them, and sets a job's replicas
and that it has begun.

Nothing here decides.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from queue import SimpleQueue
from typing import Final

from hvd_elastic.discovery.kube.api_server import ApiError, ApiServer, ApiStatusError
from hvd_elastic.discovery.kube.mpijob_place import MPIJobPlace
from hvd_elastic.discovery.rules.reaper import Reap
from hvd_elastic.mpijob.contract import ANNOTATION_BEGUN

log = logging.getLogger(__name__)

REPLICAS_WRITER: Final = "hvd-elastic-scale"
ALREADY_GONE = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT})
"""The pod no longer exists, or another pod has its name by now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetReplicas:
    """Set the number of workers on the MPIJob."""

    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordBeginning:
    """Set ANNOTATION_BEGUN on the MPIJob."""


ClusterAction = Reap | SetReplicas | RecordBeginning


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionResult:
    """How an action went; `error` is empty if it worked."""

    action: ClusterAction
    error: str = ""


class ActionExecutor:
    """Carries out one action after the other. `run` blocks, so it needs a thread of its own."""

    def __init__(self, server: ApiServer, place: MPIJobPlace, report: Callable[[ActionResult], None]) -> None:
        """`report` is called in the thread of `run`."""
        self._server, self._place, self._report = server, place, report
        self._queue: SimpleQueue[ClusterAction | None] = SimpleQueue()

    def submit(self, action: ClusterAction) -> None:
        """Queue an action; its ActionResult is reported later."""
        self._queue.put(action)

    def run(self) -> None:
        while (action := self._queue.get()) is not None:
            error = "it was not carried out to its end"
            try:
                error = self._execute(action)
            finally:
                self._report(ActionResult(action=action, error=error))  # an unforeseen error is the thread's to say

    def stop(self) -> None:
        """End `run` after the actions that are queued."""
        self._queue.put(None)

    def _execute(self, action: ClusterAction) -> str:
        """Return the error; empty if it worked."""
        try:
            match action:
                case Reap():
                    self._reap(action)
                case SetReplicas(replicas=replicas):
                    change = {"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": replicas}}}}
                    # Under a name of its own: when the spec was changed is told by when its writer last wrote.
                    self._server.patch(f"{self._place.path}?fieldManager={REPLICAS_WRITER}", change)
                case RecordBeginning():
                    self._server.patch(self._place.path, {"metadata": {"annotations": {ANNOTATION_BEGUN: "true"}}})
        except ApiError as error:
            return str(error)
        return ""

    def _reap(self, reap: Reap) -> None:
        self._record(reap)
        try:
            self._server.delete(
                f"{self._place.core}/pods/{reap.pod.name}",
                {"apiVersion": "v1", "kind": "DeleteOptions", **reap.delete_options()},
            )
        except ApiStatusError as error:
            if error.status not in ALREADY_GONE:
                raise

    def _record(self, reap: Reap) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        try:
            self._server.create(f"{self._place.core}/events", reap.event(self._place.namespace, now))
        except ApiStatusError as error:
            # The log keeps the record too. A missing right to create Events must not keep the dead pod.
            log.warning("no Event for %s: %s", reap.pod.name, error)
