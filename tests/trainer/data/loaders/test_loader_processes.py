"""Real loader processes of torch, killed while the training process does one thing or another."""

import contextlib
import multiprocessing
import os
import threading
from collections.abc import Iterator
from multiprocessing import connection
from typing import Any

import psutil
import pytest
import torch
from torch.utils.data import DataLoader, Dataset
from torchdata.stateful_dataloader import StatefulDataLoader

from hvd_elastic.mpijob.contract import Exit
from hvd_elastic.trainer.data.batch_policy import BatchPolicy
from hvd_elastic.trainer.data.loaders import loader_processes
from hvd_elastic.trainer.data.loaders.loader import load
from hvd_elastic.trainer.data.loaders.loader_processes import GuardError
from hvd_elastic.trainer.data.sampler import EpochPlan, SampleOrder
from tests.failing_threads import fails_once, goes_on

BATCHES = 40


class Numbers(Dataset[int]):
    """Item BATCHES - 1 never comes."""

    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> int:
        if index == BATCHES - 1:
            threading.Event().wait()
        return index


@pytest.fixture(autouse=True)
def no_deaths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader_processes.THIS_PROCESS, "deaths", [])
    loader_processes.THIS_PROCESS.install()


@pytest.fixture(scope="module", autouse=True)
def prepared_fork_server() -> None:
    """Its children need not import torch, each for itself."""
    multiprocessing.set_forkserver_preload(["torchdata.stateful_dataloader", __name__])


