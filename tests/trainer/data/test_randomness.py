"""Random numbers of a resumed run are those of the undisturbed one."""

import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from horovod.common.exceptions import HorovodInternalError
from torch import nn
from torch.utils.data import Dataset, IterableDataset

from hvd_elastic.mpijob.contract import ENV_RUN_DIR
from hvd_elastic.stores.retry import TransientError, call_with_retries
from hvd_elastic.trainer.data.batch_policy import BatchPolicy
from hvd_elastic.trainer.data.loaders.loader import load
from hvd_elastic.trainer.data.randomness import PassSeeds, Randomness, SeededIndices
from hvd_elastic.trainer.data.sampler import EpochPlan, SampleOrder
from hvd_elastic.trainer.elastic import horovod_patches
from hvd_elastic.trainer.elastic.run import run
from hvd_elastic.trainer.state.elastic_state import State

LENGTH = 23


def drawn() -> tuple[float, float, float]:
    """Draw from every global generator."""
    return torch.rand(1).item(), float(np.random.rand()), random.random()


class Augmented(Dataset[tuple[int, torch.Tensor]]):
    """Adds noise to its samples: more or less often, so that a generator's history would show."""

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        noise = [drawn() for _ in range(1 + index % 3)]
        return index, torch.tensor(noise[-1], dtype=torch.float64)


class Stream(IterableDataset[tuple[int, torch.Tensor]]):
    """The same as a stream, with samples that come from a buffer in random order."""

    def __iter__(self) -> Iterator[tuple[int, torch.Tensor]]:
        data, buffer = Augmented(), list[int]()
        for index in range(LENGTH):
            buffer.append(index)
            if len(buffer) == 5:
                yield data[buffer.pop(random.randrange(5))]
        for index in buffer:
            yield data[index]


def epoch(data: Any, *, size: int = 1, position: int = 0, workers: int = 0) -> dict[int, list[float]]:
    """Return the augmented samples from `position` on, over all workers of a world."""
    found: dict[int, list[float]] = {}
    order = None if isinstance(data, Stream) else SampleOrder(LENGTH, seed=1)
    for rank in range(size):
        drawn()
        plan = EpochPlan(
            length=LENGTH, position=position, policy=BatchPolicy(global_size=6), rank=rank, size=size, drop_last=False
        )
        for (indices, noise), _ in load(plan, data, order, None, PassSeeds(key=7), num_workers=workers):
            found.update(zip(indices.tolist(), noise.tolist(), strict=True))
    return found


@pytest.mark.parametrize("data", [Augmented(), Stream()], ids=["map-style", "stream"])
@pytest.mark.parametrize(("size", "position", "workers"), [(1, 0, 0), (2, 0, 0), (4, 12, 0), (1, 6, 2), (2, 12, 1)])
def test_an_augmentation_depends_on_the_sample_alone(data: Any, size: int, position: int, workers: int) -> None:
    """Not on the number of workers or loader processes, nor on where training has continued."""
    expected, found = epoch(data), epoch(data, size=size, position=position, workers=workers)
    assert len(expected) == LENGTH
    assert len(found) == LENGTH - position
    assert found == {index: expected[index] for index in found}


def test_every_sample_epoch_pass_and_job_has_seeds_of_its_own() -> None:
    numbers = set()
    for job in range(2):
        torch.manual_seed(job)
        randomness = Randomness()
        for name in ("train", "val"):
            for number in range(2):
                seeds = randomness.of_pass(name, number)
                assert seeds is not None
                for index in range(50):
                    seeds.seed_sample(index)
                    numbers.add(drawn())
    assert len(numbers) == 400
    assert all(len({number[each] for number in numbers}) == 400 for each in range(3))


def test_indices_are_a_list_that_travels_to_loader_processes() -> None:
    indices = SeededIndices([3, 1], PassSeeds(key=1))
    travelled = pickle.loads(pickle.dumps(indices))
    assert (travelled, travelled.seeds) == (indices, indices.seeds)
    noise = []
    for each in (indices, travelled):
        drawn()
        noise.append([(index, drawn()) for index in each])
    assert noise[0] == noise[1]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    horovod_patches.init()
    monkeypatch.setenv(ENV_RUN_DIR, str(tmp_path / "run"))
    (tmp_path / "run").mkdir()


