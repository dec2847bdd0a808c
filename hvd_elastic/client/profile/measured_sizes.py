"""How long a job's steps took at each size that it has had, as its ledger tells: entries in, values out.

From the first step of one world to the first of the next, less the pause between them. So evaluations, waits for data
and checkpoints are part of a step's time: that is how fast the job comes on. All times are Unix seconds.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from hvd_elastic.discovery.ledger.entries import Entry, LauncherStarted, Totals, WorkerBound, WorldChanged
from hvd_elastic.discovery.ledger.live_status import Activity, LiveStatus

LEAST_STEPS: Final = 10
"""Of a world: its first step, which is slower than others, must not weigh much."""
BLURRED_SECONDS: Final = 120.0
"""Least time of a world whose beginning or end was only seen from outside: up to five seconds late."""
RATE_SECONDS: Final = 30.0
"""Over which training reports its own rate (hvd_elastic/trainer/telemetry/step_rate.py)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSize:
    """All steps with one number of workers on one number of nodes."""

    workers: int
    nodes: int
    steps: int
    """Repeated ones too."""
    seconds: float
    """Of all these steps together."""

    @property
    def step_seconds(self) -> float:
        return self.seconds / self.steps


def measured_sizes(entries: Iterable[Entry], live: LiveStatus | None = None) -> tuple[MeasuredSize, ...]:
    """What was measured at each size, ascending. Empty if nothing was.

    Args:
        entries: the job's ledger. Of one that was shortened, what came before is lost.
        live: what the job said last, for the world that goes on. Default None: it does not count.
    """
    reading = _Reading()
    for entry in entries:
        reading.add(entry)
    sums: dict[tuple[int, int], tuple[int, float]] = {}
    for one in [*reading.found, *reading.present(live)]:
        steps, seconds = sums.get((one.workers, one.nodes), (0, 0.0))
        sums[one.workers, one.nodes] = steps + one.steps, seconds + one.seconds
    return tuple(
        MeasuredSize(workers=workers, nodes=nodes, steps=steps, seconds=seconds)
        for (workers, nodes), (steps, seconds) in sorted(sums.items())
    )


@dataclass(slots=True)
class _Reading:
    """The ledger, read up to some entry."""

    found: list[MeasuredSize] = field(default_factory=list)
    _world: WorldChanged | None = None
    _nodes: dict[str, str] = field(default_factory=dict)
    """By pod, its last node."""
    _carried: int = 0

    def add(self, entry: Entry) -> None:
        is_carried, self._carried = self._carried > 0, max(0, self._carried - 1)
        match entry:
            case Totals():
                self._carried = entry.carried
            case WorkerBound():
                self._nodes[entry.pod] = entry.node
            case LauncherStarted():
                self._world = None
            case WorldChanged():
                if self._world is not None and not is_carried:  # what is carried has gaps in between
                    self.found += self._closed(self._world, entry)
                self._world = entry if entry.workers else None

    def _closed(self, world: WorldChanged, after: WorldChanged) -> Iterator[MeasuredSize]:
        is_sharp = world.pause_seconds is not None and after.pause_seconds is not None
        if world.step >= 0 and after.step >= 0:
            steps = after.step + after.repeated_steps - world.step
            ended = after.unix - (after.pause_seconds or 0.0)
            yield from self._size(world, steps, ended - world.unix, is_sharp=is_sharp)

    def present(self, live: LiveStatus | None) -> Iterator[MeasuredSize]:
        """The world that goes on: from its beginning, or if that is too short, by the rate that training reports."""
        world = self._world
        if world is None or live is None or live.activity is not Activity.TRAINING:
            return
        if live.workers != len(world.workers):
            return
        if world.step >= 0 and live.step >= 0 and live.stepped is not None:
            whole = list(self._size(world, live.step - world.step, live.stepped - world.unix, is_sharp=False))
            if whole:
                yield from whole
                return
        if live.steps_per_second:
            steps = round(live.steps_per_second * RATE_SECONDS)
            yield from self._size(world, steps, RATE_SECONDS, is_sharp=True)

    def _size(self, world: WorldChanged, steps: int, seconds: float, *, is_sharp: bool) -> Iterator[MeasuredSize]:
        if steps >= LEAST_STEPS and seconds > (0.0 if is_sharp else BLURRED_SECONDS):
            places = {self._nodes.get(pod, pod) for pod in world.workers}
            yield MeasuredSize(workers=len(world.workers), nodes=len(places), steps=steps, seconds=seconds)
