"""Real jobs whose scripts call Horovod between `init` and their training function, as plain Horovod scripts do."""

from functools import partial
from pathlib import Path

import pytest

from hvd_elastic.mpijob.contract import Exit
from testbed.local.training import HOSTS, Training, training

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

PLAIN = f"""{HEAD}
import os

torch.manual_seed(os.getpid())
model, teacher = torch.nn.Linear(4, 1), torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
hvd.broadcast_parameters(teacher.state_dict(), root_rank=0)
optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), groups=2)
hvd.barrier()
words = hvd.broadcast_object({{"made by": os.getpid()}}, root_rank=0, name="words")
pids = hvd.allgather_object(os.getpid(), name="pids")
total = hvd.allreduce(torch.tensor([float(os.getpid())]), name="total")
agreed = elastic.agree(os.getpid()), elastic.any_rank(os.getpid() % 2)

@elastic.run
def train(state):
    held = words, pids, total.item(), agreed, teacher.weight.tolist(), model.weight.tolist()
    everyone = hvd.allgather_object(held, name="held")
    assert all(each == everyone[0] for each in everyone), everyone
    Path(f"alike-{{hvd.size()}}-{{hvd.rank()}}").touch()
    while not elastic.agree(Path("done").exists()):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        state.commit()

train(elastic.State(model=model, optimizer=optimizer))
"""

TORCH = """\
import os
import sys
from pathlib import Path

import torch
from torch import distributed
from torch.distributed import all_gather_object, barrier
import hvd_elastic as elastic

sys.modules["horovod"] = None
elastic.init()
torch.manual_seed(os.getpid())
model, teacher = torch.nn.Linear(4, 1), torch.nn.Linear(2, 2)
for parameter in (*model.parameters(), *teacher.parameters()):
    distributed.broadcast(parameter.data, 0)
barrier()
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
words = [os.getpid()]
distributed.broadcast_object_list(words, src=0)
pids = [None] * distributed.get_world_size()
all_gather_object(pids, os.getpid())
total = torch.tensor([float(os.getpid())])
distributed.all_reduce(total)
agreed = elastic.agree(os.getpid()), elastic.any_rank(os.getpid() % 2)

@elastic.run
def train(state):
    held = words, pids, total.item(), agreed, teacher.weight.tolist(), model.module.weight.tolist()
    everyone = [None] * distributed.get_world_size()
    all_gather_object(everyone, held)
    assert all(each == everyone[0] for each in everyone), everyone
    Path(f"alike-{distributed.get_world_size()}-{distributed.get_rank()}").touch()
    while not elastic.agree(Path("done").exists()):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        state.commit()

train(elastic.State(model=model, optimizer=optimizer))
"""

LARGE = f"""{HEAD}
table = hvd.broadcast_object(bytes(65 << 20), root_rank=0, name="table")

@elastic.run
def train(state):
    Path("trains").touch()

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
        job.hosts(*HOSTS[:hosts])


def alike(folder: Path, size: int) -> bool:
    """Whether each rank of this world has found that all hold the same."""
    return len(list(folder.glob(f"alike-{size}-*"))) == size


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


@pytest.mark.parametrize(
    ("launcher", "hosts"),
    [
        pytest.param("launch", 2, marks=pytest.mark.core),
        ("launch", 1),
        ("horovodrun", 2),
        ("horovodrun", 1),
    ],
)
def test_a_newcomer_has_what_the_others_sent_each_other_before_training(
    launcher: str, hosts: int, tmp_path: Path
) -> None:
    with training(tmp_path) as job:
        start(job, PLAIN, launcher, hosts)
        for size in (hosts, hosts + 1):
            offer(job, launcher, size)
            job.until(partial(alike, tmp_path, size), f"all of {size} hold the same")
            job.trains(size)
        (tmp_path / "done").touch()
        assert job.ends() == 0, job.said()


@pytest.mark.parametrize("hosts", [pytest.param(2, marks=pytest.mark.core), 1])
def test_a_newcomer_over_torch_has_what_the_others_sent_each_other(hosts: int, tmp_path: Path) -> None:
    with training(tmp_path, engine="torch") as job:
        start(job, TORCH, "launch", hosts)
        for size in (hosts, hosts + 1):
            offer(job, "launch", size)
            job.until(partial(alike, tmp_path, size), f"all of {size} hold the same")
            job.trains(size)
        (tmp_path / "done").touch()
        assert job.ends() == 0, job.said()


@LAUNCHERS
def test_what_cannot_be_kept_is_refused_before_training(launcher: str, tmp_path: Path) -> None:
    line = LARGE.splitlines().index('table = hvd.broadcast_object(bytes(65 << 20), root_rank=0, name="table")') + 1
    with training(tmp_path) as job:
        start(job, LARGE, launcher, 1)
        assert job.ends() == (Exit.SCRIPT_MISTAKE if launcher == "launch" else 1), job.said()
        assert f"train.py:{line} in <module>: what ranks send each other before" in job.said()
        assert "64 MiB at most, and broadcast table.t is too large. Load it on each rank" in job.said()
        assert not (tmp_path / "trains").exists()
