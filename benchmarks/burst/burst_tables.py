"""The tables of bursts: what they cost, whether that meets the aim, and where the time goes."""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

from benchmarks.burst.measured_burst import AT_ONCE, IDLE, Measured
from benchmarks.report.aim import Aim
from benchmarks.report.record import Column, Table, Value
from hvd_elastic.decide.simulate.engine.inference_record import InferenceRecord

MEDIAN_AIM: Final = 0.25
"""Seconds that a pod may wait longer for GPUs of training than for idle ones, at the median."""
TAIL_AIM: Final = 1.0
"""The same, at the 99th percentile."""
_WHERE: Final = (Column(title="place"), Column(title="GPUs asked for"), Column(title="taken from"))


def waiting_table(measured: Sequence[Measured], *, note: str = "") -> Table:
    """How long inference waits, beside the same bursts on idle GPUs."""
    return Table(
        name="bursts",
        title="Seconds from a pod's creation until it runs",
        columns=(
            *_WHERE,
            Column(title="bursts"),
            *(Column(title=title, format=".2f") for title in ("p50", "p99", "most")),
            Column(title="whole burst, median", format=".2f"),
            Column(title="p50 above idle", format="+.2f"),
            Column(title="p99 above idle", format="+.2f"),
            Column(title=f"aim: {MEDIAN_AIM:g} and {TAIL_AIM:g}"),
            Column(title="load", format=".1f"),
        ),
        rows=[_waiting_row(one, measured) for one in measured],
        note=note,
    )


def _waiting_row(one: Measured, measured: Sequence[Measured]) -> list[Value]:
    waits = InferenceRecord(one.waits).waiting()
    above = above_idle(one, measured)
    return [
        *(one.place, one.gpus, one.kind, len(one.bursts)),
        *(waits.p50, waits.p99, waits.max),
        median(burst.whole for burst in one.bursts),
        *(above or (None, None)),
        _verdict(one, above),
        one.load,
    ]


def above_idle(one: Measured, measured: Sequence[Measured]) -> tuple[float, float] | None:
    """Seconds at the median and at the 99th percentile; None for idle GPUs themselves, or without such bursts."""
    beside = [other for other in measured if (other.place, other.gpus, other.kind) == (one.place, one.gpus, IDLE)]
    if one.kind == IDLE or not beside:
        return None
    here, idle = InferenceRecord(one.waits).waiting(), InferenceRecord(beside[0].waits).waiting()
    return here.p50 - idle.p50, here.p99 - idle.p99


def aims(measured: Sequence[Measured]) -> Iterator[Aim]:
    """Of bursts that training gives way to."""
    for one in measured:
        if one.kind not in (IDLE, AT_ONCE):
            median_above, tail_above = above_idle(one, measured) or (None, None)
            what = f"seconds that inference waits beyond an idle GPU, {one.gpus} GPUs at once, {one.place}"
            yield Aim(what=f"{what}, median", bound=MEDIAN_AIM, measured=median_above)
            yield Aim(what=f"{what}, 99th percentile", bound=TAIL_AIM, measured=tail_above)


def _verdict(one: Measured, above: tuple[float, float] | None) -> str | None:
    """The aim is for training. Pods that end at once show what no training could better."""
    if above is None or one.kind == AT_ONCE:
        return None
    return "met" if above[0] <= MEDIAN_AIM and above[1] <= TAIL_AIM else "missed"


def parts_table(measured: Sequence[Measured]) -> Table:
    """Where the time goes."""
    return Table(
        name="bursts-parts",
        title="Where the seconds go",
        columns=(
            *_WHERE,
            Column(title="first pod created to last victim told, median", format=".2f"),
            *(Column(title=f"victim told to gone, {which}", format=".2f") for which in ("p50", "p99")),
            *(Column(title=f"pod bound to running, {which}", format=".2f") for which in ("p50", "p99")),
        ),
        rows=[_parts_row(one) for one in measured],
    )


def _parts_row(one: Measured) -> list[Value]:
    chosen = [burst.chosen for burst in one.bursts if burst.chosen is not None]
    leaving = [second for burst in one.bursts for second in burst.leaving]
    starting = InferenceRecord([second for burst in one.bursts for second in burst.starting]).waiting()
    left = InferenceRecord(leaving).waiting()
    return [
        *(one.place, one.gpus, one.kind),
        median(chosen) if chosen else None,
        *((left.p50, left.p99) if leaving else (None, None)),
        *(starting.p50, starting.p99),
    ]
