"""Scripts with several passes over data in an epoch, in a world of one worker that is interrupted anywhere."""

import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any
from unittest.mock import ANY
from zlib import crc32

import pytest
import torch
from horovod.common.exceptions import HostsUpdatedInterrupt
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import IterableDataset, get_worker_info

from hvd_elastic.mpijob.contract import CHECKPOINT_REQUEST_FILE, ENV_RUN_DIR
from hvd_elastic.trainer.data import loop_hints
from hvd_elastic.trainer.data.batch_policy import BatchError
from hvd_elastic.trainer.data.progress import Progress, Samples, upgrade
from hvd_elastic.trainer.data.sample_certificate import examine
from hvd_elastic.trainer.elastic import horovod_patches
from hvd_elastic.trainer.state.elastic_state import State
from hvd_elastic.trainer.telemetry import events
from tests.properties import examples
from tests.trainer.data.interrupted_job import FAILURE, HOSTS, RESTART, Job, Schedule


@pytest.fixture(autouse=True, scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    horovod_patches.init()
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("run")
        patch.setenv(ENV_RUN_DIR, str(folder))
        yield folder


class Stream(IterableDataset[int]):
    def __init__(self, length: int) -> None:
        self._length = length

    def __iter__(self) -> Iterator[int]:
        return iter(range(self._length))


# --- Random scripts --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Commit:
    pass


@dataclass(frozen=True)
class Once:
    name: str


@dataclass(frozen=True)
class Loop:
    """`for batch in state.batches(...)`. What it does depends on the state alone, so that it can be done again."""

    name: str
    length: int
    size: int
    stream: bool
    commits: int
    """Commits where the state divides by this; 0: never."""
    breaks: int
    """Breaks where the state divides by this; 0: never."""
    micro: int | None
    max_steps: int | None
    inner: "tuple[Statement, ...]"

    def batches(self, state: State) -> Iterator[Any]:
        dataset: Any = Stream(self.length) if self.stream else range(self.length)
        return state.batches(
            dataset, batch_size=self.size, micro_batch_size=self.micro, max_steps=self.max_steps, name=self.name
        )


@dataclass(frozen=True)
class Zip:
    one: Loop
    other: Loop


Statement = Commit | Once | Loop | Zip


def loops(
    inner: st.SearchStrategy[tuple[Statement, ...]], micro: tuple[int | None, ...] = (None,)
) -> st.SearchStrategy[Loop]:
    return st.builds(
        Loop,
        name=st.sampled_from(["train", "b"]),
        length=st.integers(0, 11),
        size=st.integers(1, 4),
        stream=st.booleans(),
        commits=st.integers(0, 2),
        breaks=st.sampled_from([0, 0, 5]),
        micro=st.sampled_from(micro),
        max_steps=st.none() | st.integers(1, 3),
        inner=inner,
    )


nothing: st.SearchStrategy[tuple[Statement, ...]] = st.just(())
within = loops(nothing).flatmap(lambda loop: st.sampled_from([(loop,), (loop, Commit()), (loop, Commit(), loop)]))
statements = st.one_of(
    loops(nothing, micro=(None, 2)),
    loops(within),
    st.just(Commit()),
    st.builds(Once, st.sampled_from(["x", "y"])),
    st.builds(Zip, loops(nothing), loops(nothing)),
)


def schedules(*happens: str) -> st.SearchStrategy[Schedule]:
    return st.dictionaries(st.integers(0, 60), st.sampled_from(happens), max_size=6)


class Play(Job):
    """A random script. It notes all that it learns, in order, and a digest of it, on which later decisions depend."""

    def __init__(self, script: Sequence[Statement], schedule: Schedule) -> None:
        super().__init__(schedule, digest=1, taken=[])
        self._script = script
        self.run(self._body)

    def _body(self, state: State) -> None:
        for state.epoch in state.remaining_epochs(2):
            self._execute(self._script)
            self._learn("tail")
        # Which steps the script's last commit covers depends on interruptions: a commit may have been deferred anew.
        self.state.commit()

    def _execute(self, statements: Sequence[Statement]) -> None:
        for statement in statements:
            self.point()
            match statement:
                case Commit():
                    self.commit()
                case Once(name=name):
                    if self.state.once(name):
                        self._learn(name)
                case Zip(one=one, other=other):
                    self._loop(one, zip(one.batches(self.state), other.batches(self.state), strict=False))
                case Loop():
                    self._loop(statement, statement.batches(self.state))

    def _loop(self, loop: Loop, batches: Iterator[Any]) -> None:
        for batch in batches:
            self.point()
            self._execute(loop.inner)
            self._learn(loop.length, [part.tolist() for part in (batch if isinstance(batch, tuple) else [batch])])
            if self._divides(loop.breaks):
                break
            if not self.state.accumulating and self._divides(loop.commits):
                self.commit()

    def _learn(self, *what: Any) -> None:
        self.state.digest = crc32(repr((self.state.digest, *what)).encode())
        self.state.taken = [*self.state.taken, what]

    def _divides(self, number: int) -> bool:
        return number > 0 and self.state.digest % number == 0


@settings(max_examples=examples(120))
@given(script=st.lists(statements, max_size=4), schedule=schedules(FAILURE, HOSTS, RESTART))
def test_nothing_that_is_learned_depends_on_interruptions(script: list[Statement], schedule: Schedule) -> None:
    """Samples, their order, what stands between the passes and at the end of an epoch: as in an undisturbed run."""
    undisturbed, disturbed = Play(script, {}), Play(script, schedule)
    assert disturbed.state.taken == undisturbed.state.taken
    assert disturbed.state.digest == undisturbed.state.digest
    certificates = [each.state._batches.account.position.certificate for each in (undisturbed, disturbed)]
    assert certificates[0] == certificates[1]
    for certificate in filter(None, certificates):
        assert examine(certificate).holds
    position = disturbed.state._present.progress.state_dict()
    assert Progress.from_state_dict(json.loads(json.dumps(position))).state_dict() == position


class Learner(Job):
    """A model, momentum, accumulated gradients, an evaluation in mid-epoch, two data sets and a scheduler."""

    def __init__(self, schedule: Schedule, *, micro: int | None, every: int) -> None:
        torch.manual_seed(1)
        self._model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(self._model.parameters(), lr=0.1, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.7)
        super().__init__(schedule, model=self._model, optimizer=optimizer, scheduler=scheduler, losses=[])
        self._micro, self._every = micro, every
        self.run(self._body)
        self.weights = [each.item() for each in self._model.parameters()]

    def _body(self, state: State) -> None:
        for state.epoch in state.remaining_epochs(2):
            self._train(state, "one", 13, evaluates=True)
            if state.once("between"):
                state.scheduler.step()
            self._train(state, "other", 7, evaluates=False)
            self._evaluate(state)
            state.scheduler.step()
            self.commit()

    def _train(self, state: State, name: str, length: int, *, evaluates: bool) -> None:
        data = torch.linspace(-1, 1, length)[:, None]
        state.optimizer.zero_grad()
        batches = state.batches(data, batch_size=4, micro_batch_size=self._micro, name=name)
        for batch in batches:
            self.point()
            ((self._model(batch) - batch.exp()).square().mean() * state.weight).backward()
            if state.accumulating:
                continue
            state.optimizer.step()
            state.optimizer.zero_grad()
            if state.samples_of(name).uncommitted >= 4 * self._every:
                if evaluates:
                    self._evaluate(state)
                self.commit()

    def _evaluate(self, state: State) -> None:
        with torch.no_grad():
            data = torch.linspace(-2, 2, 9)[:, None]
            parts = state.batches(data, batch_size=4, shuffle=False, name="validation")
            losses = [(self._model(part) - part.exp()).square().sum().item() for part in parts]
        state.losses = [*state.losses, losses]


@pytest.mark.thorough
@settings(max_examples=examples(30))
@given(schedule=schedules(FAILURE, HOSTS), micro=st.sampled_from([None, 1, 3]), every=st.integers(1, 3))
def test_weights_and_rates_are_those_of_an_undisturbed_run(schedule: Schedule, micro: int | None, every: int) -> None:
    undisturbed, disturbed = (Learner(each, micro=micro, every=every) for each in ({}, schedule))
    assert disturbed.weights == undisturbed.weights
    assert disturbed.state.losses == undisturbed.state.losses
    assert disturbed.state.scheduler.get_last_lr() == undisturbed.state.scheduler.get_last_lr()
    assert disturbed.state.scheduler.last_epoch == 4


# --- One script for each fault ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", [{}, {5: HOSTS}, {6: FAILURE}, {9: HOSTS, 14: FAILURE}])
def test_an_evaluation_within_an_epoch_costs_no_sample_of_it(schedule: Schedule) -> None:
    job = Job(schedule, taken=[], evaluations=[])

    def body(state: State) -> None:
        for state.epoch in state.remaining_epochs(2):
            for index, batch in enumerate(state.batches(range(40), batch_size=4)):
                state.taken = [*state.taken, *((state.epoch, each) for each in batch.tolist())]
                if index in (2, 6):
                    evaluated = [len(part) for part in state.batches(range(12), batch_size=4, name="val")]
                    state.evaluations = [*state.evaluations, sum(evaluated)]
                job.commit()

    job.run(body)
    assert Counter(job.state.taken) == Counter((epoch, each) for epoch in range(2) for each in range(40))
    assert set(job.state.evaluations) == {12}
    assert (job.state.samples.due, job.state.samples.seen) == (40, 40)


def test_the_outer_batch_keeps_its_weight_after_an_inner_pass() -> None:
    state = State()
    for _ in state.batches(range(5), batch_size=5, micro_batch_size=3):
        own = state.weight, state.accumulating
        list(state.batches(range(2), batch_size=1, name="val"))
        assert (state.weight, state.accumulating) == own != (1.0, False)


@pytest.mark.parametrize("at", range(14))
def test_a_commit_between_the_passes_leaves_nothing_out(at: int) -> None:
    """The second pass, and the scheduler's step at the end, are done once each."""
    job = Job({at: HOSTS}, taken=[], rate=1.0)

    def body(state: State) -> None:
        for state.epoch in state.remaining_epochs(2):
            for name in "ab":
                for batch in state.batches(range(8), batch_size=4, name=name):
                    state.taken = [*state.taken, *((name, state.epoch, each) for each in batch.tolist())]
                    job.commit()
                job.commit()
            state.rate /= 2
            job.commit()

    job.run(body)
    due = Counter((name, epoch, each) for name in "ab" for epoch in range(2) for each in range(8))
    assert Counter(job.state.taken) == due
    assert job.state.rate == 0.25


@pytest.mark.parametrize("at", range(10))
def test_a_script_that_commits_after_its_loop_commits_once_an_epoch(at: int) -> None:
    job = Job({at: HOSTS}, epochs=[])

    def body(state: State) -> None:
        for state.epoch in state.remaining_epochs(3):
            list(state.batches(range(8), batch_size=4))
            job.point()
            state.epochs = [*state.epochs, state.epoch]
            job.commit()

    job.run(body)
    assert job.state.epochs == [0, 1, 2]
    assert job.state.step_count == 3
    assert job.worlds == (2 if at < 9 else 1)


@pytest.mark.thorough
def test_once_is_once_in_an_epoch() -> None:
    for at in range(40):
        job = Job({at: FAILURE}, steps=0, taken=[])

        def body(state: State, job: Job = job) -> None:
            for state.epoch in state.remaining_epochs(2):
                for name in "ab":
                    for batch in state.batches(range(8), batch_size=4, name=name):
                        state.taken = [*state.taken, *batch.tolist()]
                        job.commit()
                    if state.once(f"after {name}"):
                        state.steps += 1

        job.run(body)
        assert job.state.steps == 4, at
        assert Counter(job.state.taken) == Counter([*range(8)] * 4)


def test_calls_without_a_name_are_passes_of_their_own() -> None:
    state = State()
    for state.epoch in state.remaining_epochs(1):
        batches = [list(state.batches(range(length), batch_size=4)) for length in (8, 12, 12)]
        taken = [[each for batch in one for each in batch.tolist()] for one in batches]
        assert (state.samples.due, state.samples.uncommitted) == (32, 32)
    assert [sorted(each) for each in taken] == [list(range(length)) for length in (8, 12, 12)]
    assert taken[1] != taken[2], "an order of its own"
    assert len(state._batches.account.position.passes["train"]) == 1, "what has ended is added up"


@pytest.mark.thorough
@pytest.mark.parametrize("covers", [0, 1, 3])
@pytest.mark.parametrize("event", [HOSTS, FAILURE])
@pytest.mark.parametrize("at", range(12))
def test_an_inner_pass_belongs_to_the_batch_around_it(at: int, event: str, covers: int) -> None:
    """It is found again if its outer batch was not committed before (`covers`: so many are); else it is given up."""
    job = Job({at: event}, outer=[], inner=[])

    def body(state: State) -> None:
        for state.epoch in state.remaining_epochs(1):
            for outer in state.batches(range(3), batch_size=1, name="outer"):
                covered = len(state.outer) < covers
                if covered:
                    state.outer = [*state.outer, *outer.tolist()]
                    job.commit()
                for inner in state.batches(range(4), batch_size=2, name="inner"):
                    state.inner = [*state.inner, *((outer.item(), each) for each in inner.tolist())]
                    job.commit()
                if not covered:
                    state.outer = [*state.outer, *outer.tolist()]

    job.run(body)
    assert sorted(job.state.outer) == list(range(3))
    taken = {outer: sorted(each for of, each in job.state.inner if of == outer) for outer in range(3)}
    incomplete = [each for each in taken.values() if each != list(range(4))]
    assert len(incomplete) <= (covers > 0)


@pytest.mark.thorough
@pytest.mark.parametrize("event", [HOSTS, FAILURE])
@pytest.mark.parametrize("at", range(14))
def test_data_sets_in_step_are_not_nested(at: int, event: str) -> None:
    """Neither by `zip`, nor where the smaller one is begun again within the larger one's loop."""
    zipped, cycled = Job({at: event}, taken=[]), Job({at: event}, taken=[])

    def side_by_side(state: State) -> None:
        for state.epoch in state.remaining_epochs(1):
            names = [state.batches(range(12), batch_size=4, name="a"), state.batches(range(20), batch_size=4, name="b")]
            for one, other in zip(*names, strict=False):
                state.taken = [*state.taken, (one.tolist(), other.tolist())]
                zipped.commit()

    def in_circles(state: State) -> None:
        for state.epoch in state.remaining_epochs(1):
            small = state.batches(range(4), batch_size=2, name="small")
            for large in state.batches(range(10), batch_size=2, name="large"):
                if next(small, None) is None:
                    small = state.batches(range(4), batch_size=2, name="small")
                    next(small)
                state.taken = [*state.taken, *large.tolist()]
                cycled.commit()

    zipped.run(side_by_side)
    undisturbed = Job(taken=[])
    zipped, disturbed = undisturbed, zipped
    undisturbed.run(side_by_side)
    assert disturbed.state.taken == undisturbed.state.taken
    cycled.run(in_circles)
    assert sorted(cycled.state.taken) == list(range(10))


@pytest.mark.parametrize("at", range(8))
def test_a_number_of_steps_is_counted_over_all_worlds(at: int) -> None:
    job = Job({at: HOSTS}, taken=[])

    def body(state: State) -> None:
        for state.epoch in state.remaining_epochs(2):
            for batch in state.batches(range(16), batch_size=4, max_steps=2):
                state.taken = [*state.taken, (state.epoch, batch.tolist())]
                job.commit()

    job.run(body)
    assert Counter(epoch for epoch, _ in job.state.taken) == {0: 2, 1: 2}
    assert job.state.samples.seen == 8


def ahead_by(number: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def prefetcher(batches: Iterator[Any]) -> Iterator[Any]:
        held: deque[Any] = deque()
        for batch in batches:
            held.append(batch)
            if len(held) > number:
                yield held.popleft()
        yield from held

    return prefetcher


@pytest.mark.parametrize("number", [1, 3, 99])
@pytest.mark.parametrize("event", [HOSTS, FAILURE])
@pytest.mark.parametrize("at", [0, 3, 6, 18, 19, 20])
def test_batches_that_a_prefetcher_holds_are_not_taken(at: int, event: str, number: int) -> None:
    job = Job({at: event}, taken=[])

    def body(state: State) -> None:
        for state.epoch in state.remaining_epochs(1):
            for batch in state.batches(range(40), batch_size=4, prefetcher=ahead_by(number)):
                state.taken = [*state.taken, *batch.tolist()]
                job.commit()
                assert state.samples.seen == len(state.taken)

    job.run(body)
    assert sorted(job.state.taken) == list(range(40))


@pytest.mark.parametrize(("prefetcher", "what"), [(lambda _: [0], "more"), (lambda each: [*each][:1], "still held 1")])
def test_a_prefetcher_that_loses_batches_is_an_error(prefetcher: Callable[[Any], Any], what: str) -> None:
    with pytest.raises(BatchError, match=what):
        list(State().batches(range(8), batch_size=4, prefetcher=prefetcher))


def test_a_data_set_of_another_length_is_an_error_in_mid_epoch() -> None:
    state = State()
    state.sync()
    for _ in state.batches(range(40), batch_size=4):
        state.commit()
        if state.samples.seen == 20:
            break
    state.restore()
    with pytest.raises(BatchError, match="has 60 samples, but this epoch was begun with 40, of which 20 were taken"):
        state.batches(range(60), batch_size=4)
    state.epoch += 1
    assert sum(len(batch) for batch in state.batches(range(60), batch_size=4)) == 60


@pytest.mark.parametrize(
    ("dataset", "options", "what"),
    [
        (iter(range(8)), {"batch_size": 4}, "can be read only once"),
        ((each for each in range(8)), {"batch_size": 4}, "a generator can be read only once"),
        (range(8), {}, "give either a global batch size or one per worker"),
        (range(8), {"batch_size": 4, "max_steps": 0}, "max_steps: 0 is below 1"),
    ],
)
def test_what_cannot_be_used_is_refused_at_the_call(dataset: Any, options: dict[str, Any], what: str) -> None:
    with pytest.raises(BatchError, match=what):
        State().batches(dataset, **options)


def test_a_request_is_served_by_the_last_commit_where_none_may_be_made(tmp_path: Path, world: Path) -> None:
    state = State(checkpoint=f"file://{tmp_path}/durable")
    state.sync()
    epochs = state.remaining_epochs(2)
    state.epoch = next(epochs)
    for _ in state.batches(range(8), batch_size=4):
        state.commit()
    (world / CHECKPOINT_REQUEST_FILE).write_text("sigterm")
    state.on_hosts_updated(1, None)
    state.commit()
    assert state._commits.durable.durable_step == state.step_count == 2
    with pytest.raises(HostsUpdatedInterrupt):
        next(epochs)
    assert state.step_count == 3
    state._commits.durable.close()


@pytest.mark.parametrize(("epoch_done", "position", "left"), [(False, 12, 8), (False, 20, 0), (True, 20, 20)])
def test_a_commit_of_the_first_version_is_continued(epoch_done: bool, position: int, left: int) -> None:
    """It knew one pass for each name, and whether the data of its epoch was exhausted."""
    cursor = {"epoch": 3, "position": position, "length": 20, "padded": 0, "repeated": 0}
    old = {"epoch": 1, "position": 20, "length": 20, "padded": 0, "repeated": 0}
    progress = {"commits": 40, "epoch_done": epoch_done, "cursors": {"train": cursor, "val": old}, "size": 1}
    tree = upgrade({"values": {"epoch": 3}, "objects": {}, "progress": progress})
    state = State(epoch=tree["values"]["epoch"])
    state._present.go_to(Progress.from_state_dict(tree["progress"]))
    assert state.step_count == 40
    state.epoch = next(state.remaining_epochs(9))
    assert state.epoch == 3 + epoch_done
    assert sum(len(batch) for batch in state.batches(range(20), batch_size=4)) == left


class Sharded(IterableDataset[int]):
    """Takes its share as torch's documentation shows it, and as webdataset does."""

    def __init__(self, *, always: bool) -> None:
        self._always = always

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        if self._always:
            assert info is not None
        first, number = (info.id, info.num_workers) if info is not None else (0, 1)
        return iter(range(first, 40, number))


@pytest.mark.parametrize(("workers", "always"), [(0, False), (1, True), (2, False), (2, True)])
def test_a_data_set_that_shards_itself_gives_all_its_samples(workers: int, always: bool) -> None:
    """In an order that does not depend on the number of loader processes, which may change at a restart."""
    job, use = Job({7: HOSTS}, taken=[]), iter([workers, 1 if always else 0])

    def body(state: State) -> None:
        for state.epoch in state.remaining_epochs(1):
            for batch in state.batches(Sharded(always=always), batch_size=4, num_workers=next(use)):
                state.taken = [*state.taken, *batch.tolist()]
                job.commit()

    job.run(body)
    assert job.worlds == 2
    assert job.state.taken == list(range(40))
    assert job.state.samples.due == 40


@pytest.mark.parametrize("schedule", [{}, {3: HOSTS}, {4: FAILURE}, {3: RESTART}])
def test_what_is_left_out_of_a_pass_is_not_due(schedule: Schedule) -> None:
    job = Job(schedule)
    counts = []

    def body(state: State) -> None:
        for state.epoch in state.remaining_epochs(1):
            for _ in state.batches(range(43), batch_size=4, drop_last=True):
                counts.append(state.samples.due)
                job.commit()
            for _ in state.batches(range(43), batch_size=4, max_steps=5, name="short"):
                counts.append(state.samples_of("short").due)
                job.commit()

    job.run(body)
    assert set(counts) == {40, 20}
    assert job.state.samples == Samples(epoch=0, due=40, seen=40, uncommitted=0, padded=0, repeated=ANY)
    assert job.state.samples_of("short").due == job.state.samples_of("short").seen == 20


@pytest.fixture
def objects() -> dict[str, Any]:
    optimizer = torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=0.1)
    return {"optimizer": optimizer, "scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1)}


@pytest.mark.parametrize(("inside", "warned"), [(False, False), (True, True)])
def test_a_prefetcher_that_batches_does_not_know_is_found(
    inside: bool, warned: bool, objects: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    job = Job(**objects)

    def body(state: State) -> None:
        ahead = ahead_by(1)
        for state.epoch in state.remaining_epochs(2):
            options: dict[str, Any] = {} if inside else {"prefetcher": ahead}
            batches = state.batches(range(8), batch_size=2, **options)
            for _ in ahead(batches) if inside else batches:
                state.optimizer.step()
                job.commit()

    job.run(body)
    assert [record.message for record in caplog.records] == [loop_hints.PREFETCHER] * warned


@pytest.mark.parametrize("commits", [False, True])
@pytest.mark.parametrize("guarded", [False, True])
def test_a_scheduler_that_would_step_twice_is_found(
    guarded: bool, commits: bool, objects: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    job = Job(**objects)

    def body(state: State) -> None:
        for state.epoch in state.remaining_epochs(2):
            for _ in state.batches(range(4), batch_size=2):
                state.optimizer.step()
                job.commit()
            if not guarded or state.once("scheduler"):
                state.scheduler.step()
            for _ in state.batches(range(4), batch_size=2, name="second"):
                if commits:
                    job.commit()
            state.once("at the end")
            job.commit()

    job.run(body)
    warned = commits and not guarded
    assert [record.message for record in caplog.records] == [loop_hints.SCHEDULER] * warned


def in_a_generator(batches: Iterator[Any]) -> Iterator[Any]:
    """As tqdm."""
    yield from batches


@pytest.mark.parametrize(
    ("around", "hint"),
    [
        (lambda batches: islice(batches, 1), loop_hints.ISLICE),
        (lambda batches: islice(enumerate(batches), 1), loop_hints.ISLICE),
        (lambda batches: zip(islice(batches, 1), "ab", strict=False), loop_hints.ISLICE),
        (lambda batches: islice(zip(batches, "ab", strict=False), 1), loop_hints.ISLICE),
        (lambda batches: islice(in_a_generator(batches), 1), loop_hints.ISLICE),
        (cycle, loop_hints.CYCLE),
        (enumerate, None),
        (in_a_generator, None),
        (list, None),
    ],
)
def test_a_walk_that_a_resize_begins_anew_is_found(
    around: Callable[[Iterator[Any]], Iterable[Any]], hint: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    state = State()
    others = [islice(range(9), 3), cycle("ab"), islice(state.batches(range(8), batch_size=2, name="never begun"), 3)]
    for state.epoch in state.remaining_epochs(2):
        for _ in around(state.batches(range(8), batch_size=2)):
            state.commit()
            break
    assert [record.message for record in caplog.records] == [hint] * (hint is not None)
    assert others


def test_a_walk_with_max_steps_counts_over_resizes(caplog: pytest.LogCaptureFixture) -> None:
    state = State()
    for state.epoch in state.remaining_epochs(1):
        for _ in islice(state.batches(range(8), batch_size=2, max_steps=3), 3):
            state.commit()
    assert not caplog.records


@pytest.mark.parametrize("first", [False, True])
def test_a_training_loop_whose_commits_wait_is_found(first: bool, caplog: pytest.LogCaptureFixture) -> None:
    state = State()
    for state.epoch in state.remaining_epochs(1):
        if not first:
            list(state.batches(range(4), batch_size=2))
        for _ in range(loop_hints.MANY_COMMITS):
            state.commit()
        if first:
            list(state.batches(range(4), batch_size=2))
        assert state.step_count == (loop_hints.MANY_COMMITS if first else 0)
        for _ in state.batches(range(60), batch_size=2):  # an evaluation before each commit
            list(state.batches(range(4), batch_size=2, name="val"))
            state.commit()
    assert [record.message for record in caplog.records] == [loop_hints.DEFERRED] * (not first)


def test_a_commit_at_the_end_of_an_epoch_is_told_as_one_of_it() -> None:
    told: list[Mapping[str, Any]] = []
    state = State()
    events.subscribe(told.append)
    try:
        for state.epoch in state.remaining_epochs(2):
            for _ in state.batches(range(8), batch_size=4):
                state.commit()
            state.commit(accuracy=0.5)
    finally:
        events.unsubscribe(told.append)
    steps = [(event["epoch"], event["samples"], event.get("accuracy")) for event in told if event["event"] == "step"]
    assert steps == [(epoch, *rest) for epoch in range(2) for rest in ((4, None), (8, None), (8, 0.5))]


def test_hosts_are_not_left_where_no_commit_may_be_made() -> None:
    state = State()
    state.sync()
    epochs = state.remaining_epochs(1)
    state.epoch = next(epochs)
    list(state.batches(range(8), batch_size=4))
    state.on_hosts_updated(1, None)
    state.check_host_updates()
    for _ in state.batches(range(8), batch_size=4):
        with pytest.raises(HostsUpdatedInterrupt):
            state.check_host_updates()
        break
    assert state.step_count == 1
