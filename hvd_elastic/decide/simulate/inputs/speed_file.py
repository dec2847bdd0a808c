"""How fast a job is, from a file: a profile that `hvd-elastic profile` has printed, or a table of sizes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hvd_elastic.client.profile.profile_file import profile_from
from hvd_elastic.decide.simulate.csv_table import CsvTable, text_of
from hvd_elastic.decide.simulate.inputs.speed_curve import SpeedCurve
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses.problem import Problem

_STEPS: Final = "steps_per_s"
_SAMPLES: Final = "samples_per_second"
_WAY_OUT: Final = f"give what `hvd-elastic profile -o json` printed, or CSV with the columns workers and {_STEPS}"


def read_curve(path: Path) -> SpeedCurve:
    """The speeds of a file. Raises InvalidInputError with all that is wrong with it."""
    text = text_of(path)
    first = text.partition("\n")[0]
    if "," in first and not first.startswith("{"):
        return _from_table(CsvTable(path, text))
    return _from_profile(path, text)


def _from_profile(path: Path, text: str) -> SpeedCurve:
    """JSON or YAML, which is one here: the fitted speed of each size from 1 to the job's max."""
    from hvd_elastic.mpijob.yaml_input.yaml_composer import UnreadableError, read_value

    try:
        document = read_value(text)
    except UnreadableError as error:
        raise InvalidInputError([Problem(path=str(path), value=..., what=str(error), way_out=_WAY_OUT)]) from error
    profile = profile_from(document, source=str(path))
    measured = sorted({one.workers for one in profile.measured})
    return SpeedCurve(
        source=f"{path.name}: profile of {profile.job or 'a job'}, sizes measured, in workers: {_listed(measured)}",
        points={workers: profile.model.samples_per_second(workers) for workers in range(1, profile.max + 1)},
        measured=measured[-1],
    )


def _from_table(table: CsvTable) -> SpeedCurve:
    rate = next((name for name in (_STEPS, _SAMPLES) if name in table.columns), None)
    if rate is None or "workers" not in table.columns:
        first = ",".join(table.columns)[:60]
        what = "is no table of speeds"
        raise InvalidInputError([Problem(path=f"{table.path}:1", value=first, what=what, way_out=_WAY_OUT)])
    points: dict[int, float] = {}
    for row in table.rows():
        workers = table.count(row["workers"], "number of workers", least=1)
        speed = table.number(row[rate], f"number of {rate}")
        if speed == 0:
            table.wrong(row[rate], f"is not a number above 0 of {rate}")
        elif workers is not None and speed is not None:
            points[workers] = speed
    table.check()
    if not points:
        raise InvalidInputError([Problem(path=str(table.path), value=..., what="has no sizes in it")])
    source = f"{table.path.name}: sizes measured, in workers: {_listed(sorted(points))}"
    return SpeedCurve(source=source, points=points, per_step=rate == _STEPS, measured=max(points))


def _listed(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes))
