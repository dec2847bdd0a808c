"""The settings that are tried: values of each key, given or by default, and all their combinations."""

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields
from heapq import heappop, heappush
from typing import Final

from hvd_elastic.decide.simulate.day import Day
from hvd_elastic.decide.simulate.inputs.simulated_jobs import JobPlan, JobSetting, setting_of
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses.problem import Problem

KEYS: Final = tuple(field.name for field in fields(JobSetting))
"""Of a setting."""
_NAMES: Final = {"jobs": "copies"}
MOST_SETTINGS: Final = 2000

SettingValues = Mapping[str, Sequence[int | None]]
"""Values by key of a setting, ascending."""


def default_values(plan: JobPlan, day: Day) -> SettingValues:
    """Around the description: half and twice its max, as far as nodes have room; usual graces and intervals."""
    own = setting_of(plan)
    room = max(own.max, most_workers(day, plan.spec.workers.gpus or 1))
    graces, intervals = {15, 30, 60, own.grace}, {60, 300, 900}
    return {
        "min": sorted({1, own.min, max(1, own.max // 2)}),
        "max": sorted({max(1, own.max // 2), own.max, min(2 * own.max, room)}),
        "grace": sorted(graces),
        "every": sorted({*intervals, own.every}) if own.every is not None else [None],
        "copies": [own.copies],
    }


def given_values(words: Sequence[str]) -> SettingValues:
    """`KEY=A,B` words; keys are min, max, grace, every, jobs. Raises InvalidInputError with all problems."""
    found: dict[str, Sequence[int | None]] = {}
    problems = []
    for word in words:
        key, _, text = word.partition("=")
        values = text.split(",")
        if _NAMES.get(key, key) not in KEYS or key == "copies":
            known = ", ".join("jobs" if name == "copies" else name for name in KEYS)
            problems.append(Problem(path="--grid", value=word, what="names no key", way_out=f"keys are {known}"))
        elif not all(value.strip().isdigit() and int(value) > 0 for value in values):
            problems.append(
                Problem(
                    path="--grid",
                    value=word,
                    what="is not KEY=A,B of whole numbers from 1 on",
                    way_out="grace and every are seconds",
                )
            )
        elif _NAMES.get(key, key) in found:
            problems.append(
                Problem(path="--grid", value=key, what="is given twice", way_out="write all its values once")
            )
        else:
            found[_NAMES.get(key, key)] = sorted({int(value) for value in values})
    if problems:
        raise InvalidInputError(problems)
    return found


def settings(values: SettingValues, sizes: Collection[int] = ()) -> list[JobSetting]:
    """All combinations whose min is not above their max. Raises InvalidInputError if there are none, or too many.

    `sizes`: of these are min and max; empty: any.
    """
    found = [one for one in _combined(values) if not sizes or {one.min, one.max} <= set(sizes)]
    if not 0 < len(found) <= MOST_SETTINGS:
        allowed = ", with both in workers.sizes" if sizes else ""
        what = (
            f"leave no setting whose min is not above its max{allowed}" if not found else f"are {len(found)} settings"
        )
        way_out = f"give at most {MOST_SETTINGS}" if found else ""
        raise InvalidInputError([Problem(path="--grid", value=..., what=what, way_out=way_out)])
    return found


def most_workers(day: Day, gpus: int) -> int:
    """How many workers of so many GPUs would fit on all nodes that the day ever has at one time."""
    most = room = 0
    there: list[tuple[float, int]] = []
    for node in day.nodes:
        while there and there[0][0] <= node.since:
            room -= heappop(there)[1]
        heappush(there, (node.until, node.gpus // gpus))
        room += node.gpus // gpus
        most = max(most, room)
    return most


def _combined(values: SettingValues) -> Iterator[JobSetting]:
    for least, most, grace, every, copies in itertools.product(*(values[key] for key in KEYS)):
        assert least is not None
        assert most is not None
        assert grace is not None
        assert copies is not None
        if least <= most:
            yield JobSetting(min=least, max=most, grace=grace, every=every, copies=copies)
