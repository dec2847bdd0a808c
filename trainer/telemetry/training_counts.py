"""What a training process counts from its events, for its metrics: a few additions an event."""

from bisect import bisect_left
from typing import Final

from hvd_elastic.trainer.telemetry import events

STEP_BUCKETS_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class TrainingCounts:
    """Counters and last values of this process. `on_event` is an `events.Listener`; another thread may read."""

    def __init__(self) -> None:
        self.steps_by_bucket = [0] * (len(STEP_BUCKETS_SECONDS) + 1)
        """Commits by how long they took; the last bucket has no bound."""
        self.step_seconds = 0.0
        """Of all commits together."""
        self.samples = 0
        """Of all workers, between this process's commits."""
        self.samples_per_second = 0.0
        """Of all workers, at the last commit."""
        self.step = self.epoch = self.size = self.rank = 0.0
        self.pauses = {cause.value: 0 for cause in events.PauseCause}
        self.pause_seconds = {cause.value: 0.0 for cause in events.PauseCause}
        self._position: tuple[object, int] = (None, 0)

    @property
    def commits(self) -> int:
        """Made by this process."""
        return sum(self.steps_by_bucket)

    def on_event(self, event: events.Event) -> None:
        self.size, self.rank, self.step = (_number(event[name]) for name in ("size", "rank", "step"))
        match event["event"]:
            case events.Kind.STEP:
                self._count_step(event)
            case events.Kind.RESET:
                cause = str(event["cause"])
                self.pauses[cause] += 1
                self.pause_seconds[cause] += _number(event["seconds"])
            case events.Kind.EPOCH:
                self.epoch = _number(event["epoch"])

    def _count_step(self, event: events.Event) -> None:
        seconds = _number(event.get("seconds"))
        self.steps_by_bucket[bisect_left(STEP_BUCKETS_SECONDS, seconds)] += 1
        self.step_seconds += seconds
        position = event.get("samples")
        if isinstance(position, int):
            epoch, before = self._position
            taken = position - before if epoch == event.get("epoch") else position
            self._position = event.get("epoch"), position
            if taken >= 0:  # negative after going back to a commit, which also goes back in the data
                self.samples += taken
                self.samples_per_second = taken / seconds if seconds > 0 else 0.0


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
