"""Samplers and batch samplers of the script, in worlds of any size and over interruptions."""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sized
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torchdata.stateful_dataloader import StatefulDataLoader

from hvd_elastic.mpijob.contract import ENV_BATCH_GLOBAL
from hvd_elastic.trainer.data.batch_policy import BatchError, BatchPolicy
from hvd_elastic.trainer.data.drawn_order import Need, draw, draw_batches
from hvd_elastic.trainer.data.order_check import disagreement, report_of
from hvd_elastic.trainer.data.pass_options import PassOptions
from hvd_elastic.trainer.data.progress import Cursor
from hvd_elastic.trainer.data.randomness import PassSeeds, SeededIndices
from hvd_elastic.trainer.elastic import horovod_patches
from hvd_elastic.trainer.state.elastic_state import State
from tests.properties import examples
from tests.trainer.data.interrupted_job import FAILURE, HOSTS, RESTART, Job, Schedule
from tests.trainer.data.simulated_worlds import World, committed_steps, samples_of, worlds

LENGTH = 23


@pytest.fixture(autouse=True, scope="module")
def horovod() -> None:
    horovod_patches.init()


def part(of: int) -> Any:
    """The sampler of one of so many workers."""
    data: Any = range(LENGTH)
    return DistributedSampler(data, num_replicas=of, rank=0)


def loader_of(data: Any, **options: Any) -> DataLoader[Any]:
    return DataLoader(data, **options)


class Drawing(Sampler[int]):
    """Draws from a generator that it holds, and goes on with it from epoch to epoch."""

    def __init__(self, generator: Any) -> None:
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        if isinstance(self.generator, random.Random):
            return iter(self.generator.sample(range(LENGTH), 17))
        return iter(self.generator.permutation(LENGTH)[:17].tolist())

    def __len__(self) -> int:
        return 17


class ByEpoch(Sampler[int]):
    """Goes by `set_epoch`, as DistributedSampler does."""

    def __init__(self) -> None:
        self.epoch = 10

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        return iter((index + self.epoch) % LENGTH for index in range(LENGTH))

    def __len__(self) -> int:
        return LENGTH


class Endless(Sampler[int]):
    def __iter__(self) -> Iterator[int]:
        while True:
            yield random.randrange(LENGTH)


class Buckets(Sampler[list[int]]):
    """Samples of like length together: batches of one to five, in random order."""

    def __init__(self, lengths: Sized, generator: Any = None) -> None:
        self.sizes, self.generator = [1 + index % 5 for index in range(len(lengths))], generator

    def __iter__(self) -> Iterator[list[int]]:
        for index in torch.randperm(len(self.sizes), generator=self.generator).tolist():
            yield [sum(self.sizes[:index]) + each for each in range(self.sizes[index])]

    def __len__(self) -> int:
        return len(self.sizes)


class EndlessBuckets(Sampler[list[int]]):
    def __iter__(self) -> Iterator[list[int]]:
        while True:
            yield [random.randrange(LENGTH) for _ in range(random.randint(1, 3))]


def strange_generator() -> torch.Generator:
    """As a script makes one: each process goes on with its own."""
    return torch.Generator().manual_seed(torch.initial_seed())


SAMPLERS: dict[str, Callable[[], Any]] = {
    "weighted": lambda: WeightedRandomSampler([1.0, 9.0, *[2.0] * (LENGTH - 2)], 31, replacement=True),
    "weighted, with a generator": lambda: WeightedRandomSampler([1.0] * LENGTH, 19, generator=strange_generator()),
    "replacement": lambda: RandomSampler(range(LENGTH), replacement=True, num_samples=40),
    "subset": lambda: SubsetRandomSampler([3, 5, 7, 11, 13, 17]),
    "its own generator (Python)": lambda: Drawing(random.Random(torch.initial_seed())),
    "its own generator (numpy)": lambda: Drawing(np.random.default_rng(torch.initial_seed())),
    "its own generator (numpy, old)": lambda: Drawing(np.random.RandomState(torch.initial_seed())),
    "set_epoch": ByEpoch,
    "a list": lambda: [4, 4, 2, 0, 22],
    "all of a distributed one": lambda: part(1),
}