def train_with_dropout(workers: int, failing: tuple[int, ...], **options: Any) -> list[float]:
    """Train two epochs with dropout, noise in the data and noise between the epochs. Returns the weights."""
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)
    model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(), nn.Linear(8, 1)).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    failures = list(failing)

    @run
    def train(state: Any) -> None:
        for state.epoch in state.remaining_epochs(2):
            for _, noise in state.batches(Augmented(), batch_size=4, num_workers=workers):
                loss = model(noise).square().mean()
                optimizer.zero_grad()
                loss.backward()
                if state.step_count in failures:
                    failures.remove(state.step_count)
                    raise HorovodInternalError("a peer was lost")
                optimizer.step()
                state.commit()
            state.noise += [sum(drawn())]
            state.commit()

    state: Any = State(model=model, optimizer=optimizer, noise=[], **options)
    train(state)
    assert not failures
    return [*(each for weight in model.parameters() for each in weight.flatten().tolist()), *state.noise]


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("workers", [0, 2])
def test_dropout_after_a_failure_is_that_of_the_undisturbed_run(workers: int) -> None:
    """To the bit, and so are the numbers that are drawn between the epochs."""
    undisturbed = train_with_dropout(0, failing=())
    assert train_with_dropout(workers, failing=(2, 5, 9)) == undisturbed


def test_a_request_that_is_tried_again_leaves_the_scripts_generators_alone() -> None:
    """Else a fault of the store, met by one run and not by the other, would change what training draws."""
    attempts = iter([TransientError("throttled"), TransientError("throttled"), None])

    def request() -> None:
        if error := next(attempts):
            raise error

    before = random.getstate()
    waits: list[float] = []
    call_with_retries(request, attempts=3, sleep=waits.append)
    assert len(waits) == 2
    assert random.getstate() == before


@pytest.mark.usefixtures("world")
def test_the_generators_are_left_alone_on_request() -> None:
    random.seed(5)
    expected = [random.random() for _ in range(3)]
    # A library's thread of an earlier test may draw once in between. What we did ourselves, we would do each time.
    assert expected in (drawn_without_seeding() for _ in range(3))
    assert random.random() not in expected


def drawn_without_seeding() -> list[float]:
    """Three numbers that a script draws in its steps."""
    state = State(seeding=False)
    state.sync()
    for _ in state.batches(Augmented(), batch_size=LENGTH, shuffle=False):
        pass
    random.seed(5)
    found = []
    for _ in state.batches(range(3), batch_size=1, name="other"):
        found.append(random.random())
        state.commit()
    state.restore()
    return found


@pytest.mark.usefixtures("world")
def test_a_commit_has_the_generators() -> None:
    state = State()
    state.sync()
    drawn()
    random.gauss(0, 1)
    state.commit()
    expected = random.gauss(0, 1), np.random.normal(), *drawn()
    for _ in range(2):
        state.restore()
        assert (random.gauss(0, 1), np.random.normal(), *drawn()) == expected


def test_a_newcomer_draws_other_numbers_of_the_same_job() -> None:
    torch.manual_seed(1)
    root, newcomers = Randomness(), [Randomness() for _ in range(2)]
    committed = root.state()
    expected = root.of_pass("train", 0)
    numbers = {drawn()}
    for rank, newcomer in enumerate(newcomers, 1):
        newcomer.join(committed, rank, is_fresh=False)
        numbers.add(drawn())
        assert newcomer.of_pass("train", 0) == expected
    assert len(numbers) == 3


def test_a_job_that_begins_keeps_the_generators_as_the_script_has_seeded_them() -> None:
    torch.manual_seed(1)
    committed = Randomness().state()
    expected = drawn()
    Randomness().load(committed)
    Randomness().join(committed, 1, is_fresh=True)
    assert drawn() == expected


@pytest.mark.usefixtures("world")
def test_a_checkpoint_has_the_generators(tmp_path: Path) -> None:
    found = []
    for begins in (True, False):
        torch.seed()
        state = State(checkpoint=f"file://{tmp_path}/durable")
        state.sync()
        if begins:
            state.commit()
            assert state._commits.save_to_store_sync("a test")
        found.append((state._present.randomness.of_pass("train", 0), drawn()))
        state._commits.durable.close()
    assert found[0] == found[1]
