"""What a job has trained, and what became of the GPU-time that it held."""

from dataclasses import dataclass
from enum import Enum, auto

from hvd_elastic.decide.simulate.workload import SimulatedJob


class GpuUse(Enum):
    """What a job's workers do with their GPUs."""

    BEGINNING = auto()
    """The first world, or a restarted one, is being formed."""
    TRAINING = auto()
    STILL = auto()


@dataclass(slots=True, eq=False, kw_only=True)
class JobProgress:
    """Counts up to `now`. Whoever changes a number calls `advance` first."""

    job: SimulatedJob
    now: float = 0.0
    activity: GpuUse = GpuUse.STILL
    starting: int = 0
    """Workers that are bound and not Ready."""
    ready: int = 0
    members: int = 0
    slowest: float = 1.0
    """The slowest member takes so many times as long as it should, and all others wait for it."""
    others: int = 0
    """Workers that leave, or are never asked."""
    useful: float = 0.0
    stalled: float = 0.0
    repeated: float = 0.0
    begun: float = 0.0
    """GPU-seconds of beginning: workers' starts, and the forming of a first world."""
    held: float = 0.0
    samples: float = 0.0
    repeated_samples: float = 0.0
    pauses: int = 0
    paused_seconds: float = 0.0
    _durable: tuple[float, float] = (0.0, 0.0)
    _still_since: float | None = None

    @property
    def workers(self) -> int:
        """All that hold GPUs."""
        return self.starting + self.ready + self.members + self.others

    @property
    def speed(self) -> float:
        """Samples per second now."""
        return self.job.speeds[self.members] / self.slowest if self.activity is GpuUse.TRAINING else 0.0

    def advance(self, now: float) -> None:
        """Count what has happened since the last call."""
        seconds = (now - self.now) * self.job.gpus
        self.samples += self.speed * (now - self.now)
        self.now = now
        self.held += self.workers * seconds
        self.begun += self.starting * seconds
        self.stalled += self.others * seconds
        match self.activity:
            case GpuUse.TRAINING:
                useful = self.members * seconds / self.slowest
                self.useful += useful
                self.stalled += (self.members + self.ready) * seconds - useful
            case GpuUse.BEGINNING:
                self.begun += (self.members + self.ready) * seconds
            case GpuUse.STILL:
                self.stalled += (self.members + self.ready) * seconds

    def turn_to(self, activity: GpuUse) -> None:
        """What the workers do from now on."""
        if self.activity is GpuUse.TRAINING and activity is not GpuUse.TRAINING:
            self._still_since = self.now
        elif activity is GpuUse.TRAINING and self._still_since is not None:
            if self.now > self._still_since:
                self.pauses += 1
                self.paused_seconds += self.now - self._still_since
            self._still_since = None
        self.activity = activity

    def save(self) -> None:
        """What was trained so far is durable."""
        self._durable = self.samples, self.useful

    def roll_back(self) -> None:
        """All copies in memory are lost: what came after the last durable checkpoint is trained again."""
        samples, useful = self._durable
        self.repeated_samples += self.samples - samples
        self.repeated += self.useful - useful
        self.samples, self.useful = self._durable

    def seconds_left(self) -> float:
        """Until the last sample, at the present speed. Infinity if it stands still."""
        return max(self.job.samples - self.samples, 0.0) / self.speed if self.speed else float("inf")
