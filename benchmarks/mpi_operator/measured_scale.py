"""What was seen of the MPI Operator with a job of one size."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Self

from benchmarks.report import measurements


class Change(StrEnum):
    """What a job goes through, in this order."""

    START = "start"
    ONE_LEAVES = "one leaves"
    ONE_BACK = "one comes back"
    HALF_LEAVE = "half leave"
    HALF_BACK = "half come back"
    DELETED = "deleted"


class Moment(StrEnum):
    """Of a change: of the last pod; then the operator's ConfigMap, and discovery's list, are right."""

    CREATED = "created"
    BOUND = "bound"
    RUNNING = "running"
    GONE = "gone"
    LISTED = "in the ConfigMap"
    OFFERED = "offered"


_SYNC: Final = re.compile(r"Finished syncing job \S+ \((\S+)\)")
_PART: Final = re.compile(r"([0-9.]+)(h|ms|m|s|µs|ns)")
_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredChange:
    """What a change took."""

    seconds: Mapping[str, float]
    """From its beginning until each moment."""
    cpu: Mapping[str, float]
    """CPU seconds meanwhile, by process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The limits that the operator sets itself. Its own defaults are 5 and 10 (mpi-operator 0.8.2, `options.go`)."""

    requests: int
    """To the API server, a second (`-kube-api-qps`). As the defaults do, twice as many may be sent at once."""
    events: int
    """Of a job's pods, and other news, that it looks at a second (`-controller-queue-rate-limit`); ten times as many
    at once, as the defaults do."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """From `REQUESTS:EVENTS`. Raises ValueError."""
        requests, events = map(int, text.split(":"))
        return cls(requests=requests, events=events)

    def __str__(self) -> str:
        return f"{self.requests}:{self.events}"

    def flags(self) -> list[str]:
        """Of the operator."""
        calls = [f"-kube-api-qps={self.requests}", f"-kube-api-burst={2 * self.requests}"]
        return [
            *calls,
            f"-controller-queue-rate-limit={self.events}",
            f"-controller-queue-burst={10 * self.events}",
        ]


@dataclass(slots=True, kw_only=True)
class MeasuredScale:
    """A job of one size."""

    workers: int
    pace: Pace
    changes: dict[Change, MeasuredChange] = field(default_factory=dict)
    mib: dict[str, float] = field(default_factory=dict)
    """Resident memory with all workers there, by process."""
    syncs: int = 0
    """Times that the operator looked at the job, until all workers were there."""
    sync_seconds: float = 0.0
    """That took in all."""
    configmap_bytes: int = 0
    """Of the operator's ConfigMap with all workers there. A ConfigMap holds 1 MiB."""
    load: float = 0.0
    """Of the machine, over the minute before its end."""
    broken: str = ""
    """Why it did not come to its end."""

    def keep(self, folder: Path) -> None:
        """Write it into a file, for a report."""
        measurements.keep(folder, f"{self.workers}-{self.pace}", self)

    @classmethod
    def from_json(cls, *, pace: Mapping[str, Any], changes: Mapping[str, Mapping[str, Any]], **fields: Any) -> Self:
        """What `keep` has written."""
        read = {Change(name): MeasuredChange(**change) for name, change in changes.items()}
        return cls(**fields, pace=Pace(**pace), changes=read)

    @property
    def order(self) -> tuple[int, int, int]:
        """Of the rows of a table."""
        return self.pace.requests, self.pace.events, self.workers


def sync_times(log: Iterable[str]) -> list[float]:
    """Seconds of each sync, as the operator's log tells."""
    return [go_seconds(match[1]) for match in map(_SYNC.search, log) if match]


def go_seconds(text: str) -> float:
    """A duration as Go writes it (`1m2.5s`), in seconds."""
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
