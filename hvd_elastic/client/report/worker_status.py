"""Each worker of a job: what it does, where, and if it does not train, why."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from hvd_elastic.client.connection.cluster_client import Json
from hvd_elastic.client.job_lookup import description_of
from hvd_elastic.client.report.job_facts import JobFacts
from hvd_elastic.client.report.job_state import queued_words
from hvd_elastic.client.report.missing_pods import missing_worker_words
from hvd_elastic.client.report.words.cause_words import departure_words, disruption_words, placement_words
from hvd_elastic.client.report.words.start_words import start_words
from hvd_elastic.client.report.words.time_words import event_time
from hvd_elastic.discovery.ledger.entries import Departure, RankSlow, WorkerBound, WorkerLeaving, WorldChanged
from hvd_elastic.discovery.ledger.preemptor import preemptor
from hvd_elastic.discovery.rules.cluster_views import PodView
from hvd_elastic.mpijob.contract import LABEL_FLOOR, LABEL_JOB_NAME, LABEL_JOB_ROLE, Role
from hvd_elastic.system.untrusted_values import decimal_count, whole_number

NOT_KNOWN: Final = "why its pod is gone is not known"


class WorkerPodState(StrEnum):
    """What a worker's pod does."""

    TRAINING = "training"
    READY = "ready"
    """Its standby waits, and it does not train; or nothing tells who trains."""
    STARTING = "starting"
    PENDING = "pending"
    """The scheduler has no place for it."""
    QUEUED = "queued"
    """Its queue has no quota for it."""
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
    slow: float | None = None
    """How many times as long as the others' one of its ranks takes; None: none is slow, or nothing tells."""
    kept: bool = False
    """Whether it has the class of the job's floor: inference does not preempt it."""


def worker_statuses(facts: JobFacts, *, trains: bool = True, slow: Iterable[RankSlow] = ()) -> tuple[WorkerStatus, ...]:
    """The workers that are there or asked for, in the order of their indexes.

    Args:
        facts: of the job.
        trains: whether the job does now. If not, the last world of the ledger is no longer there.
        slow: its slow ranks.
    """
    pods = {pod["metadata"]["name"]: pod for pod in (*facts.unlabelled, *facts.pods_of(Role.WORKER))}
    past, training = _PastPods.of(facts, slow), _who_trains(facts) if trains else ()
    surplus = _surplus_words(facts.job, len(training)) if training else ""
    names = sorted({*pods, *facts.asked_workers}, key=_index)
    return tuple(
        _present(pods[name], past, facts, training=name in training, surplus=surplus)
        if name in pods
        else _absent(name, past, facts)
        for name in names
    )


def _surplus_words(job: Json, training: int) -> str:
    """What a ready worker waits for, where the job trains with some numbers of workers alone."""
    workers = description_of(job).get("workers")
    sizes = workers.get("sizes") if isinstance(workers, dict) else None
    known = [size for one in sizes if (size := whole_number(one))] if isinstance(sizes, list) else []
    following = min((size for size in known if size > training), default=None)
    return "" if following is None else f"surplus until there are {following}"


def _present(pod: Json, past: "_PastPods", facts: JobFacts, *, training: bool, surplus: str) -> WorkerStatus:
    view = PodView.from_json(pod)
    state, why = _judge(pod, view, facts, training=training)
    if state is WorkerPodState.READY:
        why = "; ".join(filter(None, (surplus, why)))
    own, before = past.departures.get(view.uid), past.departures.get(past.last(view.name, besides=view.uid))
    if own and state in {WorkerPodState.LEAVING, WorkerPodState.ENDED}:
        why = departure_words(own)
    why = "; ".join(filter(None, (why, _held_words(pod, view, facts.now), _label_words(pod, facts))))
    return WorkerStatus(
        pod=view.name,
        state=state,
        node=view.node,
        since=view.created or None,
        why=why,
        before=departure_words(before) if before else "",
        slow=past.slow.get(view.uid) if training else None,
        kept=_is_kept(pod, facts.job),
    )


