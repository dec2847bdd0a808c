"""A job's speed at every size, from its step time and from how its batch follows the number of workers."""

from dataclasses import dataclass

from hvd_elastic.policy.job_demand import Speeds
from hvd_elastic.policy.step_time_fit import Doubt, StepTimeFit


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBatch:
    """Samples of a step: the whole batch is constant, or each worker's part. Raises ValueError unless one is given."""

    total: float | None = None
    """Over all workers."""
    per_worker: float | None = None

    def __post_init__(self) -> None:
        given = [value for value in (self.total, self.per_worker) if value is not None]
        if len(given) != 1 or not 0 < given[0] < float("inf"):
            raise ValueError("a batch has either a total or a number per worker, above 0")

    def of_worker(self, workers: int) -> float:
        return self.per_worker if self.per_worker is not None else (self.total or 0.0) / workers

    def of_all(self, workers: int) -> float:
        return self.of_worker(workers) * workers


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedModel:
    """All that a job's speed follows from."""

    fit: StepTimeFit
    batch: StepBatch
    workers_per_node: int = 1
    """As many share a node, so that the fewest nodes are used."""

    def nodes(self, workers: int) -> int:
        """On which so many workers are."""
        return -(-workers // self.workers_per_node)

    def step_seconds(self, workers: int) -> float:
        return self.fit.seconds(workers=workers, nodes=self.nodes(workers), samples=self.batch.of_worker(workers))

    def doubt(self, workers: int) -> Doubt:
        """About the seconds of a step."""
        return self.fit.doubt(workers=workers, nodes=self.nodes(workers), samples=self.batch.of_worker(workers))

    def samples_per_second(self, workers: int) -> float:
        """Of all workers together; 0 without a worker."""
        return self.batch.of_all(workers) / self.step_seconds(workers) if workers else 0.0

    def speeds(self, max_workers: int) -> Speeds:
        """Samples per second with 0 to `max_workers` workers."""
        return Speeds(tuple(self.samples_per_second(workers) for workers in range(max_workers + 1)))
