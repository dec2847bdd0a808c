"""The world as others may see it: the status file, and what is counted."""

import json
from collections import Counter, deque
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from hvd_elastic.launcher.core.actions import Resized
from hvd_elastic.launcher.core.resize_causes import kind_of
from hvd_elastic.mpijob.contract import STATUS_FILE

KEPT_RESIZES: Final = 20
PAUSE_BUCKETS_SECONDS: Final = (0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostStatus:
    """A host of the current world."""

    alias: str
    pod: str
    address: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizeStatus:
    """One change of the world. `pause_seconds` is None for the first."""

    unix: float
    generation: int
    before: int
    after: int
    causes: tuple[str, ...]
    pause_seconds: float | None


@dataclass(slots=True, kw_only=True)
class Status:
    """What RUN_DIR/status.json says. The counters grow over the life of this launcher."""

    state: str = "starting"
    """`starting`, `forming`, `running` or `ended`."""
    world_size: int = 0
    wanted_size: int = 0
    generation: int = 0
    resets: int = 0
    hosts: tuple[HostStatus, ...] = ()
    blacklisted: tuple[str, ...] = ()
    resizes: deque[ResizeStatus] = field(default_factory=lambda: deque(maxlen=KEPT_RESIZES))
    started_processes: int = 0
    restarted_processes: int = 0
    """Started after the first world: each is a newcomer or stands in for one that ended."""
    exit_code: int | None = None
    reason: str = ""

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {**asdict(self), "resizes": [asdict(resize) for resize in self.resizes]}


class StatusReport:
    """Keeps the status, and counts."""

    def __init__(self, run_dir: Path) -> None:
        self.status = Status()
        self.resizes_by_cause: Counter[str] = Counter()
        self.pauses: list[float] = []
        self.text = ""
        """The status as last written, for other threads: the status itself belongs to the driver's."""
        self._path = run_dir / STATUS_FILE

    def resized(self, event: Resized, unix_seconds: float) -> None:
        """All members of a new world are there."""
        self.status.resizes.append(
            ResizeStatus(
                unix=round(unix_seconds, 3),
                generation=event.generation,
                before=event.before,
                after=event.after,
                causes=event.causes,
                pause_seconds=None if event.pause_seconds is None else round(event.pause_seconds, 4),
            )
        )
        if event.pause_seconds is not None:
            self.pauses.append(event.pause_seconds)
            self.resizes_by_cause.update({kind_of(cause) for cause in event.causes} or {"other"})

    def write(self) -> None:
        """Replace the status file if anything has changed. Raises OSError."""
        text = json.dumps(self.status.document(), indent=1) + "\n"
        if text != self.text:
            new = self._path.with_name(f".{self._path.name}.new")
            new.write_text(text, encoding="utf-8")
            new.rename(self._path)
            self.text = text


def sentence(event: Resized) -> str:
    """The one line that a change of the world is worth."""
    causes = "; ".join(event.causes)
    if event.pause_seconds is None:
        return f"world of {event.after}: {causes}"
    return f"world {event.before} -> {event.after}: {causes} (stood still {event.pause_seconds:.2f} s)"
