"""Looks after the launcher's Job: a launcher that was taken away costs no restart, and the job leaves nothing behind.

Works in a thread of its own with a connection of its own, now and then. Nothing here keeps training from going on: what
is not allowed is said once.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final

from hvd_elastic.discovery.kube.api_server import ApiError, ApiServer, ApiStatusError
from hvd_elastic.discovery.rules import restart_budget
from hvd_elastic.discovery.rules.cluster_views import PodView
from hvd_elastic.discovery.rules.restart_budget import LauncherJobView
from hvd_elastic.discovery.sidecar.launcher.launcher_pods import last_word
from hvd_elastic.discovery.sidecar.sidecar_options import SidecarOptions
from hvd_elastic.mpijob.contract import FINAL_EXITS, Exit, Role

log = logging.getLogger(__name__)

PAUSES_SECONDS: Final = (5.0, 10.0, 60.0)
"""Between looks at the Job; the last one again and again. It counts a pod some seconds after the pod's end."""


class LauncherJob:
    """The Job that the MPI Operator makes for the launcher of an MPIJob v2beta1."""

    def __init__(self, server: ApiServer, options: SidecarOptions) -> None:
        self._server, self._options = server, options
        self._path = f"/apis/batch/v1/namespaces/{options.namespace}/jobs/{options.job}-launcher"
        self._unowned = list(options.owned)
        self._told: set[str] = set()
        self.failures: int | None = None
        """Launchers that had failed by themselves at the last look; None before the first. Any thread may read."""

    def run(self, stopped: threading.Event) -> None:
        pauses = iter(PAUSES_SECONDS)
        pause = 0.0
        while not stopped.wait(pause):
            pause = next(pauses, PAUSES_SECONDS[-1])
            self._attempt("restarts may count launchers that were taken away", self.raise_limit)
            self._attempt("the job's account and policies stay when it is deleted", self.take_ownership)

    def conclude(self) -> None:
        """The launcher has ended. Unless it was taken away, its failure counts, or ends the job."""
        if last_word(self._options.run_dir).exit_code in FINAL_EXITS - {Exit.OK}:
            self._attempt("trying again is pointless, and yet launchers may follow", self._end_job)
        else:
            self._attempt("a failure may be forgiven", self._count_own_failure)

    def raise_limit(self) -> None:
        """Let the Job outlive every launcher that was taken away. Raises ApiError."""
        job, pods = self._read()
        self.failures = restart_budget.own_failures(pods)
        self._set_limit(job, restart_budget.limit_while_running(job, pods, restarts=self._restarts()))

    def take_ownership(self) -> None:
        """Make the objects in `owned` go when the Job goes: deleted with its MPIJob, or by its TTL. Raises ApiError."""
        if not self._unowned:
            return
        meta = self._server.get(self._path)["metadata"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"]}
        refused: ApiStatusError | None = None
        for path in tuple(self._unowned):
            try:
                self._own(path, owner)
                self._unowned.remove(path)
            except ApiStatusError as error:  # it hinders no other; and one that is not there may come
                refused = refused if error.status == HTTPStatus.NOT_FOUND else error
        if refused:
            raise refused

    def _own(self, path: str, owner: Mapping[str, str]) -> None:
        owners = self._server.get(path)["metadata"].get("ownerReferences") or []
        # A stranger's reference stays; one to an earlier Job of this name would have it deleted.
        others = [each for each in owners if (each["kind"], each["name"]) != (owner["kind"], owner["name"])]
        if owners != [*others, owner]:
            self._server.patch(path, {"metadata": {"ownerReferences": [*others, owner]}})

    def _count_own_failure(self) -> None:
        job, pods = self._read()
        if not any(restart_budget.was_taken(pod) for pod in pods if pod.uid == self._options.pod_uid):
            self._set_limit(job, restart_budget.limit_after_failure(job, pods, restarts=self._restarts()))

    def _end_job(self) -> None:
        job, _ = self._read()
        self._set_limit(job, restart_budget.limit_when_exhausted(job))

    def _read(self) -> tuple[LauncherJobView, list[PodView]]:
        job = LauncherJobView.from_json(self._server.get(self._path))
        place = self._options.place
        pods = self._server.get(f"{place.core}/pods", place.pods_of(Role.LAUNCHER))["items"]
        return job, [PodView.from_json(pod) for pod in pods]

    def _restarts(self) -> int:
        return restart_budget.backoff_limit(self._server.get(self._options.place.path)["spec"].get("runPolicy"))

    def _set_limit(self, job: LauncherJobView, limit: int) -> None:
        if limit != job.limit:
            self._server.patch(self._path, {"spec": {"backoffLimit": limit}})
            log.info("%d launchers have failed or were taken away: the Job's limit is %d", job.failed, limit)

    def _attempt(self, otherwise: str, work: Callable[[], None]) -> None:
        try:
            work()
        except ApiError as error:
            if otherwise not in self._told:
                self._told.add(otherwise)
                log.info("%s: %s", otherwise, error)
