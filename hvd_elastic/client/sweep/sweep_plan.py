"""A sweep as it is to be: one job for each point, checked whole before anything is written."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Final

from hvd_elastic.client.sweep.grid import Point, arguments, describe, job_keys
from hvd_elastic.mpijob import checks
from hvd_elastic.mpijob.contract import LABEL_SWEEP
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.description.target import Target
from hvd_elastic.mpijob.job_reader import read_job
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses.problem import Problem

MAX_NAME: Final = 45
"""Characters of a sweep's name: a job's has 52 at most, and ends with a digest."""
_MAX_JOB_NAME: Final = 52
_DIGEST: Final = 6
_NOT_OF_A_LABEL: Final = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """One job of a sweep."""

    point: Point
    spec: JobSpec
    """With the sweep's label; suspended if it is beyond the cap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlan:
    """What a user asked for."""

    base: JobSpec
    """The job without the values of any point. Its name is the sweep's."""
    jobs: Sequence[PlannedJob]
    at_once: int | None = None
    """Most jobs that run at the same time; None: as many as there is room for."""

    @property
    def name(self) -> str:
        return self.base.name

    @property
    def needs_runner(self) -> bool:
        """Whether some jobs must wait for their turn."""
        return self.at_once is not None and self.at_once < len(self.jobs)

    def waits(self, place: int) -> bool:
        """Whether the job at this place is beyond the cap."""
        return self.at_once is not None and place >= self.at_once


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInput:
    """What `read_job` takes: a description, and what is put on top of it and below it."""

    source: str | PathLike[str] | None
    overrides: Mapping[str, object] = field(default_factory=dict)
    defaults: Mapping[str, object] = field(default_factory=dict)
    also: Callable[[JobSpec], Iterable[Problem]] = lambda _spec: ()

    def spec_with(self, extra: Mapping[str, object]) -> JobSpec:
        """The job with `extra` on top of everything. Raises InvalidInputError."""
        overrides = dict(self.overrides)
        for name, value in extra.items():
            known = overrides.get(name)
            overrides[name] = {**known, **value} if isinstance(known, dict) and isinstance(value, dict) else value
        return read_job(self.source, overrides, defaults=self.defaults, also=self._problems)

    def _problems(self, spec: JobSpec) -> Iterable[Problem]:
        return [*self.also(spec), *checks.target_problems(spec, Target.MPIJOB)]


def plan_sweep(job: JobInput, points: Sequence[Point], *, at_once: int | None = None) -> SweepPlan:
    """A job for each point.

    Raises InvalidInputError with all problems of all jobs: one that several have is told once, with the first of them.
    """
    base = job.spec_with({})
    if problems := _sweep_problems(base, at_once):
        raise InvalidInputError(problems)
    made: list[PlannedJob] = []
    found: dict[str, list[tuple[Point, Problem]]] = {}
    for place, point in enumerate(points):
        try:
            spec = job.spec_with(_values(base, point, suspend=at_once is not None and place >= at_once))
            made.append(PlannedJob(point=point, spec=spec))
        except InvalidInputError as error:
            for problem in error.problems:
                found.setdefault(str(problem), []).append((point, problem))
    if found:
        raise InvalidInputError(map(_told_once, found.values()))
    return SweepPlan(base=base, jobs=made, at_once=at_once)


def job_name(sweep: str, point: Point) -> str:
    """The name of a point's job. It depends on the point alone: `bert-lr0-1-3fa2c1`."""
    digest = hashlib.sha256(json.dumps(sorted(point.items())).encode()).hexdigest()[:_DIGEST]
    words = (f"{re.split('[.:]', name)[-1]}{value}" for name, value in point.items())
    readable = _NOT_OF_A_LABEL.sub("-", "-".join(words).lower())
    room = _MAX_JOB_NAME - len(sweep) - len(digest) - 2
    return "-".join(filter(None, (sweep, readable[: max(0, room)].strip("-"), digest)))


def _values(base: JobSpec, point: Point, *, suspend: bool) -> Mapping[str, object]:
    values = job_keys(point)
    labels = values.get("labels")
    mine = {LABEL_SWEEP: base.name}
    return {
        **values,
        "name": job_name(base.name, point),
        "command": [*base.command, *arguments(point)],
        "labels": {**labels, **mine} if isinstance(labels, dict) else mine,
        "suspend": suspend,
    }


def _sweep_problems(base: JobSpec, at_once: int | None) -> list[Problem]:
    problems: list[Problem] = []
    if len(base.name) > MAX_NAME:
        what = f"is longer than the {MAX_NAME} characters that leave room for the names of its jobs"
        problems.append(Problem(path="name", value=base.name, what=what, way_out="--name gives the sweep another"))
    if base.suspend:
        what = "is decided by the sweep, job by job"
        problems.append(Problem(path="suspend", value=True, what=what, way_out="leave it out"))
    if at_once is not None and in_kueue(base):
        what = "is not for queue.whole: Kueue starts as many jobs as the queue's quota has room for"
        problems.append(Problem(path="--at-once", value=at_once, what=what, way_out="leave it out"))
    return problems


def in_kueue(base: JobSpec) -> bool:
    """Whether Kueue alone suspends and resumes the jobs."""
    return base.queue is not None and base.queue.takes_whole


def _told_once(found: Sequence[tuple[Point, Problem]]) -> Problem:
    point, problem = found[0]
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return replace(problem, path=f"{describe(point)}{more}: {problem.path}")


def description_of(base: JobSpec) -> Mapping[str, object]:
    """The description as plain data, for a comparison."""
    values: Mapping[str, object] = json.loads(base.as_json())
    return values
