"""How fast a job is, from a file: a profile that `hvd-elastic profile` has printed, or a table of sizes."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from hvd_elastic.client.profile.profile_file import profile_from
from hvd_elastic.decide.simulate.inputs.speed_curve import SpeedCurve
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses.problem import Problem

_STEPS: Final = "steps_per_s"
_SAMPLES: Final = "samples_per_second"
_WAY_OUT: Final = f"give what `hvd-elastic profile -o json` printed, or CSV with the columns workers and {_STEPS}"


def read_curve(path: Path) -> SpeedCurve:
    """The speeds of a file. Raises InvalidInputError with all that is wrong with it."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise InvalidInputError([Problem(path=str(path), value=..., what=f"cannot be read: {reason}")]) from error
    first = text.partition("\n")[0]
    if "," in first and not first.startswith("{"):
        return _from_table(path, text.splitlines())
    return _from_profile(path, text)


def _from_profile(path: Path, text: str) -> SpeedCurve:
    """JSON or YAML, which is one here: the fitted speed of each size from 1 to the job's max."""
    import yaml

    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidInputError([Problem(path=str(path), value=..., what=str(error), way_out=_WAY_OUT)]) from error
    profile = profile_from(document, source=str(path))
    measured = sorted({one.workers for one in profile.measured})
    return SpeedCurve(
        source=f"{path.name}: profile of {profile.job or 'a job'}, measured with {_listed(measured)} workers",
        points={workers: profile.model.samples_per_second(workers) for workers in range(1, profile.max + 1)},
        measured=measured[-1],
    )


def _from_table(path: Path, lines: Sequence[str]) -> SpeedCurve:
    reader = csv.DictReader(line.replace(" ", "") for line in lines)
    columns = list(reader.fieldnames or ())
    rate = next((name for name in (_STEPS, _SAMPLES) if name in columns), None)
    if rate is None or "workers" not in columns:
        problem = Problem(path=f"{path}:1", value=lines[0][:60], what="is no table of speeds", way_out=_WAY_OUT)
        raise InvalidInputError([problem])
    points: dict[int, float] = {}
    problems: list[Problem] = []
    for row in reader:
        found = list(_row_problems(f"{path}:{reader.line_num}", row, rate))
        problems += found
        if not found:
            points[int(row["workers"])] = float(row[rate])
    if not points and not problems:
        problems.append(Problem(path=str(path), value=..., what="has no sizes in it"))
    if problems:
        raise InvalidInputError(problems)
    source = f"{path.name}: measured with {_listed(sorted(points))} workers"
    return SpeedCurve(source=source, points=points, per_step=rate == _STEPS, measured=max(points))


def _row_problems(path: str, row: Mapping[str, str | None], rate: str) -> Iterator[Problem]:
    workers, speed = row["workers"] or "", row[rate] or ""
    if not workers.isdigit() or int(workers) < 1:
        yield Problem(path=path, value=workers, what="is not a number of workers from 1 on")
    try:
        fine = _is_rate(float(speed))
    except ValueError:
        fine = False
    if not fine:
        yield Problem(path=path, value=speed, what=f"is not a number above 0 of {rate}")


def _is_rate(value: float) -> bool:
    return 0 < value < float("inf")


def _listed(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes))
