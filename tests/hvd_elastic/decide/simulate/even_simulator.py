"""A day in which nothing happens but the beginning: each job gets an equal part of the nodes. Stands for the engine."""

from collections.abc import Sequence

from hvd_elastic.decide.simulate.day import Day
from hvd_elastic.decide.simulate.outcome import DayOutcome, InferenceWaiting, JobOutcome, SizeHistory
from hvd_elastic.decide.simulate.workload import SimulatedJob, Stalls, Way


def even_simulator(day: Day, jobs: Sequence[SimulatedJob], way: Way, stalls: Stalls) -> DayOutcome:
    """Every job waits for `stalls.first_step` once, and inference for the job's grace, as if it were all used."""
    free = sum(node.gpus for node in day.nodes) // len(jobs)
    return DayOutcome(
        way=way,
        source=day.source,
        seconds=day.seconds,
        jobs=tuple(outcome(day, job, free // job.gpus, stalls) for job in jobs),
        inference=InferenceWaiting(pods=1, p50=0.1, p99=max(job.grace_seconds for job in jobs) / 10, max=9.0),
    )


def outcome(day: Day, job: SimulatedJob, room: int, stalls: Stalls) -> JobOutcome:
    workers = min(job.max, room) if room >= job.min else 0
    speed = job.speeds[workers]
    left = day.seconds - job.begins - stalls.first_step
    trained = min(left, job.samples / speed) if speed else 0.0
    gpus = workers * job.gpus
    done = speed > 0 and trained < left
    sizes = SizeHistory()
    sizes.note(job.begins, workers)
    return JobOutcome(
        name=job.name,
        useful=trained * gpus,
        held=(trained + stalls.first_step) * gpus,
        given=min(job.max, room) * job.gpus * day.seconds,
        stalled=0.0,
        repeated=0.0,
        starting=stalls.first_step * gpus,
        samples=trained * speed,
        steps=int(trained * speed / job.samples_per_step),
        repeated_steps=0,
        resizes=0,
        restarts=0,
        pauses=2,
        paused_seconds=3.5,
        completed=job.begins + stalls.first_step + trained if done else None,
        sizes=sizes,
    )
