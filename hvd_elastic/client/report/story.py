"""The story of a job: what happened, in order, with causes, each once.

The ledger tells of pods that are long gone. The Events of the scheduler, the kubelet and the operator, which a cluster
forgets after an hour, add what the ledger does not know.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from hvd_elastic.client.connection.cluster_client import ClusterClient, Json
from hvd_elastic.client.report.job_facts import JobFactReader, JobFacts
from hvd_elastic.client.report.job_state import queued_words
from hvd_elastic.client.report.words.cause_words import scheduler_words
from hvd_elastic.client.report.words.entry_words import entry_words
from hvd_elastic.client.report.words.time_words import event_time
from hvd_elastic.client.report.worker_status import preemptions_in
from hvd_elastic.discovery.ledger.entries import Entry, Totals
from hvd_elastic.discovery.rules.cluster_views import PodView
from hvd_elastic.mpijob.contract import Role


class Teller(StrEnum):
    """Who tells of it."""

    LEDGER = "ledger"
    SCHEDULER = "scheduler"
    KUBELET = "kubelet"
    OPERATOR = "operator"
    SIDECAR = "sidecar"
    CLUSTER = "cluster"
    QUEUE = "queue"
    """Of a worker that it has not admitted yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """One line of the story."""

    unix: float
    about: str
    """The pod or the job."""
    what: str
    teller: Teller
    times: int = 1
    """How often an Event says so; `unix` is the last time."""


_TOLD_BY_LEDGER: Final = frozenset({"Scheduled", "Killing"})
"""Reasons of Events that say, less well, what the ledger says."""
_SIDECAR: Final = "hvd-elastic-discovery"
"""Its Events say what it writes into the ledger, but for those of _NOT_IN_LEDGER."""
_NOT_IN_LEDGER: Final = frozenset(
    {"Stalled", "LedgerLost", "CheckpointFailed", "CheckpointDurable", "CheckpointRejected"}
)
_ROUTINE: Final = frozenset(
    {"Preempted", "Pulled", "Pulling", "Created", "Started", "SuccessfulCreate", "SuccessfulDelete"}
)
"""Reasons of Events of every pod's start, and one that is told in better words. A readiness probe that fails is one,
too: a pod that goes has some."""
_TELLERS: Final = (
    ("scheduler", Teller.SCHEDULER),
    ("kubelet", Teller.KUBELET),
    ("mpi-job", Teller.OPERATOR),
    ("mpi-operator", Teller.OPERATOR),
    (_SIDECAR, Teller.SIDECAR),
)
"""Parts of a reporting component's name."""


def story(cluster: ClusterClient, name: str, namespace: str | None = None) -> tuple[Happening, ...]:
    """Read a job and tell its story. Raises UnknownJobError, ForeignJobError or another ClusterError."""
    return tell(JobFactReader(cluster).read(name, namespace or cluster.namespace, events=True))


def tell(facts: JobFacts) -> tuple[Happening, ...]:
    """The story that these facts tell, oldest first."""
    ledger = _of_ledger(facts.name, facts.ledger or ())
    events = _of_events(facts.events, has_ledger=facts.ledger is not None)
    return tuple(sorted((*ledger, *events, *_of_queue(facts)), key=_time))


def _of_ledger(job: str, entries: Iterable[Entry]) -> Iterator[Happening]:
    carried = 0
    for entry in entries:
        if carried:  # it happened before the Totals, which stand for it
            carried -= 1
            continue
        carried = entry.carried if isinstance(entry, Totals) else 0
        about = str(getattr(entry, "pod", job))
        yield Happening(unix=entry.unix, about=about, what=entry_words(entry), teller=Teller.LEDGER)


def _of_events(events: Sequence[Json], *, has_ledger: bool) -> Iterator[Happening]:
    """Each pod's words once, at their last time: one pod after the other may have the same name."""
    if not has_ledger:
        for leaving in preemptions_in(events):
            yield Happening(unix=leaving.unix, about=leaving.pod, what=entry_words(leaving), teller=Teller.SCHEDULER)
    same: dict[tuple[str, str], list[Happening]] = {}
    for event in events:
        if not _is_passed_over(event, has_ledger=has_ledger):
            happening = _happening(event)
            uid = str(event["involvedObject"].get("uid") or happening.about)
            same.setdefault((uid, happening.what), []).append(happening)
    for happenings in same.values():
        last = max(happenings, key=_time)
        yield replace(last, times=sum(one.times for one in happenings))


def _of_queue(facts: JobFacts) -> Iterator[Happening]:
    """Kueue's Events are on its Workloads, of which a worker that comes and goes has had many."""
    for pod in facts.pods_of(Role.WORKER):
        if (view := PodView.from_json(pod)).gated:
            what = f"queued: {queued_words(pod, facts)}"
            yield Happening(unix=view.created, about=view.name, what=what, teller=Teller.QUEUE)


def _is_passed_over(event: Json, *, has_ledger: bool) -> bool:
    reason = event.get("reason")
    in_ledger = reason in _TOLD_BY_LEDGER or (_component(event) == _SIDECAR and reason not in _NOT_IN_LEDGER)
    is_probe = reason == "Unhealthy" and str(event.get("message") or "").startswith(("Readiness", "Startup"))
    return is_probe or reason in _ROUTINE or (has_ledger and in_ledger)


def _happening(event: Json) -> Happening:
    reason = str(event.get("reason") or "")
    said = scheduler_words(str(event.get("message") or "").strip())
    return Happening(
        unix=event_time(event),
        about=str(event["involvedObject"].get("name") or ""),
        what=f"{reason}: {said}" if said else reason,
        teller=_teller(event),
        times=int(event.get("count") or (event.get("series") or {}).get("count") or 1),
    )


def _time(happening: Happening) -> float:
    return happening.unix


def _teller(event: Json) -> Teller:
    component = _component(event)
    return next((teller for part, teller in _TELLERS if part in component), Teller.CLUSTER)


def _component(event: Json) -> str:
    return str(event.get("reportingComponent") or (event.get("source") or {}).get("component") or "")