@pytest.fixture(
    params=[
        (DataLoader, "fork"),
        (StatefulDataLoader, "fork"),
        pytest.param((DataLoader, "forkserver"), marks=pytest.mark.process),
        pytest.param((StatefulDataLoader, "forkserver"), marks=pytest.mark.process),
        pytest.param((DataLoader, "spawn"), marks=pytest.mark.process),
    ],
    ids=lambda param: f"{param[0].__name__}-{param[1]}",
)
def batches(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Of a loader with a process, which has begun. Python's default was `fork`, and is `forkserver` from 3.14 on."""
    kind, method = request.param
    made = iter(kind(Numbers(), batch_size=None, num_workers=1, multiprocessing_context=method))
    assert next(made) == 0
    yield made
    made._shutdown_workers()  # torch would tell the next test of this one's death, until the iterator is collected


def kill(batches: Any) -> None:
    psutil.Process(batches._workers[0].pid).kill()


def wait_for_death(batches: Any) -> None:
    """Until all its threads have ended, and this process can know. Nobody has waited for it but a fork server."""
    (process,) = batches._workers
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert connection.wait([process.sentinel], timeout=30)  # a fork server tells of a death after it has waited for it


pytestmark = pytest.mark.distribution


def test_a_death_does_not_interrupt_a_step(batches: Any) -> None:
    """An error as a mode ends would leave it on."""
    with torch.no_grad():
        kill(batches)
        wait_for_death(batches)
    assert torch.is_grad_enabled()
    # Python says 255 where the fork server cannot say how it ended (multiprocessing/popen_forkserver.py, `Popen.poll`)
    how = r"is killed by signal|exited unexpectedly with exit code 255"
    with pytest.raises(RuntimeError, match=rf"DataLoader worker \(pid \d+\) ({how})") as told:
        next(batches)
    assert loader_processes.THIS_PROCESS.is_lost(told.value)


def test_a_death_interrupts_a_wait_for_a_batch(batches: Any) -> None:
    """At once. torch puts it into other words, as when it looks at its processes because nothing came for 5 s."""
    for _ in range(BATCHES - 2):
        next(batches)
    timer = threading.Timer(0.05, kill, [batches])
    timer.start()
    with pytest.raises(RuntimeError, match=r"DataLoader worker \(pid") as told:
        next(batches)
    timer.join()
    assert "is killed by signal" in str(told.value.__cause__)
    assert loader_processes.THIS_PROCESS.is_lost(told.value)


def test_a_death_is_told_to_the_thread_that_waits(batches: Any) -> None:
    """Not to the main thread, whatever that does."""
    told: list[RuntimeError] = []

    def read() -> None:
        try:
            for _ in batches:
                pass
        except RuntimeError as error:
            told.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    kill(batches)
    thread.join(timeout=20)
    assert loader_processes.THIS_PROCESS.is_lost(told[0])


def test_a_batch_of_a_killed_loader_process_is_not_an_error_of_the_script(batches: Any) -> None:
    """The batch's memory is fetched from that process, and the fetch may fail before the death is known."""
    timer = threading.Timer(0.1, kill, [batches])
    timer.start()
    assert loader_processes.THIS_PROCESS.is_lost(ConnectionResetError("by peer"))
    timer.join()


class Few(Dataset[int]):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> int:
        return index


class Unsendable(Few):
    def __init__(self) -> None:
        self.made: Any = lambda index: index

    def __getitem__(self, index: int) -> int:
        return int(self.made(index))


def test_a_script_that_chose_nothing_has_forked_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork server, the default of Python 3.14, would run it anew, and could not be sent this data set."""
    default = multiprocessing.context._default_context
    monkeypatch.setattr(default, "_default_context", multiprocessing.get_context("forkserver"))
    monkeypatch.setattr(default, "_actual_context", None)
    plan = EpochPlan(length=3, position=0, policy=BatchPolicy(global_size=3), rank=0, size=1, drop_last=False)
    ((batch, _),) = load(plan, Unsendable(), SampleOrder(3, seed=1), None, num_workers=1)
    assert sorted(batch.tolist()) == [0, 1, 2]


@pytest.mark.process
@pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
@pytest.mark.parametrize("persistent", [False, True])
def test_processes_that_end_as_they_should_are_no_deaths(kind: Any, persistent: bool) -> None:
    options = {"num_workers": 2, "multiprocessing_context": "forkserver", "persistent_workers": persistent}
    loader = kind(Few(), batch_size=None, **options)
    for _ in range(2):
        assert list(loader) == [0, 1, 2]
    over = iter(kind(Few(), batch_size=None, **options))
    assert list(over) == [0, 1, 2]
    with pytest.raises(StopIteration):
        next(over)
    assert loader_processes.THIS_PROCESS.deaths == []


def test_a_loader_that_loses_its_processes_again_and_again_is_an_error() -> None:
    error = RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. ")
    found = [loader_processes.THIS_PROCESS.is_lost(error) for _ in range(4)]
    assert found == [True, True, True, False]


class Unguarded(Dataset[int]):
    """Ends its process as `hvd.init()` does there."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> int:
        os._exit(Exit.SCRIPT_MISTAKE)


def test_a_process_that_has_run_the_script_anew_is_a_mistake_of_the_script() -> None:
    over = iter(DataLoader(Unguarded(), batch_size=None, num_workers=1, multiprocessing_context="fork"))
    with pytest.raises(RuntimeError) as told:
        next(over)
    with pytest.raises(GuardError, match="__main__"):
        loader_processes.THIS_PROCESS.is_lost(told.value)
    over._shutdown_workers()  # type: ignore[attr-defined]


def test_the_thread_that_tells_of_deaths_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One that has no child's process: as of a fork server, it would get no signal."""
    monkeypatch.setattr(loader_processes, "_is_child", lambda _: False)
    failing = fails_once(monkeypatch, loader_processes, "_signal_deaths")
    loader = iter(DataLoader(Numbers(), batch_size=None, num_workers=1, multiprocessing_context="fork"))
    assert next(loader) == 0
    goes_on("loaders", failing, caplog)
    loader._shutdown_workers()  # type: ignore[attr-defined]


def test_a_loader_process_that_was_closed_keeps_no_thread() -> None:
    process = multiprocessing.get_context("fork").Process(target=int)
    process.start()
    process.join()
    process.close()
    loader_processes._signal_deaths([process])
