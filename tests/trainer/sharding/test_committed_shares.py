"""Shares at commits, at resizes and when ranks are lost, over threads.

Every element of the state says which commit, bucket and place it is of. So whatever a rank has can be looked at.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hvd_elastic.trainer.sharding import parameter_buckets, share_transfer
from hvd_elastic.trainer.sharding.committed_shares import CommittedShares
from hvd_elastic.trainer.sharding.elementwise import ShardingError
from hvd_elastic.trainer.sharding.host_shards import Shards, empty_shards
from hvd_elastic.trainer.sharding.sharded_content import ShardedContent, outlined
from hvd_elastic.trainer.sharding.sharded_optimizer import ShardedOptimizer
from hvd_elastic.trainer.sharding.share_transfer import redistribute
from hvd_elastic.trainer.sharding.shares import WHOLE, Length, Rows, Share, lost_elements, shares_of
from testbed.thread_world import Meeting, ThreadTrainingWorld, in_each_rank, next_world, together
from tests.properties import examples


@pytest.fixture(autouse=True, scope="module")
def small_messages() -> Iterator[None]:
    """Several buckets of several rounds each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parameter_buckets, "BUCKET_ELEMENTS", 20)
        patch.setattr(share_transfer, "MESSAGE_BYTES", 80)
        yield


def shards_of(lengths: Sequence[Length], share: Share, step: int = 0) -> Shards:
    """What a rank has of a commit: two tensors for each bucket, of different dtypes."""
    shards = []
    for bucket, length in enumerate(lengths):
        places = torch.arange(*share.range(length))
        shards.append({"large": (step * 100 + bucket) * 1000.0 + places, "small": (places % 2 == step % 2)})
    return shards


def is_same(one: Shards, other: Shards) -> bool:
    pairs = zip(one, other, strict=True)
    return all(a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a) for a, b in pairs)


@settings(max_examples=examples(60))
@given(
    lengths=st.lists(
        st.integers(0, 50) | st.builds(Rows, count=st.integers(0, 12), width=st.integers(1, 5)), min_size=1, max_size=3
    ),
    before=st.integers(1, 4),
    after=st.integers(1, 4),
    data=st.data(),
)
def test_every_rank_gets_what_it_wants(lengths: list[Length], before: int, after: int, data: st.DataObject) -> None:
    """Ranks of a former world, some without what they had, and newcomers."""
    size = max(before, after)
    old = shares_of(before)
    forgetful = data.draw(st.sets(st.integers(0, before - 1)))
    held = [
        sorted({old[rank], old[rank].copied()}) if rank < before and rank not in forgetful else []
        for rank in range(size)
    ]
    if any(lost_elements(length, held) for length in lengths):
        return
    wanted = [*shares_of(after), *[None] * (size - after)]

    def work(world: ThreadTrainingWorld) -> Shards | None:
        mine, outline = wanted[world.rank()], shards_of(lengths, Share(rank=0, size=1))
        into = empty_shards(outline, lengths, mine) if mine is not None else None
        own = {share: shards_of(lengths, share) for share in held[world.rank()]}
        redistribute(lengths, held=held, wanted=wanted, own=own, outline=outline, into=into, label="move", world=world)
        return into

    for share, got in zip(wanted, in_each_rank(size, work), strict=True):
        assert got is None if share is None else got is not None and is_same(got, shards_of(lengths, share))


def test_small_buckets_are_sent_together() -> None:
    """As of a model with hundreds of small parameters: each message is a network's round trip of all ranks."""
    lengths = [Rows(count=4)] * 12

    def work(world: ThreadTrainingWorld) -> list[str]:
        held, wanted, outline = [[share] for share in shares_of(2)], shares_of(2)[::-1], shards_of(lengths, WHOLE)
        own = {share: shards_of(lengths, share) for share in held[world.rank()]}
        into = empty_shards(outline, lengths, wanted[world.rank()])
        redistribute(lengths, held=held, wanted=wanted, own=own, outline=outline, into=into, label="swap", world=world)
        assert is_same(into, shards_of(lengths, wanted[world.rank()]))
        return world.said

    # A bucket has two elements of five bytes for each rank, and a message 80 bytes.
    assert in_each_rank(2, work) == [["alltoall hvd_elastic.swap.0", "alltoall hvd_elastic.swap.1"]] * 2


@dataclass(eq=False)
class Worker:
    """A process as far as shares go: what of it is a world, an optimizer, its copies and its last commit."""

    world: ThreadTrainingWorld
    optimizer: ShardedOptimizer = field(
        default_factory=lambda: ShardedOptimizer([torch.nn.Parameter(torch.zeros(47))], torch.optim.SGD, lr=0.1)
    )
    shares: CommittedShares = field(init=False)
    commits: dict[int, Any] = field(default_factory=dict)
    """By step."""

    def __post_init__(self) -> None:
        self.shares = CommittedShares(self.world)

    def has(self, step: int) -> None:
        """What a step leaves."""
        share = Share(rank=self.world.rank(), size=self.world.size())
        lengths = self.optimizer.lengths
        content = ShardedContent(
            share=share, shards=shards_of(lengths, share, step), numbers=[{"step": step} for _ in lengths]
        )
        self.optimizer.place(content)

    def commit(self, step: int) -> None:
        self.has(step)
        self.save(step)
        self.shares.copy({"optimizer": self.optimizer}, self.commits[step], step)

    def save(self, step: int) -> None:
        """The commit before is forgotten: all have agreed on it."""
        self.commits = {step: {"objects": {"optimizer": self.optimizer.content.state_dict()}}}

    def resume(self) -> int | None:
        """Go on in a new world as `State.sync` does. Returns the step of the commit that all go on from."""
        named = {"optimizer": self.optimizer}
        step, kept = self.shares.agree_on_commit(named, [*self.commits.items()])
        if step is None:
            assert self.shares.are_lost
            return None
        root = next(rank for rank, each in enumerate(kept) if step in each.commits)
        own = self.commits[step]["objects"]["optimizer"] if step in self.commits else None
        received: dict[str, Any] = self.world.broadcast_object(outlined(own) if own else {}, root=root, name="outline")
        self.optimizer.place(ShardedContent.of(own or received))
        self.shares.move(named, [*self.commits.items()], step, kept)
        self.save(step)
        return step


