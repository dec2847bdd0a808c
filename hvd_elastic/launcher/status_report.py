"""The world as other programs see it: the status file, and what the metrics count."""

import json
from collections import Counter, deque
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hvd_elastic.launcher.core.actions import FinishJob, WorldResized
from hvd_elastic.launcher.core.resize_causes import CauseKind, ResizeCause, describe_causes
from hvd_elastic.launcher.core.slot_placement import Slot
from hvd_elastic.launcher.core.world import World
from hvd_elastic.mpijob.contract import STATUS_FILE
from hvd_elastic.system.atomic_file import replace_file

if TYPE_CHECKING:
    from hvd_elastic.discovery.snapshot import Host

KEPT_RESIZES: Final = 20
PAUSE_BUCKETS_SECONDS: Final = (0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Of the metric `pause_seconds`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostStatus:
    """A host of the current world."""

    alias: str
    pod: str
    address: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizeStatus:
    """One change of the world."""

    unix: float
    """Unix seconds at which the new world ran."""
    generation: int
    before: int
    after: int
    causes: tuple[ResizeCause, ...]
    pause_seconds: float | None
    """From the first notification or death until all members have arrived; None for the first world."""

    def document(self) -> dict[str, Any]:
        """As JSON, each cause as a sentence."""
        return {**asdict(self), "causes": [str(cause) for cause in self.causes]}


@dataclass(slots=True, kw_only=True)
class Status:
    """The content of RUN_DIR/status.json. The counters grow over the life of this launcher."""

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
    """Processes started after the first world: each is a newcomer or replaces one that ended."""
    exit_code: int | None = None
    reason: str = ""

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "resizes": [resize.document() for resize in self.resizes]}


@dataclass(slots=True, kw_only=True)
class PauseCounts:
    """How long the pauses before all worlds after the first were, in the form of a histogram."""

    up_to: list[int] = field(default_factory=lambda: [0] * len(PAUSE_BUCKETS_SECONDS))
    """How many had at most the seconds of each bucket."""
    count: int = 0
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        known = zip(self.up_to, PAUSE_BUCKETS_SECONDS, strict=True)
        self.up_to = [number + (seconds <= bound) for number, bound in known]
        self.count, self.seconds = self.count + 1, self.seconds + seconds


class StatusReport:
    """Keeps the status and the counters. Belongs to the driver's thread, but for `text` and the counters' values."""

    def __init__(self, run_dir: Path) -> None:
        self.status = Status()
        self.resizes_by_cause: Counter[CauseKind] = Counter()
        self.pauses = PauseCounts()
        self.text = ""
        """The status as last written, for other threads."""
        self._path = run_dir / STATUS_FILE

    def resized(self, resize: WorldResized, unix_seconds: float) -> None:
        """Record that a new world runs."""
        self.status.resizes.append(
            ResizeStatus(
                unix=round(unix_seconds, 3),
                generation=resize.generation,
                before=resize.before,
                after=resize.after,
                causes=resize.causes,
                pause_seconds=None if resize.pause_seconds is None else round(resize.pause_seconds, 4),
            )
        )
        if resize.pause_seconds is not None:
            self.pauses.add(resize.pause_seconds)
            self.resizes_by_cause.update({cause.kind for cause in resize.causes} or {CauseKind.OTHER})

    def process_started(self, *, is_restart: bool) -> None:
        """Count a process; `is_restart`: it was started after the first world."""
        self.status.started_processes += 1
        self.status.restarted_processes += is_restart

    def read_world(self, world: World, now: float) -> None:
        """Bring the status up to date with the world; `now` is in the world's clock."""
        status, processes = self.status, world.processes
        status.state = "ended" if world.finished else "forming" if world.forming else "running"
        if not processes.slots and not world.finished:
            status.state = "starting"
        status.world_size, status.wanted_size = len(processes.slots), world.wanted_size(now)
        status.generation, status.resets = processes.generation, world.resets
        status.blacklisted = world.blacklisted(now)
        status.hosts = _host_statuses(processes.slots)

    def finished(self, finish: FinishJob) -> None:
        """Record how the job has ended."""
        self.status.exit_code, self.status.reason = finish.exit_code, finish.reason

    def write(self) -> None:
        """Replace the status file if anything has changed. Raises OSError."""
        text = json.dumps(self.status.document(), indent=1) + "\n"
        if text != self.text:
            replace_file(self._path, text)
            self.text = text


def resize_sentence(resize: WorldResized) -> str:
    """The log's line for a change of the world.

    How long training stood still is rank 0's to say: it ends only when the state is synced, which no launcher sees.
    """
    causes = describe_causes(resize.causes)
    if resize.pause_seconds is None:
        return f"world of {resize.after}: {causes}"
    return f"world {resize.before} -> {resize.after}: {causes} (formed in {resize.pause_seconds:.2f} s)"


def _host_statuses(slots: tuple[Slot, ...]) -> tuple[HostStatus, ...]:
    ranks: dict[Host, list[int]] = {}
    for slot in slots:
        ranks.setdefault(slot.host, []).append(slot.rank)
    return tuple(
        HostStatus(alias=host.alias, pod=host.pod, address=host.address, ranks=tuple(numbers))
        for host, numbers in ranks.items()
    )
