"""Everything that the cluster knows of one job, read at one time. Nothing here judges."""

import contextlib
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from hvd_elastic.client.connection.cluster_client import (
    ClusterClient,
    ForbiddenError,
    Json,
    NotFoundError,
    RefusedError,
    UnreachableError,
)
from hvd_elastic.client.connection.known_api import KUEUE_VISIBILITY, NotServedError
from hvd_elastic.client.job_lookup import find_job
from hvd_elastic.client.report.facts.preemptor_names import PreemptorNames
from hvd_elastic.client.report.facts.workloads import workloads_of
from hvd_elastic.client.report.stage_status import StageFacts, newest, wanted_stage
from hvd_elastic.client.report.untold_end import untold_end
from hvd_elastic.client.report.words.cause_words import lacks_taints
from hvd_elastic.client.report.words.start_words import starts
from hvd_elastic.discovery.ledger.entries import Entry, from_lines
from hvd_elastic.discovery.ledger.live_status import LiveStatus
from hvd_elastic.discovery.rules.cluster_views import PodView
from hvd_elastic.mpijob.contract import (
    ANNOTATION_STATUS,
    KUEUE_QUEUE,
    LABEL_JOB_NAME,
    LABEL_JOB_ROLE,
    LABEL_REPLICA_TYPE,
    LABEL_STAGE,
    LEDGER_KEY,
    LEDGER_SUFFIX,
    STAGE_CONTAINER,
    Role,
)

_JOB_LABEL: Final = "batch.kubernetes.io/job-name"
"""On the pods of a Kubernetes Job, from 1.27 on (https://kubernetes.io/docs/reference/labels-annotations-taints/)."""
_LOG_LINES: Final = 500
"""A rearrangement may print lines of its own behind the last progress of the copy."""
_LOG_BYTES: Final = 1 << 20
_LOG_SECONDS: Final = 10.0
_MOST_ASKED: Final = 8
"""Missing workers that are looked for by their names, and pods whose Events are."""
_MOST_WORKLOADS: Final = 100
"""Of workers that are asked for at once: each UID has 37 characters of the URL."""

