"""Whether ranks wait for others that do not come, over time, as entries of the ledger.

A rank knows of itself alone. While no step gets done each worker is asked what its ranks do, and what they say is put
together here. A stall is that of a rank which waits in a collective operation for longer than its limit; a job whose
ranks all compute is slow, and no stall of the network: the live status tells that, and the ledger does not. Nothing
here has a clock; all times are Unix seconds.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from hvd_elastic.discovery.ledger.entries import (
    Entry,
    JobEnded,
    LauncherStarted,
    RanksStalled,
    StallEnded,
    WorldChanged,
)
from hvd_elastic.discovery.ledger.rank_wait import RankWait, stall_words

QUIET_SECONDS: Final = 10.0
"""Workers are asked after this long without a step."""
FRESH_SECONDS: Final = 60.0
"""A worker's word counts for so long: workers are asked in turns."""
ROUND_SECONDS: Final = 10.0
"""At most, past its limit, a stall waits until every worker was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Word:
    unix: float
    waits: tuple[RankWait, ...]


@dataclass(slots=True, kw_only=True)
class StallHistory:
    """What the ranks of the present world do, as far as they get on with nothing."""

    words: str = ""
    """In one sentence; empty: training gets on, or nobody knows."""
    since: float = 0.0
    """When the longest of these waits began."""
    _heard: dict[str, _Word] = field(default_factory=dict)
    """By the worker's UID."""
    _trains: int = 0
    """How many workers there were to ask."""
    _asked: int = 0
    """Up to which worker they were asked."""
    _stalled: RanksStalled | None = None
    """The stall that the ledger has, and that has not ended."""

    @classmethod
    def resume(cls, entries: Iterable[Entry]) -> "StallHistory":
        """Go on with the ledger of an earlier sidecar."""
        history = cls()
        for entry in entries:
            match entry:
                case RanksStalled():
                    history._stalled = entry
                case StallEnded() | WorldChanged() | LauncherStarted() | JobEnded():
                    history._stalled = None
        return history

    def next_to_ask(self, uids: Sequence[str], most: int, *, stepped: float | None, now: float) -> list[str]:
        """Up to `most` of the workers that train, in turns; none while training gets on.

        Args:
            uids: those that train.
            most: how many are asked at a time.
            stepped: when a new step was last seen; None: nothing tells of steps.
            now: the time.
        """
        if stepped is not None and now - stepped < QUIET_SECONDS:
            self._heard.clear()
            return []
        gone = self._heard.keys() - set(uids)
        for uid in gone:
            del self._heard[uid]
        self._trains = len(uids)
        first = self._asked % max(1, len(uids))
        chosen = [*uids[first:], *uids[:first]][:most]
        self._asked = first + len(chosen)
        return chosen

    def take(self, uid: str, waits: tuple[RankWait, ...], now: float) -> None:
        self._heard[uid] = _Word(unix=now, waits=waits)

    def pass_time(self, step: int, now: float) -> Iterator[RanksStalled | StallEnded]:
        """A stall that has begun or ended. `step`: the last one that is done; -1: not known."""
        fresh = [word for word in self._heard.values() if now - word.unix < FRESH_SECONDS]
        waits = [wait for word in fresh for wait in word.waits]
        told = [(word.unix - wait.seconds, wait) for word in fresh for wait in word.waits if wait.is_long]
        if len(self._heard) < self._trains and not any(
            now - began > wait.after + ROUND_SECONDS for began, wait in told
        ):
            told = []
        self.words = stall_words(waits) if told else ""
        self.since = round(min((began for began, _ in told), default=0.0), 3)
        waiting = any(wait.operation for _, wait in told)
        if waiting and self._stalled is None:
            self._stalled = RanksStalled(unix=self.since, step=step, words=self.words)
            yield self._stalled
        elif self._stalled is not None and not waiting:
            yield StallEnded(unix=now, seconds=round(now - self._stalled.unix, 1))
            self._stalled = None
