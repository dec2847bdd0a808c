"""A real State in a world of one worker. Tests with several workers are in tests/local/test_training.py."""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import horovod.torch as hvd
import pytest
import torch
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from torch import nn
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from hvd_elastic.mpijob.contract import (
    CHECKPOINT_REQUEST_FILE,
    ENV_CHECKPOINT,
    ENV_CHECKPOINT_STEPS,
    ENV_RUN_DIR,
    LEAVE_FILE,
    NO_SUCCESSOR_FILE,
    Exit,
)
from hvd_elastic.trainer.data.loaders import loader_processes
from hvd_elastic.trainer.elastic import horovod_patches
from hvd_elastic.trainer.elastic.run import run
from hvd_elastic.trainer.elastic.world import rendezvous_client
from hvd_elastic.trainer.state.elastic_state import State
from hvd_elastic.trainer.state.memory import copies
from hvd_elastic.trainer.state.memory.copies import Pair
from hvd_elastic.trainer.state.memory.host_memory import VERIFIED_COMMITS
from hvd_elastic.trainer.state.state_objects import StateError
from hvd_elastic.trainer.telemetry import events


@pytest.fixture(autouse=True)
def _world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    horovod_patches.init()
    monkeypatch.setenv(ENV_RUN_DIR, str(tmp_path / "run"))
    (tmp_path / "run").mkdir()


