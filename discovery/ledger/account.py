"""What a job used, lent and lost, as sums over its ledger.

`fold` gives the sums at a time; `summed_up` shortens a ledger to one line and what is not over, and `fold` gives the
same sums of either. Each sum is linear in its times: a time that turns out to lie before `Totals.unix` (the API server
may tell late when a pod was bound, or ended) counts back what the sum has already.

- A worker holds its GPUs from WorkerBound to WorkerGone; JobEnded ends what is held then.
- GPUs of a preempted worker are lent from its WorkerGone on, so that nothing counts as held and lent. The loan ends
  when a worker of that name is bound, or when none is asked for: the job is smaller, suspended, or has ended.
- Training goes on from a WorldChanged with workers to one without, or to the end of its launcher.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

from hvd_elastic.discovery.ledger.entries import (
    Departure,
    Entry,
    JobEnded,
    LauncherEnded,
    LauncherStarted,
    LedgerSums,
    RecordLost,
    Totals,
    WantedChanged,
    WorkerBound,
    WorkerGone,
    WorkerLeaving,
    WorldChanged,
)

UNKNOWN: Final = "unknown"
_INDEX: Final = re.compile(r"-(\d+)$", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAccount(LedgerSums):
    """The sums of a ledger, up to one time."""

    began: float | None = None
    """Unix seconds of the first entry, which is the first launcher's; None: there is none."""
    ended: float | None = None
    """Unix seconds of the job's end."""
    held_gpus: int = 0
    """At this time."""
    lent_gpus: int = 0
    """At this time."""
    workers: tuple[str, ...] = ()
    """Pods that train at this time."""


def fold(entries: Iterable[Entry], now: float) -> JobAccount:
    """The sums of a ledger at `now`, in Unix seconds: what is not over is counted up to then.

    The order of the entries counts, as the ledger has it. A Totals takes the place of all entries before it.
    """
    return _read(entries).account(now)


def summed_up(entries: Iterable[Entry]) -> tuple[Totals, list[Entry]]:
    """A ledger as one Totals and what is not over: `[totals, *rest, *later]` folds as `[*entries, *later]` does.

    Exact for whatever `later` is. `totals.carried` is the length of the rest.
    """
    return _read(entries).closed()


def machine_key(machine: str, *, spot: bool | None) -> str:
    """The key of `Totals.gpu_seconds`: `MACHINE|spot`, `MACHINE|on-demand` or `MACHINE|unknown`."""
    return f"{machine}|{UNKNOWN if spot is None else 'spot' if spot else 'on-demand'}"


def _read(entries: Iterable[Entry]) -> "_Book":
    book = _Book()
    carried = 0
    for entry in entries:
        if isinstance(entry, Totals):
            book = _Book.after(entry)
            carried = entry.carried
        elif carried:
            carried -= 1
            book.take_over(entry)
        else:
            book.enter(entry)
    return book


@dataclass(slots=True, kw_only=True)
class _Worker:
    """A worker pod whose GPUs are held or lent."""

    bound: WorkerBound
    since: float
    """The time from which they still have to be counted."""
    leaving: WorkerLeaving | None = None
    gone: WorkerGone | None = None

    @property
    def preempted(self) -> bool:
        return self.leaving is not None and self.leaving.why is Departure.PREEMPTED


