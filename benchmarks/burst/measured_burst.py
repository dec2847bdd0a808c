"""What one burst was seen to do, and all bursts of one kind at one place."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final, Self

from benchmarks.report import measurements
from testbed.cluster.pod_lives import PodLife

IDLE: Final = "idle GPUs"
AT_ONCE: Final = "pods that end at once"
"""Kinds of bursts: where their GPUs come from. The others are `training_kind` of a launcher."""


def training_kind(launcher: str) -> str:
    """GPUs of training under a launcher."""
    return f"training, {launcher}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """Pods that asked at once. All figures are seconds."""

    waits: Sequence[float]
    """Of each pod, from its creation until it ran."""
    starting: Sequence[float]
    """Of each pod, the part of that after the scheduler had bound it to a node."""
    whole: float
    """From the creation of the first pod until the last one ran."""
    chosen: float | None = None
    """From the creation of the first pod until the last victim was told to end; None: there were no victims."""
    leaving: Sequence[float] = ()
    """Of each victim, from that word until it was gone."""

    @classmethod
    def of(cls, asked: Sequence[PodLife], victims: Sequence[PodLife]) -> Self:
        """From the lives of the pods that asked, all of which run, and of those that were told to end for them."""
        first = min(life.created for life in asked)
        ran = [(life, life.running) for life in asked if life.running is not None]
        told = [life.told - first for life in victims if life.told is not None]
        return cls(
            waits=[running - life.created for life, running in ran],
            starting=[running - life.bound for life, running in ran if life.bound is not None],
            whole=max(running for _, running in ran) - first,
            chosen=max(told, default=None),
            leaving=[life.leaving for life in victims if life.leaving is not None],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Bursts of one size and kind at one place."""

    place: str
    gpus: int
    """For which each burst asks, one a pod."""
    kind: str
    load: float
    """Of the machine, over the minute before the last of them ended."""
    bursts: Sequence[Burst]

    @property
    def waits(self) -> list[float]:
        """Of all pods."""
        return [wait for burst in self.bursts for wait in burst.waits]

    def keep(self, folder: Path) -> None:
        """Write it into a file, for a report."""
        measurements.keep(folder, f"{self.place}-{self.gpus}-{self.kind}", self)

    @classmethod
    def from_json(cls, *, bursts: Sequence[Mapping[str, Any]], **fields: Any) -> Self:
        """What `keep` has written."""
        return cls(**fields, bursts=[Burst(**burst) for burst in bursts])

    @property
    def order(self) -> tuple[str, int, bool, bool, str]:
        """Of the rows of a table: what others use comes first."""
        return self.place, self.gpus, self.kind not in (IDLE, AT_ONCE), self.kind != IDLE, self.kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """Seconds that victims take to be gone once they are told to end."""

    training: float
    at_once: float

    @classmethod
    def of(cls, measured: Sequence[Measured], *, launcher: str, place: str) -> "Leaving | None":
        """What real victims took at a place, at the median; None if there were none of a kind."""
        training = median_leaving(measured, training_kind(launcher), place=place)
        at_once = median_leaving(measured, AT_ONCE, place=place)
        return None if training is None or at_once is None else cls(training=training, at_once=at_once)


def median_leaving(measured: Sequence[Measured], kind: str, *, place: str) -> float | None:
    """The median time that victims of a kind took to go at a place; None: none was seen."""
    bursts = [burst for one in measured if (one.kind, one.place) == (kind, place) for burst in one.bursts]
    seconds = [second for burst in bursts for second in burst.leaving]
    return median(seconds) if seconds else None
