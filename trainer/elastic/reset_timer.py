"""How long a process stood still between two worlds, and why, as events report it."""

import functools
import logging
import time
from collections.abc import Callable

from hvd_elastic.system.plain_words import count_words
from hvd_elastic.trainer.collectives.this_world import WORLD
from hvd_elastic.trainer.collectives.training_world import TrainingWorld
from hvd_elastic.trainer.elastic.state_protocol import ElasticState
from hvd_elastic.trainer.telemetry import events
from hvd_elastic.trainer.telemetry.console import say
from hvd_elastic.trainer.telemetry.heartbeat import HeartbeatWriter

logger = logging.getLogger(__name__)


class ResetTimer:
    """Times the resets of one process and emits its `joined`, `reset` and `left` events.

    A state of Horovod's own also gets the heartbeat and the `step` events that ours writes itself.
    """

    def __init__(
        self, state: ElasticState, clock: Callable[[], float] = time.monotonic, *, world: TrainingWorld = WORLD
    ) -> None:
        self._state, self._clock, self._world = state, clock, world
        self._since = clock()
        self._rank_and_size = (0, 0)
        self.cause: events.PauseCause | None = None
        """Why training stands still; None while it goes on."""
        self._heartbeat = HeartbeatWriter()
        self._commits = 0
        if not hasattr(state, "step_count"):
            self._count_commits()

    def interrupted(self, cause: events.PauseCause) -> None:
        """Note that training stops. A failure on the way to the next world does not restart the clock."""
        if self.cause is None:
            self._since = self._clock()
            self.cause = cause
        elif cause is events.PauseCause.FAILURE:
            self.cause = cause

    def resumed(self) -> None:
        previous, self._rank_and_size = self._rank_and_size, (self._world.rank(), self._world.size())
        pause = round(self._clock() - self._since, 4)
        rank, size = self._rank_and_size
        if self.cause is None:
            events.emit(events.Kind.JOINED, rank=rank, size=size, step=self.step, seconds=pause)
        else:
            cause = self.cause.value
            events.emit(
                events.Kind.RESET,
                rank=rank,
                size=size,
                step=self.step,
                cause=cause,
                seconds=pause,
                **{"from": previous[1]},
            )
            if rank == 0:
                say(logger, _goes_on(size=size, step=self.step, seconds=pause, cause=self.cause))
        self.cause = None

    def ended(self) -> None:
        """Tell of the end of training, which our own state tells itself."""
        rank, size = self._rank_and_size
        events.emit(events.Kind.ENDED, rank=rank, size=size, step=self.step)

    def left(self) -> None:
        rank, size = self._rank_and_size
        events.emit(events.Kind.LEFT, rank=rank, size=size, step=self.step)

    @property
    def step(self) -> int:
        """The last commit's number."""
        return int(getattr(self._state, "step_count", self._commits))

    def _count_commits(self) -> None:
        stock_commit = self._state.commit

        @functools.wraps(stock_commit)
        def commit() -> None:
            self._commits += 1
            rank, size = self._rank_and_size
            self._heartbeat.beat(step=self._commits, rank=rank, size=size)
            events.emit(events.Kind.STEP, rank=rank, size=size, step=self._commits)
            stock_commit()

        self._state.commit = commit  # type: ignore[method-assign]


def _goes_on(*, size: int, step: int, seconds: float, cause: events.PauseCause) -> str:
    """The sentence for the end of a pause. Its seconds are those of the event, and so of `status` and of the bill."""
    why = "hosts were added or removed" if cause is events.PauseCause.HOSTS else "a process was lost"
    workers = count_words(size, "worker")
    return f"training goes on with {workers} after step {step}; it stood still for {seconds:.2f} s: {why}"
