"""The live status of a job, from its history and the sums of its ledger: what it does now, and since when."""

from collections.abc import Mapping, Sequence
from typing import Final

from hvd_elastic.discovery.ledger.account import fold
from hvd_elastic.discovery.ledger.entries import Entry, JobEnded, LauncherStarted, WorldChanged
from hvd_elastic.discovery.ledger.history.job_history import JobHistory
from hvd_elastic.discovery.ledger.history.stall_history import StallHistory
from hvd_elastic.discovery.ledger.live_status import Activity, LiveStatus

STALLED_SECONDS: Final = 60.0
STALLED_STEPS: Final = 20.0
"""Training is stalled after this long without a step, and after this many times the usual step."""


def activity(history: JobHistory, *, ended: bool, now: float) -> Activity:
    """What the job does. `now`: Unix seconds by the clock by which `history` was told."""
    world = history.world
    if ended:
        return Activity.ENDED
    if not world.world:
        return Activity.WAITING if world.has_trained else Activity.STARTING
    if world.stepped is None or world.figures is None:
        return Activity.TRAINING
    usual = 1 / world.figures.steps_per_second if world.figures.steps_per_second else 0.0
    is_stalled = now - world.stepped > max(STALLED_SECONDS, STALLED_STEPS * usual)
    return Activity.STALLED if is_stalled else Activity.TRAINING


class PresentStatus:
    """Keeps since when the activity and the number of workers are the same."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        """`entries`: of the ledger so far."""
        changes = (entry.unix for entry in reversed(entries) if isinstance(entry, WorldChanged | LauncherStarted))
        self._last_change = next(changes, None)
        self._state: tuple[Activity, int] | None = None
        self._since = 0.0

    def status(
        self,
        history: JobHistory,
        entries: Sequence[Entry],
        now: float,
        stall: StallHistory | None = None,
        slow: Mapping[str, float] | None = None,
    ) -> LiveStatus:
        """The status at `now`, in Unix seconds.

        Args:
            history: of the job.
            entries: all of the ledger.
            now: the time.
            stall: what the ranks say of waits.
            slow: since when a worker's rank is slow, by pod.
        """
        account, figures = fold(entries, now), history.world.figures
        end = entries[-1] if entries and isinstance(entries[-1], JobEnded) else None
        doing, workers = activity(history, ended=end is not None, now=now), 0 if end else len(history.world.world)
        self._note_state((doing, workers), now)
        is_training, step = doing is Activity.TRAINING, max(account.step, figures.step if figures else -1)
        return LiveStatus(
            unix=now,
            activity=doing,
            since=self._since,
            workers=workers,
            wanted=history.wanted,
            queued=sum(pod.gated for pod in history.pods.values()),
            step=step,
            has_run=step >= 0 or history.world.has_run,
            steps_per_second=figures.steps_per_second if figures and is_training else None,
            loss=figures.loss if figures else None,
            metrics=figures.metrics if figures else {},
            stepped=history.world.written if figures else None,
            durable_step=figures.durable_step if figures else -1,
            durable=figures.durable + history.world.shift if figures and figures.durable is not None else None,
            save_error=figures.save_error if figures else "",
            rejected=figures.rejected if figures else "",
            resizes=account.resizes,
            pause_seconds=account.pause_seconds,
            repeated_steps=account.repeated_steps,
            preemptions=account.preemptions,
            launchers=account.launchers,
            gpu_seconds=account.held_gpu_seconds,
            lent_gpu_seconds=account.lent_gpu_seconds,
            training_seconds=account.training_seconds,
            counts_since=account.counts_since,
            samples=figures.samples if figures else "",
            stall=stall.words if stall and workers else "",
            stall_since=stall.since if stall and stall.words and workers else None,
            slow=slow if slow and workers else {},
            exit_code=end.exit_code if end else None,
        )

    def _note_state(self, state: tuple[Activity, int], now: float) -> None:
        if self._state is None:
            self._since = now if self._last_change is None else self._last_change
        elif state != self._state:
            self._since = now
        self._state = state
