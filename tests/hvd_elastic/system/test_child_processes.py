"""Processes that are started by `child_processes`, as whoever starts them sees it."""

import os
import signal
import socket
import time
from collections.abc import Iterator

import pytest

from hvd_elastic.system import child_processes


@pytest.fixture
def told() -> Iterator[socket.socket]:
    """Where this process hears of its signals; SIGTERM does nothing else."""
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    reader.setblocking(False)
    handler = signal.signal(signal.SIGTERM, lambda *_: None)
    before = signal.set_wakeup_fd(writer.fileno())
    yield reader
    signal.set_wakeup_fd(before)
    signal.signal(signal.SIGTERM, handler)
    reader.close()
    writer.close()


def test_a_signal_to_a_child_that_has_just_been_forked_is_not_told_to_its_parent(
    told: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child has its parent's handlers at first. An entry point that heard of SIGTERM so would leave."""
    detach = child_processes._detach

    def late(parent: int) -> None:
        deadline = time.monotonic() + 0.5
        while time.monotonic() < deadline and not signal.sigpending():
            time.sleep(0.01)
        detach(parent)

    monkeypatch.setattr(child_processes, "_detach", late)
    pid = child_processes.spawn(["sleep", "100"], environment=os.environ)
    os.kill(pid, signal.SIGTERM)
    _, status = os.waitpid(pid, 0)
    assert os.WTERMSIG(status) == signal.SIGTERM
    with pytest.raises(BlockingIOError):
        told.recv(1)


def test_signals_that_are_blocked_stay_so() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    try:
        os.waitpid(child_processes.spawn(["true"], environment=os.environ), 0)
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before | {signal.SIGUSR1}
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
