"""What happened in a run, read from the events that its training processes wrote (`mpijob.contract.ENV_EVENTS`).

In: lines of JSON. Out: steps, world sizes over time, pauses, repeated steps: values that a report can print and draw.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedStep:
    """One committed step, as rank 0 told it."""

    time: float
    """Unix seconds at its end."""
    step: int
    size: int
    loss: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """How long training stood still over a resize: last step before to first step after, less a usual step."""

    time: float
    """Unix seconds of the last step before."""
    seconds: float
    before: int
    """World size."""
    after: int

    @property
    def grows(self) -> bool:
        """Whether the world is larger after it."""
        return self.after > self.before


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A run from its first to its last step."""

    steps: tuple[TrainedStep, ...]

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
        """Steps that were done more than once, because what they had done was lost."""
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
        """Every sample of every epoch once."""
        return self.once == self.due and not self.repeated


Event = Mapping[str, Any]


def timeline(events: Iterable[Event]) -> Timeline:
    """The steps of rank 0, in the order of time."""
    steps = [
        TrainedStep(time=event["time"], step=event["step"], size=event["size"], loss=event.get("loss"))
        for event in events
        if event["event"] == "step" and event["rank"] == 0
    ]
    return Timeline(steps=tuple(sorted(steps, key=lambda step: step.time)))


def coverage(events: Iterable[Event], *, due: int) -> Coverage:
    """Count samples by the indices that every process wrote beside its steps.

    Of a step that was done again because it was lost, the last time counts: what came before was undone.
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
    """Reads a folder of event files again and again, each line once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: dict[Path, int] = {}

    def read(self) -> list[Event]:
        """What has come since the last call. A line that is still being written waits for the next one."""
        events: list[Event] = []
        for file in sorted(self._folder.glob("*.jsonl")):
            with file.open("rb") as lines:
                lines.seek(self._offsets.get(file, 0))
                whole = lines.read().rpartition(b"\n")[0]
            self._offsets[file] = self._offsets.get(file, 0) + (len(whole) + 1 if whole else 0)
            events += [json.loads(line) for line in whole.splitlines()]
        return events