@settings(max_examples=examples(60))
@given(
    kind=st.sampled_from(sorted(SAMPLERS)),
    played=worlds,
    total=st.integers(1, 9),
    each=st.booleans(),
    epoch=st.integers(0, 3),
)
def test_each_index_that_a_sampler_gives_is_taken_once(
    kind: str, played: list[World], total: int, each: bool, epoch: int
) -> None:
    """Whatever the worlds, and though every process begins with generators of its own."""
    policy = BatchPolicy(per_worker=total) if each else BatchPolicy(global_size=total, micro=2)

    def options() -> PassOptions:
        return PassOptions(policy=policy, sampler=SAMPLERS[kind](), seed=5)

    steps = committed_steps(lambda: range(LENGTH), options, played, epoch=epoch)
    taken = Counter(sample for step in steps for sample in samples_of(step))
    assert taken == Counter(draw_of(options, epoch))


def draw_of(options: Callable[[], PassOptions], epoch: int) -> list[int]:
    """What a world of one takes that is never interrupted."""
    steps = committed_steps(lambda: range(LENGTH), options, [World(1, 10**6)], epoch=epoch)
    return [sample for step in steps for sample in samples_of(step)]


@settings(max_examples=examples(40))
@given(
    played=worlds,
    number=st.integers(0, 12),
    per_step=st.none() | st.integers(1, 5),
    drop_last=st.booleans(),
    strange=st.booleans(),
)
def test_batches_are_dealt_out_whole_and_once(
    played: list[World], number: int, per_step: int | None, drop_last: bool, strange: bool
) -> None:
    made = [[*range(sum(1 + each % 5 for each in range(index)), sum(1 + each % 5 for each in range(index + 1)))]
            for index in range(number)]  # fmt: skip

    def options() -> PassOptions:
        buckets = Buckets(range(number), strange_generator() if strange else None)
        return PassOptions(policy=None, batch_sampler=buckets, batches_per_step=per_step, drop_last=drop_last)

    taken: list[list[int]] = []
    for step in committed_steps(lambda: range(100), options, played):
        parts = [part for parts in step for part in parts]
        taken += [samples for samples, part in parts if part.weight]
        assert sum(part.weight for _, part in parts) == pytest.approx(len(step)), "the mean over the step"
        if per_step is not None and drop_last:
            assert len([part for _, part in parts if part.weight]) == per_step
    left_out = [batch for batch in made if batch not in taken]
    assert len(taken) + len(left_out) == number
    assert all(batch in made for batch in taken)
    assert len(left_out) < (per_step or played[-1].size) if drop_last else not left_out


@settings(max_examples=examples(30))
@given(played=worlds, batches=st.booleans(), max_steps=st.integers(1, 9))
def test_a_sampler_without_end_gives_the_same_over_resizes(played: list[World], batches: bool, max_steps: int) -> None:
    def options() -> PassOptions:
        if batches:
            return PassOptions(policy=None, batch_sampler=EndlessBuckets(), batches_per_step=4, max_steps=max_steps)
        return PassOptions(policy=BatchPolicy(global_size=4), sampler=Endless(), max_steps=max_steps)

    taken = [sorted(samples_of(step)) for step in committed_steps(lambda: range(LENGTH), options, played)]
    alone = [sorted(samples_of(step)) for step in committed_steps(lambda: range(LENGTH), options, [World(1, 10**6)])]
    assert taken == alone
    assert len(taken) == max_steps


@pytest.mark.thorough
@settings(max_examples=examples(30))
@given(schedule=st.dictionaries(st.integers(0, 30), st.sampled_from([FAILURE, HOSTS, RESTART]), max_size=5))
def test_interruptions_change_nothing_that_a_sampler_gives(schedule: Schedule) -> None:
    """New processes, whose generators are where nobody knows, included."""
    disturbed, undisturbed = (play(each) for each in (schedule, {}))
    assert disturbed == undisturbed
    first = Counter(index for epoch, index in disturbed if epoch == 0)
    assert first != Counter(index for epoch, index in disturbed if epoch == 1), "another order in each epoch"


def play(schedule: Schedule) -> list[tuple[int, int]]:
    job = Job(schedule, taken=[])
    weights = [1.0, 5.0, *[2.0] * (LENGTH - 2)]

    def body(state: State) -> None:
        for state.epoch in state.remaining_epochs(2):
            sampler = WeightedRandomSampler(weights, 13, generator=torch.Generator())
            sampler.generator.seed()
            for batch in state.batches(range(LENGTH), sampler=sampler, batch_size=4):
                state.taken = [*state.taken, *((state.epoch, index) for index in batch.tolist())]
                job.commit()
            for batch in state.batches(range(LENGTH), batch_sampler=Buckets(range(5)), name="buckets"):
                state.taken = [*state.taken, *((state.epoch, 100 + index) for index in batch.tolist())]
                job.commit()

    job.run(body)
    return list(job.state.taken)


