"""Real loader processes of torch, killed while the training process does one thing or another."""

import os
import threading
from typing import Any

import psutil
import pytest
import torch
from torch.utils.data import DataLoader, Dataset
from torchdata.stateful_dataloader import StatefulDataLoader

from hvd_elastic.trainer.data import loader_processes

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


@pytest.fixture(params=[DataLoader, StatefulDataLoader])
def batches(request: pytest.FixtureRequest) -> Any:
    """Of a loader with a process, which has begun."""
    made = iter(request.param(Numbers(), batch_size=None, num_workers=1))
    assert next(made) == 0
    return made


def kill(batches: Any) -> psutil.Process:
    process = psutil.Process(batches._workers[0].pid)
    process.kill()
    return process


def wait_for_death(process: psutil.Process) -> None:
    """Until all its threads have ended, and SIGCHLD has come. Nobody has waited for it."""
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def test_a_death_does_not_interrupt_a_step(batches: Any) -> None:
    """An error as a mode ends would leave it on."""
    with torch.no_grad():
        wait_for_death(kill(batches))
    assert torch.is_grad_enabled()
    with pytest.raises(RuntimeError, match=r"DataLoader worker \(pid \d+\) is killed by signal") as told:
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


def test_a_loader_that_loses_its_processes_again_and_again_is_an_error() -> None:
    error = RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. ")
    found = [loader_processes.THIS_PROCESS.is_lost(error) for _ in range(4)]
    assert found == [True, True, True, False]
