"""Reads a profile from the file that `hvd-elastic profile -o json` or `-o yaml` has printed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hvd_elastic.client.profile.job_profile import KIND, VERSION, JobProfile
from hvd_elastic.client.profile.measured_sizes import MeasuredSize
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.policy.job_speeds import StepBatch
from hvd_elastic.policy.step_time import StepObservation
from hvd_elastic.priorityclasses.problem import Problem

_WAY_OUT = "write it anew: hvd-elastic profile NAME -o json"


def read_profile(path: Path) -> JobProfile:
    """The profile in a file. Raises InvalidInputError with every problem."""
    from hvd_elastic.mpijob.yaml_input.yaml_composer import UnreadableError, read_value

    try:
        document = read_value(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, UnreadableError) as error:
        raise InvalidInputError([_problem(str(path), "", f"cannot be read: {error}")]) from None
    return profile_from(document, source=str(path))


def profile_from(document: object, *, source: str) -> JobProfile:
    """The profile in a document. `source`: what a message calls it. Raises InvalidInputError with every problem."""
    values: Mapping[str, Any] = document if isinstance(document, Mapping) else {}
    if values.get("kind") != KIND:
        raise InvalidInputError([_problem(source, values.get("kind", ""), f"is no profile: its kind is not {KIND}")])
    if values.get("version") != VERSION:
        raise InvalidInputError([_problem(f"{source}: version", values.get("version", ""), f"is not {VERSION}")])
    problems: list[Problem] = []
    batch = _batch(values.get("batch"), source, problems)
    measured = _measured(values.get("measured"), source, problems)
    least, most = (_count(values.get(key), f"{source}: {key}", problems) for key in ("min", "max"))
    if problems or batch is None:
        raise InvalidInputError(problems)
    return JobProfile(job=str(values.get("job", "")), min=least, max=most, batch=batch, measured=measured)


def _batch(value: object, source: str, problems: list[Problem]) -> StepBatch | None:
    given = value if isinstance(value, Mapping) else {}
    try:
        return StepBatch(total=given.get("total"), per_worker=given.get("per_worker"))
    except (TypeError, ValueError):
        problems.append(_problem(f"{source}: batch", value, "has not one number above 0: total, or per_worker"))
        return None


def _measured(value: object, source: str, problems: list[Problem]) -> tuple[MeasuredSize, ...]:
    rows = value if isinstance(value, list) else []
    if not rows:
        problems.append(_problem(f"{source}: measured", value, "has no size"))
    found = []
    for index, row in enumerate(rows):
        try:
            counts = {name: int(row[name]) for name in ("workers", "nodes", "steps")}
            one = MeasuredSize(**counts, seconds=float(row["seconds"]))
            StepObservation(workers=one.workers, nodes=one.nodes, samples=1.0, seconds=one.step_seconds)
            found.append(one)
        except (KeyError, TypeError, ValueError, ArithmeticError):
            problems.append(
                _problem(f"{source}: measured[{index}]", row, "is not workers, nodes, steps and seconds of one size")
            )
    return tuple(found)


def _count(value: object, path: str, problems: list[Problem]) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 100_000:
        return value
    problems.append(_problem(path, value, "is not a number of workers"))
    return 1


def _problem(path: str, value: object, what: str) -> Problem:
    return Problem(path=path, value=... if value is None else value, what=what, way_out=_WAY_OUT)