class Job:
    """A model, its optimizer and the other objects of a typical script."""

    def __init__(self, seed: int = 0, **options: Any) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
        self.optimizer = hvd.DistributedOptimizer(
            torch.optim.AdamW(self.model.parameters(), lr=0.01, weight_decay=0.1),
            named_parameters=self.model.named_parameters(),
        )
        self.ema = torch.optim.swa_utils.AveragedModel(self.model)
        self.state = State(
            model=self.model,
            optimizer=self.optimizer,
            scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=50),
            scaler=torch.amp.GradScaler("cpu", init_scale=4.0),
            ema=self.ema,
            history=[],
            best=torch.tensor(9.0),
            **options,
        )

    def step(self, batch: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        loss = self.model(batch).square().mean()
        loss.backward()
        self.optimizer.step()
        self.ema.update_parameters(self.model)
        self.state.scheduler.step()
        self.state.history.append(round(loss.item(), 6))

    def digest(self) -> dict[str, Any]:
        tree = self.state._present.tree()
        return {str(path): value for path, value in flat(tree["objects"])} | {"history": list(self.state.history)}


def flat(node: Any, path: tuple[object, ...] = ()) -> Iterator[tuple[tuple[object, ...], Any]]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield from flat(value, (*path, key))
    elif isinstance(node, torch.Tensor):
        yield path, node.tolist()
    else:
        yield path, node


def data(steps: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(6, 4, generator=generator) for _ in range(steps)]


@pytest.mark.parametrize("overlap", [True, False])
def test_restore_undoes_everything_since_the_commit(overlap: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore twice from the same commit: training that continues from it must not change it."""
    monkeypatch.setattr("hvd_elastic.trainer.state.memory.copies.SYNCHRONOUS_BYTES", 0)
    job, batches = Job(overlap=overlap), data(6)
    job.state.sync()
    for batch in batches[:3]:
        job.step(batch)
        job.state.commit()
    committed = job.digest()
    ends = []
    for _ in range(2):
        for batch in batches[3:]:
            job.step(batch)
        ends.append(job.digest())
        assert job.digest() != committed
        job.state.restore()
        assert job.digest() == committed
    assert ends[0] == ends[1]


@pytest.mark.usefixtures("slow_copies")
def test_a_change_through_data_after_the_commit_is_not_part_of_it() -> None:
    """As an EMA copy that is swapped in for an evaluation. It leaves no trace in a version counter."""
    model = nn.Linear(3, 3)
    state = State(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=1.0))
    state.sync()
    for _ in range(VERIFIED_COMMITS):
        state.commit()
        model.weight.grad = torch.ones(3, 3)
        state.optimizer.step()
    committed = model.weight.tolist()
    state.commit()
    model.weight.data.fill_(-7.0)
    state.restore()
    assert model.weight.tolist() == committed


@pytest.fixture
def slow_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give whatever a script does after a commit the time to be done before the copy in the background."""
    copy = copies._copy_small

    def slow(pairs: Sequence[Pair]) -> None:
        time.sleep(0.05 if pairs else 0)
        copy(pairs)

    monkeypatch.setattr(copies, "SYNCHRONOUS_BYTES", 0)
    monkeypatch.setattr(copies, "_copy_small", slow)


class SignalError(Exception):
    """Stands for what the handler of a signal raises, which may come between any two lines."""


@pytest.mark.parametrize("overlap", [False, True])
def test_an_error_anywhere_in_a_commit_leaves_a_whole_commit(overlap: bool) -> None:
    """All of the new one or all of the one before, at every line."""
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    state: Any = State(model=model, optimizer=optimizer, overlap=overlap, n=0, ema=[torch.zeros(2), torch.zeros(3)])
    state.sync()
    line, outcomes = 0, list[str]()
    while not outcomes or outcomes[-1] != "undisturbed":
        line += 1
        before = state.n
        state.n += 1
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, -1)
        optimizer.step()
        for average in state.ema:
            average.fill_(state.n)
        outcomes.append(_commit_interrupted_at(line, state))
        state.restore()
        found = {int(value) for tensor in (*state.ema, *model.parameters()) for value in tensor.flatten()}
        assert found == {state.n}
        assert state.n in (before, before + 1)
        assert state.step_count == state.n
        outcomes[-1] = "undisturbed" if outcomes[-1] == "undisturbed" else "new" if state.n > before else "old"
    assert {"old", "new"} <= set(outcomes)


def _commit_interrupted_at(line: int, state: State) -> str:
    """Raise at a line of this package, counted from the beginning of the commit."""
    left = line

    def count(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if "hvd_elastic" not in frame.f_code.co_filename and "trainer" not in frame.f_code.co_filename:
            return None
        if event == "line":
            left -= 1
            if not left:
                raise SignalError
        return count

    tracing = sys.gettrace()
    sys.settrace(count)
    try:
        state.commit()
    except SignalError:
        return "interrupted"
    finally:
        sys.settrace(tracing)
    return "undisturbed"


def test_a_compiled_model_goes_back_with_the_one_it_was_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hvd_elastic.trainer.state.memory.copies.SYNCHRONOUS_BYTES", 0)
    model = nn.Linear(4, 1)
    compiled: Any = torch.compile(model, backend="eager")
    optimizer = torch.optim.SGD(compiled.parameters(), lr=0.1)
    state = State(model=compiled, optimizer=optimizer)
    state.sync()
    state.commit()
    committed = model.weight.detach().clone()
    compiled(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    assert not torch.equal(model.weight, committed)
    state.restore()
    assert torch.equal(model.weight, committed)


def test_names_that_would_hide_the_states_own_are_refused() -> None:
    with pytest.raises(StateError, match="commit, samples: taken by State itself"):
        State(samples=[], commit=1)


class Numbers(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(23))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("stream", [False, True])
def test_an_epoch_goes_on_where_the_commit_was(stream: bool, workers: int) -> None:
    dataset: Any = Numbers() if stream else range(23)
    state = State()
    state.sync()
    taken = []
    for index, batch in enumerate(state.batches(dataset, batch_size=4, num_workers=workers)):
        if index == 3:
            assert state.samples.uncommitted == 4
            break
        taken += batch.tolist()
        state.commit()
    state.restore()
    assert (state.samples.seen, state.samples.uncommitted, state.samples.repeated) == (12, 0, 4)
    for batch in state.batches(dataset, batch_size=4, num_workers=workers):
        taken += batch.tolist()
        state.commit()
    assert sorted(taken) == list(range(23))
    assert state.samples.seen == state.samples.due == 23


class Deadly(Dataset[int]):
    """Acts like a full /dev/shm: the loader process gets SIGBUS when it writes its batch there."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> int:
        if get_worker_info() is not None and index == 17:
            os.kill(os.getpid(), signal.SIGBUS)
        return index


def test_a_killed_loader_process_costs_no_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor a step: the training process goes on with the batches that it was not given."""
    monkeypatch.setattr(loader_processes.THIS_PROCESS, "deaths", [])
    state = State(taken=[])

    @run
    def train(state: State) -> None:
        for state.epoch in state.remaining_epochs(2):
            for batch in state.batches(Deadly(), batch_size=4, num_workers=2):
                state.taken = state.taken + batch.tolist()
                state.commit()

    train(state)
    assert sorted(state.taken) == sorted([*range(40)] * 2)
    assert len(loader_processes.THIS_PROCESS.deaths) == 1
    assert state.samples.repeated == 0


def test_a_broken_connection_of_the_script_is_its_own_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader_processes, "_DEATH_REPORT_SECONDS", 0.01)
    state = State()

    @run
    def train(_: State) -> None:
        raise ConnectionResetError("of the script")

    with pytest.raises(ConnectionResetError, match="of the script"):
        train(state)


def test_epochs_that_are_left() -> None:
    """An interrupted epoch is repeated for the rest of its data; a complete and committed one is not."""
    state, begun = State(), []
    state.sync()
    for state.epoch in state.remaining_epochs(4):
        begun.append(state.epoch)
        for _ in state.batches(range(8), batch_size=4):
            state.commit()
        if state.epoch == 1:
            break
        state.commit()
    state.restore()
    rest = []
    for state.epoch in state.remaining_epochs(4):
        rest.append((state.epoch, len(list(state.batches(range(8), batch_size=4)))))
        state.commit()
    assert begun == [0, 1]
    assert rest == [(1, 0), (2, 2), (3, 2)]
    assert list(state.remaining_epochs(4)) == []


def test_each_epoch_has_an_order_of_its_own() -> None:
    state = State()
    orders = [
        [sample for batch in state.batches(range(40), batch_size=8, seed=5) for sample in batch.tolist()]
        for state.epoch in state.remaining_epochs(2)
    ]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(40))
    assert orders[0] != orders[1]


def test_accumulation_gives_the_gradient_of_the_whole_step() -> None:
    whole, parts = Job(), Job()
    batch = torch.randn(10, 4, generator=torch.Generator().manual_seed(2))
    for job, micro in ((whole, None), (parts, 3)):
        job.model.eval()
        for rows in job.state.batches(batch, batch_size=10, micro_batch_size=micro, shuffle=False):
            (job.model(rows).square().mean() * job.state.weight).backward()
            if not job.state.accumulating:
                job.optimizer.synchronize()
        assert job.state.weight == 1.0
    for one, other in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        torch.testing.assert_close(one.grad, other.grad)


def test_the_rate_is_scaled_only_in_the_step() -> None:
    """Exact to the bit: the rate that scheduler, checkpoint and script see is never multiplied."""
    model = nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state = State(model=model, optimizer=optimizer)
    state.scale_learning_rate("linear", base_size=1)
    seen = []
    for size in (2, 3, 1):
        state._present.progress.size, state._present.progress.factor_start = size, float(size)
        before = model.weight.item()
        model.weight.grad = torch.ones(1, 1)
        optimizer.step()
        seen.append(round((before - model.weight.item()) / 0.1, 4))
        assert optimizer.param_groups[0]["lr"] == 0.1
    assert seen == [2.0, 3.0, 1.0]
    assert state._present.progress.optimizer_steps == 3


class OutOfMemoryError(Exception):
    """Stands for an error that a script catches to go on."""


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("scheduled", ["never", "before", "after"])
def test_the_factor_is_taken_off_when_a_step_fails(scheduled: str, wrapped: bool) -> None:
    """Whoever makes its scheduler first: a scheduler replaces `optimizer.step`, too."""
    model = nn.Linear(1, 1, bias=False)
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.5)
    if wrapped:
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    make_scheduler = torch.optim.lr_scheduler.StepLR
    scheduler = make_scheduler(optimizer, 1, 0.1) if scheduled == "before" else None
    state = State(model=model, optimizer=optimizer)
    scheduler = make_scheduler(optimizer, 1, 0.1) if scheduled == "after" else scheduler
    state.scale_learning_rate("linear")
    state._present.progress.size, state._present.progress.factor_start = 2, 2.0

    def fail(*_: object) -> None:
        raise OutOfMemoryError

    moved = []
    for failing in (True, False, True, False):
        hook = optimizer.register_step_pre_hook(fail) if failing else None
        model.weight.grad, before = torch.ones(1, 1), model.weight.item()
        with contextlib.suppress(OutOfMemoryError):
            optimizer.step()
        if hook is not None:
            hook.remove()
        assert optimizer.param_groups[0]["lr"] == 0.5
        moved.append(round(before - model.weight.item(), 4))
    assert moved == [0.0, 1.0, 0.0, 1.0]
    assert state._present.progress.optimizer_steps == 2
    if scheduler is not None:
        scheduler.step()
        assert optimizer.param_groups[0]["lr"] == pytest.approx(0.05)


