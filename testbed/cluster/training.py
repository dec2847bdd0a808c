"""The training's own account of itself: the events that its processes append to the job's events folder."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """All events of a job, oldest first."""

    events: tuple[dict[str, Any], ...]

    @classmethod
    def read(cls, folder: Path, files: str = "*.jsonl") -> "Account":
        """Read every process's file, or those of a pattern; a line that is still being written is left out."""
        lines = [line for file in folder.rglob(files) for line in file.read_text().splitlines(keepends=True)]
        events = [json.loads(line) for line in lines if line.endswith("\n")]
        return cls(events=tuple(sorted(events, key=lambda event: event["time"])))

    @property
    def steps(self) -> list[dict[str, Any]]:
        """Steps as rank 0 saw them: one each time a step was done, however often that was."""
        return [event for event in self.events if event["event"] == "step" and event["rank"] == 0]

    @property
    def size(self) -> int:
        """Processes that took part in the latest step; 0 before the first."""
        return int(self.steps[-1]["size"]) if self.steps else 0

    @property
    def sizes(self) -> list[int]:
        """Sizes of the world in the order in which they were reached."""
        found: list[int] = []
        for step in self.steps:
            if not found or found[-1] != step["size"]:
                found.append(step["size"])
        return found

    def repeated(self) -> list[int]:
        """Steps that were done more than once: what was lost and had to be done again."""
        numbers = [step["step"] for step in self.steps]
        return sorted({later for earlier, later in pairwise(numbers) if later <= earlier})

    def skipped(self) -> list[int]:
        """Steps that nobody did: rank 0 may be killed between a step's commit and its account of it."""
        done = {event["step"] for event in self.events if event["event"] == "step"}
        return sorted(set(range(min(done), max(done) + 1)) - done) if done else []

    def since(self, moment: float) -> "Account":
        """Return what came at `moment` (seconds since the epoch) or later."""
        return Account(events=tuple(event for event in self.events if event["time"] >= moment))

    def stall(self, before: int, after: int) -> float | None:
        """Return the seconds between the last step at one size and the first at the next, None if that never was."""
        changes = [
            (second["time"] - first["time"])
            for first, second in pairwise(self.steps)
            if (first["size"], second["size"]) == (before, after)
        ]
        return changes[-1] if changes else None


class GrowingAccount:
    """An account that is read again and again: of each file only what is new."""

    def __init__(self, folder: Path) -> None:
        """The folder may come later."""
        self._folder = folder
        self._read: dict[Path, int] = {}
        self._events: list[dict[str, Any]] = []

    def look(self) -> Account:
        """What was told until now."""
        new = [json.loads(line) for file in sorted(self._folder.rglob("*.jsonl")) for line in self._lines(file)]
        self._events = sorted([*self._events, *new], key=lambda event: event["time"]) if new else self._events
        return Account(events=tuple(self._events))

    def _lines(self, file: Path) -> Iterator[bytes]:
        """Whole lines that are new."""
        with file.open("rb") as out:
            out.seek(self._read.get(file, 0))
            for line in out:
                if line.endswith(b"\n"):
                    self._read[file] = self._read.get(file, 0) + len(line)
                    yield line
