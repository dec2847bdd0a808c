"""What a simulated day comes to. GPU-seconds, if nothing else is said."""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from hvd_elastic.decide.simulate.workload import Way

MOST_CHANGES: Final = 500
"""More than a picture shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeChange:
    """Of the chart of sizes."""

    second: float
    workers: int


@dataclass(slots=True, kw_only=True)
class SizeHistory:
    """The changes of a job's size, of which a bounded number is kept: a year has tens of thousands.

    Twelve bytes each, in the outcome too: there are hundreds of jobs, and several ways.
    """

    count: int = field(default=0, init=False)
    """Of all changes."""
    _seconds: "array[float]" = field(default_factory=lambda: array("d"), init=False)
    _workers: "array[int]" = field(default_factory=lambda: array("i"), init=False)
    _stretch: float = field(default=1.0, init=False)
    """Seconds of which the last change is kept. Doubled, so that stretches lie within each other."""

    def note(self, second: float, workers: int) -> None:
        """So many workers train from now on. Nothing is noted where that is not another number."""
        if self._workers and self._workers[-1] == workers:
            return
        self.count += 1
        self._seconds.append(second)
        self._workers.append(workers)
        if len(self._workers) > MOST_CHANGES:
            while second > self._stretch * MOST_CHANGES / 2:
                self._stretch *= 2
            kept = {change.second // self._stretch: change for change in self.changes()}.values()
            self._seconds = array("d", (change.second for change in kept))
            self._workers = array("i", (change.workers for change in kept))

    def changes(self) -> Iterator[SizeChange]:
        """All of them; of more than MOST_CHANGES the last one in each of some hundred stretches of equal length."""
        for second, workers in zip(self._seconds, self._workers, strict=True):
            yield SizeChange(second=second, workers=workers)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """One job's day."""

    name: str
    useful: float
    """In which steps were computed that were kept."""
    held: float
    """From the workers' binding until their GPUs were free."""
    given: float
    """That inference left to this job between its min and max while it had work, by its share: the oracle's."""
    stalled: float
    repeated: float
    starting: float
    """`useful + stalled + repeated + starting` is `held`, up to rounding."""
    samples: float
    """Trained and kept."""
    steps: int
    repeated_steps: int
    resizes: int
    restarts: int
    pauses: int
    """How often training stood still."""
    paused_seconds: float
    """... and how long in all."""
    completed: float | None
    """Second of the day at which it ended; None: it goes on."""
    sizes: SizeHistory
    cost: float | None = None
    """Money for what it held, in the currency of the prices; None: a price is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceWaiting:
    """From an inference pod's creation until it runs, in seconds."""

    pods: int
    p50: float
    p99: float
    max: float
    never: int = 0
    """Pods that had no room at the end of the day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DayOutcome:
    """One day in one way."""

    way: Way
    source: str
    seconds: float
    jobs: tuple[JobOutcome, ...]
    inference: InferenceWaiting
    bought: float = 0.0
    """Of all nodes that a cluster autoscaler bought, from the call until they were taken away."""

    @property
    def useful(self) -> float:
        """Of all jobs."""
        return sum(job.useful for job in self.jobs)

    @property
    def given(self) -> float:
        """What was left to all jobs together."""
        return sum(job.given for job in self.jobs)

    @property
    def goodput(self) -> float:
        """Useful GPU-time of the GPU-time given; 1 if none was given."""
        return self.useful / self.given if self.given else 1.0
