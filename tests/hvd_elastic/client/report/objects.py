"""Objects of one job, as the API server gives them, and its ledger."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from hvd_elastic.client.report.job_facts import JobFacts
from hvd_elastic.discovery.ledger.entries import (
    Departure,
    Entry,
    LauncherStarted,
    WorkerBound,
    WorkerGone,
    WorkerLeaving,
    WorldChanged,
    to_line,
)
from hvd_elastic.discovery.ledger.live_status import Activity, LiveStatus
from hvd_elastic.mpijob.contract import ANNOTATION_SPEC, ANNOTATION_STATUS, LABEL_JOB_NAME, LABEL_JOB_ROLE, LEDGER_KEY
from testbed.kube_api import EVENTS, JOBS, PODS

Json = dict[str, Any]

NOW = 1_800_000_000.0
LAUNCHER_JOBS = "/apis/batch/v1/namespaces/default/jobs"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
ALL_JOBS = "/apis/kubeflow.org/v2beta1/mpijobs"
VERSION = "/version"
COLLECTIONS = (JOBS, PODS, EVENTS, LAUNCHER_JOBS, CONFIG_MAPS, ALL_JOBS, VERSION)


def stamp(unix: float) -> str:
    return datetime.fromtimestamp(unix, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def live(**fields: Any) -> LiveStatus:
    return LiveStatus(
        **{"unix": NOW - 5, "activity": Activity.TRAINING, "since": NOW - 600, "workers": 2, "step": 90, **fields}
    )


def mpijob(
    name: str = "train",
    *,
    status: LiveStatus | None = None,
    conditions: Iterable[Json] = (),
    ended: float | None = None,
    suspend: bool = False,
    labels: dict[str, str] | None = None,
    ours: bool = True,
    replicas: int = 3,
) -> Json:
    spec = {ANNOTATION_SPEC: json.dumps({"name": name, "workers": {"min": 1, "max": 8}})} if ours else {}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "creationTimestamp": stamp(NOW - 3600),
            "labels": labels or {},
            "annotations": {**spec, **({ANNOTATION_STATUS: status.to_json()} if status else {})},
        },
        "spec": {
            "runPolicy": {"backoffLimit": 3, "suspend": suspend},
            "mpiReplicaSpecs": {"Worker": {"replicas": replicas}},
        },
        "status": {"conditions": list(conditions), **({"completionTime": stamp(ended)} if ended else {})},
    }


def condition(kind: str, reason: str = "", message: str = "", *, at: float = NOW - 100) -> Json:
    return {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": stamp(at)}


def pod(
    name: str,
    *,
    role: str = "worker",
    phase: str = "Running",
    node: str = "node-a",
    uid: str = "",
    conditions: Iterable[Json] = (),
    containers: Iterable[Json] = (),
    deleting: bool = False,
    reason: str = "",
    finalizers: Iterable[str] = (),
) -> Json:
    ready, job = str(phase == "Running"), name.partition("-")[0]
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": uid or f"uid-{name}",
            "creationTimestamp": stamp(NOW - 900),
            "labels": {LABEL_JOB_NAME: job, LABEL_JOB_ROLE: role},
            "ownerReferences": [{"kind": "MPIJob", "name": job, "uid": f"uid-{job}", "controller": True}],
            **({"deletionTimestamp": stamp(NOW)} if deleting else {}),
            **({"finalizers": list(finalizers)} if finalizers else {}),
        },
        "spec": {"nodeName": node} if node else {},
        "status": {
            "phase": phase,
            "reason": reason,
            "conditions": [{"type": "Ready", "status": ready}, *conditions],
            "containerStatuses": list(containers),
        },
    }


def launcher(name: str = "train-launcher-a1b2c", **fields: Any) -> Json:
    return pod(name, role="launcher", **fields)


def unschedulable(name: str, message: str) -> Json:
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return pod(name, phase="Pending", node="", conditions=[said])


def queued(name: str, queue: str = "research") -> Json:
    """A worker that Kueue has not admitted."""
    gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    made = pod(name, phase="Pending", node="", conditions=[gated])
    made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = queue
    return made


def workload(message: str) -> Json:
    return {"status": {"conditions": [{"type": "QuotaReserved", "status": "False", "message": message}]}}


def preempted_event(victim: str = "train-worker-2", *, unix: float = NOW - 60, count: int = 1) -> Json:
    """As kube-scheduler 1.34 writes it, read as v1/Event."""
    return {
        "metadata": {"name": f"{victim}.{unix}", "namespace": "default", "creationTimestamp": stamp(unix)},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": victim, "uid": f"uid-{victim}"},
        "related": {"kind": "Pod", "namespace": "inference", "name": "web-1", "uid": "3c1f"},
        "reason": "Preempted",
        "action": "Preempting",
        "message": "Preempted by pod 3c1f on node node-a",
        "eventTime": stamp(unix),
        "firstTimestamp": None,
        "lastTimestamp": None,
        "reportingComponent": "default-scheduler",
        "count": count,
    }


def event(about: str, reason: str, message: str, *, unix: float, component: str = "kubelet", count: int = 1) -> Json:
    return {
        "metadata": {"name": f"{about}.{reason}.{unix}", "namespace": "default", "creationTimestamp": stamp(unix)},
        "involvedObject": {"kind": "Pod", "name": about},
        "reason": reason,
        "message": message,
        "lastTimestamp": stamp(unix),
        "source": {"component": component},
        "count": count,
    }


def bound(
    at: float, index: int, *, uid: str = "", gpus: int = 1, machine: str = "g5.xlarge", spot: bool | None = True
) -> WorkerBound:
    pod_name = f"train-worker-{index}"
    return WorkerBound(
        unix=at, pod=pod_name, uid=uid or f"uid-{pod_name}", node="node-a", gpus=gpus, machine=machine, spot=spot
    )


LEDGER: tuple[Entry, ...] = (
    LauncherStarted(unix=NOW - 900, pod="train-launcher-a1b2c", uid="uid-l"),
    bound(NOW - 890, 0),
    bound(NOW - 890, 1),
    bound(NOW - 890, 2, uid="old-2"),
    WorldChanged(unix=NOW - 800, workers=("train-worker-0", "train-worker-1", "train-worker-2"), step=0),
    WorkerLeaving(unix=NOW - 610, pod="train-worker-2", uid="old-2", why=Departure.PREEMPTED, by="inference/web-1"),
    WorkerGone(unix=NOW - 605, pod="train-worker-2", uid="old-2"),
    WorldChanged(
        unix=NOW - 600, workers=("train-worker-0", "train-worker-1"), step=60, pause_seconds=3.0, repeated_steps=2
    ),
)
"""Worker 2 was preempted, and two train on."""


def ledger_map(entries: Iterable[Entry] = LEDGER) -> Json:
    return {"metadata": {"name": "train-ledger"}, "data": {LEDGER_KEY: "".join(map(to_line, entries))}}


def facts(**fields: Any) -> JobFacts:
    """Of a job that trains with two workers, and waits for a place for the third."""
    return JobFacts(
        **{
            "job": mpijob(status=live()),
            "now": NOW,
            "pods": (
                launcher(),
                pod("train-worker-0"),
                pod("train-worker-1"),
                unschedulable(
                    "train-worker-2", "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. preemption: no"
                ),
            ),
            "ledger": LEDGER,
            **fields,
        }
    )
