"""The tables of replayed windows: each window with each system, and each system over all windows, and their aims."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from statistics import fmean, median
from typing import Final

from benchmarks.replay.measured_window import Measured, goodput, lost_by_change, pauses, repeated, untaken
from benchmarks.replay.trace_window import REAL_TIME_WAY, way_played
from benchmarks.report.aim import Aim
from benchmarks.report.record import Column, Record, Table, Value
from hvd_elastic.decide.simulate.engine.inference_record import InferenceRecord

GOODPUT_AIM: Final = 0.97
"""Of windows that are compressed."""
REAL_TIME_GOODPUT_AIM: Final = 0.998
TAKE_AIM: Final = 1.0
GIVE_AIM: Final = 3.5
"""GPU-seconds lost by a GPU's change, in real time."""
COLUMNS: Final = (
    Column(title="goodput", format=".1%"),
    Column(title="GPU-s lost by a GPU taken", format=".2f"),
    Column(title="by one given", format=".2f"),
    Column(title="GPUs not taken yet", format=".1%"),
    Column(title="steps repeated"),
    Column(title="epochs ended"),
    Column(title="samples wrong"),
    Column(title="pauses"),
    Column(title="median, s", format=".2f"),
    Column(title="longest, s", format=".1f"),
    Column(title="inference waits"),
    Column(title="p50, s", format=".2f"),
    Column(title="p99, s", format=".2f"),
)


def add_windows(
    record: Record, name: str, measured: Sequence[Measured], aims: Mapping[str, float], notes: Sequence[str]
) -> None:
    """Two tables for each way in which windows were played, and what became of the aims.

    `aims`: the least goodput of each system of ours, of windows that were compressed. `notes`: below the first table.
    """
    ways = [way_played(one.window, one.seconds) for one in measured]
    for way in sorted(set(ways), key=lambda way: (way != REAL_TIME_WAY, way)):
        found = [one for one, its_way in zip(measured, ways, strict=True) if its_way == way]
        slug = f"{name}-{way.replace(',', '').replace(' ', '-')}"
        record.add(window_table(slug, way, found, notes))
        record.add(system_table(f"{slug}-systems", way, found))
        notes = ()
        if way == REAL_TIME_WAY:
            record.promise(*real_time_aims([one for one in found if one.system in aims]))
        else:
            record.promise(*goodput_aims(way, found, aims))


def window_table(name: str, way: str, measured: Sequence[Measured], notes: Sequence[str] = ()) -> Table:
    """A row for each window with each system."""
    rows: list[list[Value]] = [
        [one.window, one.system, *_figures([one])] for one in sorted(measured, key=lambda one: one.window)
    ]
    return Table(
        name=name,
        title=f"Windows of recorded traces, {way}",
        columns=(Column(title="window"), Column(title="system"), *COLUMNS),
        rows=rows,
        note="\n".join(notes),
    )


def system_table(name: str, way: str, measured: Sequence[Measured]) -> Table:
    """A row for each system, over all its windows; goodput is the mean of the windows."""
    return Table(
        name=name,
        title=f"Over all windows, {way}",
        columns=(Column(title="system"), Column(title="windows"), *COLUMNS),
        rows=list(_rows(measured)),
    )


def goodput_aims(way: str, measured: Sequence[Measured], aims: Mapping[str, float]) -> list[Aim]:
    """What was promised of some systems, the product's, that were measured. `aims`: the least share of each."""
    shares = {name: [goodput(one) for one in measured if one.system == name] for name in aims}
    return [
        Aim(
            what=f"goodput of {name} over {len(found)} windows, {way}, as a share of what inference leaves",
            bound=aims[name],
            measured=fmean(found),
            is_least=True,
            format=".2%",
        )
        for name, found in shares.items()
        if found
    ]


def real_time_aims(measured: Sequence[Measured]) -> list[Aim]:
    """What was promised of the product in windows that are not compressed."""
    aims = list[Aim]()
    for system in dict.fromkeys(one.system for one in measured):
        windows = [one for one in measured if one.system == system]
        aims += goodput_aims(REAL_TIME_WAY, windows, {system: REAL_TIME_GOODPUT_AIM})
        lost = zip(("take", "give"), _lost(windows), (TAKE_AIM, GIVE_AIM), strict=True)
        aims += [
            Aim(
                what=f"GPU-seconds that {system} loses by a GPU's {change}, in real time",
                bound=aim,
                measured=fmean(seconds),
            )
            for change, seconds, aim in lost
            if seconds
        ]
    return aims


def row(one: Measured) -> list[Value]:
    """The figures of one window, as COLUMNS names them."""
    return _figures([one])


def _rows(measured: Sequence[Measured]) -> Iterator[list[Value]]:
    for system in dict.fromkeys(one.system for one in measured):
        windows = [one for one in measured if one.system == system]
        yield [system, len(windows), *_figures(windows)]


def _figures(windows: Sequence[Measured]) -> list[Value]:
    stood = [pause for one in windows for pause in pauses(one)]
    waits = InferenceRecord([wait for one in windows for wait in one.waits]).waiting()
    takes, gives = _lost(windows)
    counted = [one.samples_wrong for one in windows if one.samples_wrong is not None]
    return [
        fmean(map(goodput, windows)),
        fmean(takes) if takes else None,
        fmean(gives) if gives else None,
        fmean(map(untaken, windows)),
        sum(map(repeated, windows)),
        sum(one.epochs for one in windows),
        sum(counted) if counted else None,
        len(stood),
        median(stood) if stood else None,
        max(stood, default=None),
        waits.pods,
        waits.p50 if waits.pods else None,
        waits.p99 if waits.pods else None,
    ]


def _lost(windows: Sequence[Measured]) -> tuple[list[float], list[float]]:
    """By each GPU taken and each given, in all the windows."""
    takes, gives = zip(*map(lost_by_change, windows), strict=True)
    return list(chain(*takes)), list(chain(*gives))
