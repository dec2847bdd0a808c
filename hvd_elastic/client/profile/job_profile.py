"""A job's profile: what was measured at some sizes, how its batch follows the size, and what follows for all sizes."""

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Final

from hvd_elastic.client.profile.measured_sizes import MeasuredSize
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.policy.job_speeds import SpeedModel, StepBatch
from hvd_elastic.policy.step_time import StepObservation
from hvd_elastic.policy.step_time_fit import StepTimeFit

KIND: Final = "JobProfile"
VERSION: Final = 1


@dataclass(frozen=True, kw_only=True)
class JobProfile:
    """Of one job. `document` is its form in a file."""

    job: str
    """`NAMESPACE/NAME`."""
    min: int
    max: int
    """Workers."""
    batch: StepBatch
    measured: tuple[MeasuredSize, ...]
    """At least one."""

    @cached_property
    def model(self) -> SpeedModel:
        """The job's speed at every size."""
        observations = tuple(
            StepObservation(
                workers=one.workers,
                nodes=one.nodes,
                samples=self.batch.of_worker(one.workers),
                seconds=one.step_seconds,
            )
            for one in self.measured
        )
        fullest = max(-(-one.workers // one.nodes) for one in self.measured)
        return SpeedModel(fit=StepTimeFit(observations=observations), batch=self.batch, workers_per_node=fullest)

    def sizes(self) -> list[dict[str, Any]]:
        """For each number of workers from 1 to max: what was measured, what the fit says, and the doubt about that."""
        return [self._size(workers) for workers in range(1, self.max + 1)]

    def _size(self, workers: int) -> dict[str, Any]:
        here = [one for one in self.measured if one.workers == workers]
        steps = sum(one.steps for one in here)
        doubt = self.model.doubt(workers)
        return {
            "workers": workers,
            "nodes": self.model.nodes(workers),
            "steps": steps,
            "measured_seconds": sum(one.seconds for one in here) / steps if here else None,
            "step_seconds": self.model.step_seconds(workers),
            "samples_per_second": self.model.samples_per_second(workers),
            "doubt": {"half": doubt.half, "most": doubt.most},
        }

    def document(self) -> dict[str, Any]:
        """Plain data for a file. What is read again is `job` to `measured`; the rest follows from that."""
        fit = self.model.fit
        return {
            "kind": KIND,
            "version": VERSION,
            "job": self.job,
            "min": self.min,
            "max": self.max,
            "batch": {name: value for name, value in asdict(self.batch).items() if value is not None},
            "measured": [asdict(one) for one in self.measured],
            "step_time": asdict(fit.step_time),
            "error": {"half": fit.error.half, "most": fit.error.most} if fit.error else None,
            "sizes": self.sizes(),
        }


def batch_of(spec: JobSpec) -> StepBatch:
    """How a description's batch follows the workers. Where it says nothing, each process has one unit."""
    if spec.batch.global_ is not None:
        return StepBatch(total=spec.batch.global_)
    return StepBatch(per_worker=(spec.batch.per_worker or 1) * spec.workers.slots)
