"""The loop of a sweep's runner: it watches the sweep's jobs, and resumes the next when one ends.

It runs in the cluster (`runner_manifests`), so the cap outlives whoever submitted the sweep. It keeps nothing: the
jobs' own turns say what is next, so a runner that dies is simply begun again.
"""

import logging
from collections.abc import Mapping
from typing import Any

from hvd_elastic.client.sweep.turns import SweepJob, is_over, next_jobs
from hvd_elastic.discovery.kube.api_server import Access, ApiError, ApiServer
from hvd_elastic.discovery.kube.watch import Changed, Deleted, Listed, Message, Selection, Watch, WatchFault
from hvd_elastic.mpijob.contract import ANNOTATION_TURN, LABEL_SWEEP

log = logging.getLogger(__name__)


class SweepRunner:
    """Runs one sweep until all its jobs have ended."""

    def __init__(self, access: Access, *, sweep: str, namespace: str, at_once: int) -> None:
        self._path = f"/apis/kubeflow.org/v2beta1/namespaces/{namespace}/mpijobs"
        selection = Selection(
            path=self._path, query={"labelSelector": f"{LABEL_SWEEP}={sweep}"}, read=SweepJob.from_json
        )
        # A watch occupies its connection.
        self._watch, self._server = Watch(server=ApiServer(access), selection=selection), ApiServer(access)
        self._at_once = at_once
        self._jobs: dict[str, SweepJob] = {}

    def run(self) -> None:
        """Block until all jobs have ended. Faults of the API server are waited for."""
        has_listed = False
        for messages in self._watch.forever():
            for message in messages:
                has_listed = has_listed or isinstance(message, Listed)
                self._take(message)
            if has_listed and is_over(self._jobs.values()):
                log.info("all jobs of the sweep have ended")
                return
            self._resume_next()

    def _take(self, message: Message[SweepJob]) -> None:
        match message:
            case Listed(objects):
                self._jobs = {job.name: job for job in objects}
            case Changed(job):
                self._jobs[job.name] = job
            case Deleted(job):
                self._jobs.pop(job.name, None)
            case WatchFault(error, seconds):
                log.warning("the jobs cannot be watched, trying again in %.1f s: %s", seconds, error)

    def _resume_next(self) -> None:
        for job in next_jobs(self._jobs.values(), self._at_once):
            try:
                self._jobs[job.name] = SweepJob.from_json(
                    self._server.patch(f"{self._path}/{job.name}?fieldManager=hvd-elastic-sweep", resumption(job))
                )
                log.info("%s has its turn", job.name)
            except ApiError as error:
                # Tried again at the next message, ten seconds later at most.
                log.warning("%s cannot be resumed: %s", job.name, error)


def resumption(job: SweepJob) -> Mapping[str, Any]:
    """The merge patch that gives a job its turn. The UID is a precondition: another job of this name is left alone."""
    return {
        "metadata": {"uid": job.uid, "annotations": {ANNOTATION_TURN: None}},
        "spec": {"runPolicy": {"suspend": False}},
    }
