"""Each worker of a job: what it does, where, and if it does not train, why."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from hvd_elastic.client.connection.cluster_client import Json
from hvd_elastic.client.report.job_facts import JobFacts
from hvd_elastic.client.report.words.cause_words import (
    departure_words,
    disruption_words,
    placement_words,
    scheduler_words,
)
from hvd_elastic.discovery.ledger.entries import Departure, WorkerBound, WorkerLeaving, WorldChanged
from hvd_elastic.discovery.rules.cluster_views import PodView, unix_seconds
from hvd_elastic.mpijob.contract import Role

NOT_KNOWN: Final = "why its pod is gone is not known"


class WorkerPodState(StrEnum):
    """What a worker's pod does."""

    TRAINING = "training"
    READY = "ready"
    """Its standby waits, and it does not train; or nothing tells who trains."""
    STARTING = "starting"
    PENDING = "pending"
    """The scheduler has no place for it."""
    LEAVING = "leaving"
    ENDED = "ended"
    """Its pod is there, and its containers have ended."""
    ABSENT = "absent"
    """It is asked for, and there is no pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStatus:
    """One worker. `pod` is a name that a later pod of the same index has again."""

    pod: str
    state: WorkerPodState
    node: str = ""
    since: float | None = None
    """Unix seconds since which its pod is there, pending, or gone; None: not known."""
    why: str = ""
    """Why it is in this state: the scheduler's, the kubelet's or the ledger's words."""
    before: str = ""
    """Why the last pod of this name has gone."""


def worker_statuses(facts: JobFacts, *, trains: bool = True) -> tuple[WorkerStatus, ...]:
    """The workers that are there or asked for, in the order of their indexes.

    `trains`: whether the job does now. If not, the last world of the ledger is no longer there.
    """
    pods = {pod["metadata"]["name"]: pod for pod in facts.pods_of(Role.WORKER)}
    past, training = _PastPods.of(facts), _who_trains(facts) if trains else ()
    names = sorted({*pods, *_asked_for(facts)}, key=_index)
    return tuple(
        _present(pods[name], past, training=name in training) if name in pods else _absent(name, past) for name in names
    )


def _present(pod: Json, past: "_PastPods", *, training: bool) -> WorkerStatus:
    view = PodView.from_json(pod)
    state, why = _judge(pod, view, training=training)
    own, before = past.departures.get(view.uid), past.departures.get(past.last(view.name, besides=view.uid))
    return WorkerStatus(
        pod=view.name,
        state=state,
        node=view.node,
        since=view.created or None,
        why=departure_words(own) if own and state in {WorkerPodState.LEAVING, WorkerPodState.ENDED} else why,
        before=departure_words(before) if before else "",
    )


def _absent(name: str, past: "_PastPods") -> WorkerStatus:
    last = past.last(name)
    departure = past.departures.get(last)
    return WorkerStatus(
        pod=name,
        state=WorkerPodState.ABSENT,
        since=departure.unix if departure else None,
        why=departure_words(departure) if departure else NOT_KNOWN if last else "",
    )


def _judge(pod: Json, view: PodView, *, training: bool) -> tuple[WorkerPodState, str]:
    if view.has_ended:
        return WorkerPodState.ENDED, "; ".join(filter(None, (view.reason, view.last_state))) or view.phase
    if view.disruption or view.deleting_at is not None:
        return WorkerPodState.LEAVING, disruption_words(view.disruption) if view.disruption else "deleted"
    if not view.node:
        return WorkerPodState.PENDING, placement_words(pod)
    if view.phase != "Running" or not view.ready_to_kubelet:
        return WorkerPodState.STARTING, _kubelet_says(pod)
    doubt = "its node is not Ready" if view.ready_withdrawn else ""
    return (WorkerPodState.TRAINING if training else WorkerPodState.READY), doubt