def test_a_step_within_a_step_has_the_factor_of_its_own_optimizer() -> None:
    """A closure may fail, and step another optimizer."""
    weights = [nn.Parameter(torch.zeros(1)) for _ in range(2)]
    outer, inner = (torch.optim.SGD([weight], lr=0.5) for weight in weights)
    state = State(outer=outer, inner=inner)
    state.scale_learning_rate("linear")
    state._present.progress.size, state._present.progress.factor_start = 2, 2.0

    def closure() -> float:
        for weight in weights:
            weight.grad = torch.ones(1)
        inner.step()
        with pytest.raises(ZeroDivisionError):
            inner.step(lambda: 1 // 0)
        return 0.0

    outer.step(closure)
    assert [weight.item() for weight in weights] == [-1.0, -1.0]
    assert [each.param_groups[0]["lr"] for each in (outer, inner)] == [0.5, 0.5]
    assert state._present.progress.optimizer_steps == 2


def test_warm_up_after_a_growth() -> None:
    state = State()
    state.scale_learning_rate("linear", warmup_steps=4)
    progress = state._present.progress
    progress.size, progress.factor_start, progress.resized_at, progress.optimizer_steps = 3, 1.0, 10, 12
    assert state.learning_rate_factor == 2.0


@pytest.mark.parametrize("options", [{}, {"groups": 2}, {"backward_passes_per_step": 2}], ids=str)
@pytest.mark.parametrize("lost", ["after the first gradient", "after all gradients"])
def test_the_gradient_of_an_undone_step_is_not_applied(
    lost: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `zero_grad()` after `step()`, as micro-batches need it. To the bit as without the failure."""
    monkeypatch.setenv("HOROVOD_ELASTIC", "1")  # Horovod's optimizer takes part in the backward pass
    batches, passes = data(5), options.get("backward_passes_per_step", 1)

    def weights(failing: int | None) -> list[list[float]]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        plain = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        optimizer = hvd.DistributedOptimizer(plain, named_parameters=model.named_parameters(), **options)
        failures = [] if failing is None else [failing]

        def fail(batch: torch.Tensor) -> None:
            if lost == "after the first gradient":
                model[1].register_full_backward_hook(lose)
            model(batch).square().mean().backward()
            lose()

        def lose(*_: object) -> None:
            model[1]._backward_hooks.clear()
            raise HorovodInternalError("a peer was lost")

        @run
        def train(state: State) -> None:
            while state.done < len(batches):
                if state.done in failures:
                    fail(batches[failures.pop()])
                for _ in range(passes):
                    model(batches[state.done]).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
                state.done += 1
                state.commit()

        train(State(model=model, optimizer=optimizer, done=0))
        assert not failures
        return [weight.tolist() for weight in model.parameters()]

    assert weights(failing=3) == weights(failing=None)


def test_a_step_that_was_accumulating_begins_again_in_the_next_world() -> None:
    """All its micro-batches are taken again, by whatever workers there are."""
    job, batches = Job(), torch.cat(data(4))
    job.state.sync()
    rows = job.state.batches(batches, global_batch_size=12, micro_batch_size=6)
    job.model(next(rows)).square().mean().backward()
    assert job.state.accumulating
    job.state.on_hosts_updated(1, None)
    with pytest.raises(HostsUpdatedInterrupt):
        job.state.check_host_updates()
    job.state.sync()
    assert [weight.grad for weight in job.model.parameters()] == [None] * 6


def test_gradients_that_a_commit_would_lose_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_ELASTIC", "1")
    job = Job()
    job.state.sync()
    job.model(data(1)[0]).square().mean().backward()
    for stop in (job.state.commit, job.state.check_host_updates):
        with pytest.raises(StateError, match=r"between loss.backward\(\) and optimizer.step\(\)"):
            stop()
    job.optimizer.step()
    job.state.commit()


def test_a_scaler_unscales_the_next_gradients_too() -> None:
    """A failure between `unscale_()` and `update()`: it would take the next gradients for unscaled."""
    model = nn.Linear(1, 1, bias=False)
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=1.0), torch.amp.GradScaler("cpu", init_scale=4.0)
    state = State(model=model, optimizer=optimizer, scaler=scaler)
    state.sync()
    state.commit()
    before = model.weight.item()
    for failing in (True, False):
        scaler.scale(model(torch.ones(1, 1)).sum()).backward()
        scaler.unscale_(optimizer)
        if failing:
            state.restore()
            continue
        scaler.step(optimizer)
        scaler.update()
    assert before - model.weight.item() == pytest.approx(1.0)


def test_added_or_removed_hosts_end_the_world_at_the_commit() -> None:
    state = State(count=0)
    state.sync()
    state.count = 5
    state.on_hosts_updated(1, None)
    state.on_hosts_updated(1, None)
    with pytest.raises(HostsUpdatedInterrupt) as interrupt:
        state.check_host_updates()
    assert not interrupt.value.skip_sync
    state.count = 6
    state.restore()
    assert state.count == 5, "the state at the end of the world is committed"
    state.commit()


@pytest.mark.parametrize("how", ["interval", "request"])
def test_a_job_goes_on_from_its_durable_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """In the middle of an epoch, in a process that holds no state."""
    monkeypatch.setenv(ENV_CHECKPOINT, f"file://{tmp_path}/durable")
    if how == "interval":
        monkeypatch.setenv(ENV_CHECKPOINT_STEPS, "2")
    first, rows = Job(), torch.cat(data(4))
    first.state.sync()
    taken = []
    for index, batch in enumerate(first.state.batches(rows, batch_size=6, seed=3)):
        if index == 1 and how == "request":
            (tmp_path / "run" / CHECKPOINT_REQUEST_FILE).write_text("sigterm")
        taken.append(batch)
        first.step(batch)
        first.state.commit()
        if index == 1:
            break
    assert first.state._commits.durable.flush()
    assert not (tmp_path / "run" / CHECKPOINT_REQUEST_FILE).exists()
    committed = first.digest()
    first.state._commits.durable.close()

    second = Job(seed=7)
    assert second.digest() != committed
    second.state.sync()
    assert second.digest() == committed
    assert second.state.samples.seen == 12
    assert second.state._commits.history.losses == (how == "interval"), "on request, the last commit was durable"
    assert second.state._commits.history.trained_seconds == first.state._commits.history.trained_seconds > 0
    for batch in second.state.batches(rows, batch_size=6, seed=3):
        taken.append(batch)
        second.step(batch)
        second.state.commit()
    assert sorted(map(tuple, torch.cat(taken).tolist())) == sorted(map(tuple, rows.tolist()))
    second.state._commits.durable.close()


@pytest.mark.parametrize("epochs", [True, False])
def test_a_job_shorter_than_the_interval_leaves_its_final_state(tmp_path: Path, epochs: bool) -> None:
    """Whether the script goes by epochs or by a loop of its own. Started again, it has nothing left to train."""
    counts = []

    @run
    def train(state: State) -> None:
        if epochs:
            for state.epoch in state.remaining_epochs(3):
                for _ in state.batches(range(8), batch_size=4):
                    state.count += 1
                    state.commit()
        while not epochs and state.count < 6:
            state.count += 1
            state.commit()

    for _ in range(2):
        state = State(checkpoint=f"file://{tmp_path}/durable", count=0)
        train(state)
        assert state._commits.is_durable
        counts.append((state.count, state.step_count))
        state._commits.durable.close()
    assert counts == [(6, 6)] * 2


def test_no_worker_leaves_before_the_final_state_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the one that stores it is lost meanwhile, the others still hold it."""
    state = State(checkpoint=f"file://{tmp_path}/durable", count=0)
    state.sync()
    state.commit()
    durable = []

    def allreduce(value: torch.Tensor, **_: Any) -> torch.Tensor:
        durable.append(state._commits.is_durable)
        return value

    monkeypatch.setattr(hvd, "size", lambda: 2)
    monkeypatch.setattr(hvd, "allreduce", allreduce)
    state.end_training()
    assert durable == [True]
    state._commits.durable.close()


def test_the_last_worker_makes_its_very_last_commit_durable(tmp_path: Path) -> None:
    """A checkpoint is requested when its pod begins to end; it trains until the launcher removes its host."""
    state = State(checkpoint=f"file://{tmp_path}/durable", seen=0)
    state.sync()
    assert not state.dispensable()
    (tmp_path / "run" / LEAVE_FILE).touch()
    (tmp_path / "run" / CHECKPOINT_REQUEST_FILE).write_text("this pod is about to end")
    state.commit()
    assert state._commits.durable.durable_step == 1
    state.commit()
    assert state._commits.durable.durable_step == 1
    state.on_hosts_updated(1, None)
    with pytest.raises(HostsUpdatedInterrupt):
        state.commit()
    assert state._commits.durable.durable_step == 3
    assert state.dispensable()
    state._commits.durable.close()


def test_a_worker_that_waits_when_its_pod_begins_to_end_makes_its_commit_durable_then(tmp_path: Path) -> None:
    state = State(checkpoint=f"file://{tmp_path}/durable", seen=0)
    state.sync()
    state.on_hosts_updated(1, None)
    with pytest.raises(HostsUpdatedInterrupt):
        state.commit()
    assert not state.dispensable()
    (tmp_path / "run" / LEAVE_FILE).touch()
    assert state.dispensable()
    assert state._commits.durable.durable_step == 1
    state._commits.durable.close()


def test_a_value_that_became_unstorable_does_not_end_the_job_at_its_next_resize(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused at the start. Later the workers hold a state, which needs no store."""
    state = State(checkpoint=f"file://{tmp_path}/durable", values={})
    state.sync()
    state.values["lock"] = threading.Event
    state.commit()
    monkeypatch.setattr(hvd, "allgather", lambda own, **_: torch.cat([own, torch.zeros(1, dtype=own.dtype)]))
    state.sync()
    state.commit()
    state._commits.durable.close()


def test_how_a_save_ended_is_an_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both a success and, after a value became unstorable, a failure."""
    monkeypatch.setenv(ENV_CHECKPOINT_STEPS, "1")
    state = State(checkpoint=f"file://{tmp_path}/durable", value="plain")
    state.sync()
    seen: list[Any] = []
    events.subscribe(seen.append)
    try:
        for state.value in ("plain", threading.Event):
            state.commit()
            assert state._commits.durable.wait_idle(10)
            state.end_training()
    finally:
        events.unsubscribe(seen.append)
    durable, *failed = (event for event in seen if event["event"] == "checkpoint")
    assert (durable["saved"], durable["error"]) == (1, "")
    assert durable["bytes"] > 0
    assert {event["saved"] for event in failed} == {2}
    assert all("values.value" in event["error"] for event in failed)
    state._commits.durable.close()


def test_the_names_of_an_event_are_its_own_whatever_a_script_logs() -> None:
    state = State()
    state.sync()
    seen: list[Any] = []
    events.subscribe(seen.append)
    state.log(step="mine", rank="mine", samples="mine", progress=1, kind=2)
    state.commit(epoch="mine", seconds="mine", loss=3)
    (event,) = seen
    assert "mine" not in event.values()
    assert (event["step"], event["progress"], event["kind"], event["loss"]) == (1, 1, 2, 3)


def test_a_worker_without_a_durable_commit_does_not_leave(tmp_path: Path) -> None:
    state = State(seen=0)
    state.sync()
    (tmp_path / "run" / LEAVE_FILE).touch()
    assert not state.dispensable()


def test_but_it_does_where_no_other_worker_can_take_the_state_over(tmp_path: Path) -> None:
    state = State(seen=0)
    state.sync()
    (tmp_path / "run" / NO_SUCCESSOR_FILE).touch()
    assert not state.dispensable(), "the pod stays"
    (tmp_path / "run" / LEAVE_FILE).touch()
    assert state.dispensable()


def test_with_a_checkpoint_the_last_commit_is_stored_first(tmp_path: Path) -> None:
    state = State(checkpoint=f"file://{tmp_path}/durable", seen=0)
    state.sync()
    state.commit()
    for name in (LEAVE_FILE, NO_SUCCESSOR_FILE):
        (tmp_path / "run" / name).touch()
    assert state.dispensable()
    assert state._commits.durable.durable_step == 1
    state._commits.durable.close()


def test_and_kept_in_memory_where_this_process_does_not_know_that_it_is_stored(tmp_path: Path) -> None:
    """A store that is away, or another rank's affair: the rest of the grace may still bring it there."""
    state = State(checkpoint=f"file://{tmp_path}/durable", seen=0)
    state.sync()
    state.commit()
    state._commits.durable.close()  # as on every rank but 0
    for name in (LEAVE_FILE, NO_SUCCESSOR_FILE):
        (tmp_path / "run" / name).touch()
    assert not state.dispensable()


@pytest.mark.parametrize("is_named", [True, False])
def test_a_writer_that_gave_the_store_up_for_a_world_that_never_came_takes_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_named: bool
) -> None:
    """Of two workers the writer was killed, and this one had not opened the store when the next one was to join."""
    monkeypatch.setattr(rendezvous_client, "is_next_writer", lambda: is_named)
    state = State(checkpoint=f"file://{tmp_path}/durable", seen=0)
    state.sync()
    state.commit()
    state._commits.durable.close()
    state.on_hosts_updated(1, None)
    with pytest.raises(HostsUpdatedInterrupt):
        state.commit()
    assert not state.dispensable()
    assert not state._commits.durable.is_writer, "its pod stays: another may become the writer"
    (tmp_path / "run" / LEAVE_FILE).touch()
    assert state.dispensable() is is_named
    assert state._commits.durable.durable_step == (2 if is_named else None)
    state._commits.durable.close()


def test_a_mistake_in_the_script_ends_it_at_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    job = Job()

    @run
    def train(state: State) -> None:
        raise AssertionError("must not start")

    with pytest.raises(SystemExit) as ended:
        train(State(model=job.model))
    assert ended.value.code == int(Exit.SCRIPT_MISTAKE)
    assert "is not part of the state" in capsys.readouterr().err


def test_an_optimizer_wrapped_in_the_training_function_is_found_at_the_first_commit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = nn.Linear(1, 1)

    @run
    def train(state: State) -> None:
        state.optimizer = hvd.DistributedOptimizer(state.optimizer, named_parameters=model.named_parameters())
        state.commit()

    with pytest.raises(SystemExit) as ended:
        train(State(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1)))
    assert ended.value.code == int(Exit.SCRIPT_MISTAKE)
    assert "the training function wraps state.optimizer" in capsys.readouterr().err


def test_a_torn_commit_ends_the_script_with_the_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hvd_elastic.trainer.state.memory.copies.SYNCHRONOUS_BYTES", 0)
    job = Job(overlap=True)

    @run
    def train(state: State) -> None:
        job.step(data(1)[0])
        state.commit()
        with torch.no_grad():
            next(job.model.parameters()).clamp_(-1, 1)
        job.step(data(1)[0])

    with pytest.raises(SystemExit) as ended:
        train(job.state)
    assert ended.value.code == int(Exit.SCRIPT_MISTAKE)
    assert "objects.model.0.weight was changed between commit() and the optimizer's step" in capsys.readouterr().err
