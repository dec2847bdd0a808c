"""What happened in a run, from the events that its training processes wrote (`mpijob.contract.ENV_EVENTS`).

Lines of JSON become steps, world sizes over time, pauses and repeated steps, which the report prints and draws.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedStep:
    """One committed step, as rank 0 reported it."""

    time: float
    """Unix seconds at its end."""
    step: int
    size: int
    loss: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """How long training stood still in a resize: last step before to first step after, less a usual step."""

    time: float
    """Unix seconds of the last step before."""
    seconds: float
    before: int
    """World size."""
    after: int

    @property
    def grows(self) -> bool:
        """Whether the world is larger afterwards."""
        return self.after > self.before


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A run from its first to its last step."""

    steps: tuple[CommittedStep, ...]

    @property
    def pauses(self) -> tuple[Pause, ...]:
        """One for each change of the world size."""
        usual = self.usual_step_seconds
        return tuple(
            Pause(time=a.time, seconds=max(0.0, b.time - a.time - usual), before=a.size, after=b.size)
            for a, b in zip(self.steps, self.steps[1:], strict=False)
            if a.size != b.size
        )

    @property
    def usual_step_seconds(self) -> float:
        """Median time of a step."""
        return (
            median(b.time - a.time for a, b in zip(self.steps, self.steps[1:], strict=False)) if self.steps[1:] else 0
        )

    @property
    def steps_lost(self) -> int:
        """Steps that were taken again because their results were lost."""
        return len(self.steps) - len({step.step for step in self.steps})


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How often each sample of each epoch was trained on in a step that was kept."""

    due: int
    """Samples times epochs."""
    once: int
    repeated: int
    """Samples of an epoch that were seen more than once."""

    @property
    def missed(self) -> int:
        """Samples of an epoch that were never seen."""
        return self.due - self.once - self.repeated

    @property
    def exact(self) -> bool:
        """Whether every sample of every epoch was seen exactly once."""
        return self.once == self.due and not self.repeated


Event = Mapping[str, Any]


def timeline(events: Iterable[Event]) -> Timeline:
    """The steps that rank 0 reported, in the order of time."""
    steps = [
        CommittedStep(time=event["time"], step=event["step"], size=event["size"], loss=event.get("loss"))
        for event in events
        if event["event"] == "step" and event["rank"] == 0
    ]
    return Timeline(steps=tuple(sorted(steps, key=lambda step: step.time)))


def coverage(events: Iterable[Event], *, due: int) -> Coverage:
    """Count the samples by the indices that every process wrote with its steps; `due`: samples times epochs.

    Of a step that was taken again because it was lost, only the last time counts: the earlier ones were undone.
    """
    last: dict[tuple[int, int], Event] = {}
    for event in sorted(events, key=lambda event: event["time"]):
        if event["event"] == "step":
            last[event["step"], event["rank"]] = event
    sizes = {step: event["size"] for (step, rank), event in last.items() if rank == 0}
    kept = [event for (step, _), event in last.items() if event["size"] == sizes.get(step)]
    seen = Counter((event["epoch"], index) for event in kept for index in event["indices"])
    once = sum(count == 1 for count in seen.values())
    return Coverage(due=due, once=once, repeated=len(seen) - once)


class EventTail:
    """Reads a growing folder of event files, each line once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: dict[Path, int] = {}

    def new_events(self) -> list[Event]:
        """The events since the last call. A line that is still being written is left for the next call."""
        events: list[Event] = []
        for file in sorted(self._folder.glob("*.jsonl")):
            with file.open("rb") as lines:
                lines.seek(self._offsets.get(file, 0))
                whole = lines.read().rpartition(b"\n")[0]
            self._offsets[file] = self._offsets.get(file, 0) + (len(whole) + 1 if whole else 0)
            events += [json.loads(line) for line in whole.splitlines()]
        return events