def test_a_generator_is_afterwards_as_it_was() -> None:
    own, numpys = torch.Generator().manual_seed(3), np.random.default_rng(3)
    sampler = WeightedRandomSampler([1.0, 1.0], 4, generator=own)
    sampler.more = numpys  # type: ignore[attr-defined]
    before = own.get_state(), torch.get_rng_state(), random.getstate(), numpys.bit_generator.state
    seeds = own.initial_seed(), torch.initial_seed()
    order = draw(sampler, seed=1, epoch=0, need=None, name="train")
    after = own.get_state(), torch.get_rng_state(), random.getstate(), numpys.bit_generator.state
    assert all(torch.equal(one, two) for one, two in zip(before[:2], after[:2], strict=True))
    assert before[2:] == after[2:]
    assert seeds == (own.initial_seed(), torch.initial_seed())
    assert order.indices.tolist() == draw(sampler, seed=1, epoch=0, need=None, name="train").indices.tolist()


def test_an_index_that_is_drawn_twice_is_augmented_in_two_ways() -> None:
    class Augmented:
        def __len__(self) -> int:
            return 1

        def __getitem__(self, index: int) -> float:
            return float(torch.rand(()))

    def values(batch_size: int) -> list[float]:
        torch.manual_seed(1)
        batches = State().batches(Augmented(), sampler=[0] * 6, batch_size=batch_size)
        return [value for batch in batches for value in batch.tolist()]

    assert len(set(values(2))) == 6
    assert values(2) == values(3), "whatever the batches"
    assert SeededIndices([7], PassSeeds(key=1), 3).__reduce__()[1][2] == 3


# --- What is refused -------------------------------------------------------------------------------------------------


class Unruly(Sampler[int]):
    """Follows from nothing that could be seeded: from how often it was iterated."""

    times = 0

    def __iter__(self) -> Iterator[int]:
        Unruly.times += 1
        return iter([Unruly.times % LENGTH, 1, 2, 3, 4, 5])

    def __len__(self) -> int:
        return 6


@pytest.mark.parametrize(
    "options", [{"sampler": Unruly()}, {"batch_sampler": BatchSampler(Unruly(), 2, drop_last=False)}]
)
def test_another_order_after_a_resize_is_refused(options: dict[str, Any]) -> None:
    job = Job({3: HOSTS})
    size: dict[str, Any] = {} if "batch_sampler" in options else {"batch_size": 2}

    def body(state: State) -> None:
        for state.epoch in state.remaining_epochs(1):
            for _ in state.batches(range(LENGTH), **options, **size):
                job.commit()

    with pytest.raises(BatchError, match="another order than the one with which this epoch was begun"):
        job.run(body)


def test_another_order_on_another_worker_is_told_by_all() -> None:
    orders = [draw(Unruly(), seed=1, epoch=0, need=None, name="train") for _ in range(2)]
    reports = [report_of(order, Cursor()) for order in orders]
    message = disagreement(reports, name="train", what="an Unruly", taken=0)
    assert message == "batches('train'): an Unruly gives another order on worker 1 than on worker 0"


def test_an_epoch_goes_on_as_it_was_begun() -> None:
    """With a sampler or without."""
    for first, then in [({"sampler": range(6)}, {}), ({}, {"sampler": range(6)})]:
        job, options = Job({3: HOSTS}), iter([first, then])

        def body(state: State, job: Job = job, options: Any = options) -> None:
            for state.epoch in state.remaining_epochs(1):
                for _ in state.batches(range(6), batch_size=2, **next(options)):
                    job.commit()

        with pytest.raises(BatchError, match="this epoch was begun"):
            job.run(body)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"sampler": part(2)}, "takes the part of one of 2 workers"),
        (
            {"batch_sampler": BatchSampler(part(2), 2, drop_last=False)},
            "a DistributedSampler takes the part of one of 2 workers",
        ),
        ({"sampler": iter([1, 2])}, "can be iterated only once"),
        ({"sampler": Endless()}, "has no length.*give max_steps"),
        ({"sampler": ["a"]}, "gave something other than whole numbers"),
        ({"batch_sampler": [3, 4]}, "gave 3 for a batch, which is not a list of indices"),
        ({"batch_sampler": [[1], []]}, r"gave \[\] for a batch"),
        ({"sampler": [1], "batch_sampler": [[1]]}, "either a sampler or a batch_sampler"),
        ({"batch_sampler": [[1]], "batch_size": 2}, "a batch_sampler says what is in a batch: leave out batch_size"),
        ({"batch_sampler": [[1]], "batches_per_step": 0}, "batches_per_step: 0 is below 1"),
        ({"batches_per_step": 2, "batch_size": 2}, "there is no batch_sampler"),
        ({"batch_size": 2, "in_order": False}, "in_order"),
    ],
)
def test_what_cannot_be_exact_is_refused(options: dict[str, Any], says: str) -> None:
    given = options if "batch_sampler" in options or "batch_size" in options else {**options, "batch_size": 2}
    with pytest.raises(BatchError, match=says):
        list(State().batches(range(9), **given))


