"""Real jobs whose scripts call Horovod between `init` and their training function, as plain Horovod scripts do."""

from pathlib import Path

import pytest

from testbed.local.training import Training, training

pytestmark = [pytest.mark.process, pytest.mark.timeout(400)]

HEAD = """\
import time
from pathlib import Path

import horovod.torch as hvd
import torch
import hvd_elastic as elastic

elastic.init()
"""

PREPARES = f"""{HEAD}
if hvd.rank() == 0:
    while not Path("prepared").exists():
        time.sleep(0.05)
words = hvd.broadcast_object({{"a": 0}}, root_rank=0, name="words")

@elastic.run
def train(state):
    state.commit()

train(elastic.State(step=0))
"""


def start(job: Training, script: str, launcher: str, hosts: int) -> None:
    """Start the script on so many hosts."""
    path = job.folder / "train.py"
    path.write_text(script)
    offer(job, launcher, hosts)
    sizes = ("-np", str(hosts), "--min-np", "1")
    if launcher == "launch":
        job.launch(*sizes, script=path)
    else:
        job.horovodrun(*sizes, script=path)


def offer(job: Training, launcher: str, hosts: int) -> None:
    if launcher == "launch":
        job.offer(*"abc"[:hosts])
    else:
        job.hosts(*("localhost", "127.0.0.1")[:hosts])


LAUNCHERS = pytest.mark.parametrize("launcher", [pytest.param("launch", marks=pytest.mark.core), "horovodrun"])


@LAUNCHERS
def test_a_wait_before_training_is_told_with_its_line(launcher: str, tmp_path: Path) -> None:
    line = PREPARES.splitlines().index('words = hvd.broadcast_object({"a": 0}, root_rank=0, name="words")') + 1
    with training(tmp_path) as job:
        start(job, PREPARES, launcher, 2)
        waits = f"in broadcast words.sz, at train.py:{line} in <module>"
        job.until(lambda: "rank 1 has waited 1" in job.said() and waits in job.said(), "rank 1 says what it waits for")
        (tmp_path / "prepared").touch()
        assert job.ends() == 0, job.said()
        assert "rank 0 has" not in job.said(), "it may prepare for hours"
