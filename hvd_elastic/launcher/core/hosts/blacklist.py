"""Hosts that failed, and how long each is left out."""

import math
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from typing import Final

from hvd_elastic.system.backoff import Backoff

_FREE_CRASHES: Final = 3
_DELAY: Final = Backoff(first_seconds=10.0, most_seconds=300.0)
"""As the kubelet's for a container."""
_FORGET_AFTER: Final = 600.0
"""Seconds without a failure after which a pod counts as healthy; the kubelet's too."""


@dataclass(slots=True, kw_only=True)
class Blacklist:
    """Aliases that must not be used for some time. Without a cooldown range an alias never returns.

    The delays are those that Horovod's `HostState` makes in practice: about 2, 4, 8 ... times the lower bound, with
    jitter, kept within the range. Horovod also keeps a replaced pod out, because it knows the pod by its name. Here an
    alias is one incarnation of a pod, so its successor is not affected.
    """

    cooldown: tuple[float, float] | None
    """Seconds, lower and upper bound."""
    random: Callable[[], float]
    """Uniform in [0, 1)."""
    _until: dict[str, float] = field(default_factory=dict)
    _count: dict[str, int] = field(default_factory=dict)
    _last: dict[str, float] = field(default_factory=dict)
    """When each was added last."""

    def add(self, alias: str, now: float, *, for_good: bool = False) -> float:
        """Leave the alias out from now on. Returns the seconds until it may return (infinite without a range)."""
        count = self._count[alias] = self._count.get(alias, 0) + 1
        delay = math.inf
        if self.cooldown and not for_good:
            low, high = self.cooldown
            delay = max(low, min(high, low * 2.0 ** min(count, 60) + self.random() * low))
        self._until[alias], self._last[alias] = now + delay, now
        return delay

    def forget_gone(self, listed: Container[str], now: float) -> None:
        """Forget incarnations of pods that are no longer there: in weeks there are thousands of them."""
        for alias in _long_gone(self._last, listed, now):
            del self._until[alias], self._count[alias], self._last[alias]

    def blocks(self, alias: str, now: float) -> bool:
        """Whether the alias is left out now."""
        return self._until.get(alias, -math.inf) > now

    def blocked(self, now: float) -> tuple[str, ...]:
        """All aliases that are left out now."""
        return tuple(alias for alias in self._until if self.blocks(alias, now))

    def next_return(self, now: float) -> float:
        """When the next alias may return; infinite if none will."""
        return min((until for until in self._until.values() if until > now), default=math.inf)


class CrashLoops:
    """Pods whose processes fail again and again.

    A process that is replaced in its pod is a new host, so no blacklist holds it up, and each failure costs the other
    members a reset. Some failures are free; from then on the pod is left out for longer each time.
    """

    def __init__(self) -> None:
        self._count: dict[str, int] = {}
        self._last: dict[str, float] = {}
        self._until: dict[str, float] = {}

    def failed(self, uid: str, now: float, *, for_good: bool = False) -> None:
        """A process has failed in the pod with this UID. `for_good`: the pod is not used again."""
        if now >= self._last.get(uid, -math.inf) + _FORGET_AFTER:
            self._count[uid] = 0
        self._count[uid] += 1
        self._last[uid] = now
        extra = self._count[uid] - _FREE_CRASHES
        if extra > 0:
            self._until[uid] = max(self._until.get(uid, now), now + _DELAY.ceiling(extra))
        if for_good:
            self._until[uid] = math.inf

    def forget_gone(self, listed: Container[str], now: float) -> None:
        """Forget pods that are no longer there, but for those that are not used again."""
        for uid in _long_gone(self._last, listed, now):
            if self._until.get(uid) != math.inf:
                del self._count[uid], self._last[uid]
                self._until.pop(uid, None)

    def blocks(self, uid: str, now: float) -> bool:
        """Whether the pod is left out now."""
        return self._until.get(uid, -math.inf) > now

    def next_return(self, now: float) -> float:
        """When the next pod may return; infinite if none will."""
        return min((until for until in self._until.values() if until > now), default=math.inf)


def _long_gone(last: dict[str, float], listed: Container[str], now: float) -> list[str]:
    return [name for name, when in last.items() if name not in listed and now >= when + _FORGET_AFTER]
