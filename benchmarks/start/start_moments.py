"""The moments of a start, read from what the API server, the containers and the training have told of it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from statistics import median
from typing import Final

from testbed.cluster.timeline import Sighting

Said = Sequence[tuple[float, str]]
"""Lines of a container, each with the Unix seconds at which the runtime got it."""

_LISTED: Final = re.compile(r"generation [\d to]+: (\d+) hosts, ")
"""The sidecar's word of a list (discovery/sidecar/change_log.py)."""
_WAITS: Final = re.compile(r"slot 0: standby \d+ waits")
_TRAINS: Final = re.compile(r"slot 0: process \d+ trains")
"""A worker's words (hvd_elastic/worker/worker_slot.py)."""


class StartMoment(StrEnum):
    """In the order in which they come in a job of the product."""

    STORED = "the API server has the job"
    CREATED = "pods created"
    SCHEDULED = "pods scheduled"
    STARTED = "workers' containers run"
    LAUNCHING = "launcher's container runs"
    IMPORTED = "imports done"
    READY = "workers Ready"
    LISTED = "all on the launcher's list"
    TAKEN = "training processes begin, or are taken"
    FORMED = "world formed"
    STEPPED = "first step"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedPod:
    """What is known of a pod after its start."""

    sightings: Sequence[Sighting]
    processes: Sequence[tuple[int, float, str]]
    """Number, start in Unix seconds, command line."""
    said: Said = ()
    program: str = ""
    """In the command line of a training process that a launcher starts in the pod; empty: none is."""

    def first(self, moment: StartMoment) -> float | None:
        """When that came, in Unix seconds; None if nothing tells."""
        return next(self._of(moment), None)

    def _of(self, moment: StartMoment) -> Iterator[float]:
        match moment:
            case StartMoment.CREATED:
                yield from (seen.time for seen in self.sightings)
            case StartMoment.SCHEDULED:
                yield from (seen.time for seen in self.sightings if seen.node)
            case StartMoment.STARTED:
                yield from (at for pid, at, _ in self.processes if pid == 1)
            case StartMoment.IMPORTED:
                yield from (at for at, line in self.said if _WAITS.search(line))
            case StartMoment.READY:
                yield from (seen.time for seen in self.sightings if seen.ready)
            case StartMoment.TAKEN:
                yield from (at for at, line in self.said if _TRAINS.search(line))
                if self.program:
                    yield from sorted(at for pid, at, words in self.processes if pid != 1 and self.program in words)
            case _:
                return


_OF_WORKERS: Final = (
    StartMoment.CREATED,
    StartMoment.SCHEDULED,
    StartMoment.STARTED,
    StartMoment.IMPORTED,
    StartMoment.READY,
    StartMoment.TAKEN,
)


def moments(
    *,
    applied: float,
    workers: Sequence[StartedPod],
    launcher: StartedPod | None = None,
    stored: float | None = None,
    sidecar: Said = (),
    joined: Sequence[float] = (),
    stepped: float | None = None,
) -> dict[StartMoment, float]:
    """Seconds after `applied` at which each moment came for the last worker; those of which nothing tells are left out.

    Args:
        applied: Unix seconds, as all others are.
        workers: all of the first world.
        launcher: its pod.
        stored: when the job was first heard of.
        sidecar: lines of the discovery sidecar.
        joined: when each worker had joined its first world.
        stepped: when the first step at full size was done.
    """
    found: dict[StartMoment, float | None] = {StartMoment.STORED: stored, StartMoment.STEPPED: stepped}
    for moment in _OF_WORKERS:
        times = [one.first(moment) for one in workers]
        found[moment] = max((at for at in times if at is not None), default=None) if None not in times else None
    found[StartMoment.LAUNCHING] = launcher.first(StartMoment.STARTED) if launcher else None
    listed = next((at for at, hosts in _lists(sidecar) if hosts >= len(workers)), None)
    # The sidecar's log has a line a second at most: one that comes after what it brought about tells nothing.
    found[StartMoment.LISTED] = listed if listed and listed <= (found[StartMoment.TAKEN] or 0) else None
    found[StartMoment.FORMED] = max(sorted(joined)[: len(workers)], default=None)
    return {moment: at - applied for moment in StartMoment if (at := found.get(moment)) is not None}


def _lists(sidecar: Said) -> Iterator[tuple[float, int]]:
    for at, line in sidecar:
        if match := _LISTED.search(line):
            yield at, int(match[1])


def steps_between(seconds: Mapping[StartMoment, float]) -> dict[StartMoment, float]:
    """What each moment took, from the one before it in time. A moment that came beside others takes from the latest."""
    ordered = sorted(seconds.items(), key=lambda item: item[1])
    first = dict(ordered[:1])
    return {**first, **{moment: at - before for (_, before), (moment, at) in pairwise(ordered)}}


def medians(starts: Sequence[Mapping[StartMoment, float]]) -> dict[StartMoment, float]:
    """Of each moment that every start has."""
    return {
        moment: median(one[moment] for one in starts) for moment in StartMoment if all(moment in one for one in starts)
    }
