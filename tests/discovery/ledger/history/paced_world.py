"""Ranks that train in lockstep, on clocks of their own: what they measure goes the way from a process to the ledger."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from hvd_elastic.discovery.ledger.entries import RankSlow, RankSlowEnded
from hvd_elastic.discovery.ledger.history.slow_rank_history import PacedWorker, SlowRankHistory
from hvd_elastic.discovery.ledger.rank_pace import rank_paces
from hvd_elastic.trainer.collectives.collective_calls import WaitedTime
from hvd_elastic.trainer.telemetry.pace.pace_file import BLOCKS, row
from hvd_elastic.trainer.telemetry.pace.step_pace import PaceBlock, StepPace

AVERAGING = 0.02
"""Seconds of a step that all ranks send and receive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a rank does in one step, in seconds."""

    computing: float
    loading: float = 0.0


Drawn = Callable[[random.Random, int, float], Work]
"""The work of a rank at a time."""


class PacedRank:
    """One process."""

    def __init__(self, number: int, skew: float) -> None:
        self.number, self.skew, self.time = number, skew, 0.0
        self.blocks: list[PaceBlock] = []
        self._waited, self._loading = WaitedTime(), 0.0
        self._pace = StepPace(
            waited=self._waited, is_blind=lambda: False, clock=lambda: self.time, wall=lambda: self.time + skew
        )
        self._batches = self._pace.timed(self._loaded())

    def _loaded(self) -> Iterator[None]:
        while True:
            self.time += self._loading
            yield

    def enter_world(self, now: float) -> None:
        self.time, self.blocks = now, []
        self._pace.enter_world()
        self._batches = self._pace.timed(self._loaded())

    def work(self, work: Work) -> None:
        self._loading = work.loading
        next(self._batches)
        self.time += work.computing

    def wait(self, until: float) -> None:
        self._waited.seconds += until - self.time
        self.time = until
        if block := self._pace.end_step():
            self.blocks = [*self.blocks, block][-BLOCKS:]
        self._pace.begin_step()


@dataclass(kw_only=True)
class PacedWorld:
    """A job whose sidecar asks at most eight workers a second."""

    seed: int
    size: int
    work: Drawn
    now: float = 1e6
    told: list[tuple[float, RankSlow | RankSlowEnded]] = field(default_factory=list)
    history: SlowRankHistory = field(default_factory=SlowRankHistory)
    stranger: Callable[[list[Any]], list[Any]] | None = None
    """What the last worker's script makes of the word that its process has left."""

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self._ranks: list[PacedRank] = []
        self._asked = 0.0
        self._news = 3 if self.size <= 8 else BLOCKS  # that can be new to a sidecar that asks every five seconds
        self.resize(self.size)

    def resize(self, size: int) -> None:
        self.size = size
        while len(self._ranks) < size:
            self._ranks.append(PacedRank(len(self._ranks), skew=self.random.uniform(-3600, 3600)))
        for rank in self._ranks[:size]:
            rank.enter_world(self.now)

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            ranks = self._ranks[: self.size]
            for rank in ranks:
                rank.work(self.work(self.random, rank.number, self.now))
            self.now = max(rank.time for rank in ranks) + AVERAGING
            for rank in ranks:
                rank.wait(self.now)
            if self.now >= self._asked + 1:
                self._asked = self.now
                self._ask()

    def _ask(self) -> None:
        world = tuple(f"w-{number}" for number in range(self.size))
        for pod in self.history.next_to_ask(world, 8, now=self.now):
            self.history.take(pod, rank_paces(*self._answer(int(pod[2:]))), self.now)
        workers = {pod: PacedWorker(pod=pod, node=f"node-{pod[2:]}") for pod in world}
        self.told += [(self.now, entry) for entry in self.history.pass_time(world, workers, self.now)]

    def _answer(self, number: int) -> tuple[Any, float]:
        """What the worker says, and its own time."""
        rank = self._ranks[number]
        document = {"rank": number, "size": self.size, "blocks": list(map(row, rank.blocks[-self._news :]))}
        told = [document] if rank.blocks else []
        is_strange = number == self.size - 1
        return self.stranger(told) if self.stranger and is_strange else told, self.now + rank.skew

    @property
    def named(self) -> list[int]:
        return [entry.rank for _, entry in self.told if isinstance(entry, RankSlow)]
