"""Which members of a world that stands still are silent: stopped, frozen, or on a host that is lost.

A member that computes for minutes between two commits does not ask for a place meanwhile, and neither does a stopped
one. What tells them apart: Horovod's notification service is a thread of the training process. It answers a ping while
the process computes, and does not while the process is stopped.

Of a stopped process the kernel still accepts the connection. If even that does not happen, the host is lost, and there
is nothing to wait for.
"""

import math
from collections.abc import Iterable, Sequence
from enum import StrEnum

from hvd_elastic.launcher.core.actions import ActionQueue, PingProcess
from hvd_elastic.launcher.core.processes.process import Deadline, Process
from hvd_elastic.launcher.core.world_limits import WorldLimits


class PingOutcome(StrEnum):
    """What a ping has shown."""

    ANSWERED = "answered"
    SILENT = "silent"
    """The process does not answer; its host does."""
    UNREACHABLE = "unreachable"
    """The host does not answer."""
    UNKNOWN = "unknown"
    """This side failed: nothing was shown."""


class SignsOfLife:
    """Has members pinged while the world stands still, and remembers when each was heard from.

    A ping that fails is what makes a member silent. Without one, because the launcher itself is slow, time alone proves
    nothing. And a host is lost only if another one was heard from meanwhile: else the fault may be on this side.
    """

    def __init__(self, limits: WorldLimits, actions: ActionQueue) -> None:
        self._limits = limits
        self._actions = actions
        self._pinging_since: float | None = None
        self._rounds = 0
        """Of pings, since the world has come to stand still."""
        self._next = 0.0
        """When the next round is due."""
        self._open: dict[int, float] = {}
        """By number, since when a member's ping is under way."""
        self._sent: dict[int, float] = {}
        """By number, when a member was last pinged."""
        self._heard: dict[int, float] = {}
        """By number, when a member was last heard from."""
        self._last_heard = 0.0
        """When any of them was."""
        self._mute: set[int] = set()
        """Members whose last ping failed, and which were not heard from since."""
        self._unreachable: dict[int, float] = {}
        """Those of them whose hosts have never answered, and when the last ping was sent."""

    def start_pinging(self, now: float) -> float:
        """The world stands still. Returns since when."""
        if self._pinging_since is None:
            self._pinging_since = now
            self._rounds, self._next = 0, now + self._limits.ping_first
        self._actions.wake_by(self._next)
        return self._pinging_since

    def stop_pinging(self) -> None:
        """The world runs, or all of its members have just asked for a place."""
        self._pinging_since = None
        self._sent.clear()
        self._heard.clear()
        self._mute.clear()
        self._unreachable.clear()

    def ping(self, members: Iterable[Process], now: float) -> None:
        """Ping the members that can be pinged, if that is due.

        The first round leaves out those that have a request open, except for one as a witness.
        """
        if self._pinging_since is None or now < self._next:
            return
        for member in self._round([each for each in members if each.registered and each.number not in self._open]):
            self._open[member.number] = self._sent[member.number] = now
            self._actions.add(PingProcess(number=member.number, key=member.key))
        self._rounds, self._next = self._rounds + 1, now + self._limits.ping_again
        self._actions.wake_by(self._next)

    def _round(self, members: Sequence[Process]) -> list[Process]:
        """Those of the members that are pinged now, as many as there is room for.

        One with a request open comes first, as a witness that hosts can be reached. Then those for which the others
        wait, then the rest; of these, those whose last ping is the longest ago.
        """
        asking = sorted((each for each in members if each.ticket is not None), key=self._last_ping)
        silent = sorted((each for each in members if each.ticket is None), key=self._last_ping)
        rest = asking[1:] if self._rounds else []
        return [*asking[:1], *silent, *rest][: max(0, self._limits.pings_at_once - len(self._open))]

    def _last_ping(self, member: Process) -> float:
        return self._sent.get(member.number, -math.inf)

    def pinged(self, number: int, outcome: PingOutcome, now: float) -> bool:
        """The outcome of a PingProcess. Returns whether anything can follow: an answer that was expected is no news."""
        sent = self._open.pop(number, now)
        if outcome is PingOutcome.UNKNOWN:
            return False
        if outcome is PingOutcome.ANSWERED:
            is_news = number in self._mute or bool(self._unreachable)
            self.heard_from(number, now)
            return is_news
        if self._pinging_since is not None and sent >= self._pinging_since:
            is_new = number not in self._mute
            self._mute.add(number)
            if outcome is PingOutcome.SILENT:
                self._unreachable.pop(number, None)
            elif is_new or number in self._unreachable:
                self._unreachable[number] = sent
        return True

    def heard_from(self, number: int, now: float) -> None:
        """The process lives: it has answered a ping or has asked something."""
        self._last_heard = now
        if self._pinging_since is not None:
            self._heard[number] = now
            self._mute.discard(number)
            self._unreachable.pop(number, None)

    def deadline(self, member: Process, *, others_wait: bool) -> Deadline | None:
        """When a silent member is written off; None if it is not silent. `others_wait`: whether they do for a world."""
        if self._pinging_since is None or member.number not in self._mute:
            return None
        sent = self._unreachable.get(member.number)
        if others_wait and sent is not None and self._last_heard >= sent:
            return Deadline(at=sent, reason="its host does not answer", is_failure=False)
        patience = min(self._limits.silence, self._limits.hang_timeout)
        since = self._heard.get(member.number, self._pinging_since)
        return Deadline(at=since + patience, reason=f"silent ({patience:g} s)", is_failure=False)