def _kubelet_says(pod: Json) -> str:
    """Why a container waits: `ImagePullBackOff: ...`; empty while it is being made."""
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if reason := waiting.get("reason"):
            return scheduler_words(": ".join(filter(None, (reason, waiting.get("message")))))
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _PastPods:
    """The pods that had the workers' names, as the ledger and Events tell of them.

    One name is had by one pod after the other, so nothing is told of one by the word on another.
    """

    seen: Mapping[str, Mapping[str, float]]
    """By name: when each UID was first heard of, in Unix seconds."""
    departures: Mapping[str, WorkerLeaving]
    """By UID: of the ledger, or else of the scheduler's Events, which tell of preemptions."""

    @classmethod
    def of(cls, facts: JobFacts) -> "_PastPods":
        entries = [entry for entry in facts.ledger or () if isinstance(entry, WorkerBound | WorkerLeaving)]
        departures = {
            leaving.uid: leaving
            for leaving in (*preemptions_in(facts.events), *entries)
            if isinstance(leaving, WorkerLeaving)
        }
        told = [(entry.pod, entry.uid, entry.unix) for entry in entries]
        about = [(event, event["involvedObject"]) for event in facts.events]
        told += [(str(pod.get("name")), str(pod.get("uid") or ""), event_time(event)) for event, pod in about]
        seen: dict[str, dict[str, float]] = {}
        for name, uid, unix in told:
            if uid:
                known = seen.setdefault(name, {})
                known[uid] = min(unix, known.get(uid, unix))
        return cls(seen=seen, departures=departures)

    def last(self, name: str, *, besides: str = "") -> str:
        """The UID of the last pod of this name that is known, but for that of UID `besides`; empty: none is."""
        known = self.seen.get(name, {})
        return max((uid for uid in known if uid != besides), key=lambda uid: known[uid], default="")


def preemptions_in(events: Iterable[Json]) -> list[WorkerLeaving]:
    """What the scheduler's Events say, oldest first: the message has a UID only, `related` the pod.

    Each victim once: until its end it may fall to other pods too. Source: Kubernetes 1.34,
    `pkg/scheduler/framework/preemption/preemption.go`.
    """
    told = sorted((_preemption(event) for event in events if event.get("reason") == "Preempted"), key=_time)
    first = {leaving.uid: leaving for leaving in reversed(told)}
    return sorted(first.values(), key=_time)


def _preemption(event: Json) -> WorkerLeaving:
    related, victim = event.get("related") or {}, event["involvedObject"]
    by = "/".join(filter(None, (related.get("namespace"), related.get("name"))))
    uid = str(event.get("message") or "").removeprefix("Preempted by pod ").partition(" ")[0]
    return WorkerLeaving(
        unix=event_time(event),
        pod=str(victim.get("name") or ""),
        uid=str(victim.get("uid") or ""),
        why=Departure.PREEMPTED,
        by=by or f"uid:{uid}",
    )


def _time(leaving: WorkerLeaving) -> float:
    return leaving.unix


def event_time(event: Json) -> float:
    """When an Event happened last, in Unix seconds. Its time is in one of four fields, as its maker likes."""
    series = (event.get("series") or {}).get("lastObservedTime")
    return unix_seconds(
        series or event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp")
    )


def _who_trains(facts: JobFacts) -> tuple[str, ...]:
    worlds = (entry.workers for entry in reversed(facts.ledger or ()) if isinstance(entry, WorldChanged))
    return next(worlds, ())


def _asked_for(facts: JobFacts) -> list[str]:
    spec = facts.job.get("spec") or {}
    if (spec.get("runPolicy") or {}).get("suspend") or (facts.job.get("status") or {}).get("completionTime"):
        return []
    replicas = int((spec.get("mpiReplicaSpecs", {}).get("Worker") or {}).get("replicas") or 0)
    return [f"{facts.name}-worker-{index}" for index in range(replicas)]


def _index(pod: str) -> tuple[int, str]:
    tail = pod.rpartition("-")[2]
    return (int(tail) if tail.isascii() and tail.isdigit() else -1), pod
