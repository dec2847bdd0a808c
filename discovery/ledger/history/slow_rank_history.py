"""Whether a rank is slow, over time, as entries of the ledger.

Each worker is asked for its ranks' blocks (`contract.PACE_FILE`) in turns while training gets on. They are compared
within one world: the next one has other ranks, and begins anew. Nothing here has a clock; all times are Unix seconds.
"""

from collections import Counter
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

MOST_TOLD: Final = 16
"""Workers that the live status names: each of its changes goes to all who watch the job."""
ASKED_SECONDS: Final = 5.0
"""Between two questions to one worker."""
_SAME_BLOCK: Final = 1.0
"""A block is told several times. Its end is known to a second: answers come when they come."""
_RANKS_A_SECOND: Final = 256
"""That are compared at most. Of a large world a round of questions takes longer."""
_OLD_SECONDS: Final = 180.0
"""Blocks of a rank that is not heard of for so long do not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PacedWorker:
    """Whose ranks are compared."""

    pod: str
    node: str = ""


@dataclass(slots=True, kw_only=True)
class _ToldRanks:
    """What one worker has told of its ranks in one world."""

    size: int
    """Of that world."""
    series: dict[int, list[PacedBlock]]
    """By rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _RankBlocks:
    """The blocks of a rank, and the UID of the worker that tells of it."""

    uid: str
    blocks: list[PacedBlock]


@dataclass(slots=True, kw_only=True)
class SlowRankHistory:
    """The blocks of the present world, and who is slow in it.

    Each worker speaks for its own ranks alone: what it tells wrongly may hide or name those, and none of another's.
    """

    ranks_each: int = 1
    """Ranks of a worker, of which no more are believed."""
    slow: dict[int, RankSlow] = field(default_factory=dict)
    """By rank, what the ledger has of those that are slow now."""
    _world: tuple[str, ...] = ()
    _told: dict[str, _ToldRanks] = field(default_factory=dict)
    """By the worker's UID."""
    _judged: dict[int, SlowRank] = field(default_factory=dict)
    _asked: dict[str, float] = field(default_factory=dict)
    """By UID, when the worker was asked last."""
    _has_news: bool = False
    _next: float = 0.0
    """When the ranks are compared again, at the soonest."""

    @classmethod
    def resume(cls, entries: Iterable[Entry], *, ranks_each: int = 1) -> "SlowRankHistory":
        """Go on with the ledger of an earlier sidecar. Nobody is slow until this one has seen it."""
        history = cls(ranks_each=ranks_each)
        for entry in entries:
            if isinstance(entry, WorldChanged):
                history._world = entry.workers
        return history

    @property
    def since_by_pod(self) -> dict[str, float]:
        """Unix seconds since which a rank of a worker is slow, by the name of its pod: of the first MOST_TOLD."""
        since: dict[str, float] = {}
        for one in sorted(self.slow.values(), key=lambda one: one.unix):
            if len(since) < MOST_TOLD:
                since.setdefault(one.pod, one.unix)
        return since

    def next_to_ask(self, uids: Sequence[str], most: int, *, now: float) -> list[str]:
        """Up to `most` of the workers that train: those that were not asked for the longest time."""
        self._asked = {uid: self._asked.get(uid, 0.0) for uid in uids}
        due = [uid for uid in uids if now - self._asked[uid] >= ASKED_SECONDS]
        return sorted(due, key=lambda uid: self._asked[uid])[:most]

    def take(self, uid: str, paces: Sequence[RankPace], now: float) -> None:
        """What a worker says of its ranks."""
        self._asked[uid] = now
        if not (told := {pace.rank: pace for pace in paces[: self.ranks_each]}):
            return
        size, known = paces[0].size, self._told.get(uid)
        if known is None or known.size != size or known.series.keys() != told.keys():
            known = self._told[uid] = _ToldRanks(size=size, series={rank: [] for rank in told})
        for rank, pace in told.items():
            self._has_news |= _add(pace.blocks, known.series[rank], now)

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
            self._forget()
        if not self._has_news or now < self._next:
            return
        self._has_news = False
        self._told = {uid: told for uid, told in self._told.items() if uid in workers}
        size = _usual_size(self._told.values())
        known = self._ranks(size, now)
        series = {rank: each.blocks for rank, each in known.items()}
        self._next = now + len(series) / _RANKS_A_SECOND
        for rank, judged in list(self._judged.items()):
            is_another = rank in known and known[rank].uid != self.slow[rank].uid
            if is_another or not still_slow(judged, series):
                yield self._ended(rank, known.get(rank), now)
        for judged in find_slow(series, size):
            if judged.rank not in self._judged:
                uid = known[judged.rank].uid
                yield self._found(judged, uid, workers[uid])

    def _ranks(self, size: int, now: float) -> dict[int, _RankBlocks]:
        """Those of the world of this size; one of which two workers tell is of neither."""
        found: dict[int, list[_RankBlocks]] = {}
        for uid, told in self._told.items():
            for rank, blocks in told.series.items() if told.size == size else ():
                if blocks and blocks[-1].unix > now - _OLD_SECONDS:
                    found.setdefault(rank, []).append(_RankBlocks(uid=uid, blocks=blocks))
        return {rank: each[0] for rank, each in found.items() if len(each) == 1}

    def _found(self, judged: SlowRank, uid: str, worker: PacedWorker) -> RankSlow:
        self._judged[judged.rank] = judged
        self.slow[judged.rank] = RankSlow(
            unix=round(judged.since, 3),
            pod=worker.pod,
            uid=uid,
            rank=judged.rank,
            node=worker.node,
            times=round(judged.times, 2),
            slowness=judged.slowness,
        )
        return self.slow[judged.rank]

    def _ended(self, rank: int, known: _RankBlocks | None, now: float) -> RankSlowEnded:
        """What it did while it was slow must not make it slow again."""
        del self._judged[rank]
        told = self.slow.pop(rank)
        if known is not None:
            del known.blocks[: -(SHORT.blocks // 2)]
        return RankSlowEnded(unix=now, pod=told.pod, uid=told.uid, rank=rank, seconds=round(now - told.unix, 1))

    def _forget(self) -> None:
        self.slow.clear()
        self._judged.clear()
        self._told.clear()


def _add(blocks: Iterable[PacedBlock], series: list[PacedBlock], now: float) -> bool:
    """Add those that are new. Returns whether there are some."""
    after = max(now - _OLD_SECONDS, series[-1].unix + _SAME_BLOCK if series else 0.0)
    timed = (replace(block, unix=block.unix + now) for block in blocks)
    fresh = [block for block in timed if block.unix > after]
    series += fresh
    del series[:-MOST_BLOCKS]
    return bool(fresh)


def _usual_size(told: Iterable[_ToldRanks]) -> int:
    """That most workers tell; 0: none does."""
    return max(Counter(each.size for each in told).most_common(1), default=(0, 0))[0]


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
