"""The tables of replayed windows: each window with each system, and each system over all windows."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from statistics import fmean, median
from typing import Final

from benchmarks.replay.measured_window import Measured, goodput, lost_by_change, pauses, repeated, untaken
from benchmarks.report.aim import Aim
from benchmarks.report.record import Column, Table, Value
from hvd_elastic.decide.simulate.engine.inference_record import InferenceRecord

GOODPUT_AIM: Final = 0.97
COLUMNS: Final = (
    Column(title="goodput", format=".1%"),
    Column(title=f"at least {GOODPUT_AIM:.0%}"),
    Column(title="GPU-s lost a take", format=".2f"),
    Column(title="a give", format=".2f"),
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


def window_table(name: str, measured: Sequence[Measured], broken: Sequence[str]) -> Table:
    """A row for each; `broken` says what did not come to its end, and why."""
    rows: list[list[Value]] = [
        [one.window, one.system, *_figures([one])] for one in sorted(measured, key=lambda one: one.window)
    ]
    return Table(
        name=name,
        title="Windows of recorded traces",
        columns=(Column(title="window"), Column(title="system"), *COLUMNS),
        rows=rows,
        note="\n".join(broken),
    )


def system_table(name: str, measured: Sequence[Measured], note: str = "") -> Table:
    """A row for each system, over all its windows; goodput is the mean of the windows."""
    return Table(
        name=name,
        title="Over all windows",
        columns=(Column(title="system"), Column(title="windows"), *COLUMNS),
        rows=list(_rows(measured)),
        note=note,
    )


def goodput_aims(measured: Sequence[Measured], aims: Mapping[str, float]) -> list[Aim]:
    """What was promised of some systems, the product's, that were measured. `aims`: the least share of each."""
    shares = {name: [goodput(one) for one in measured if one.system == name] for name in aims}
    return [
        Aim(
            what=f"goodput of {name} over {len(found)} windows, as a share of what inference leaves",
            bound=aims[name],
            measured=fmean(found),
            is_least=True,
            format=".2%",
        )
        for name, found in shares.items()
        if found
    ]


def row(one: Measured) -> list[Value]:
    """The figures of one window, as COLUMNS names them."""
    return _figures([one])


def _rows(measured: Sequence[Measured]) -> Iterator[list[Value]]:
    for system in dict.fromkeys(one.system for one in measured):
        windows = [one for one in measured if one.system == system]
        yield [system, len(windows), *_figures(windows)]


def _figures(windows: Sequence[Measured]) -> list[Value]:
    share = fmean(map(goodput, windows))
    stood = [pause for one in windows for pause in pauses(one)]
    waits = InferenceRecord([wait for one in windows for wait in one.waits]).waiting()
    takes, gives = (list(chain(*of_windows)) for of_windows in zip(*map(lost_by_change, windows), strict=True))
    counted = [one.samples_wrong for one in windows if one.samples_wrong is not None]
    return [
        share,
        "yes" if share >= GOODPUT_AIM else "no",
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