def test_a_stream_has_no_sampler() -> None:
    with pytest.raises(BatchError, match="has no index"):
        State().batches(iter_again(), sampler=[1], batch_size=1)


def iter_again() -> Any:
    class Stream(torch.utils.data.IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(3))

    return Stream()


def test_the_size_of_a_batch_in_the_job_is_no_batch_samplers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV_BATCH_GLOBAL, "64")
    with pytest.raises(BatchError, match=re.escape("take `batch` out of the job")):
        State().batches(range(9), batch_sampler=[[1, 2]])


def test_as_much_is_drawn_of_an_endless_sampler_as_is_compared() -> None:
    """A smaller world needs less, and the order is compared as far as the larger one has drawn it."""
    need = Need(position=4, more=2, samples=30)
    assert draw(Endless(), seed=1, epoch=0, need=need, name="train").count == 30
    assert draw_batches(EndlessBuckets(), seed=1, epoch=0, need=need, name="train").count >= 30


# --- DataLoaders -----------------------------------------------------------------------------------------------------


LOADERS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "shuffled": (lambda: list(range(13)), {"batch_size": 3, "shuffle": True}),
    "in order": (lambda: list(range(13)), {"batch_size": 3}),
    "sampler": (
        lambda: list(range(13)),
        {"batch_size": 3, "sampler": [5, 5, 1, 0, 12, 3], "collate_fn": torch.tensor},
    ),
    "batches": (lambda: list(range(13)), {"batch_sampler": [[1, 2, 3], [4], [0, 5]]}),
    "drop_last": (lambda: list(range(13)), {"batch_size": 3, "drop_last": True}),
    "stream": (iter_again, {"batch_size": 2}),
}


@pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
@pytest.mark.parametrize("name", sorted(LOADERS))
def test_a_loader_stands_for_its_data_and_options(name: str, kind: Any) -> None:
    """In a world of one it gives the batches that it would give itself; in random order where it has one."""
    data, options = LOADERS[name]
    own, ours = list(kind(data(), **options)), list(State().batches(kind(data(), **options)))
    assert [len(batch) for batch in ours] == [len(batch) for batch in own]
    if "shuffled" not in name:
        assert [batch.tolist() for batch in ours] == [batch.tolist() for batch in own]
    else:
        assert sorted(index for batch in ours for index in batch.tolist()) == list(range(13))


@pytest.mark.parametrize("at", [2, 3, 5])
def test_a_stateful_loader_loses_nothing_at_a_resize(at: int) -> None:
    job = Job({at: HOSTS, at + 4: RESTART}, taken=[])

    def body(state: State) -> None:
        loader = StatefulDataLoader(list(range(13)), batch_size=3, shuffle=True, num_workers=0)
        for state.epoch in state.remaining_epochs(2):
            for batch in state.batches(loader):
                state.taken = [*state.taken, *batch.tolist()]
                job.commit()

    job.run(body)
    assert Counter(job.state.taken) == Counter([*range(13)] * 2)


def test_what_the_script_gives_comes_before_what_its_loader_says() -> None:
    loader = loader_of(list(range(12)), batch_size=3, shuffle=True, drop_last=True)
    assert [len(batch) for batch in State().batches(loader, global_batch_size=5, drop_last=False)] == [5, 5, 2]
    assert next(iter(State().batches(loader, shuffle=False))).tolist() == [0, 1, 2]
    assert [batch.tolist() for batch in State().batches(loader, sampler=[7], drop_last=False)] == [[7]]
    assert [batch.tolist() for batch in State().batches(loader, batch_sampler=[[7, 8]])] == [[7, 8]]
    busy = loader_of(list(range(12)), batch_size=12, num_workers=1, prefetch_factor=3)
    assert [len(batch) for batch in State().batches(busy, num_workers=0)] == [12]


def test_a_loader_without_batches_is_refused() -> None:
    with pytest.raises(BatchError, match="batch_size=None"):
        State().batches(loader_of(list(range(3)), batch_size=None))
    with pytest.raises(BatchError, match="takes the part of one of 2 workers"):
        list(State().batches(loader_of(range(9), batch_size=2, sampler=part(2))))
    assert isinstance(loader_of(list(range(3))).sampler, SequentialSampler)
