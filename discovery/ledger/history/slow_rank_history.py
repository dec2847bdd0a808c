"""Whether a rank is slow, over time, as entries of the ledger.

Each worker is asked for its ranks' blocks (`contract.PACE_FILE`) in turns while training gets on. They are compared
within one world: the next one has other ranks, and begins anew. Nothing here has a clock; all times are Unix seconds.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from hvd_elastic.discovery.ledger.entries import (
    Entry,
    JobEnded,
    LauncherStarted,
    RankSlow,
    RankSlowEnded,
    Slowness,
    WorkerGone,
    WorldChanged,
)
from hvd_elastic.discovery.ledger.history.slow_ranks import MOST_BLOCKS, SHORT, SlowRank, find_slow, still_slow
from hvd_elastic.discovery.ledger.rank_pace import PacedBlock, RankPace

ASKED_SECONDS: Final = 5.0
"""Between two questions to one worker."""
_SAME_BLOCK: Final = 1.0
"""A block is told several times. Its end is known to a second: answers come when they come."""
_OLD_SECONDS: Final = 180.0
"""Blocks of a rank that is not heard of for so long do not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PacedWorker:
    """Whose ranks are compared."""

    pod: str
    node: str = ""


@dataclass(slots=True, kw_only=True)
class SlowRankHistory:
    """The blocks of the present world, and who is slow in it."""

    slow: dict[int, RankSlow] = field(default_factory=dict)
    """By rank, what the ledger has of those that are slow now."""
    _world: tuple[str, ...] = ()
    _size: int = 0
    _series: dict[int, list[PacedBlock]] = field(default_factory=dict)
    _workers: dict[int, str] = field(default_factory=dict)
    """By rank, the UID of its worker."""
    _judged: dict[int, SlowRank] = field(default_factory=dict)
    _asked: dict[str, float] = field(default_factory=dict)
    """By UID, when the worker was asked last."""
    _has_news: bool = False

    @classmethod
    def resume(cls, entries: Iterable[Entry]) -> "SlowRankHistory":
        """Go on with the ledger of an earlier sidecar. Nobody is slow until this one has seen it."""
        history = cls()
        for entry in entries:
            if isinstance(entry, WorldChanged):
                history._world = entry.workers
        return history

    def next_to_ask(self, uids: Sequence[str], most: int, *, now: float) -> list[str]:
        """Up to `most` of the workers that train: those that were not asked for the longest time."""
        self._asked = {uid: self._asked.get(uid, 0.0) for uid in uids}
        due = [uid for uid in uids if now - self._asked[uid] >= ASKED_SECONDS]
        return sorted(due, key=lambda uid: self._asked[uid])[:most]

    def take(self, uid: str, paces: Iterable[RankPace], now: float) -> None:
        """What a worker says of its ranks."""
        self._asked[uid] = now
        for pace in paces:
            if pace.size != self._size or self._workers.get(pace.rank, uid) != uid:
                self._forget(size=pace.size)
            self._workers[pace.rank] = uid
            series = self._series.setdefault(pace.rank, [])
            last = series[-1].unix if series else float("-inf")
            timed = (replace(block, unix=block.unix + now) for block in pace.blocks)
            fresh = [block for block in timed if block.unix > last + _SAME_BLOCK and block.unix > now - _OLD_SECONDS]
            self._has_news |= bool(fresh)
            series += fresh
            del series[:-MOST_BLOCKS]

    def pass_time(
        self, world: tuple[str, ...], workers: Mapping[str, PacedWorker], now: float
    ) -> Iterator[RankSlow | RankSlowEnded]:
        """A rank that is slow from now on, or is so no more.

        Args:
            world: the pods that train, as the ledger has them.
            workers: by UID, those that are there.
            now: the time.
        """
        if world != self._world:
            self._world = world
            self._forget(size=0)
        if not self._has_news:
            return
        self._has_news = False
        series = {rank: blocks for rank, blocks in self._series.items() if _is_fresh(blocks, now)}
        for rank, judged in list(self._judged.items()):
            if not still_slow(judged, series):
                yield self._ended(rank, now)
        for judged in find_slow(series, self._size):
            worker = workers.get(self._workers[judged.rank])
            if judged.rank not in self._judged and worker is not None:
                yield self._found(judged, worker)

    def _found(self, judged: SlowRank, worker: PacedWorker) -> RankSlow:
        self._judged[judged.rank] = judged
        self.slow[judged.rank] = RankSlow(
            unix=round(judged.since, 3),
            pod=worker.pod,
            uid=self._workers[judged.rank],
            rank=judged.rank,
            node=worker.node,
            times=round(judged.times, 2),
            slowness=judged.slowness,
        )
        return self.slow[judged.rank]

    def _ended(self, rank: int, now: float) -> RankSlowEnded:
        """What it did while it was slow must not make it slow again."""
        del self._judged[rank]
        told = self.slow.pop(rank)
        del self._series[rank][: -(SHORT.blocks // 2)]
        return RankSlowEnded(unix=now, pod=told.pod, uid=told.uid, rank=rank, seconds=round(now - told.unix, 1))

    def _forget(self, *, size: int) -> None:
        self.slow.clear()
        self._judged.clear()
        self._series.clear()
        self._workers.clear()
        self._size = size


def _is_fresh(blocks: Sequence[PacedBlock], now: float) -> bool:
    return bool(blocks) and blocks[-1].unix > now - _OLD_SECONDS


def slow_now(entries: Iterable[Entry]) -> tuple[RankSlow, ...]:
    """Who is slow at the end of a ledger, by rank."""
    slow: dict[int, RankSlow] = {}
    for entry in entries:
        match entry:
            case RankSlow():
                slow[entry.rank] = entry
            case RankSlowEnded():
                slow.pop(entry.rank, None)
            case WorkerGone():
                slow = {rank: each for rank, each in slow.items() if each.uid != entry.uid}
            case WorldChanged() | LauncherStarted() | JobEnded():
                slow.clear()
    return tuple(slow[rank] for rank in sorted(slow))


def slow_words(slow: RankSlow, *, since: str = "") -> str:
    """`rank 3 on node-7 takes 1.8 times as long as the others since 14:05: computing, not loading`.

    `since`: the time, as its reader writes it; empty: it is said elsewhere.
    """
    where = f" on {slow.node}" if slow.node else f" ({slow.pod})" if slow.pod else ""
    what = {Slowness.COMPUTING: "computing, not loading", Slowness.LOADING: "loading, not computing"}
    time = f" since {since}" if since else ""
    words = what.get(slow.slowness, str(slow.slowness))
    return f"rank {slow.rank}{where} takes {slow.times:.1f} times as long as the others{time}: {words}"
