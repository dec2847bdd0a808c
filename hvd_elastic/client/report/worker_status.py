"""Each worker of a job: what it does, where, and if it does not train, why."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from hvd_elastic.client.connection.cluster_client import Json
from hvd_elastic.client.report.job_facts import JobFacts
from hvd_elastic.client.report.missing_pods import missing_worker_words
from hvd_elastic.client.report.words.cause_words import (
    departure_words,
    disruption_words,
    placement_words,
    scheduler_words,
)
from hvd_elastic.client.report.words.time_words import event_time
from hvd_elastic.discovery.ledger.entries import Departure, WorkerLeaving, WorldChanged
from hvd_elastic.discovery.rules.cluster_views import PodView
from hvd_elastic.mpijob.contract import LABEL_JOB_NAME, LABEL_JOB_ROLE, Role


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
    pods = {pod["metadata"]["name"]: pod for pod in (*facts.unlabelled, *facts.pods_of(Role.WORKER))}
    departures, training = _last_departures(facts), _who_trains(facts) if trains else ()
    names = sorted({*pods, *facts.asked_workers}, key=_index)
    return tuple(
        _present(pods[name], departures.get(name), facts, training=name in training)
        if name in pods
        else _absent(facts, name, departures.get(name))
        for name in names
    )


def _present(pod: Json, departure: WorkerLeaving | None, facts: JobFacts, *, training: bool) -> WorkerStatus:
    view = PodView.from_json(pod)
    state, why = _judge(pod, view, training=training)
    of_this_pod = departure is not None and departure.uid == view.uid
    if departure and of_this_pod and state in {WorkerPodState.LEAVING, WorkerPodState.ENDED}:
        why = departure_words(departure)
    why = "; ".join(filter(None, (why, _held_words(pod, view, facts.now), _label_words(pod, facts))))
    return WorkerStatus(
        pod=view.name,
        state=state,
        node=view.node,
        since=view.created or None,
        why=why,
        before=departure_words(departure) if departure and not of_this_pod else "",
    )


def _absent(facts: JobFacts, name: str, departure: WorkerLeaving | None) -> WorkerStatus:
    left = departure_words(departure) if departure else ""
    why = missing_worker_words(facts, name, departure.unix if departure else 0.0)
    return WorkerStatus(
        pod=name,
        state=WorkerPodState.ABSENT,
        since=departure.unix if departure else None,
        why=why or left,
        before=left if why else "",
    )


def _judge(pod: Json, view: PodView, *, training: bool) -> tuple[WorkerPodState, str]:
    if view.has_ended:
        return WorkerPodState.ENDED, "; ".join(filter(None, (view.reason, view.last_state))) or view.phase
    if view.disruption or view.deleting_at is not None:
        return WorkerPodState.LEAVING, disruption_words(view.disruption) if view.disruption else "deleted"
    if not view.node:
        return WorkerPodState.PENDING, placement_words(pod)
    if view.phase != "Running" or not (view.ready_to_kubelet or (view.runs_on and training)):
        return WorkerPodState.STARTING, _kubelet_says(pod)
    doubt = "its node is not Ready" if view.ready_withdrawn else ""
    return (WorkerPodState.TRAINING if training else WorkerPodState.READY), doubt


def _held_words(pod: Json, view: PodView, now: float) -> str:
    """What keeps a pod whose grace is over: the operator makes no other one of its name before it is gone."""
    finalizers = pod["metadata"].get("finalizers")
    if not finalizers or view.deleting_at is None or now < view.deleting_at:
        return ""
    return f"its pod stays until its finalizers are removed: {', '.join(finalizers)}"


def _label_words(pod: Json, facts: JobFacts) -> str:
    """Which label somebody has taken from a pod that only its name has found."""
    if pod not in facts.unlabelled:
        return ""
    labels = pod["metadata"].get("labels") or {}
    label = LABEL_JOB_ROLE if labels.get(LABEL_JOB_NAME) == facts.name else LABEL_JOB_NAME
    return f"its pod has no label {label} any more, so the job does not use it: add it again, or delete the pod"


def _kubelet_says(pod: Json) -> str:
    """Why a container waits: `ImagePullBackOff: ...`; empty while it is being made."""
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if reason := waiting.get("reason"):
            return scheduler_words(": ".join(filter(None, (reason, waiting.get("message")))))
    return ""


def _last_departures(facts: JobFacts) -> dict[str, WorkerLeaving]:
    """The last one of each pod name; without a ledger, preemptions of which the scheduler's Events tell."""
    from_ledger = (entry for entry in facts.ledger or () if isinstance(entry, WorkerLeaving))
    return {leaving.pod: leaving for leaving in (*preemptions_in(facts.events), *from_ledger)}


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


def _who_trains(facts: JobFacts) -> tuple[str, ...]:
    worlds = (entry.workers for entry in reversed(facts.ledger or ()) if isinstance(entry, WorldChanged))
    return next(worlds, ())


def _index(pod: str) -> tuple[int, str]:
    tail = pod.rpartition("-")[2]
    return (int(tail) if tail.isascii() and tail.isdigit() else -1), pod