def _is_kept(pod: Json, job: Json) -> bool:
    """By the class of the launcher, which a job with a floor gives it (`mpijob.manifests.pod_parts`)."""
    launcher = ((job.get("spec") or {}).get("mpiReplicaSpecs") or {}).get("Launcher") or {}
    name = ((launcher.get("template") or {}).get("spec") or {}).get("priorityClassName")
    labels = pod["metadata"].get("labels") or {}
    return LABEL_FLOOR in labels and name is not None and (pod.get("spec") or {}).get("priorityClassName") == name


def _absent(name: str, past: "_PastPods", facts: JobFacts) -> WorkerStatus:
    last = past.last(name)
    departure = past.departures.get(last)
    missing = missing_worker_words(facts, name, departure.unix if departure else past.first_heard(name, last))
    left = departure_words(departure) if departure else ""
    not_known = NOT_KNOWN if last and not departure else ""
    return WorkerStatus(
        pod=name,
        state=WorkerPodState.ABSENT,
        since=departure.unix if departure else None,
        why="; ".join(filter(None, (missing, not_known))) or left,
        before=left if missing else "",
    )


def _judge(pod: Json, view: PodView, facts: JobFacts, *, training: bool) -> tuple[WorkerPodState, str]:
    if view.has_ended:
        return WorkerPodState.ENDED, "; ".join(filter(None, (view.reason, view.last_state))) or view.phase
    if view.disruption or view.deleting_at is not None:
        return WorkerPodState.LEAVING, disruption_words(view.disruption) if view.disruption else "deleted"
    if view.gated:
        return WorkerPodState.QUEUED, queued_words(pod, facts)
    if not view.node:
        return WorkerPodState.PENDING, placement_words(pod, facts.nodes)
    if view.phase != "Running" or not (view.ready_to_kubelet or (view.runs_on and training)):
        return WorkerPodState.STARTING, start_words(pod, facts.events)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _PastPods:
    """The pods that had the workers' names, as the ledger and Events tell of them.

    One name is had by one pod after the other, so nothing is told of one by the word on another.
    """

    seen: Mapping[str, Mapping[str, float]]
    """By name: when each UID was first heard of, in Unix seconds."""
    departures: Mapping[str, WorkerLeaving]
    """By UID: of the ledger, or else of the scheduler's Events, which tell of preemptions."""

    slow: Mapping[str, float]
    """By UID: how many times as long as the others' a rank of it takes."""

    @classmethod
    def of(cls, facts: JobFacts, slow: Iterable[RankSlow]) -> "_PastPods":
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
        slowest = sorted(slow, key=lambda each: each.times)  # the slowest rank of each pod counts
        return cls(seen=seen, departures=departures, slow={each.uid: each.times for each in slowest})

    def first_heard(self, name: str, uid: str) -> float:
        """When this pod was first heard of, in Unix seconds; 0: it is not known."""
        return self.seen.get(name, {}).get(uid, 0.0)

    def last(self, name: str, *, besides: str = "") -> str:
        """The UID of the last pod of this name that is known, but for that of UID `besides`; empty: none is."""
        known = self.seen.get(name, {})
        return max((uid for uid in known if uid != besides), key=lambda uid: known[uid], default="")


def preemptions_in(events: Iterable[Json]) -> list[WorkerLeaving]:
    """What the scheduler's Events say, oldest first. Each victim once: until its end it may fall to other pods too."""
    told = sorted((_preemption(event) for event in events if event.get("reason") == "Preempted"), key=_time)
    first = {leaving.uid: leaving for leaving in reversed(told)}
    return sorted(first.values(), key=_time)


def _preemption(event: Json) -> WorkerLeaving:
    victim = event["involvedObject"]
    return WorkerLeaving(
        unix=event_time(event),
        pod=str(victim.get("name") or ""),
        uid=str(victim.get("uid") or ""),
        why=Departure.PREEMPTED,
        by=preemptor(event),
    )


def _time(leaving: WorkerLeaving) -> float:
    return leaving.unix


def _who_trains(facts: JobFacts) -> tuple[str, ...]:
    worlds = (entry.workers for entry in reversed(facts.ledger or ()) if isinstance(entry, WorldChanged))
    return next(worlds, ())


def _index(pod: str) -> tuple[int, str]:
    index = decimal_count(pod.rpartition("-")[2])
    return (-1 if index is None else index), pod
