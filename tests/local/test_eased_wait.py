"""Real ranks that wait for one that is late."""

import re
from pathlib import Path

import pytest

from testbed.local.training import training

pytestmark = [pytest.mark.process, pytest.mark.timeout(400)]

LATE_SECONDS = 3
SHORT_LOOKS = 5_000
"""More than a rank has time for before it begins to sleep between two looks."""
LOOKS_A_SECOND = 1_500
"""A rank that never sleeps looks some hundred thousand times. Looks are counted, because seconds of CPU depend on what
else the machine does."""

SCRIPT = f"""
import time

import horovod.torch as hvd
import torch
from horovod.torch.mpi_ops import mpi_lib
import hvd_elastic as elastic

looks = 0
is_done = mpi_lib.horovod_torch_poll

def look(handle):
    global looks
    looks += 1
    return is_done(handle)

mpi_lib.horovod_torch_poll = look
elastic.init()

@elastic.run
def train(state):
    global looks
    hvd.barrier()
    if hvd.rank() == 0:
        time.sleep({LATE_SECONDS})
    looks, began = 0, time.monotonic()
    hvd.allreduce(torch.ones(1), name="late", op=hvd.Sum)
    print(f"rank {{hvd.rank()}} looked {{looks}} times in {{time.monotonic() - began:.2f}} s", flush=True)

train(elastic.State(step=0))
"""


@pytest.mark.core
def test_ranks_that_wait_leave_the_cores_to_others(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    with training(tmp_path) as job:
        job.offer("a", "b")
        job.launch("-np", "2", script=tmp_path / "train.py")
        assert job.ends() == 0, job.said()
        ((looks, seconds),) = re.findall(r"rank 1 looked (\d+) times in ([\d.]+) s", job.said())
    assert 0 < int(looks) < SHORT_LOOKS + LOOKS_A_SECOND * float(seconds)
