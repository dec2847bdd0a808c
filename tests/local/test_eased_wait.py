"""Real ranks that wait for one that is late."""

import re
from pathlib import Path

import pytest

from tests.local.training import training

pytestmark = [pytest.mark.horovod, pytest.mark.timeout(400)]

LATE_SECONDS = 3

SCRIPT = f"""
import time

import horovod.torch as hvd
import torch
import hvd_elastic as elastic

elastic.init()

@elastic.run
def train(state):
    hvd.barrier()
    began = time.process_time()
    if hvd.rank() == 0:
        time.sleep({LATE_SECONDS})
    hvd.allreduce(torch.ones(1), name="late", op=hvd.Sum)
    print(f"rank {{hvd.rank()}} took {{time.process_time() - began:.2f}} s of CPU", flush=True)

train(elastic.State(step=0))
"""


def test_ranks_that_wait_leave_the_cores_to_others(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    with training(tmp_path) as job:
        job.offer("a", "b")
        job.launch("-np", "2", script=tmp_path / "train.py")
        assert job.ends() == 0, job.said()
        (took,) = re.findall(r"rank 1 took ([\d.]+) s", job.said())
    # Horovod's own wait takes all that it can get. Its background thread, which looks each millisecond, takes a tenth.
    assert float(took) < LATE_SECONDS / 3
