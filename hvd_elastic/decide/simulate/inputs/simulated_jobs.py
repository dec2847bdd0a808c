"""From a job description to the job of a simulation, and what had to be assumed for it."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from hvd_elastic.decide.simulate.inputs.speed_curve import SpeedCurve
from hvd_elastic.decide.simulate.workload import SimulatedJob
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.manifests.node_placement import grace_seconds
from hvd_elastic.system.plain_words import count_words

DEFAULT_BATCH: Final = 256
_HOUR: Final = 3600.0
_LENGTH: Final = re.compile(r"(\d+(?:\.\d*)?(?:e\d+)?) *(samples|steps|h)")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLength:
    """How much there is to train."""

    amount: float
    unit: str
    """`samples`, `steps` of the global batch, or `h`: hours at the job's own `workers.max`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """A job description, and what it does not say."""

    spec: JobSpec
    curve: SpeedCurve
    begins: float = 0.0
    """Seconds of the day."""
    copies: int = 1
    length: JobLength | None = None
    """None: it trains all day."""
    checkpoint_seconds: float = 0.0
    """For which training stands still as it writes a durable checkpoint."""
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSetting:
    """The numbers of a job that its user chooses."""

    min: int
    max: int
    grace: int
    """Seconds."""
    every: int | None
    """Seconds between durable checkpoints; None: there are none."""
    copies: int = 1


def job_length(text: str) -> JobLength:
    """`500000samples`, `2e6samples`, `20000steps` or `6h`. Raises ValueError."""
    match = _LENGTH.fullmatch(text.strip())
    if not match or not 0 < float(match[1]) < math.inf:
        raise ValueError("is not a length: write 500000samples, 20000steps or 6h")
    return JobLength(amount=float(match[1]), unit=match[2])


def setting_of(plan: JobPlan) -> JobSetting:
    """As the description has it."""
    return JobSetting(
        min=plan.spec.workers.min,
        max=plan.spec.workers.max,
        grace=grace_seconds(plan.spec),
        every=interval_seconds(plan.spec.checkpoint.every, plan.checkpoint_seconds) if plan.spec.checkpoint else None,
        copies=plan.copies,
    )


def interval_seconds(every: int | str, cost_seconds: float) -> int:
    """Between durable checkpoints. `auto` is what it is for a job that has not lost all of its workers yet."""
    if isinstance(every, int):
        return every
    from hvd_elastic.policy.checkpoint_interval import LossHistory, checkpoint_seconds

    return round(checkpoint_seconds(LossHistory(), cost_seconds=cost_seconds))


def simulated_jobs(plan: JobPlan, setting: JobSetting | None = None) -> tuple[SimulatedJob, ...]:
    """The copies of a job, with the description's own numbers or with others. The work to do is the same with any."""
    chosen = setting or setting_of(plan)
    name = plan.spec.name
    batch = samples_per_step(plan.spec)
    return tuple(
        SimulatedJob(
            name=name if chosen.copies == 1 else f"{name}-{number}",
            begins=plan.begins,
            min=chosen.min,
            start=min(max(plan.spec.workers.start, chosen.min), chosen.max),
            max=chosen.max,
            sizes=tuple(size for size in plan.spec.workers.sizes if chosen.min <= size <= chosen.max),
            gpus=plan.spec.workers.gpus or 1,
            speeds=plan.curve.speeds(chosen.max, batch),
            samples_per_step=batch,
            samples=_samples(plan, batch),
            grace_seconds=chosen.grace,
            checkpoint_every_seconds=chosen.every,
            checkpoint_seconds=plan.checkpoint_seconds,
            weight=plan.weight,
            replaces_slow=plan.spec.slow_workers == "replace",
        )
        for number in range(1, chosen.copies + 1)
    )


def samples_per_step(spec: JobSpec) -> int:
    """The global batch. A batch that grows with the workers is taken as it is at `workers.start`."""
    if spec.batch.global_:
        return spec.batch.global_
    if spec.batch.per_worker:
        return spec.batch.per_worker * spec.workers.slots * spec.workers.start
    return DEFAULT_BATCH


def assumptions(plans: Sequence[JobPlan]) -> list[str]:
    """What the descriptions do not say, and what was taken for it: one line each."""
    return [f"{plan.spec.name}: {line}" for plan in plans for line in _assumed(plan)]


def _assumed(plan: JobPlan) -> Iterator[str]:
    spec, workers = plan.spec, plan.spec.workers
    yield f"speed {plan.curve.source}"
    if plan.curve.extrapolates(workers.max):
        yield f"its speed with up to {workers.max} workers is extrapolated"
    if not spec.batch.global_ and not spec.batch.per_worker:
        yield f"no batch in the description: {DEFAULT_BATCH} samples a step"
    elif not spec.batch.global_:
        samples = count_words(samples_per_step(spec), "sample")
        yield f"the batch grows with the workers: taken as {samples}, that of workers.start"
    if not workers.gpus:
        yield "workers without GPUs count as one GPU each"
    if spec.checkpoint:
        every = interval_seconds(spec.checkpoint.every, plan.checkpoint_seconds)
        cost = f"training stands still for {plan.checkpoint_seconds:g} s"
        yield f"a durable checkpoint each {every} s, for which {cost}"
    else:
        yield "no durable checkpoint: if all workers go at once, it begins anew"


def _samples(plan: JobPlan, batch: int) -> float:
    if plan.length is None:
        return float("inf")
    match plan.length.unit:
        case "samples":
            return plan.length.amount
        case "steps":
            return plan.length.amount * batch
        case _:
            most = plan.spec.workers.max
            return plan.length.amount * _HOUR * plan.curve.speeds(most, batch)[most]