def by_rank(workers: Sequence[Worker]) -> dict[ThreadTrainingWorld, Worker]:
    return {worker.world: worker for worker in workers}


def commit(workers: Sequence[Worker], step: int) -> None:
    known = by_rank(workers)
    together([worker.world for worker in workers], lambda world: known[world].commit(step))


def resume(workers: Sequence[Worker]) -> int | None:
    """All go on, from the same commit; each has its share of it."""
    known = by_rank(workers)
    steps = together([worker.world for worker in workers], lambda world: known[world].resume())
    assert len(set(steps)) == 1
    if steps[0] is not None:
        for worker in workers:
            content, own = worker.optimizer.content, Share(rank=worker.world.rank(), size=worker.world.size())
            assert content.share == own
            assert is_same(content.shards, shards_of(worker.optimizer.lengths, own, steps[0]))
            assert content.numbers == [{"step": steps[0]}] * len(content.numbers)
    return steps[0]


def begun(size: int) -> list[Worker]:
    meeting = Meeting(size)
    return [Worker(ThreadTrainingWorld(meeting, rank)) for rank in range(size)]


def resized(left: Sequence[Worker], newcomers: int) -> list[Worker]:
    worlds = next_world([worker.world for worker in left], newcomers=newcomers)
    return [*left, *map(Worker, worlds[len(left) :])]


@settings(max_examples=examples(60))
@given(size=st.integers(1, 4), resizes=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=3))
def test_one_rank_at_a_time_costs_no_commit(size: int, resizes: list[tuple[int, int]]) -> None:
    """Each resize loses a rank, unless it is the last, and brings newcomers."""
    workers = begun(size)
    commit(workers, 1)
    for step, (lost, newcomers) in enumerate(resizes, start=2):
        left = [worker for worker in workers if len(workers) == 1 or worker is not workers[lost % len(workers)]]
        workers = resized(left, newcomers)
        assert resume(workers) == step - 1
        commit(workers, step)


@given(size=st.integers(2, 5), data=st.data())
def test_ranks_lost_together_cost_no_commit_or_all_say_so(size: int, data: st.DataObject) -> None:
    workers = begun(size)
    commit(workers, 1)
    lost = data.draw(st.sets(st.integers(0, size - 1), min_size=1, max_size=size - 1))
    left = [worker for rank, worker in enumerate(workers) if rank not in lost]
    survives = all(rank not in lost or (rank + size // 2) % size not in lost for rank in range(size))
    assert resume(resized(left, newcomers=1)) == (1 if survives else None)


def test_a_rank_lost_twice_before_the_next_commit_costs_none() -> None:
    workers = begun(3)
    commit(workers, 1)
    for _ in range(3):
        workers = resized(workers[1:], newcomers=1)
        assert resume(workers) == 1


def test_two_ranks_that_change_places_change_shares() -> None:
    """Each has a copy of what it needs, and its optimizer has not."""
    workers = begun(2)
    commit(workers, 1)
    assert resume(resized(workers[::-1], newcomers=0)) == 1


def test_a_death_in_the_middle_of_a_commit_goes_back_to_the_one_before() -> None:
    workers = begun(3)
    commit(workers, 1)
    before = [worker.commits for worker in workers]
    dying = workers[2]
    with pytest.raises(Exception, match="which are lost"):
        commit(workers[:2], 2)
    left = [worker for worker in workers if worker is not dying]
    for worker, committed in zip(left, before, strict=False):
        worker.commits |= committed  # the one before is kept until all have agreed on the last
    assert resume(resized(left, newcomers=1)) == 1


def test_a_durable_checkpoint_is_spread_from_the_rank_that_has_read_it() -> None:
    workers = begun(3)
    known = by_rank(workers)
    root = workers[1]
    content = ShardedContent(
        share=WHOLE,
        shards=shards_of(root.optimizer.lengths, WHOLE, 5),
        numbers=[{"step": 5} for _ in root.optimizer.lengths],
    )
    root.optimizer.place(content)
    for worker in workers:
        if worker is not root:
            worker.optimizer.place(ShardedContent.of(outlined(content.state_dict())))

    def spread(world: ThreadTrainingWorld) -> None:
        known[world].shares.spread({"optimizer": known[world].optimizer}, root=1)

    together([worker.world for worker in workers], spread)
    for rank, worker in enumerate(workers):
        share = Share(rank=rank, size=3)
        assert worker.optimizer.content.share == share
        assert is_same(worker.optimizer.content.shards, shards_of(worker.optimizer.lengths, share, 5))
    root.has(6)
    with pytest.raises(ShardingError, match="steps were taken before"):
        together([worker.world for worker in workers], spread)
