"""Who is named as slow, and who never is: simulated ranks, with the noise of real machines and scripts."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

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
from hvd_elastic.discovery.ledger.history.slow_rank_history import MOST_TOLD, SlowRankHistory, slow_now, slow_words
from hvd_elastic.discovery.ledger.history.slow_ranks import MOST_BLOCKS
from tests.discovery.ledger.history.paced_world import Drawn, PacedWorld, Work

STEP = 1.0
"""Seconds that a rank computes in a step, about."""
HOUR = 3600.0


class NoisyMachines:
    """Each step a little different on each rank; now and then something else uses a machine for some seconds."""

    def __init__(self, slow: int = -1, times: float = 1.0, *, loading: float = 0.0) -> None:
        self._slow, self._times, self._loading = slow, times, loading
        self._busy: dict[int, tuple[float, float]] = {}

    def __call__(self, drawn: random.Random, rank: int, now: float) -> Work:
        until, factor = self._busy.get(rank, (0.0, 1.0))
        if now >= until:
            factor = 1.0
            if drawn.random() < 0.004:
                factor = drawn.uniform(1.2, 2.5)
                self._busy[rank] = now + drawn.uniform(1.0, 20.0), factor
        own = self._times if rank == self._slow else 1.0
        loading = self._loading if rank == self._slow else 0.0
        return Work(computing=STEP * drawn.lognormvariate(0.0, 0.1) * factor * own, loading=0.01 + loading)


def data_dependent(drawn: random.Random, rank: int, now: float) -> Work:
    """Sentences of any length; and the script gets to longer ones, on all ranks alike."""
    length = drawn.lognormvariate(0.0, 0.6)
    return Work(computing=STEP * (0.2 + 0.8 * length) * (1 + 0.5 * math.sin(now / 300)), loading=0.01)


def evaluation(drawn: random.Random, rank: int, now: float) -> Work:
    """Rank 0 evaluates alone for 20 s each minute, and all of them for 30 s each ten."""
    own = STEP * drawn.lognormvariate(0.0, 0.05)
    if now % 600 < 1.0:
        return Work(computing=own + 30.0)
    return Work(computing=own + (20.0 if rank == 0 and now % 60 < 0.6 else 0.0))


def stalling_loader(drawn: random.Random, rank: int, now: float) -> Work:
    """One rank waits for its data for some seconds, about once a minute; all wait a little for each fourth batch."""
    stall = drawn.uniform(2.0, 12.0) if rank == 1 and drawn.random() < STEP / 60 else 0.0
    return Work(computing=STEP * drawn.lognormvariate(0.0, 0.05), loading=0.02 * (drawn.random() < 0.25) + stall)


def short_steps(drawn: random.Random, rank: int, now: float) -> Work:
    """Steps of a test: rank 0 prints, and that is half of its time."""
    return Work(computing=0.003 if rank else 0.0045)


@pytest.mark.parametrize(("seed", "size"), [(1, 2), (2, 3), (3, 8)])
@pytest.mark.parametrize("kind", ["noise", "data", "evaluation", "loader"])
def test_nobody_is_named_for_hours(kind: str, size: int, seed: int) -> None:
    works: dict[str, Drawn] = {
        "noise": NoisyMachines(),
        "data": data_dependent,
        "evaluation": evaluation,
        "loader": stalling_loader,
    }
    world = PacedWorld(seed=seed, size=size, work=works[kind])
    world.run(3 * HOUR)
    assert world.told == []


def test_a_fraction_of_a_step_of_milliseconds_is_nothing() -> None:
    world = PacedWorld(seed=1, size=3, work=short_steps)
    world.run(700)
    assert world.told == []


@pytest.mark.parametrize("seed", range(3))
def test_first_steps_after_resizes_name_nobody(seed: int) -> None:
    """Newcomers compile for their first half minute, and worlds last for two minutes or less."""
    began: dict[int, float] = {}
    noise = NoisyMachines()

    def work(drawn: random.Random, rank: int, now: float) -> Work:
        usual = noise(drawn, rank, now)
        is_new = now < began.get(rank, 0.0) + 30
        return Work(computing=usual.computing * (3.0 if is_new else 1.0), loading=usual.loading)

    world = PacedWorld(seed=seed, size=3, work=work)
    for _ in range(30):
        world.run(world.random.uniform(20.0, 120.0))
        before, size = world.size, world.random.randint(2, 8)
        began.update(dict.fromkeys(range(before, size), world.now))
        world.resize(size)
    assert world.told == []


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("times", "seconds"), [(1.5, 60), (1.8, 60), (1.2, 600)])
def test_a_slow_rank_is_named_in_time_and_alone(times: float, seconds: float, seed: int) -> None:
    size = (2, 3, 8)[seed % 3]
    slow = seed % size
    world = PacedWorld(seed=seed, size=size, work=NoisyMachines())
    world.run(400)
    assert world.told == []
    began = world.now
    world.work = NoisyMachines(slow, times)
    world.run(seconds)
    (entry,) = (entry for _, entry in world.told)
    assert isinstance(entry, RankSlow)
    assert (entry.rank, entry.pod, entry.node) == (slow, f"w-{slow}", f"node-{slow}")
    assert entry.slowness is Slowness.COMPUTING
    assert entry.times == pytest.approx(times, rel=0.12)
    assert began - 150 < entry.unix < began + seconds
    world.run(600)
    assert world.named == [slow], "it is told once"
    world.work = NoisyMachines()
    world.run(300)
    assert [type(entry) for _, entry in world.told] == [RankSlow, RankSlowEnded]
    assert world.history.slow == {}
    world.run(600)
    assert len(world.told) == 2


@pytest.mark.parametrize("seed", [6, 12, 15, 18])
def test_a_rank_that_becomes_slow_while_little_is_known_of_noise(seed: int) -> None:
    size = (2, 3, 8)[seed % 3]
    slow = seed % size
    world = PacedWorld(seed=seed, size=size, work=NoisyMachines())
    world.run(60)
    world.work = NoisyMachines(slow, 1.5)
    world.run(60)
    assert world.named == [slow]


def test_a_rank_of_many() -> None:
    """A round of questions takes ten seconds."""
    world = PacedWorld(seed=1, size=80, work=NoisyMachines(41, 1.8))
    world.run(100)
    assert world.named == [41]


def test_a_slow_loader_is_told_from_a_slow_rank() -> None:
    world = PacedWorld(seed=1, size=3, work=NoisyMachines(2, 1.0, loading=0.4))
    world.run(120)
    (entry,) = (entry for _, entry in world.told)
    assert isinstance(entry, RankSlow)
    assert (entry.rank, entry.slowness) == (2, Slowness.LOADING)


def test_a_stopped_process_alone_may_be_named() -> None:
    """Stopped for a second of each two, wherever it is then."""

    def work(drawn: random.Random, rank: int, now: float) -> Work:
        stopped = 0.5 if rank == 1 and now % 2 < 1 else 0.0
        return Work(computing=STEP * drawn.lognormvariate(0.0, 0.05) + stopped)

    world = PacedWorld(seed=1, size=3, work=work)
    world.run(HOUR)
    assert set(world.named) <= {1}


@pytest.mark.parametrize(("old", "size"), [(1, 2), (2, 4), (2, 5), (3, 8), (4, 8)])
@pytest.mark.parametrize("times", [1.15, 1.5, 3.0])
def test_many_of_the_machines_are_of_an_older_kind(times: float, old: int, size: int) -> None:
    def work(drawn: random.Random, rank: int, now: float) -> Work:
        return Work(computing=STEP * (times if rank < old else 1.0) * drawn.lognormvariate(0.0, 0.05))

    world = PacedWorld(seed=1, size=size, work=work)
    world.run(HOUR)
    assert set(world.named) <= ({0} if size == 2 else set())


@pytest.mark.parametrize("size", [2, *(pytest.param(size, marks=pytest.mark.thorough) for size in (3, 8))])
def test_what_a_worker_tells_of_others_changes_nothing(size: int) -> None:
    """One tells of more ranks than it has, of another world, and of a rank of another worker."""
    world = PacedWorld(seed=1, size=size, work=NoisyMachines(1, 1.8))
    world.stranger = lambda told: [
        *told,
        *({"rank": rank, "size": 10**6 - 1, "blocks": [[world.now, 9, 0.6, 1e-9, None]]} for rank in range(500)),
    ]
    world.run(HOUR)
    assert world.named == [1]
    telling = world.history._told
    assert len(telling) == size
    assert all(len(told.series) == 1 for told in telling.values())
    assert all(len(blocks) <= MOST_BLOCKS for told in telling.values() for blocks in told.series.values())


def test_a_rank_of_which_two_workers_tell_is_of_neither() -> None:
    world = PacedWorld(seed=1, size=8, work=NoisyMachines(1, 1.8))
    world.stranger = lambda told: [{**told[0], "rank": 1}] if told else []
    world.run(HOUR)
    assert world.told == []
    world.stranger = None
    world.run(300)
    assert world.named == [1]


def test_a_world_of_another_size_that_one_worker_tells_of() -> None:
    world = PacedWorld(seed=1, size=8, work=NoisyMachines(1, 1.8))
    world.stranger = lambda told: [{**told[0], "size": 9}] if told else []
    world.run(120)
    assert world.named == [1]


def test_long_steps() -> None:
    """Of half a minute: eight of them are enough, and five seconds hold none."""

    def work(drawn: random.Random, rank: int, now: float) -> Work:
        return Work(computing=30.0 * (1.5 if rank == 1 else 1.0) * drawn.lognormvariate(0.0, 0.05))

    world = PacedWorld(seed=1, size=3, work=work)
    world.run(HOUR)
    assert world.named == [1]


def test_the_next_world_begins_anew() -> None:
    world = PacedWorld(seed=1, size=3, work=NoisyMachines(1, 1.8))
    world.run(120)
    assert world.named == [1]
    world.resize(2)
    world.run(20)
    assert world.history.slow == {}
    world.run(60)
    assert world.named == [1, 1]


SLOW = RankSlow(unix=5.0, pod="w-3", uid="u3", rank=3, node="node-7", times=1.8, slowness=Slowness.COMPUTING)


def test_the_live_status_names_each_worker_once_and_not_all_of_a_large_job() -> None:
    def slow(rank: int, unix: float) -> RankSlow:
        return replace(SLOW, rank=rank, unix=unix, pod=f"w-{rank // 2}", uid=f"u{rank // 2}")

    history = SlowRankHistory(ranks_each=2, slow={rank: slow(rank, 9.0 - rank) for rank in (2, 3, 6)})
    assert history.since_by_pod == {"w-3": 3.0, "w-1": 6.0}
    history.slow = {rank: slow(rank, 1000.0 - rank) for rank in range(400)}
    assert history.since_by_pod == {f"w-{199 - place}": 601.0 + 2 * place for place in range(MOST_TOLD)}


def test_the_sentence() -> None:
    assert slow_words(SLOW, since="14:05") == (
        "rank 3 on node-7 takes 1.8 times as long as the others since 14:05: computing, not loading"
    )
    loads = RankSlow(unix=5.0, pod="w-3", uid="u3", rank=3, times=12.34, slowness=Slowness.LOADING)
    assert slow_words(loads) == "rank 3 (w-3) takes 12.3 times as long as the others: loading, not computing"
    unknown = RankSlow(unix=5.0, pod="", uid="", rank=3, times=1.5, slowness=Slowness.UNKNOWN)
    assert slow_words(unknown) == "rank 3 takes 1.5 times as long as the others: computing or loading"


@pytest.mark.parametrize(
    ("later", "slow"),
    [
        ((), (SLOW,)),
        ((RankSlowEnded(unix=9.0, pod="w-3", uid="u3", rank=3, seconds=4.0),), ()),
        ((RankSlowEnded(unix=9.0, pod="w-2", uid="u2", rank=2, seconds=4.0),), (SLOW,)),
        ((WorkerGone(unix=9.0, pod="w-3", uid="u3"),), ()),
        ((WorldChanged(unix=9.0, workers=("w-0",)),), ()),
        ((LauncherStarted(unix=9.0, pod="l", uid="ul"),), ()),
        ((JobEnded(unix=9.0, succeeded=True),), ()),
    ],
)
def test_who_is_slow_at_the_end_of_a_ledger(later: Sequence[Entry], slow: Sequence[RankSlow]) -> None:
    assert slow_now([SLOW, *later]) == slow
