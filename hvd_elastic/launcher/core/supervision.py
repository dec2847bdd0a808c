"""When a launcher that cannot begin again by itself is started once more: `horovodrun` after its workers were taken.

When none of its hosts is left, horovodrun ends or stands still for good (`No hosts from previous set remaining`,
horovod 0.28.1, `runner/elastic/driver.py`). A run that has lost a host is begun again; a run that fails while its hosts
stay has failed, and so has one whose script ended with an error of its own.

A process that dies takes its host from the list, too, until the pod's next standby is warm. Whether a pod was taken
away shows only when it does not come back. So the next run is started at once but held: it gets no hosts before that
is known, and by then its imports are done.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.launcher.core.hosts.lost_pods import LostPods, LostPodsVerdict
from hvd_elastic.launcher.core.processes.exit_codes import ExitVerdict, judge
from hvd_elastic.mpijob.contract import Exit


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Start the launcher. It waits by itself until `processes` processes fit."""

    processes: int
    held: bool = False
    """Show it no host until Release."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Show the launcher that was started `held` its hosts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopLauncher:
    """End the launcher, because it cannot go on with the hosts that are there now."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """End the job, and the launcher if one runs."""

    exit_code: int
    reason: str


Decision = Start | Release | StopLauncher | Finish


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
    settle: float = 2.0
    """Before a run is begun again the list has been the same for this long: horovodrun may lose a world to a host that
    comes while it is formed."""
    forming: float = 120.0
    """A run that ends within this time may not have formed its world."""
    return_patience: float = 30.0
    """A pod that is not back after this time was taken away. Its next standby imports the script meanwhile."""
    leave_patience: float = 60.0
    """How long the workers of hosts that are gone may take to end, once there are enough others."""
    worker_age: float = 3.0
    """What horovodrun has run on a host for this long is a worker: a run of the discovery script is over before."""


_NOBODYS_FAULT: Final = frozenset({ExitVerdict.REMOVED, ExitVerdict.HOST_CHANGE})
"""A worker was told to leave, or its world did not form: horovodrun blames it for a change of hosts."""
_MOST_MISFORMED: Final = 5


class _Phase(Enum):
    BEGINNING = auto()
    """There is no launcher yet, or it is to be started again."""
    RUNNING = auto()
    STOPPING = auto()
    JUDGING = auto()
    """It has failed, and has lost no host yet."""
    HELD = auto()
    """The next one waits until it is known what became of the lost hosts."""


class Supervision:
    """Decides over one launcher process. Times are of one clock, in seconds."""

    def __init__(self, limits: SupervisionLimits) -> None:
        self._limits = limits
        self._phase = _Phase.BEGINNING
        self._needed = limits.start
        self._hosts: frozenset[str] = frozenset()
        self._slots = 0
        self._world: frozenset[str] = frozenset()
        """The last list that shared a host with the one before it; empty until the run is shown one."""
        self._lost = LostPods(patience=limits.return_patience)
        """Hosts that have left the list."""
        self._gone: float | None = None
        """Since when none of `_world` is listed."""
        self._changed = -math.inf
        """When the list last changed."""
        self._has_run = False
        self._may_show = False
        """The next launcher, which is held, may be shown hosts: those of the former run were not its own failure."""
        self._began = 0.0
        """When the present run began."""
        self._misformed = 0
        """Runs in a row that ended before `forming` was over."""
        self._failed = 0.0
        """When the launcher ended with `_code`."""
        self._code = 0
        self._said = ""
        """What the worker that ended it said last."""
        self._mistake: str | None = None

    def set_hosts(self, hosts: Iterable[Host], now: float) -> None:
        """Take the present list.

        A pod whose process was replaced is the same host here, although it has another alias.
        """
        listed = tuple(hosts)
        names = frozenset(host.uid or host.alias for host in listed)
        self._slots = sum(host.slots for host in listed)
        if names == self._hosts:
            return
        for name in self._hosts - names:
            self._lost.lose(name, now)
        self._lost.set_listed(names, now)
        self._hosts, self._changed = names, now
        if names & self._world or not self._world:
            self._world, self._gone = names, None
        elif self._gone is None:
            self._gone = now

    def script_is_wrong(self, what: str) -> None:
        """A worker has said so. Whatever the launcher makes of it, the job is over."""
        self._mistake = what

    def launcher_ended(self, exit_code: int, now: float, *, worker_code: int | None = None, said: str = "") -> None:
        """Take the launcher's end: its exit code, or RESET_LIMIT where it names that as the reason.

        `worker_code`: the exit code of the worker that ended it, if it names one; `said`: that worker's last line.
        """
        self._said = said
        if exit_code == Exit.RESET_LIMIT:  # whatever has become of its hosts
            self._fail_later(exit_code, -math.inf)
            self._lost.forget()
            return
        if self._phase is _Phase.HELD:  # it had nothing to do: this is a fault of its own
            self._fail_later(exit_code, now)
            self._lost.forget()
            return
        verdict = judge(worker_code) if worker_code else None
        self._misformed = self._misformed + 1 if now < self._began + self._limits.forming else 0
        may_begin_again = self._misformed <= _MOST_MISFORMED
        if verdict in {ExitVerdict.SCRIPT_ERROR, ExitVerdict.MISTAKE}:
            assert worker_code is not None
            self._fail_later(worker_code, -math.inf)
            self._lost.forget()
        elif self._phase is _Phase.STOPPING:  # what became of its hosts is asked only if it never gets far
            self._phase, self._code, self._may_show = _Phase.BEGINNING, exit_code, may_begin_again
        else:
            self._fail_later(exit_code, now)
            self._lost.forget(before=now - self._limits.loss_memory)
            self._may_show = verdict in _NOBODYS_FAULT and may_begin_again

    def _fail_later(self, exit_code: int, failed: float) -> None:
        self._phase, self._code, self._failed, self._may_show = _Phase.JUDGING, exit_code, failed, False

    @property
    def asks_for_workers(self) -> bool:
        """Whether the next decision depends on `oldest_worker`, which costs a look at every process of the machine."""
        is_beginning = self._needed != self._limits.minimum
        return self._phase is _Phase.RUNNING and (self._gone is not None or is_beginning)

    def decide(self, now: float, *, oldest_worker: float | None) -> Decision | None:
        """What is to be done now; None for nothing.

        `oldest_worker`: for how many seconds the oldest process that the launcher has on a host has run; None: there is
        none.
        """
        if self._mistake is not None:
            return Finish(exit_code=Exit.SCRIPT_MISTAKE, reason=self._mistake)
        match self._phase:
            case _Phase.BEGINNING:
                return self._start(now)
            case _Phase.RUNNING:
                return self._while_running(now, oldest_worker)
            case _Phase.JUDGING:
                return self._judge(now)
            case _Phase.HELD:
                return self._while_held(now)
            case _Phase.STOPPING:
                return None

    def _start(self, now: float) -> Decision:
        if self._has_run:
            self._phase = _Phase.HELD
            return Start(processes=self._needed, held=True)
        self._enter_run(now)
        return Start(processes=self._needed)

    def _enter_run(self, now: float) -> None:
        self._phase, self._began, self._has_run = _Phase.RUNNING, now, True
        self._world, self._gone = self._hosts, None
        self._lost.forget()

    def _while_running(self, now: float, oldest_worker: float | None) -> Decision | None:
        if oldest_worker is not None and oldest_worker >= self._limits.worker_age:
            self._needed = self._limits.minimum
        if self._gone is None:
            return None
        replaced = self._slots >= self._needed and now >= self._gone + self._limits.leave_patience
        if oldest_worker is not None and not replaced:
            return None
        self._phase = _Phase.STOPPING
        return StopLauncher(reason="none of its hosts is left")

    def _judge(self, now: float) -> Decision | None:
        if self._code == Exit.OK:
            return Finish(exit_code=Exit.OK, reason="the script has ended")
        if self._may_show or self._lost.missing:
            self._phase = _Phase.HELD
            return Start(processes=self._needed, held=True)
        if now < self._failed + self._limits.loss_patience:
            return None
        return self._fail()

    def _while_held(self, now: float) -> Decision | None:
        if not self._may_show:
            verdict = self._lost.verdict(now)
            if verdict in {LostPodsVerdict.NONE, LostPodsVerdict.CAME_BACK}:
                return self._fail()
            self._may_show = verdict is LostPodsVerdict.TAKEN_AWAY
        if not self._may_show or self._slots < self._needed or now < self._changed + self._limits.settle:
            return None
        self._enter_run(now)
        return Release()

    def _fail(self) -> Decision:
        if self._code == Exit.RESET_LIMIT:
            return Finish(exit_code=self._code, reason="its reset limit is reached")
        reason = f"a worker has failed, and its hosts were not taken away\n{self._said}"
        return Finish(exit_code=self._code, reason=reason.rstrip())