_MOST_WORKERS: Final = 100_000
"""As many as a description may ask for. Anyone may write two thousand million into an MPIJob."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """Objects as the API server writes them."""

    job: Json
    """The MPIJob."""
    now: float
    """Unix seconds of the API server's clock."""
    pods: tuple[Json, ...] = ()
    """Of launchers and workers."""
    unlabelled: tuple[Json, ...] = ()
    """The job's pods with the names of missing workers: somebody has taken the labels by which pods are found."""
    launcher_job: Json | None = None
    ledger: tuple[Entry, ...] | None = None
    """None: the job has none, or it may not be read. An end that it lacks, and other objects tell, stands behind it."""
    workload: Json | None = None
    """Of Kueue; None without `workload_unread`: there is none."""
    workload_unread: str = ""
    """Why Kueue could not be asked for it."""
    pod_workloads: Mapping[str, Json | None] = field(default_factory=dict)
    """Kueue's, of workers that wait each by itself, by their UIDs; None: it has made none. Of the first hundred."""
    queue_position: int | None = None
    """How many jobs of its LocalQueue come before it; None: it does not wait, or Kueue does not tell (`unreadable`)."""
    stage: StageFacts | None = None
    """The staging of its data set; None: it has none, the Job is gone, or a worker has trained."""
    events: tuple[Json, ...] = ()
    """`v1/Event` of the job, its pods and the launcher's Job, if they were asked for. Else those that say why a pod is
    missing, of the job and of the launcher's Job, or why one does not start on its node."""
    nodes: tuple[Json, ...] = ()
    """The cluster's, where a pod waits because of a taint that the scheduler does not name, and they may be read."""
    unreadable: tuple[str, ...] = ()
    """What the caller may not read or the API server does not serve, in its words."""

    @property
    def name(self) -> str:
        return str(self.job["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.job["metadata"].get("namespace", ""))

    @property
    def live(self) -> LiveStatus | None:
        """What the sidecar last said of it."""
        return LiveStatus.from_json((self.job["metadata"].get("annotations") or {}).get(ANNOTATION_STATUS) or "")

    @property
    def asked_workers(self) -> tuple[str, ...]:
        """The names of the workers that are asked for, in the order of their indexes."""
        spec = self.job.get("spec") or {}
        if (spec.get("runPolicy") or {}).get("suspend") or (self.job.get("status") or {}).get("completionTime"):
            return ()
        replicas = int((spec.get("mpiReplicaSpecs", {}).get("Worker") or {}).get("replicas") or 0)
        return tuple(f"{self.name}-worker-{index}" for index in range(min(replicas, _MOST_WORKERS)))

    @property
    def missing_workers(self) -> list[str]:
        """The names of those that have no pod, or none that is found."""
        there = {pod["metadata"]["name"] for pod in self.pods_of(Role.WORKER)}
        return [name for name in self.asked_workers if name not in there]

    @property
    def lacks_pods(self) -> bool:
        """Whether a worker that is asked for has no pod, or no launcher is there for them."""
        launchers = map(PodView.from_json, self.pods_of(Role.LAUNCHER))
        return bool(self.missing_workers or (self.asked_workers and all(one.has_ended for one in launchers)))

    def pods_of(self, role: Role) -> list[Json]:
        """The pods of this role that are there."""
        return [pod for pod in self.pods if _role(pod) == role]


class JobFactReader:
    """Reads the facts of one job after the other."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster
        self._unreadable: list[str] = []

    def read(self, name: str, namespace: str, *, events: bool = False) -> JobFacts:
        """The facts of a job. All Events only if they are asked for, or there is no ledger: there may be thousands.

        Raises UnknownJobError, ForeignJobError or another ClusterError. What the caller may not read is left out and
        noted, but for the MPIJob itself.
        """
        self._unreadable = []
        here = f"/namespaces/{namespace}"
        with ThreadPoolExecutor() as pool:  # all of them take one round trip
            job = pool.submit(find_job, self._cluster, name, namespace)
            pods, ledger = pool.submit(self._pods, here, name), pool.submit(self._ledger, here, name)
            launcher_path = f"/apis/batch/v1{here}/jobs/{name}-launcher"
            launcher_job = pool.submit(self._ask, lambda: self._cluster.get(launcher_path), None)
            found = job.result()
        meta, told = found.job["metadata"], ledger.result()
        own = tuple(pod for pod in pods.result() if not _is_strange(pod, meta["uid"]))
        refused = len(self._unreadable)
        workload = self._ask(lambda: self._workload(here, meta), None)
        nothing: dict[str, Json | None] = {}
        queued = self._ask(lambda: self._pod_workloads(here, own), nothing)
        workload_unread = "; ".join(self._unreadable[refused:])
        facts = JobFacts(
            job=found.job,
            now=found.now,
            pods=own,
            launcher_job=launcher_job.result(),
            ledger=_with_end(told, own, found.job),
            workload=workload,
            pod_workloads=queued,
            workload_unread=workload_unread,
            stage=self._stage(here, name, found.job),
            queue_position=self._queue_position(here, found.job, workload) if workload else None,
        )
        facts = replace(
            facts,
            unlabelled=self._unlabelled(f"/api/v1{here}/pods", facts),
            nodes=nodes_with_taints(self._cluster, facts.pods),
        )
        if events or not told:
            facts = replace(facts, events=self._ask(lambda: self._events(f"/api/v1{here}/events", name), ()))
        else:
            makers = (name, f"{name}-launcher") if facts.lacks_pods else ()
            facts = replace(facts, events=self._ask(lambda: events_of(self._cluster, here, facts.pods, makers), ()))
        return replace(self._with_named_preemptors(facts), unreadable=tuple(sorted(self._unreadable)))

    def read_record(self, job: Json, now: float) -> JobFacts:
        """What tells what a job has held: its ledger and its pods. Raises ClusterError.

        Args:
            job: its MPIJob, which may be deleted meanwhile.
            now: Unix seconds of the API server's clock.
        """
        self._unreadable = []
        name, here = job["metadata"]["name"], f"/namespaces/{job['metadata']['namespace']}"
        pods = self._pods(here, name)
        ledger = _with_end(self._ledger(here, name), pods, job)
        return JobFacts(job=job, now=now, pods=pods, ledger=ledger, unreadable=tuple(sorted(self._unreadable)))

    def _ask(self, question: Callable[[], _T], otherwise: _T) -> _T:
        try:
            return question()
        except (ForbiddenError, NotServedError) as error:
            self._unreadable.append(str(error))
            return otherwise
        except NotFoundError:
            return otherwise

    def _pods(self, here: str, name: str) -> tuple[Json, ...]:
        selector = f"{LABEL_JOB_NAME}={name}"
        return self._ask(lambda: tuple(self._cluster.list(f"/api/v1{here}/pods", labelSelector=selector)), ())

    def _unlabelled(self, path: str, facts: JobFacts) -> tuple[Json, ...]:
        """Of the first that are missing: of a thousand that are not made yet, each would be asked for."""
        names = facts.missing_workers[:_MOST_ASKED]
        if not names:
            return ()
        with ThreadPoolExecutor() as pool:
            found = pool.map(lambda name: self._ask(lambda: self._cluster.get(f"{path}/{name}"), None), names)
            owner = facts.job["metadata"]["uid"]
            return tuple(pod for pod in found if pod is not None and PodView.from_json(pod).owner_uid == owner)

    def _stage(self, here: str, name: str, mpijob: Json) -> StageFacts | None:
        wanted = wanted_stage(mpijob)
        if wanted is None:
            return None
        path, copies = f"/apis/batch/v1{here}/jobs", f"{LABEL_STAGE}={name}"
        jobs: list[Json] = self._ask(lambda: list(self._cluster.list(path, labelSelector=copies)), [])
        if (job := newest(jobs)) is None:
            return None
        selector = f"{_JOB_LABEL}={job['metadata']['name']}"
        pods: list[Json] = self._ask(
            lambda: list(self._cluster.list(f"/api/v1{here}/pods", labelSelector=selector)), []
        )
        pod = newest(pods)
        facts = StageFacts(source=wanted[0], rearranges=wanted[1], job=job, pod=pod)
        if pod is None:
            return facts
        return replace(
            facts,
            log=self._ask(lambda: self._log_end(here, pod["metadata"]["name"]), ()),
            events=self._ask(lambda: events_of(self._cluster, here, [pod]), ()),
        )

    def _log_end(self, here: str, pod: str) -> tuple[str, ...]:
        query = {"container": STAGE_CONTAINER, "tailLines": str(_LOG_LINES), "limitBytes": str(_LOG_BYTES)}
        try:
            lines = self._cluster.stream(f"/api/v1{here}/pods/{pod}/log", query, silence_seconds=_LOG_SECONDS)
            return tuple(line.decode(errors="replace") for line in lines)
        except (RefusedError, UnreachableError):
            return ()  # its container has not started, or its node is lost

    def _ledger(self, here: str, name: str) -> tuple[Entry, ...] | None:
        path = f"/api/v1{here}/configmaps/{name}{LEDGER_SUFFIX}"
        found = self._ask(lambda: self._cluster.get(path), None)
        if found is None:
            return None
        return tuple(from_lines(str((found.get("data") or {}).get(LEDGER_KEY) or "").splitlines()))

    def _workload(self, here: str, meta: dict[str, Any]) -> Json | None:
        if KUEUE_QUEUE not in (meta.get("labels") or {}):
            return None
        return workloads_of(self._cluster, here, [meta["uid"]]).get(meta["uid"])

    def _pod_workloads(self, here: str, pods: Iterable[Json]) -> dict[str, Json | None]:
        waiting = [
            pod["metadata"]["uid"]
            for pod in pods
            if PodView.from_json(pod).gated and KUEUE_QUEUE in (pod["metadata"].get("labels") or {})
        ]
        asked = waiting[:_MOST_WORKLOADS]
        found = workloads_of(self._cluster, here, asked)
        return {uid: found.get(uid) for uid in asked}

    def _queue_position(self, here: str, mpijob: Json, workload: Json) -> int | None:
        """Of Kueue's visibility API, which few may ask, and which its controller serves itself.

        Source: https://kueue.sigs.k8s.io/docs/tasks/manage/monitor_pending_workloads/pending_workloads_on_demand/
        """
        if not (mpijob["spec"].get("runPolicy") or {}).get("suspend"):
            return None  # it does not wait
        queue = mpijob["metadata"]["labels"][KUEUE_QUEUE]
        try:
            path = f"{KUEUE_VISIBILITY.served_path(self._cluster)}{here}/localqueues/{queue}/pendingworkloads"
            pending = self._cluster.get(path).get("items") or ()
        except (NotServedError, RefusedError) as error:
            self._unreadable.append(f"its place in the queue is not known: {error}")
            return None
        except (NotFoundError, ForbiddenError):
            return None
        name = workload["metadata"]["name"]
        return next((int(one["positionInLocalQueue"]) for one in pending if one["metadata"]["name"] == name), None)

    def _events(self, path: str, name: str) -> tuple[Json, ...]:
        # A field selector names one object; the job has many, and some of them are gone.
        mine = re.compile(rf"{re.escape(name)}(-launcher(-[a-z0-9]+)?|-worker-\d+)?", re.ASCII)
        return tuple(
            event for event in self._cluster.list(path) if mine.fullmatch(event["involvedObject"].get("name") or "")
        )

    def _with_named_preemptors(self, facts: JobFacts) -> JobFacts:
        ledger, events = facts.ledger or (), facts.events
        names = PreemptorNames(self._cluster, facts.namespace, ledger=ledger, events=events, now=facts.now)
        return replace(
            facts,
            ledger=facts.ledger and tuple(map(names.of_entry, ledger)),
            events=tuple(map(names.of_event, events)),
        )


def events_of(cluster: ClusterClient, here: str, pods: Iterable[Json], others: Iterable[str] = ()) -> tuple[Json, ...]:
    """The Events of the pods that start on their nodes, and of other objects by their names. Raises ClusterError.

    `here`: `/namespaces/NAMESPACE`.
    """
    starting = [pod["metadata"]["name"] for pod in pods if starts(pod)][:_MOST_ASKED]
    path = f"/api/v1{here}/events"
    return tuple(
        event
        for about in (*others, *starting)
        for event in cluster.list(path, fieldSelector=f"involvedObject.name={about}")
    )


def nodes_with_taints(cluster: ClusterClient, pods: Iterable[Json]) -> tuple[Json, ...]:
    """The cluster's nodes, where one of these pods needs their taints to be named. Empty if they may not be read."""
    if any(map(lacks_taints, pods)):
        with contextlib.suppress(ForbiddenError):
            return tuple(cluster.list("/api/v1/nodes"))
    return ()


def _with_end(told: tuple[Entry, ...] | None, pods: Iterable[Json], job: Json) -> tuple[Entry, ...] | None:
    """A ledger, with the end that it lacks and other objects tell."""
    launchers = [pod for pod in pods if _role(pod) == Role.LAUNCHER]
    return (*told, *untold_end(told, launchers, job)) if told else told


def _is_strange(pod: Json, owner: str) -> bool:
    """Whether it has a worker's labels, and the MPIJob does not own it: discovery calls that `not-ours`."""
    return _role(pod) == Role.WORKER and PodView.from_json(pod).owner_uid != owner


def _role(pod: Json) -> str:
    labels = pod["metadata"].get("labels") or {}
    return str(labels.get(LABEL_JOB_ROLE) or labels.get(LABEL_REPLICA_TYPE) or "")
