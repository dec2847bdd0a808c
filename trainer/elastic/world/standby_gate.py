"""Where a solo standby waits: in a world of one, at the script's entry into `elastic.run`."""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Final

_ADDRESS: Final = "HOROVOD_GLOO_RENDEZVOUS_ADDR"


class StandbyGate:
    """The script behind it has set itself up as rank 0 of 1; the launcher's world is ahead of it."""

    def __init__(self, wait: Callable[[], None], *, local_rank: int, local_size: int) -> None:
        """Make a gate.

        Args:
            wait: returns when a launcher has adopted this process; the launcher's environment is then in place.
            local_rank: number of this process's slot. Until the gate is passed, `hvd.local_rank()` returns it, so that
                the script takes the GPU of its slot: alone, every standby would be local rank 0 and take the first.
            local_size: number of slots of the pod; `hvd.local_size()` returns it.
        """
        self._wait = wait
        self._answers = {"local_rank": local_rank, "local_size": local_size}
        self._horovods_own: dict[str, Callable[[], int]] = {}

    def form_world_of_one(self, init: Callable[[], None]) -> None:
        """Call Horovod's `init`, with no peers."""
        import horovod.torch as hvd

        with _alone():
            init()
        for name, value in self._answers.items():
            self._horovods_own[name] = getattr(hvd, name)
            setattr(hvd, name, lambda value=value: value)

    def leave_world_of_one(self) -> None:
        """Wait for a launcher, and end the world of one."""
        import horovod.torch as hvd

        self._wait()
        for name, function in self._horovods_own.items():
            setattr(hvd, name, function)
        hvd.shutdown()


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """HOROVOD_ELASTIC is 1, so that optimizers register their hooks for the worlds to come."""
    address = os.environ.pop(_ADDRESS, None)
    os.environ.update(HOROVOD_CONTROLLER="gloo", HOROVOD_CPU_OPERATIONS="gloo", HOROVOD_ELASTIC="1")
    try:
        yield
    finally:
        if address is not None:
            os.environ[_ADDRESS] = address
