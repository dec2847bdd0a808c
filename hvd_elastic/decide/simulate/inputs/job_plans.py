"""The jobs of a simulation from job files, and from `[NAME=]VALUE` words for what a description does not say."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from hvd_elastic.decide.simulate.inputs.simulated_jobs import JobPlan, job_length
from hvd_elastic.decide.simulate.inputs.speed_curve import SpeedCurve, assumed_curve
from hvd_elastic.decide.simulate.inputs.speed_file import read_curve
from hvd_elastic.decide.simulate.time_of_day import seconds_of
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.job_reader import read_job
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses.problem import Problem

_Value = TypeVar("_Value")

DEFAULT_CHECKPOINT_SECONDS: Final = 0.1
"""Handing a state to the durable tier takes milliseconds (benchmarks/trainer_durable.py); a large one takes longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanWords:
    """What was written for all jobs (`VALUE`) or for one (`NAME=VALUE`). The later word wins."""

    start: Sequence[str] = ()
    copies: Sequence[str] = ()
    length: Sequence[str] = ()
    speed: Sequence[str] = ()
    checkpoint_cost: Sequence[str] = ()
    weight: Sequence[str] = ()


@dataclass(slots=True, kw_only=True)
class _WordReader:
    names: frozenset[str]
    problems: list[Problem] = field(default_factory=list)

    def values(self, flag: str, words: Sequence[str], parse: Callable[[str], _Value]) -> Mapping[str, _Value]:
        """The value of each job that has one."""
        found: dict[str, _Value] = {}
        for word in words:
            name, equals, text = word.partition("=")
            if not equals:
                name, text = "", word
            try:
                value = parse(text)
            except InvalidInputError as error:
                self.problems += error.problems
                continue
            except ValueError as error:
                self.problems.append(Problem(path=flag, value=text, what=str(error)))
                continue
            if name and name not in self.names:
                what = f"names none of the jobs {', '.join(sorted(self.names))}"
                self.problems.append(Problem(path=flag, value=name, what=what))
            found.update(dict.fromkeys([name] if name else self.names, value))
        return found


def job_plans(paths: Sequence[Path], words: PlanWords, *, assumed: SpeedCurve | None = None) -> tuple[JobPlan, ...]:
    """One plan for each file. Jobs without a speed have the `assumed` one.

    Raises InvalidInputError with the problems of all files and all words.
    """
    specs, problems = _specs(paths)
    reader = _WordReader(names=frozenset(spec.name for spec in specs))
    if problems:
        raise InvalidInputError(problems)
    start = reader.values("--start", words.start, seconds_of)
    copies = reader.values("--copies", words.copies, _count)
    length = reader.values("--length", words.length, job_length)
    speed = reader.values("--speed", words.speed, lambda text: read_curve(Path(text)))
    cost = reader.values("--checkpoint-cost", words.checkpoint_cost, seconds_of)
    weight = reader.values("--weight", words.weight, _weight)
    if reader.problems:
        raise InvalidInputError(reader.problems)
    return tuple(
        JobPlan(
            spec=spec,
            curve=speed.get(spec.name) or assumed or assumed_curve(),
            begins=start.get(spec.name, 0.0),
            copies=copies.get(spec.name, 1),
            length=length.get(spec.name),
            checkpoint_seconds=cost.get(spec.name, DEFAULT_CHECKPOINT_SECONDS),
            weight=weight.get(spec.name, 1.0),
        )
        for spec in specs
    )


def _specs(paths: Sequence[Path]) -> tuple[list[JobSpec], list[Problem]]:
    specs: list[JobSpec] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            specs.append(read_job(path))
        except InvalidInputError as error:
            problems += error.problems
    names = [spec.name for spec in specs]
    problems += [
        Problem(path="name", value=name, what="is the name of two jobs", way_out="--copies plays one job several times")
        for name in dict.fromkeys(name for name in names if names.count(name) > 1)
    ]
    return specs, problems


def _count(text: str) -> int:
    if not text.isdigit() or not 0 < int(text) <= 1000:
        raise ValueError("is not a number of jobs from 1 to 1000")
    return int(text)


def _weight(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ValueError("is not a weight above 0")
    return value
