"""The tables of bursts: what they cost, whether that meets the aim, and where the time goes."""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

from benchmarks.burst.measured_burst import AT_ONCE, IDLE, Measured
from benchmarks.report.aim import Aim
from benchmarks.report.record import Column, Table, Value
from hvd_elastic.decide.simulate.engine.inference_record import InferenceRecord

ONE_AIM: Final = 0.25
"""Seconds that a pod may wait longer, at the median, for a GPU of training than for one of a pod that ends at once."""
MANY_AIM: Final = 1.0
"""The same where more are asked for at once."""
_WHERE: Final = (Column(title="place"), Column(title="GPUs asked for"), Column(title="taken from"))


def waiting_table(measured: Sequence[Measured], *, note: str = "") -> Table:
    """How long inference waits, beside the same bursts on idle GPUs and on those of pods that end at once."""
    return Table(
        name="bursts",
        title="Seconds from a pod's creation until it runs",
        columns=(
            *_WHERE,
            Column(title="bursts"),
            *(Column(title=title, format=".2f") for title in ("p50", "p99", "most")),
            Column(title="whole burst, median", format=".2f"),
            Column(title=f"p50 above {IDLE}", format="+.2f"),
            Column(title=f"p50 above {AT_ONCE}", format="+.2f"),
            Column(title="aim", format="+.2f"),
            Column(title="load", format=".1f"),
        ),
        rows=[_waiting_row(one, measured) for one in measured],
        note=note,
    )


def _waiting_row(one: Measured, measured: Sequence[Measured]) -> list[Value]:
    waits = InferenceRecord(one.waits).waiting()
    return [
        *(one.place, one.gpus, one.kind, len(one.bursts)),
        *(waits.p50, waits.p99, waits.max),
        median(burst.whole for burst in one.bursts),
        median_above(one, measured, IDLE),
        median_above(one, measured, AT_ONCE),
        _bound(one) if _is_of_training(one) else None,
        one.load,
    ]


def median_above(one: Measured, measured: Sequence[Measured], kind: str) -> float | None:
    """Seconds that its pods wait longer than those of `kind` in the same place; None without such."""
    beside = [other for other in measured if (other.place, other.gpus, other.kind) == (one.place, one.gpus, kind)]
    if one.kind == kind or not beside:
        return None
    return InferenceRecord(one.waits).waiting().p50 - InferenceRecord(beside[0].waits).waiting().p50


def aims(measured: Sequence[Measured]) -> Iterator[Aim]:
    """Of bursts that training gives way to: no training could better a pod that ends at once."""
    for one in measured:
        if _is_of_training(one):
            what = f"seconds that inference waits beyond {AT_ONCE}, {one.gpus} GPUs at once, {one.place}, median"
            yield Aim(what=what, bound=_bound(one), measured=median_above(one, measured, AT_ONCE))


def _is_of_training(one: Measured) -> bool:
    return one.kind not in (IDLE, AT_ONCE)


def _bound(one: Measured) -> float:
    return ONE_AIM if one.gpus == 1 else MANY_AIM


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
