"""The story of a job: what happened, in order, with causes, each once.

The ledger tells of pods that are long gone. The Events of the scheduler, the kubelet and the operator, which a cluster
forgets after an hour, add what the ledger does not know.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from hvd_elastic.discovery.ledger.entries import Entry, Totals
from hvd_elastic.jobs.cluster_client import ClusterClient, Json
from hvd_elastic.jobs.report.cause_words import departure_words, scheduler_words
from hvd_elastic.jobs.report.entry_words import entry_words
from hvd_elastic.jobs.report.job_facts import JobFactReader, JobFacts
from hvd_elastic.jobs.report.worker_status import event_time, preemptions_in


class Teller(StrEnum):
    """Who tells of it."""

    LEDGER = "ledger"
    SCHEDULER = "scheduler"
    KUBELET = "kubelet"
    OPERATOR = "operator"
    CLUSTER = "cluster"


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


_TOLD_BY_LEDGER: Final = frozenset({"Scheduled", "Preempted", "Killing", "WorkerFailed", "WorkerEnded", "WorkerLost"})
"""Reasons of Events that say, less well, what the ledger says."""
_ROUTINE: Final = frozenset({"Pulled", "Pulling", "Created", "Started", "SuccessfulCreate", "SuccessfulDelete"})
"""Reasons of Events of every pod's start."""
_TELLERS: Final = (
    ("scheduler", Teller.SCHEDULER),
    ("kubelet", Teller.KUBELET),
    ("mpi-job", Teller.OPERATOR),
    ("mpi-operator", Teller.OPERATOR),
)
"""Parts of a reporting component's name."""


def story(cluster: ClusterClient, name: str, namespace: str | None = None) -> tuple[Happening, ...]:
    """Read a job and tell its story. Raises UnknownJobError, ForeignJobError or another ClusterError."""
    return tell(JobFactReader(cluster).read(name, namespace or cluster.namespace, events=True))


def tell(facts: JobFacts) -> tuple[Happening, ...]:
    """The story that these facts tell, oldest first."""
    ledger = list(_of_ledger(facts.name, facts.ledger or ()))
    events = _of_events(facts.events, has_ledger=facts.ledger is not None)
    return tuple(sorted((*ledger, *_once(events)), key=lambda happening: happening.unix))


def _of_ledger(job: str, entries: Iterable[Entry]) -> Iterator[Happening]:
    carried = 0
    for entry in entries:
        if carried:  # it happened before the Totals, which stand for it
            carried -= 1
            continue
        carried = entry.carried if isinstance(entry, Totals) else 0
        about = str(getattr(entry, "pod", job))
        yield Happening(unix=entry.unix, about=about, what=entry_words(entry), teller=Teller.LEDGER)


def _of_events(events: Iterable[Json], *, has_ledger: bool) -> Iterator[Happening]:
    events = list(events)
    if not has_ledger:
        for leaving in preemptions_in(events):
            what = f"leaves: {departure_words(leaving)}"
            yield Happening(unix=leaving.unix, about=leaving.pod, what=what, teller=Teller.SCHEDULER)
    for event in events:
        reason = str(event.get("reason") or "")
        if reason in _ROUTINE or reason == "Preempted" or (has_ledger and reason in _TOLD_BY_LEDGER):
            continue
        said = scheduler_words(str(event.get("message") or "").strip())
        yield Happening(
            unix=event_time(event),
            about=str(event["involvedObject"].get("name") or ""),
            what=f"{reason}: {said}" if said else reason,
            teller=_teller(event),
            times=int(event.get("count") or (event.get("series") or {}).get("count") or 1),
        )


def _once(happenings: Iterable[Happening]) -> Iterator[Happening]:
    """The same words of the same thing once, at their last time."""
    seen: dict[tuple[str, str], list[Happening]] = {}
    for happening in happenings:
        seen.setdefault((happening.about, happening.what), []).append(happening)
    for same in seen.values():
        last = max(same, key=lambda happening: happening.unix)
        yield Happening(
            unix=last.unix,
            about=last.about,
            what=last.what,
            teller=last.teller,
            times=sum(happening.times for happening in same),
        )


def _teller(event: Json) -> Teller:
    component = str(event.get("reportingComponent") or (event.get("source") or {}).get("component") or "")
    return next((teller for part, teller in _TELLERS if part in component), Teller.CLUSTER)
