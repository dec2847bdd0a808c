"""What a simulated day comes to. GPU-seconds, if nothing else is said."""

from dataclasses import dataclass

from hvd_elastic.decide.simulate.workload import Way


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeChange:
    """Of the chart of sizes."""

    second: float
    workers: int


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
    pauses: tuple[float, ...]
    """How long training stood still, each time, in seconds."""
    completed: float | None
    """Second of the day at which it ended; None: it goes on."""
    sizes: tuple[SizeChange, ...]
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
