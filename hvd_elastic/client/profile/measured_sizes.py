"""How long a job's steps took at each size that it has had, as its ledger tells: entries in, values out.

From the first step of one world to the first of the next, less the pause between them. So evaluations, waits for data
and checkpoints are part of a step's time: that is how fast the job comes on. All times are Unix seconds.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from hvd_elastic.discovery.ledger.entries import Entry, LauncherStarted, Totals, WorkerBound, WorldChanged
from hvd_elastic.discovery.ledger.live_status import Activity, LiveStatus
from hvd_elastic.system.plain_words import count_words

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
    sums: dict[tuple[int, int], tuple[int, float]] = {}
    for one in _read(entries, live).found:
        steps, seconds = sums.get((one.workers, one.nodes), (0, 0.0))
        sums[one.workers, one.nodes] = steps + one.steps, seconds + one.seconds
    return tuple(
        MeasuredSize(workers=workers, nodes=nodes, steps=steps, seconds=seconds)
        for (workers, nodes), (steps, seconds) in sorted(sums.items())
    )


def why_unmeasured(entries: Iterable[Entry], live: LiveStatus | None = None) -> str:
    """Why `measured_sizes` is empty for these, and what to do, as the end of a sentence about the job."""
    reading = _read(entries, live)
    if not reading.worlds:
        return "it has not trained yet, as far as its ledger tells"
    if reading.most_steps < 0:
        return (
            "none of its steps is known. hvd_elastic.State tells them, a state of Horovod's own does not; without it "
            "the script's own speed has to be timed in the script"
        )
    worlds = count_words(reading.worlds, "world")
    if reading.most_steps < LEAST_STEPS:
        had = f"of its {worlds} none had {LEAST_STEPS} steps without a resize: the longest had {reading.most_steps}"
    else:
        had = f"of its {worlds} none both began and ended at a known moment, or took two minutes"
    return f"{had}. Let it train on at one size, or have it visit some: --sizes 1,2,4 --steps 50"


def _read(entries: Iterable[Entry], live: LiveStatus | None) -> "_Reading":
    reading = _Reading()
    for entry in entries:
        reading.add(entry)
    reading.found += reading.present(live)
    return reading


@dataclass(slots=True)
class _Reading:
    """The ledger, read up to some entry."""

    found: list[MeasuredSize] = field(default_factory=list)
    worlds: int = 0
    """In which somebody trained."""
    most_steps: int = -1
    """Of one of them; -1: of none is it known how many it had."""
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
                self.worlds += bool(entry.workers)

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
        self.most_steps = max(self.most_steps, steps)
        if steps >= LEAST_STEPS and seconds > (0.0 if is_sharp else BLURRED_SECONDS):
            places = {self._nodes.get(pod, pod) for pod in world.workers}
            yield MeasuredSize(workers=len(world.workers), nodes=len(places), steps=steps, seconds=seconds)
