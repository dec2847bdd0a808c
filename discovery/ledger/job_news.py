"""What a person reads in `kubectl describe mpijob`: few sentences, each with its causes.

A burst of changes is one Event: the last state, and all causes since the Event before.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from hvd_elastic.discovery.ledger.entries import (
    Departure,
    Entry,
    JobEnded,
    LauncherEnded,
    RankSlow,
    RanksStalled,
    WorkerLeaving,
    WorkerProcessLost,
    WorldChanged,
)
from hvd_elastic.discovery.ledger.history.slow_rank_history import slow_words
from hvd_elastic.discovery.ledger.training_figures import TrainingFigures
from hvd_elastic.mpijob.contract import ALERT_CHECKPOINT_LATE, Exit
from hvd_elastic.system.plain_words import count_words, cut_middle

GAP_SECONDS: Final = 10.0
"""At least, between two Events."""
MAX_CAUSES: Final = 5
"""That one Event names; the rest are counted."""
MAX_DETAIL: Final = 80
"""Characters: an Event's message has at most 1,024 (Kubernetes 1.34, `pkg/apis/core/validation/events.go`)."""
MAX_STALL: Final = 600
"""Characters of what the ranks of a stall do."""
_AT_ONCE: Final = frozenset({"Finished", "Failed", "ResetLimitReached"})
"""Reasons of an Event on the job's end."""
_WORDS: Final = {
    Departure.EVICTED: "was evicted",
    Departure.NODE_LOST: "was lost with its node",
    Departure.DRAINED: "left a node that is emptied",
    Departure.SCALED_DOWN: "was scaled down",
    Departure.SUSPENDED: "was suspended",
    Departure.SLOW: "was replaced, because its rank was slow",
    Departure.FAILED: "failed",
    Departure.DELETED: "was deleted",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """One Event on the MPIJob."""

    reason: str
    message: str
    is_warning: bool = False


class JobNews:
    """Gathers what has happened until it is told. Its times are of a clock that does not jump."""

    def __init__(self, *, min_workers: int, max_workers: int) -> None:
        self._sizes = f"[{min_workers}..{max_workers}]"
        self._causes: list[str] = []
        self._world: tuple[str, ...] = ()
        self._news: tuple[str, str, bool] | None = None
        """Reason, sentence without causes, warning."""
        self._next = 0.0

    def begin(self, world: tuple[str, ...]) -> None:
        """The world that an earlier sidecar has told of."""
        self._world = world

    def take(self, entries: Iterable[Entry]) -> None:
        """What has happened since the last call."""
        for entry in entries:
            match entry:
                case WorkerLeaving() if entry.pod in self._world:
                    self._causes.append(_departed(entry))
                case WorkerProcessLost():
                    self._causes.append(
                        f"a process of {entry.pod} ended" + (f" ({entry.detail})" if entry.detail else "")
                    )
                case LauncherEnded():
                    self._causes.append(_launcher_ended(entry))
                case RanksStalled():
                    self._news = "RanksStalled", f"training waits for ranks: {cut_middle(entry.words, MAX_STALL)}", True
                case RankSlow():
                    self._news = "RankSlow", slow_words(entry), True
                case WorldChanged():
                    self._change(entry)
                case JobEnded():
                    self._end(entry)

    def stall(self, seconds: float) -> None:
        """Workers are in training, and no step has been done for so long."""
        training = count_words(len(self._world), "worker")
        self._news = "Stalled", f"no step for {seconds:.0f} s, with {training} in training", True

    def due(self, now: float) -> News | None:
        """What is to be told now, once. The end of a job is told at once."""
        if self._news is None or (now < self._next and self._news[0] not in _AT_ONCE):
            return None
        reason, sentence, is_warning = self._news
        causes, more = self._causes[:MAX_CAUSES], len(self._causes) - MAX_CAUSES
        told = ", ".join([*causes, *([f"and {more} more"] if more > 0 else [])])
        self._news, self._causes, self._next = None, [], now + GAP_SECONDS
        return News(reason=reason, message=f"{sentence}: {told}" if told else sentence, is_warning=is_warning)

    def _change(self, changed: WorldChanged) -> None:
        joined = sorted(set(changed.workers) - set(self._world)) if self._world else []
        self._causes += [f"{pod} joined" for pod in joined]
        self._world = changed.workers
        if not changed.workers:
            self._news = "Waiting", f"nobody trains after step {changed.step}", True
            return
        pause = f" after a pause of {changed.pause_seconds:.1f} s" if changed.pause_seconds is not None else ""
        self._news = "Resized", f"trains with {len(changed.workers)} of {self._sizes} workers{pause}", False

    def _end(self, ended: JobEnded) -> None:
        self._causes, self._world = [], ()
        last = f"after step {ended.step}" if ended.step >= 0 else "before any step was seen"
        if ended.succeeded:
            self._news = "Finished", f"the job has ended {last}", False
        elif ended.exit_code == Exit.RESET_LIMIT:
            self._news = "ResetLimitReached", f"the job has ended {last}: its reset limit is reached", True
        else:
            self._news = "Failed", f"the job has ended {last}, with exit code {ended.exit_code}", True


class SaveNews:
    """Tells once that nothing gets durable, and once that it does again; and of each checkpoint that is not used."""

    def __init__(self) -> None:
        self._rejected = ""
        self._failing_since: float | None = None
        """When the newest durable checkpoint was made before saves began to fail; None: nothing says that they do."""

    def take(self, figures: TrainingFigures) -> News | None:
        """What is new in the last figures. A new rank 0, which has not saved yet, says nothing of either."""
        durable = figures.durable or 0.0
        if figures.rejected and figures.rejected != self._rejected:
            self._rejected = figures.rejected
            began = f"after step {figures.began_step}" if figures.began_step >= 0 else "from its beginning"
            message = (
                f"a checkpoint is not used, and training went on {began}: {cut_middle(figures.rejected, MAX_STALL)}"
            )
            return News(reason="CheckpointRejected", message=message, is_warning=True)
        if figures.save_error and self._failing_since is None:
            self._failing_since = durable
            newest = f"; the newest is of step {figures.durable_step}" if figures.durable_step >= 0 else ""
            error = cut_middle(figures.save_error, MAX_STALL)
            alert = f"Where it lasts, the alert {ALERT_CHECKPOINT_LATE} fires"
            message = f"no checkpoint gets durable: {error}{newest}. {alert}"
            return News(reason="CheckpointFailed", message=message, is_warning=True)
        if not figures.save_error and self._failing_since is not None and durable > self._failing_since:
            self._failing_since = None
            message = f"checkpoints get durable again: that of step {figures.durable_step} is"
            return News(reason="CheckpointDurable", message=message)
        return None


def _departed(entry: WorkerLeaving) -> str:
    if entry.why is Departure.PREEMPTED:
        by = entry.by.replace("uid:", "the pod with UID ")
        return f"{entry.pod} was preempted" + (f" by queue {entry.queue}" if entry.queue else f" by {by}" if by else "")
    detail = f" ({cut_middle(entry.detail, MAX_DETAIL)})" if entry.detail else ""
    return f"{entry.pod} {_WORDS[entry.why]}{detail}"


def _launcher_ended(entry: LauncherEnded) -> str:
    if entry.exit_code is None:
        return f"the launcher was taken away ({entry.reason or 'it is gone'})"
    detail = f": {cut_middle(entry.reason, MAX_DETAIL)}" if entry.reason else ""
    return f"the launcher ended with exit code {entry.exit_code}{detail}"
