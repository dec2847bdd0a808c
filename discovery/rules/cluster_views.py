"""What discovery reads of the cluster, as small values: the job, a pod, its node, and the worker's own answer.

Each is made from the API server's JSON or by hand; a local host without Kubernetes is
`PodView(name="local-1", uid="1", ip="127.0.0.2")`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from hvd_elastic.discovery.kube.node_exclusion import excluded_nodes
from hvd_elastic.discovery.rules import node_signals
from hvd_elastic.mpijob.contract import (
    ANNOTATION_BEGUN,
    ANNOTATION_GPU_RESOURCE,
    ANNOTATION_LEAVE,
    ANNOTATION_WANTED_WORKERS,
    GPU_RESOURCE,
    WorkerState,
)
from hvd_elastic.system import quantity
from hvd_elastic.system.untrusted_values import END_OF_DATES, decimal_count

Json = Mapping[str, Any]

ENDED: Final = frozenset({"Succeeded", "Failed"})
"""The phases of a pod whose containers have all ended."""
MPI_OPERATOR: Final = "kubeflow.org/mpi-operator"
"""In `managedBy` (mpi-operator 0.8.2, `pkg/apis/kubeflow/v2beta1/types.go`, `KubeflowJobController`)."""
LABEL_MACHINE: Final = "node.kubernetes.io/instance-type"
"""https://kubernetes.io/docs/reference/labels-annotations-taints/#nodekubernetesioinstance-type"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodView:
    """The part of a pod that discovery decides by. The defaults are those of a worker that may be used."""

    name: str
    uid: str
    ip: str = ""
    """IPv4 where it has both: Gloo takes an interface's IPv4 address before any of IPv6 (`lookupAddrForIface` in
    `gloo/transport/tcp/device.cc`: getifaddrs(3) lists them in this order), and all else of a job goes the same way."""
    phase: str = "Running"
    ready: bool = True
    ready_since: float = 0.0
    """Unix seconds of the last change of the condition Ready."""
    ready_withdrawn: bool = False
    """Whether the node controller took the condition Ready away, because the node is not Ready. Only it does so and
    leaves ContainersReady as it was, and it gives no reason (Kubernetes 1.34, `pkg/controller/util/node/
    controller_utils.go`, `MarkPodsNotReady`); a kubelet gives one (`pkg/kubelet/status/generate.go`)."""
    starting: bool = False
    """Whether it has never been Ready, and all its containers run for the first time. Such a worker is believed when it
    answers: its kubelet sees that some tenths of a second later. Of one that was Ready, or has a container that was
    started again, the answer may be an old one."""
    runs_on: bool = False
    """Whether it is no longer Ready, and all its containers have run since before that. A kubelet that starts anew
    calls no pod Ready until its probe has succeeded once more (Kubernetes 1.34, `pkg/kubelet/prober/prober_manager.go`,
    `UpdatePodStatus`), and the probe asks what the reach test asks. So such a worker is believed while it answers."""
    created: float = 0.0
    """Unix seconds."""
    deleting_at: float | None = None
    """`deletionTimestamp` in Unix seconds: when the grace period ends, not when the deletion was requested."""
    disruption: str = ""
    """Reason of a DisruptionTarget condition that is True, or else of TerminationTarget, which Kueue sets before it
    deletes a pod (0.19, `pkg/controller/jobs/pod/pod_controller.go`, `Stop`); empty if there is none. A False one is
    stale."""
    eviction: str = ""
    """Kueue's words on why it takes the pod: the message of TerminationTarget."""
    leave: bool = False
    """Whether ANNOTATION_LEAVE asks it to leave."""
    owner_uid: str = ""
    """UID of the controller that owns it."""
    node: str = ""
    unschedulable: bool = False
    """Whether the scheduler has looked at it and has no node for it. It says PodScheduled False then (and so does the
    API server of a pod with a gate), and names a node if it has others leave there for it (Kubernetes 1.34,
    `pkg/scheduler/schedule_one.go`, `handleSchedulingFailure`; `pkg/registry/core/pod/strategy.go`). False while
    nobody has looked."""
    gated: bool = False
    """Whether a queue has not admitted it: a gate keeps the scheduler from looking at it."""
    reason: str = ""
    """`status.reason`, such as Evicted."""
    last_state: str = ""
    """How its containers ended, for the Event that the reaper writes."""
    bound_at: float | None = None
    """Unix seconds of its binding to the node."""
    ended_at: float | None = None
    """Unix seconds of the end of its last container."""

    @property
    def ready_to_kubelet(self) -> bool:
        """Whether its kubelet has last called it Ready, whatever the node controller thinks of the node."""
        return self.ready or self.ready_withdrawn

    @property
    def may_answer(self) -> bool:
        """Whether its own answer counts: its kubelet calls it Ready, or has a reason of its own not to."""
        return self.ready_to_kubelet or self.starting or self.runs_on

    @property
    def has_ended(self) -> bool:
        """Whether its kubelet has reported the end of all its containers."""
        return self.phase in ENDED

    @property
    def may_block(self) -> bool:
        """Whether it may stand in the way of its successor: only such a pod may have to be reaped."""
        return self.has_ended or self.deleting_at is not None or self.ready_withdrawn

    @classmethod
    def from_json(cls, pod: Json) -> "PodView":
        """Read a Pod as the API server sends it. A missing field never counts in the pod's favour."""
        meta, status = pod["metadata"], pod.get("status") or {}
        conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
        ready, containers = conditions.get("Ready", {}), conditions.get("ContainersReady", {})
        disruption, termination = conditions.get("DisruptionTarget", {}), conditions.get("TerminationTarget", {})
        deleting = meta.get("deletionTimestamp")
        leave = (meta.get("annotations") or {}).get(ANNOTATION_LEAVE, "false")
        scheduled = conditions.get("PodScheduled", {})
        node = (pod.get("spec") or {}).get("nodeName") or ""
        return cls(
            name=meta["name"],
            uid=meta["uid"],
            ip=_address(status),
            phase=status.get("phase") or "",
            ready=ready.get("status") == "True",
            ready_since=unix_seconds(ready.get("lastTransitionTime")),
            ready_withdrawn=(ready.get("status"), containers.get("status")) == ("False", "True")
            and not ready.get("reason"),
            starting=_is_starting(ready, status),
            runs_on=_runs_on(ready, status),
            created=unix_seconds(meta.get("creationTimestamp")),
            deleting_at=unix_seconds(deleting) if deleting else None,
            disruption=_true_reason(disruption) or _true_reason(termination),
            eviction=str(termination.get("message") or "") if _true_reason(termination) else "",
            leave=leave != "false",
            owner_uid=_controller(meta.get("ownerReferences") or ()),
            node=node,
            unschedulable=scheduled.get("status") == "False" and not (node or status.get("nominatedNodeName")),
            gated=not node and scheduled.get("reason") == "SchedulingGated",
            reason=status.get("reason") or "",
            last_state=_last_state(status) if status.get("phase") in ENDED else "",
            bound_at=_true_since(scheduled),
            ended_at=_ended_at(status) if status.get("phase") in ENDED else None,
        )

    @property
    def index(self) -> int | None:
        """The i of `JOB-worker-i`. From the name, because the label is one off where the launcher is a worker too."""
        return decimal_count(self.name.rpartition("-")[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """The part of a node that discovery decides by."""

    name: str
    ready: bool = True
    spot: bool = False
    draining: str = ""
    """Why pods must leave it at once: a taint's key, or its kubelet's word; empty if nothing says so."""
    at_risk: str = ""
    """Why it may go soon: a cordon, a rebalance recommendation."""
    machine: str = ""
    """Its instance type."""

    @classmethod
    def from_json(cls, node: Json) -> "NodeView":
        meta, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
        taints = [taint["key"] for taint in spec.get("taints") or ()]
        conditions = {condition["type"]: condition.get("status") for condition in status.get("conditions") or ()}
        messages = {condition["type"]: condition.get("message") or "" for condition in status.get("conditions") or ()}
        labels = meta.get("labels") or {}
        ready = conditions.get("Ready") == "True"
        return cls(
            name=meta["name"],
            ready=ready,
            spot=node_signals.is_spot(labels),
            draining=node_signals.draining(taints, "" if ready else messages.get("Ready", "")),
            at_risk=node_signals.at_risk(taints, conditions, cordoned=bool(spec.get("unschedulable"))),
            machine=labels.get(LABEL_MACHINE) or "",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """A worker's last answer on its ready port, and whether it still answers."""

    generation: int = 0
    state: WorkerState = WorkerState.WAITING
    step: int = -1
    """The step in its heartbeat; -1 without a heartbeat."""
    age_seconds: int = -1
    """Age of that heartbeat; -1 without one."""
    silent: bool = False
    """Whether it missed too many probes in a row and has not answered since, whoever is to blame."""
    lost: bool = False
    """Whether it is silent while others answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """The part of an MPIJob that discovery decides by."""

    uid: str
    replicas: int = 0
    """Of its workers."""
    slots: int = 1
    """Processes per worker."""
    wanted: str = ""
    """The value of ANNOTATION_WANTED_WORKERS; empty if it is not set."""
    begun: bool = False
    """Whether ANNOTATION_BEGUN says that the job has trained."""
    gpus: int = 0
    """Of each worker: its template is that of all of them."""
    suspended: bool = False
    """Whether somebody has suspended it: a person, or a queue."""
    backoff_limit: int | None = None
    """How many launchers may fail; None: as many as Kubernetes lets them."""
    ended: str = ""
    """`Succeeded` or `Failed` once the job has ended; empty before that."""
    version: str = ""
    """Its resource version; empty: not known."""
    noted_workers: int | None = None
    """Workers that run, as the operator last noted; None: it has noted nothing."""
    excluded_nodes: tuple[str, ...] = ()
    """Those that its workers to come keep off."""
    has_mpi_operator: bool = True
    """Whether the MPI Operator sees to it: not to a job of v1, nor to one that names another in `managedBy`."""

    @property
    def wanted_workers(self) -> int:
        """How many workers somebody asks for: as many as the job has replicas, unless the annotation names a number."""
        said = decimal_count(self.wanted)
        return self.replicas if said is None else said

    @classmethod
    def from_json(cls, job: Json) -> "JobView":
        """Read an MPIJob, v2beta1 or v1, as the API server sends it."""
        meta = job["metadata"]
        spec = job.get("spec", {})
        worker = spec.get("mpiReplicaSpecs", {}).get("Worker") or {}
        policy = spec.get("runPolicy") or {}
        annotations = meta.get("annotations") or {}
        return cls(
            uid=meta["uid"],
            replicas=int(worker.get("replicas") or 0),
            slots=int(spec.get("slotsPerWorker") or 1),
            wanted=str(annotations.get(ANNOTATION_WANTED_WORKERS) or ""),
            begun=annotations.get(ANNOTATION_BEGUN) == "true",
            gpus=_gpus(_worker_template(job)),
            suspended=bool(policy.get("suspend")),
            backoff_limit=policy.get("backoffLimit"),
            ended=_end(job.get("status") or {}),
            version=str(meta.get("resourceVersion") or ""),
            noted_workers=_noted(job.get("status") or {}),
            excluded_nodes=tuple(excluded_nodes(job)),
            has_mpi_operator=not str(job.get("apiVersion")).endswith("/v1")
            and policy.get("managedBy") in (None, MPI_OPERATOR),
        )


def _noted(status: Json) -> int | None:
    worker = (status.get("replicaStatuses") or {}).get("Worker")
    return None if worker is None else int(worker.get("active") or 0)


def _end(status: Json) -> str:
    """How an MPIJob has ended. Only the completion time says that it has: `Failed/MPIJobEvicted` is not the end."""
    if not status.get("completionTime"):
        return ""
    conditions = {one["type"]: one.get("status") for one in status.get("conditions") or ()}
    return "Succeeded" if conditions.get("Succeeded") == "True" else "Failed"


def unix_seconds(timestamp: str | None) -> float:
    """Unix seconds of an RFC 3339 time; 0 for None, and for a year that no clock shows.

    The API server keeps the years 0 and 10000, if somebody makes an Event with them (Kubernetes 1.34,
    `apimachinery/pkg/apis/meta/v1/time.go`); `datetime` knows neither.
    """
    try:
        seconds = datetime.fromisoformat(timestamp).timestamp() if timestamp else 0.0
    except (OverflowError, ValueError):
        return 0.0
    return seconds if 0 <= seconds < END_OF_DATES else 0.0


def _address(status: Json) -> str:
    addresses = [str(one.get("ip") or "") for one in status.get("podIPs") or ()]
    return next((ip for ip in addresses if "." in ip), status.get("podIP") or "")


def _is_starting(ready: Json, status: Json) -> bool:
    """By the times: a kubelet says that the pod is not Ready before it starts a container, or when that is over."""
    if any(container.get("restartCount") for container in status.get("containerStatuses") or ()):
        return False
    starts, unready = _starts(status), unix_seconds(ready.get("lastTransitionTime"))
    return ready.get("status") == "False" and bool(starts) and all(start and start >= unready for start in starts)


def _runs_on(ready: Json, status: Json) -> bool:
    starts, unready = _starts(status), unix_seconds(ready.get("lastTransitionTime"))
    return ready.get("status") == "False" and bool(starts) and all(start and start < unready for start in starts)


def _starts(status: Json) -> list[float]:
    """When each container began to run, in Unix seconds; 0: it does not run."""
    containers = status.get("containerStatuses") or ()
    return [unix_seconds(((one.get("state") or {}).get("running") or {}).get("startedAt")) for one in containers]


def _true_reason(condition: Json) -> str:
    return condition.get("reason") or "unknown" if condition.get("status") == "True" else ""


def _true_since(condition: Json) -> float | None:
    return unix_seconds(condition.get("lastTransitionTime")) or None if condition.get("status") == "True" else None


def _ended_at(status: Json) -> float | None:
    states = [(container.get("state") or {}).get("terminated") or {} for container in _containers(status)]
    return max((unix_seconds(state.get("finishedAt")) for state in states), default=0.0) or None


def _containers(status: Json) -> Iterable[Json]:
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def gpu_resource(pod: Json) -> str:
    """What the GPUs of a worker are asked for by. `pod`: it, or the template of all workers."""
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    return str(annotations.get(ANNOTATION_GPU_RESOURCE) or GPU_RESOURCE)


def gpu_resource_of(job: Json) -> str:
    """What the GPUs of an MPIJob's workers are asked for by."""
    return gpu_resource(_worker_template(job))


def _worker_template(job: Json) -> Json:
    worker: Json = ((job.get("spec") or {}).get("mpiReplicaSpecs") or {}).get("Worker") or {}
    return worker.get("template") or {}


def _gpus(template: Json) -> int:
    containers, resource = (template.get("spec") or {}).get("containers") or (), gpu_resource(template)
    limits = [(container.get("resources") or {}).get("limits") or {} for container in containers]
    return sum(_count(limit.get(resource, 0)) for limit in limits)


def _count(written: object) -> int:
    """A number of GPUs in any form of a quantity (`1k`). What cannot be read counts for nothing."""
    try:
        return quantity.count(written)
    except ValueError:
        return 0


def _controller(owners: Iterable[Json]) -> str:
    return next((str(owner["uid"]) for owner in owners if owner.get("controller")), "")


def _last_state(status: Json) -> str:
    parts = [str(status.get("message") or "")]
    for container in status.get("containerStatuses") or ():
        ended = (container.get("state") or {}).get("terminated")
        if ended:
            parts.append(f"{container['name']}: {ended.get('reason') or 'ended'}, exit code {ended.get('exitCode')}")
    return "; ".join(filter(None, parts))