@dataclass(slots=True, kw_only=True)
class _Book:
    """The sums so far, and what is not over."""

    sums: dict[str, Any] = field(default_factory=lambda: asdict(LedgerSums()))
    """By the fields of LedgerSums."""
    entries: int = 0
    began: float | None = None
    latest: float = 0.0
    """The latest time of an entry."""
    launcher: LauncherStarted | None = None
    ended: JobEnded | None = None
    held: dict[str, _Worker] = field(default_factory=dict)
    """By UID."""
    names: Counter[str] = field(default_factory=Counter)
    """How many held workers have a pod's name. Kept count of, as is `idle_gpus`: a large job has thousands."""
    lent: dict[str, _Worker] = field(default_factory=dict)
    """Preempted, and none is in their place yet. By pod."""
    first_world: WorldChanged | None = None
    world: WorldChanged | None = None
    trained_from: float = 0.0
    """The time from which the present world still has to be counted."""
    members: frozenset[str] = frozenset()
    """Pods of the last world."""
    idle_gpus: int = 0
    """Held by workers outside of the present world."""
    wanted: WantedChanged | None = None

    @classmethod
    def after(cls, totals: Totals) -> "_Book":
        known = asdict(totals)
        sums = {each.name: known[each.name] for each in fields(LedgerSums)}
        return cls(sums=sums, entries=totals.entries, began=totals.began, latest=totals.unix)

    def take_over(self, entry: Entry) -> None:
        """What was not over at the Totals before it: it is counted from there on, and as an event not again."""
        sums = {**self.sums, "gpu_seconds": dict(self.sums["gpu_seconds"])}
        self._apply(entry, self.latest)
        self.sums = sums

    def enter(self, entry: Entry) -> None:
        self.entries += 1
        self.latest = max(self.latest, entry.unix)
        self.began = entry.unix if self.began is None else self.began
        self._apply(entry, entry.unix)

    def _apply(self, entry: Entry, at: float) -> None:
        match entry:
            case LauncherStarted():
                self._start(entry, at)
            case LauncherEnded():
                self._end_world(at)
            case WorkerBound():
                self._bind(entry, at)
            case WorkerLeaving():
                self._note_departure(entry, at)
            case WorkerGone():
                self._release(entry, at)
            case WorldChanged():
                self._change_world(entry, at)
            case WantedChanged():
                self._want(entry, at)
            case JobEnded():
                self._end(entry, at)
            case RecordLost():
                self.sums["counts_since"] = entry.unix

    def _start(self, launcher: LauncherStarted, at: float) -> None:
        self.ended = None
        if not self.launcher or self.launcher.uid != launcher.uid:  # else only its sidecar began again
            self.launcher = launcher
            self.sums["launchers"] += 1
            self._end_world(at)

    def _bind(self, bound: WorkerBound, at: float) -> None:
        self._count_training(at)
        self._end_loans({bound.pod} & self.lent.keys(), at)
        if bound.uid not in self.held:
            self.names[bound.pod] += 1
            self.held[bound.uid] = _Worker(bound=bound, since=at)
            self.idle_gpus += self._idle(bound)

    def _note_departure(self, leaving: WorkerLeaving, at: float) -> None:
        if leaving.why is Departure.SUSPENDED:
            self._end_loans(list(self.lent), at)
        if worker := self.held.get(leaving.uid):
            before = worker.preempted
            worker.leaving = leaving
            self.sums["preemptions"] += worker.preempted - before

    def _release(self, gone: WorkerGone, at: float) -> None:
        self._count_training(at)
        if worker := self.held.pop(gone.uid, None):
            self._count_held(worker, at)
            self.idle_gpus -= self._idle(worker.bound)
            pod = worker.bound.pod
            self.names[pod] -= 1
            if worker.preempted and self._wants(pod) and not self.names[pod]:
                worker.gone, worker.since = gone, at
                self.lent[pod] = worker

    def _want(self, wanted: WantedChanged, at: float) -> None:
        before, self.wanted = self.wanted, wanted
        if before is None or wanted.workers < before.workers:  # else what is lent is wanted as before
            self._end_loans([pod for pod in self.lent if not self._wants(pod)], at)

    def _wants(self, pod: str) -> bool:
        found = _INDEX.search(pod)
        return not (self.wanted and found) or int(found[1]) < self.wanted.workers

    def _change_world(self, world: WorldChanged, at: float) -> None:
        self._end_world(at)
        self._reach(world.step)
        pause = world.pause_seconds or 0.0
        self.sums["repeated_steps"] += world.repeated_steps
        self.sums["pause_seconds"] += pause
        self.sums["stalled_gpu_seconds"] += pause * sum(worker.bound.gpus for worker in self.held.values())
        if world.workers:
            self.sums["resizes"] += self.first_world is not None
            self.first_world = self.first_world or world
            self.world, self.trained_from, self.members = world, at, frozenset(world.workers)
            self.idle_gpus = sum(self._idle(worker.bound) for worker in self.held.values())

    def _end_world(self, at: float) -> None:
        self._count_training(at)
        self.world = None

    def _end(self, ended: JobEnded, at: float) -> None:
        self.ended = ended
        self._reach(ended.step)
        self._end_world(at)
        self._end_loans(list(self.lent), at)
        for worker in self.held.values():
            self._count_held(worker, at)
        self.held, self.names = {}, Counter()

    def _end_loans(self, pods: Iterable[str], at: float) -> None:
        for pod in pods:
            self._count_lent(self.lent.pop(pod), at)

    def _reach(self, step: int) -> None:
        self.sums["step"] = step if step >= 0 else self.sums["step"]

    def _count_training(self, at: float) -> None:
        if self.world:
            self.sums["idle_gpu_seconds"] += self.idle_gpus * (at - self.trained_from)
            self.sums["training_seconds"] += at - self.trained_from
            self.trained_from = at

    def _idle(self, bound: WorkerBound) -> int:
        """GPUs of a worker that has no part in the last world."""
        return 0 if bound.pod in self.members else bound.gpus

    def _count_lent(self, worker: _Worker, at: float) -> None:
        self.sums["lent_gpu_seconds"] += worker.bound.gpus * (at - worker.since)
        worker.since = at

    def _count_held(self, worker: _Worker, at: float) -> None:
        key, held = machine_key(worker.bound.machine, spot=worker.bound.spot), self.sums["gpu_seconds"]
        held[key] = held.get(key, 0.0) + worker.bound.gpus * (at - worker.since)
        worker.since = at

    def _count_open(self, at: float) -> None:
        """Count what is not over up to `at`, and go on from there."""
        self._count_training(at)
        for worker in self.held.values():
            self._count_held(worker, at)
        for worker in self.lent.values():
            self._count_lent(worker, at)

    def account(self, now: float) -> JobAccount:
        self._count_open(now)
        return JobAccount(
            began=self.began,
            ended=self.ended.unix if self.ended else None,
            held_gpus=sum(worker.bound.gpus for worker in self.held.values()),
            lent_gpus=sum(worker.bound.gpus for worker in self.lent.values()),
            workers=self.world.workers if self.world else (),
            **self.sums,
        )

    def closed(self) -> tuple[Totals, list[Entry]]:
        self._count_open(self.latest)
        rest: list[Entry] = [entry for entry in (self.launcher, self.ended, self.wanted, self.first_world) if entry]
        # All of one kind together, which makes them short; and those that are gone last: a worker that is held while
        # its job is suspended ends only the loans before it.
        workers = (*self.held.values(), *self.lent.values())
        rest += [worker.bound for worker in workers]
        rest += [worker.leaving for worker in workers if worker.leaving]
        rest += [worker.gone for worker in workers if worker.gone]
        if self.world is not self.first_world:
            rest.append(self.world or WorldChanged(unix=self.latest, workers=()))
        began = self.latest if self.began is None else self.began
        totals = Totals(unix=self.latest, began=began, entries=self.entries, carried=len(rest), **self.sums)
        return totals, rest
