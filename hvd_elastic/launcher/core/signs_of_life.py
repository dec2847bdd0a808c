"""Which members of a world that stands still are silent: stopped, frozen, or on a host that is lost.

A member that computes for minutes between two commits does not ask for a place meanwhile, and neither does a stopped
one. What tells them apart: Horovod's notification service is a thread of the training process. It answers a ping while
the process computes, and does not while the process is stopped.
"""

from collections.abc import Iterable

from hvd_elastic.launcher.core.actions import ActionQueue, PingProcess
from hvd_elastic.launcher.core.processes.process import Process
from hvd_elastic.launcher.core.processes.process_control import Deadline
from hvd_elastic.launcher.core.world_limits import WorldLimits


class SignsOfLife:
    """Has members pinged while the world stands still, and remembers when each was heard from.

    A ping that fails is what makes a member silent. Without one, because the launcher itself is slow, time alone proves
    nothing.
    """

    def __init__(self, limits: WorldLimits, actions: ActionQueue) -> None:
        self._limits = limits
        self._actions = actions
        self._doubted_since: float | None = None
        self._next = 0.0
        """When the members are pinged next."""
        self._open: set[int] = set()
        """Members whose ping is under way."""
        self._heard: dict[int, float] = {}
        """By number, when a member was last heard from."""
        self._mute: set[int] = set()
        """Members whose last ping failed, and which were not heard from since."""

    def doubt(self, now: float) -> float:
        """The world stands still. Returns since when."""
        if self._doubted_since is None:
            self._doubted_since = now
            self._next = now + self._limits.ping_again
        self._actions.wake_by(self._next)
        return self._doubted_since

    def trust(self) -> None:
        """The world runs, or all of its members have just asked for a place."""
        self._doubted_since = None
        self._heard.clear()
        self._mute.clear()

    def ping(self, members: Iterable[Process], now: float) -> None:
        """Ping the members that can be pinged, if that is due."""
        if self._doubted_since is None or now < self._next:
            return
        self._next = now + self._limits.ping_again
        self._actions.wake_by(self._next)
        for member in members:
            if member.registered and member.number not in self._open:
                self._open.add(member.number)
                self._actions.add(PingProcess(number=member.number, key=member.key))

    def pinged(self, number: int, now: float, *, answered: bool) -> None:
        """The outcome of a PingProcess."""
        self._open.discard(number)
        if answered:
            self.heard_from(number, now)
        elif self._doubted_since is not None:
            self._mute.add(number)

    def heard_from(self, number: int, now: float) -> None:
        """The process lives: it has answered a ping or has asked something."""
        if self._doubted_since is not None:
            self._heard[number] = now
            self._mute.discard(number)

    def deadline(self, member: Process) -> Deadline | None:
        """When a silent member is written off; None if it is not silent."""
        if self._doubted_since is None or member.number not in self._mute:
            return None
        patience = min(self._limits.silence, self._limits.hang_timeout)
        since = self._heard.get(member.number, self._doubted_since)
        return Deadline(at=since + patience, reason=f"silent ({patience:g} s)", is_failure=False)
