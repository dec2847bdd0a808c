"""Waiting for Horovod's operations without taking a core from those who are waited for.

Every wait of Horovod for PyTorch is one function of its C++ extension (`collective_calls`), which asks again and again
whether the operation is done, gives up its turn on the CPU, and takes and drops Python's lock meanwhile (horovod
0.28.1, `horovod/torch/mpi_ops_v2.cc`, `WaitAndClear`). So a rank that waits for another keeps a core and that lock
busy: while rank 0 restores a checkpoint, all others of its machine take the CPU that it needs, and the threads of the
rank itself, which store checkpoints and load data, the lock. Here it sleeps between two looks, once the wait is no
longer short.
"""

import functools
import os
import time
from collections.abc import Callable
from typing import Final

SHORT_SECONDS: Final = 0.002
"""A wait of such a length is as Horovod has it: an operation over a fast network takes less."""
_ADDED: Final = 0.02
"""What sleeping may add to a wait, as a share of it."""
_MOST_SECONDS: Final = 0.001
"""Between two looks. Horovod's own thread looks for operations as often (`HOROVOD_CYCLE_TIME`)."""


def install() -> None:
    """Replace Horovod's wait. A second call does nothing."""
    from horovod.torch import mpi_ops

    library = mpi_ops.mpi_lib
    if not getattr(library.horovod_torch_wait_and_clear, "eased", False):
        library.horovod_torch_wait_and_clear = eased(library.horovod_torch_wait_and_clear, library.horovod_torch_poll)


def eased(
    wait: Callable[[int], None],
    is_done: Callable[[int], int],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Callable[[int], None]:
    """`wait`, which blocks until the operation with a handle is done, but is called only when it is."""

    @functools.wraps(wait)
    def waits(handle: int) -> None:
        began = clock()
        while not is_done(handle):
            waited = clock() - began
            if waited < SHORT_SECONDS:
                os.sched_yield()
            else:
                sleep(min(waited * _ADDED, _MOST_SECONDS))
        wait(handle)

    waits.eased = True  # type: ignore[attr-defined]
    return waits
