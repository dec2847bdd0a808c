"""Worker pods from their binding to their end, as entries of the ledger: each step of each pod once, and in order.

One change of one pod costs one look at that pod. Nothing here has a clock; all times are Unix seconds.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from hvd_elastic.discovery.ledger.entries import Departure, Entry, Totals, WorkerBound, WorkerGone, WorkerLeaving
from hvd_elastic.discovery.ledger.history.departures import Surroundings, departure, is_leaving, taker
from hvd_elastic.discovery.rules.cluster_views import PodView

GRACE_SECONDS: Final = 30.0
"""A worker that was told to go while nobody looked has gone after this long, at the latest."""


@dataclass(slots=True, kw_only=True)
class WorkerLife:
    """A pod that is bound and not gone."""

    pod: str
    uid: str
    bound: float
    leaving: WorkerLeaving | None = None


@dataclass(slots=True, kw_only=True)
class WorkerLives:
    """The pods of a job that hold, or held, GPUs. Every method that yields must be read to its end."""

    present: dict[str, WorkerLife] = field(default_factory=dict)
    """By UID: bound, and not gone."""
    over: set[str] = field(default_factory=set)
    """UIDs of those that are gone and whose pod may still be there: an ended one is, until it is deleted."""
    summed_until: float = 0.0
    """What ended up to then is in the ledger's sums."""

    @classmethod
    def resume(cls, entries: Iterable[Entry]) -> "WorkerLives":
        """Go on with the ledger of an earlier sidecar."""
        lives = cls()
        for entry in entries:
            match entry:
                case WorkerBound():
                    lives.present[entry.uid] = WorkerLife(pod=entry.pod, uid=entry.uid, bound=entry.unix)
                case WorkerLeaving() if entry.uid in lives.present:
                    lives.present[entry.uid].leaving = entry
                case WorkerGone():
                    lives.present.pop(entry.uid, None)
                    lives.over.add(entry.uid)
                case Totals():
                    lives.summed_until = entry.unix
        return lives

    def see(self, pod: PodView, around: Surroundings, *, gpus: int, now: float) -> Iterator[Entry]:
        """A pod as it is now."""
        if pod.uid in self.over:
            return
        life = self.present.get(pod.uid)
        if life is None:
            was_counted = pod.ended_at is not None and pod.ended_at <= self.summed_until
            if not pod.node or pod.bound_at is None or was_counted:
                return
            life = self.present[pod.uid] = WorkerLife(pod=pod.name, uid=pod.uid, bound=pod.bound_at)
            yield _bound(pod, around, gpus)
        if life.leaving is None and is_leaving(pod):
            life.leaving = _leaving(pod, around, now)
            yield life.leaving
        if pod.has_ended:
            yield self._end(life, pod.ended_at or now)

    def lose(self, pod: PodView, around: Surroundings, *, gpus: int, now: float) -> Iterator[Entry]:
        """A pod as it was when it was deleted."""
        yield from self.see(pod, around, gpus=gpus, now=now)
        self.over.discard(pod.uid)
        life = self.present.get(pod.uid)
        if life is None:
            return
        if life.leaving is None:
            yield _leaving(pod, around, now)
        yield self._end(life, pod.ended_at or now)
        self.over.discard(pod.uid)

    def miss(self, present: set[str], *, job_over: bool, now: float) -> Iterator[Entry]:
        """All pods were listed: what is not among `present` (UIDs) has gone while nobody looked."""
        self.over &= present
        for life in [life for uid, life in self.present.items() if uid not in present]:
            told = life.leaving
            if told is None:
                why = Departure.SUSPENDED if job_over else Departure.DELETED
                yield WorkerLeaving(unix=now, pod=life.pod, uid=life.uid, why=why)
            yield self._end(life, now if told is None else min(now, told.unix + GRACE_SECONDS))
        self.over &= present

    def leave_all(self, now: float) -> Iterator[Entry]:
        """The job is suspended or has ended: the operator deletes all that are there."""
        for life in self.present.values():
            if life.leaving is None:
                life.leaving = WorkerLeaving(unix=now, pod=life.pod, uid=life.uid, why=Departure.SUSPENDED)
                yield life.leaving

    def _end(self, life: WorkerLife, when: float) -> WorkerGone:
        del self.present[life.uid]
        self.over.add(life.uid)
        return WorkerGone(unix=max(when, life.bound), pod=life.pod, uid=life.uid)


def _leaving(pod: PodView, around: Surroundings, now: float) -> WorkerLeaving:
    (why, detail), (by, queue) = departure(pod, around), taker(pod)
    return WorkerLeaving(unix=now, pod=pod.name, uid=pod.uid, why=why, by=by, detail=detail, queue=queue)


def _bound(pod: PodView, around: Surroundings, gpus: int) -> WorkerBound:
    node = around.node
    return WorkerBound(
        unix=pod.bound_at or 0.0,
        pod=pod.name,
        uid=pod.uid,
        node=pod.node,
        gpus=gpus,
        machine=node.machine if node else "",
        spot=node.spot if node else None,
    )
