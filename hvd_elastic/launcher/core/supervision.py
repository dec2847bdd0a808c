"""When a launcher that cannot begin again by itself is started once more: `horovodrun` after its workers were taken.

horovodrun ends with code 1 for every reason, and when none of its hosts is left it ends or stands still for good
(`No hosts from previous set remaining`, horovod 0.28.1, `runner/elastic/driver.py`). What was taken away is known from
the list of hosts instead. A run that has lost a host is begun again; a run that fails while its hosts stay has failed.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.mpijob.contract import Exit


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Start the launcher. It waits by itself until `processes` processes fit."""

    processes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """End the launcher, because it cannot go on with the hosts that are there now."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """End the job."""

    exit_code: int
    reason: str


Decision = Start | Stop | Finish


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisionLimits:
    """Sizes in processes, times in seconds."""

    start: int
    """Needed until the job has begun."""
    minimum: int
    """Needed to begin again."""
    loss_memory: float = 60.0
    """A run that fails within this time after the loss of a host has failed because of it. Survivors wait for a silent
    peer for Gloo's time-out, 30 s by default, before they fail."""
    loss_patience: float = 5.0
    """A host may leave the list this long after its processes have died."""
    leave_patience: float = 60.0
    """How long the workers of hosts that are gone may take to end, once there are enough others."""


class _Phase(Enum):
    BEGINNING = auto()
    """There is no launcher yet, or it is to be started again."""
    RUNNING = auto()
    STOPPING = auto()
    JUDGING = auto()
    """It has failed, and whether it lost a host is not certain yet."""


class Supervision:
    """Decides over one launcher process. Times are of one clock, in seconds."""

    def __init__(self, limits: SupervisionLimits) -> None:
        self._limits = limits
        self._phase = _Phase.BEGINNING
        self._needed = limits.start
        self._hosts: frozenset[str] = frozenset()
        self._slots = 0
        self._world: frozenset[str] = frozenset()
        """The last list that shared a host with the one before it, since workers run; empty until they do."""
        self._lost: float | None = None
        """When the launcher last lost a host."""
        self._gone: float | None = None
        """Since when none of `_world` is listed."""
        self._failed = 0.0
        """When the launcher ended with `_code`."""
        self._code = 0

    def set_hosts(self, hosts: Iterable[Host], now: float) -> None:
        """Take the present list."""
        listed = tuple(hosts)
        names = frozenset(host.alias for host in listed)
        self._slots = sum(host.slots for host in listed)
        if names == self._hosts:
            return
        if self._hosts - names:
            self._lost = now
        self._hosts = names
        if names & self._world:
            self._world, self._gone = names, None
        elif self._world and self._gone is None:
            self._gone = now

    def launcher_ended(self, exit_code: int, now: float) -> None:
        """Take the launcher's end."""
        if self._phase is _Phase.STOPPING:
            self._phase = _Phase.BEGINNING
        else:
            self._phase, self._failed, self._code = _Phase.JUDGING, now, exit_code

    def decide(self, now: float, *, has_workers: bool) -> Decision | None:
        """What is to be done now; None for nothing. `has_workers`: whether processes of the launcher still run."""
        match self._phase:
            case _Phase.BEGINNING:
                return self._start()
            case _Phase.RUNNING:
                return self._while_running(now, has_workers=has_workers)
            case _Phase.JUDGING:
                return self._judge(now)
            case _Phase.STOPPING:
                return None

    def _start(self) -> Decision:
        self._phase = _Phase.RUNNING
        self._world, self._gone, self._lost = frozenset(), None, None
        return Start(processes=self._needed)

    def _while_running(self, now: float, *, has_workers: bool) -> Decision | None:
        if has_workers:
            self._needed = self._limits.minimum
            self._world = self._world or self._hosts
        if self._gone is None:
            return None
        replaced = self._slots >= self._needed and now >= self._gone + self._limits.leave_patience
        if has_workers and not replaced:
            return None
        self._phase = _Phase.STOPPING
        return Stop(reason="none of its hosts is left")

    def _judge(self, now: float) -> Decision | None:
        if self._code == Exit.OK:
            return Finish(exit_code=Exit.OK, reason="the script has ended")
        if self._lost is not None and now - self._lost <= self._limits.loss_memory + self._limits.loss_patience:
            return self._start()
        if now < self._failed + self._limits.loss_patience:
            return None
        return Finish(exit_code=self._code, reason="it failed although its hosts are there")
