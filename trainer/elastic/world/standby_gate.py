"""Where a solo standby waits: in a world of one, at the script's entry into `elastic.run`."""

import contextlib
import os
from collections.abc import Callable, Iterator

from hvd_elastic.mpijob.contract import ENV_RENDEZVOUS_ADDRESS
from hvd_elastic.trainer.collectives.replaced_functions import replace_local_numbers
from hvd_elastic.trainer.collectives.this_world import WORLD
from hvd_elastic.trainer.collectives.training_world import TrainingWorld


class StandbyGate:
    """The script behind it has set itself up as rank 0 of 1; the launcher's world is ahead of it."""

    def __init__(
        self, wait: Callable[[], None], *, local_rank: int, local_size: int, world: TrainingWorld = WORLD
    ) -> None:
        """Make a gate.

        Args:
            wait: returns when a launcher has adopted this process; the launcher's environment is then in place.
            local_rank: number of this process's slot. Until the gate is passed, `hvd.local_rank()` returns it, so that
                the script takes the GPU of its slot: alone, every standby would be local rank 0 and take the first.
            local_size: number of slots of the pod; `hvd.local_size()` returns it.
            world: that of this process.
        """
        self._wait = wait
        self._local_rank, self._local_size, self._world = local_rank, local_size, world
        self._put_local_numbers_back: Callable[[], None] | None = None

    def form_world_of_one(self, init: Callable[[], None]) -> None:
        """Call Horovod's `init`, with no peers."""
        with _alone():
            init()
        self._put_local_numbers_back = replace_local_numbers(local_rank=self._local_rank, local_size=self._local_size)

    def leave_world_of_one(self) -> None:
        """Wait for a launcher, and end the world of one."""
        self._wait()
        if self._put_local_numbers_back is not None:
            self._put_local_numbers_back()
        self._world.shutdown()


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """HOROVOD_ELASTIC is 1, so that optimizers register their hooks for the worlds to come."""
    address = os.environ.pop(ENV_RENDEZVOUS_ADDRESS, None)
    os.environ.update(HOROVOD_CONTROLLER="gloo", HOROVOD_CPU_OPERATIONS="gloo", HOROVOD_ELASTIC="1")
    try:
        yield
    finally:
        if address is not None:
            os.environ[ENV_RENDEZVOUS_ADDRESS] = address
