"""The processes of a bare world. The one of the last rank dies; the others say what Horovod tells them."""

import faulthandler
import itertools
import os
import signal
import sys
from collections.abc import Callable

import horovod.torch as hvd
import torch
from horovod.common.exceptions import HorovodInternalError

TENSORS = 400
HANGS_SECONDS = 120
"""When a process that has not ended says where it stands. Less than a test waits for its end."""


def die() -> None:
    """End this process without a word."""
    os.kill(os.getpid(), signal.SIGKILL)


def reduce_one_after_the_other() -> None:
    """Reduce many small tensors at once, in the middle of which one process dies. A sum that comes back is right."""
    for start in itertools.count(step=TENSORS):
        values = range(start, start + TENSORS)
        try:
            handles = [hvd.allreduce_async(torch.tensor([float(n)]), op=hvd.Sum, name=str(n % TENSORS)) for n in values]
            for value, handle in zip(values, handles, strict=True):
                assert hvd.synchronize(handle).item() == value * hvd.size(), "this is not what was sent"
                if value == TENSORS and hvd.rank() == hvd.size() - 1:
                    die()
        except HorovodInternalError:
            break
    hvd.shutdown()
    print("left", flush=True)


def ask_about_a_lost_set() -> None:
    """Say, for each function that takes a process set, what it raises after a member was lost."""
    others = hvd.add_process_set([0, 1])
    hvd.allreduce(torch.ones(1), name="all are here")
    if hvd.rank() == hvd.size() - 1:
        die()
    wait_until_shut_down()
    one, splits = torch.ones(2), torch.ones(2, dtype=torch.int32)
    calls: dict[str, Callable[[], object]] = {
        "size": others.size,
        "rank": others.rank,
        "add": lambda: hvd.add_process_set([0]),
        "remove": lambda: hvd.mpi_ops._basics._remove_process_set_impl(others.process_set_id),
        "allreduce": lambda: hvd.allreduce(one, process_set=others),
        "grouped_allreduce": lambda: hvd.grouped_allreduce([one, one], process_set=others),
        "allgather": lambda: hvd.allgather(one, process_set=others),
        "broadcast": lambda: hvd.broadcast(one, 0, process_set=others),
        "alltoall": lambda: hvd.alltoall(one, splits, process_set=others),
        "reducescatter": lambda: hvd.reducescatter(one, process_set=others),
        "barrier": lambda: hvd.barrier(process_set=others),
    }
    for name, call in calls.items():
        print(f"{name}: {raised(call)}", flush=True)
    hvd.shutdown()
    form_a_world_of_one()
    print(f"sets: {sorted(hvd.mpi_ops._basics._get_process_set_ids_and_ranks())}", flush=True)


def wait_until_shut_down() -> None:
    """Come back when Horovod has noticed the loss and given its world up."""
    while True:
        try:
            hvd.allreduce(torch.ones(1), name="is it shut down")
        except HorovodInternalError as error:
            if "has been shut down" in str(error):
                return


def form_a_world_of_one() -> None:
    for name in ("RANK", "LOCAL_RANK", "CROSS_RANK"):
        os.environ[f"HOROVOD_{name}"] = "0"
    for name in ("SIZE", "LOCAL_SIZE", "CROSS_SIZE"):
        os.environ[f"HOROVOD_{name}"] = "1"
    del os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"]
    hvd.init()


def raised(call: Callable[[], object]) -> str:
    try:
        call()
    except Exception as error:
        return type(error).__name__
    return "nothing"


def form_a_world() -> None:
    """Nothing but that."""


faulthandler.dump_traceback_later(HANGS_SECONDS)
hvd.init()
{
    "reduce": reduce_one_after_the_other,
    "sets": ask_about_a_lost_set,
    "form": form_a_world,
}[sys.argv[1]]()
