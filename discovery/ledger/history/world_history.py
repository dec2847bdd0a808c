"""Which workers train together, over time, as entries of the ledger.

Two witnesses: the workers' own states, known within a second but without a word of a resize's cost, and the figures of
rank 0's process, which tell each pause once it is over. Where there are figures a change waits for the pause that goes
with it, so that one resize is one entry; where there are none it counts when it has lasted. Nothing here has a clock;
all times are Unix seconds.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from hvd_elastic.discovery.ledger.entries import Entry, WorkerProcessLost, WorldChanged
from hvd_elastic.discovery.ledger.live_status import LiveStatus
from hvd_elastic.discovery.ledger.process_exit import ProcessExit
from hvd_elastic.discovery.ledger.training_figures import ResizePause, TrainingFigures
from hvd_elastic.discovery.rules.cluster_views import WorkerView
from hvd_elastic.mpijob.contract import WorkerState

LASTING_SECONDS: Final = 5.0
"""A change counts after this long, if no figures tell of it."""
FIGURES_SECONDS: Final = 60.0
"""The same where rank 0 has figures: the pause may be that long. Also before anybody has trained: the script may still
be on its way there, or may end before it."""
EMPTY_SECONDS: Final = 2.0
"""The same if nobody trains any more."""
SILENT_SECONDS: Final = 30.0
"""The same if no worker has answered yet: a sidecar that has just started knows nothing."""
SETTLING_SECONDS: Final = 15.0
"""At most, from the end of a pause until the workers' states tell who has left: one that lets its process go does not
answer until the next one waits."""
PROCESS_SECONDS: Final = 5.0
"""A process counts as lost only then: at the end of a job all end, and the launcher within a moment."""


@dataclass(slots=True, kw_only=True)
class _Member:
    """A worker that may train."""

    pod: str
    uid: str
    view: WorkerView
    since: float
    """When its state was first seen."""
    has_joined: bool = False
    """Whether its present process was in a world."""


@dataclass(slots=True, kw_only=True)
class _Loss:
    """A process that is to be called lost."""

    due: float
    """When it is."""
    entry: WorkerProcessLost
    since: float
    """When its last state was seen: it ended after that."""
    is_sure: bool
    """Whether it was seen in a world. Of another, its worker has to say that it ended unasked: one that needs too much
    memory may end in its first second."""
    is_explained: bool = False
    """Whether its worker has said how it ended."""


@dataclass(slots=True, kw_only=True)
class WorldHistory:
    """The present world, and what may become the next one."""

    slots: int = 1
    """Processes per worker."""
    world: tuple[str, ...] = ()
    """Pods that train, as the ledger has it."""
    has_trained: bool = False
    """In all of the job's life."""
    figures: TrainingFigures | None = None
    """The last ones."""
    rank0: str = ""
    """UID of the worker that had them."""
    shift: float = 0.0
    """What to add to their times to have them by this side's clock."""
    stepped: float | None = None
    """When a new step was last seen, by this side's clock."""
    has_registered: bool = False
    """Whether a process of a script that tells no steps has come into `elastic.run` (`contract.REGISTERED_FILE`)."""
    _members: dict[str, _Member] = field(default_factory=dict)
    _paused: float = 0.0
    """End of the last pause that the ledger has, by the clock of who told it."""
    _teller: tuple[str, float | None] | None = None
    """The process that told pauses last: its worker, and when it began."""
    _told: float | None = None
    """The end of the last of its pauses that the ledger has; None: it has none of them."""
    _changed: float = 0.0
    """When the world last changed."""
    _differs_since: float | None = None
    _is_settling: bool = False
    """Whether a pause is known, and not yet who trains after it."""
    _is_checked: bool = False
    """Whether nobody's state has changed since the world was found as it is."""
    _lost: dict[str, _Loss] = field(default_factory=dict)
    """By UID."""
    _began: float = 0.0
    """When the last world began in which somebody trained."""
    _reached: int = -1
    """The last step that it is known to have done."""

    @classmethod
    def resume(cls, entries: Iterable[Entry], *, slots: int = 1, told: LiveStatus | None = None) -> "WorldHistory":
        """Go on with the ledger of an earlier sidecar. `told`: the live status, which it wrote more often."""
        history = cls(slots=slots)
        for entry in entries:
            if isinstance(entry, WorldChanged):
                history.world, history._changed = entry.workers, entry.unix
                history.has_trained |= bool(entry.workers)
                history._began = entry.unix if entry.workers else history._began
                history._reached = entry.step if entry.step >= 0 else history._reached
                if entry.pause_seconds is not None:
                    history._paused = entry.unix
        if told is not None and told.unix > history._changed:  # else it may tell of a world before a loss
            history._reached = max(history._reached, told.step)
        return history

    @property
    def has_run(self) -> bool:
        """Whether the script was seen to get into its training."""
        return self.has_registered or self._reached >= 0 or (self.figures is not None and self.figures.step >= 0)

    @property
    def written(self) -> float:
        """When the last figures were written, by this side's clock."""
        return 0.0 if self.figures is None else self.figures.unix + self.shift

    @property
    def is_unsettled(self) -> bool:
        """Whether the world is about to change, so that figures are wanted soon."""
        return self._is_settling or self._differs_since is not None

    def candidates(self) -> list[str]:
        """UIDs of the workers that may have figures."""
        return [uid for uid, member in self._members.items() if member.view.state is WorkerState.TRAINING]

    def take_answer(self, pod: str, uid: str, view: WorkerView, now: float) -> None:
        """A worker's own state. A new generation is a new process: the one before has ended, and its pod stays."""
        before = self._members.get(uid)
        is_same = before is not None and before.view.generation == view.generation
        if before is not None and not is_same:
            entry = WorkerProcessLost(unix=now, pod=pod, uid=uid)
            is_sure = before.has_joined and before.view.state is WorkerState.TRAINING
            self._lost[uid] = _Loss(due=now + PROCESS_SECONDS, entry=entry, since=before.since, is_sure=is_sure)
        joined = pod in self.world if before is None else is_same and before.has_joined
        since = before.since if before is not None and is_same and before.view.state is view.state else now
        self._members[uid] = _Member(pod=pod, uid=uid, view=view, since=since, has_joined=joined)
        self._is_checked = False

    def unexplained(self) -> list[str]:
        """UIDs of the workers of which it is not known how their process ended."""
        return [uid for uid, loss in self._lost.items() if not loss.is_explained]

    def take_exit(self, uid: str, end: ProcessExit, now: float) -> None:
        """How the last process of a worker ended, as its PID 1 says."""
        ended = now - end.seconds
        if ended > self._began:  # else it says nothing of the last world
            self._reached = max(self._reached, end.step)
        loss = self._lost.get(uid)
        if loss is None:
            return
        if not end.is_loss or not (loss.is_sure or (end.is_unasked and ended > loss.since)):
            del self._lost[uid]
        else:
            loss.entry = replace(loss.entry, unix=round(min(loss.entry.unix, ended), 3), detail=end.words)
            loss.is_explained = True

    def forget(self, uid: str) -> None:
        """The pod goes or is gone: a process that ends with it is not lost."""
        self._lost.pop(uid, None)

    def remove(self, uid: str) -> None:
        """The pod is gone."""
        self.forget(uid)
        self._members.pop(uid, None)
        self._is_checked = False

    def take_figures(self, uid: str, figures: TrainingFigures, now: float) -> Iterator[WorldChanged]:
        """What rank 0's process says: each pause that is new is a change of the world."""
        if self.figures is None or (figures.step, uid) != (self.figures.step, self.rank0):
            self.stepped = now
        self.figures, self.rank0, self.shift = figures, uid, figures.shift(now)
        fresh = self._fresh((uid, figures.began), figures.pauses) if self.world else ()
        passed: ResizePause | None = None
        for pause in fresh:
            trains = self._trains(pause.to_size)
            is_last, is_whole = pause is fresh[-1], pause.to_size in {0, len(trains) * self.slots}
            self._is_settling = is_last and not is_whole
            if self._is_settling and now < pause.unix + self.shift + SETTLING_SECONDS:
                break
            self._told = pause.unix
            whole = _together(passed, pause)
            if is_last or is_whole:
                passed = None
                yield self._change(trains, whole, now)
            else:  # that world is over, and no state tells any more who was in it
                passed = whole
        # A file that an earlier process has left says nothing of a new world.
        if not self.world and figures.step >= 0 and self.written > self._changed and self._trains():
            self._paused = max([self._paused, *(pause.unix for pause in figures.pauses)])
            self._teller = uid, figures.began
            self._told = figures.pauses[-1].unix if figures.pauses else None
            yield self._begin_anew(figures, now)
        self._reached = figures.step if self.world else self._reached

    def _fresh(self, teller: tuple[str, float | None], pauses: Sequence[ResizePause]) -> Sequence[ResizePause]:
        """Those that the ledger does not have. A process lists its own in their order, whatever its clock did; those
        that another one has told are known by their times.
        """
        ends = [pause.unix for pause in pauses]
        if teller != self._teller or self._told not in {None, *ends}:
            known = (pause.unix for pause in reversed(pauses) if _middle(pause) <= self._paused)
            self._teller, self._told = teller, next(known, None)
        return pauses if self._told is None else pauses[ends.index(self._told) + 1 :]

    def take_last_figures(self, figures: TrainingFigures, now: float) -> Iterator[WorldChanged]:
        """What rank 0 told when training had ended, unless another one was heard of after it."""
        if self.figures is None or figures.unix >= self.figures.unix:
            yield from self.take_figures(self.rank0, figures, now)

    def _begin_anew(self, figures: TrainingFigures, now: float) -> WorldChanged:
        """Somebody trains again. A process that came after the last world's begin has its state from a checkpoint."""
        is_newcomer = figures.began is not None and figures.began + self.shift > self._began
        changed = self._change(self._trains(figures.size), None, now)
        if not is_newcomer or figures.began_step < 0:
            return changed
        step = figures.began_step
        return replace(changed, step=step, repeated_steps=max(0, self._reached - step))

    def pass_time(self, now: float) -> Iterator[Entry]:
        """What has lasted by now."""
        due = [self._lost.pop(uid) for uid, loss in list(self._lost.items()) if loss.due <= now]
        yield from (loss.entry for loss in due if loss.is_sure or loss.is_explained)
        if self._is_checked:
            return
        trains = self._trains()
        if set(trains) == set(self.world):
            self._differs_since, self._is_checked = None, True
            return
        self._differs_since = now if self._differs_since is None else self._differs_since
        if now - self._differs_since >= self._patience(trains, self._differs_since):
            yield self._change(trains, None, now)

    def _patience(self, trains: tuple[str, ...], since: float) -> float:
        if not trains:
            return EMPTY_SECONDS if self._members else SILENT_SECONDS
        if self.figures is None:
            return LASTING_SECONDS if self.has_trained or self.has_registered else FIGURES_SECONDS
        # Figures of the new world tell its pause, if they tell any.
        is_told = self.figures.size == len(trains) * self.slots and self.written > since
        return LASTING_SECONDS if is_told else FIGURES_SECONDS

    def _trains(self, size: int = 0) -> tuple[str, ...]:
        """The pods that train, rank 0's first. One that is to leave trains on until the others go on without it.

        `size`: the processes of the new world, from which follows whether those are still among them; 0: not known.
        """
        members = sorted(self._members.values(), key=lambda member: (member.uid != self.rank0, member.pod))
        alive = [member for member in members if not member.view.lost]
        training = tuple(member.pod for member in alive if member.view.state is WorkerState.TRAINING)
        if size == len(training) * self.slots:
            return training
        leaving = (member.pod for member in alive if member.view.state is WorkerState.LEAVING)
        return (*training, *(pod for pod in leaving if pod in self.world))

    def end(self, now: float) -> Iterator[WorldChanged]:
        """The launcher has ended, and with it all training."""
        self._lost.clear()
        self._members.clear()
        if self.world:
            yield self._change((), None, now)

    def _change(self, workers: tuple[str, ...], pause: ResizePause | None, now: float) -> WorldChanged:
        self.world, self._changed = workers, now
        self._differs_since, self._is_settling, self._is_checked = None, False, False
        self.has_trained |= bool(workers)
        for member in self._members.values():
            member.has_joined |= member.pod in workers
        self._began = now if workers else self._began
        step = self.figures.step if self.figures else -1
        changed = WorldChanged(unix=now, workers=workers, step=step)
        if pause is None:
            return changed
        self._paused = pause.unix
        return replace(
            changed, unix=pause.unix, step=pause.step, pause_seconds=pause.seconds, repeated_steps=pause.repeated
        )


def _together(earlier: ResizePause | None, pause: ResizePause) -> ResizePause:
    """Two pauses as one: what both cost, and the world that the later one led to."""
    if earlier is None:
        return pause
    seconds, repeated = earlier.seconds + pause.seconds, earlier.repeated + pause.repeated
    return replace(pause, seconds=seconds, from_size=earlier.from_size, repeated=repeated)


def _middle(pause: ResizePause) -> float:
    """Two processes tell the end of one pause a moment apart, and pauses do not overlap."""
    return pause.unix - pause.seconds / 2
