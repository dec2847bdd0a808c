"""Real Horovod processes that wait for each other, and that only seem to."""

import re
from pathlib import Path

import pytest

from hvd_elastic.discovery.ledger.rank_wait import stall_words
from hvd_elastic.discovery.sidecar.workers.worker_report import WorkerReport
from hvd_elastic.mpijob.contract import CHECKPOINT_REQUEST_FILE, Exit
from hvd_elastic.worker.answers import report_answer
from testbed.local.training import training

pytestmark = [pytest.mark.process, pytest.mark.timeout(400)]

HEAD = """
import time
from pathlib import Path

import horovod.torch as hvd
import torch
import hvd_elastic as elastic

elastic.init()
"""

APART = f"""{HEAD}
state = elastic.State(step=0)

def evaluate(until):
    while not until.exists():
        time.sleep(0.05)

@elastic.run
def train(state):
    state.commit()
    if hvd.rank() == 1:
        evaluate(Path("evaluated"))
    hvd.allreduce(torch.zeros(1), name="loss")
    state.commit()
    if hvd.rank() == 0:
        hvd.broadcast(torch.zeros(1), 0, name="weights")
    else:
        hvd.barrier()

train(state)
"""


def run_dirs(folder: Path, *hosts: str) -> None:
    for host in hosts:
        (folder / "at" / host).mkdir(parents=True)


def together(folder: Path, *hosts: str) -> str:
    """What the hosts' entry points would tell the sidecar, as it puts that together."""
    answers = [report_answer("report", folder / "at" / host, 1, None) for host in hosts]
    return stall_words([wait for answer in answers for wait in WorkerReport.from_json(answer).waits])


@pytest.mark.core
def test_where_each_rank_is_stands_in_the_log(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(APART)
    evaluates = APART.splitlines().index("        time.sleep(0.05)") + 1
    reduces = APART.splitlines().index('    hvd.allreduce(torch.zeros(1), name="loss")') + 1
    with training(tmp_path, HVD_ELASTIC_STALL_SECONDS="1") as job:
        job.offer("a", "b")
        run_dirs(tmp_path, "a", "b", "c")
        job.launch("-np", "2", script=tmp_path / "train.py")
        waits = f"in allreduce loss (step 1), at train.py:{reduces} in train"
        job.until(lambda: "rank 0 has waited" in job.said() and waits in job.said(), "rank 0 says what it waits for")
        job.until(lambda: "rank 1 has computed for" in job.said(), "rank 1 is asleep in the script")
        lines = (evaluates - 1, evaluates)  # that of the loop, or of its body
        assert any(f"at train.py:{line} in evaluate" in job.said() for line in lines)
        words = (
            rf"rank 0 waits in allreduce loss at train\.py:{reduces} in train; "
            r"rank 1 computes at train\.py:\d+ in evaluate.*"
        )
        job.until(lambda: re.fullmatch(words, together(tmp_path, "a", "b")), "both ranks have left word")
        (tmp_path / "evaluated").touch()
        job.until(lambda: "in which it waited in allreduce loss" in job.said(), "rank 0 goes on")
        assert job.ends() == Exit.SCRIPT_MISTAKE, "each waits in another operation"
        place = r"at train\.py:\d+ in train"
        words = rf"rank 0 waits in broadcast weights {place}, and rank 1 in barrier {place}: neither can ever be done"
        assert re.search(words, job.said())


TORCH = """
import time
from pathlib import Path

import torch
from torch.nn.parallel import DistributedDataParallel
import hvd_elastic as elastic

elastic.init()
model = DistributedDataParallel(torch.nn.Linear(4, 1))

def evaluate(until):
    while not until.exists():
        time.sleep(0.05)

@elastic.run
def train(state):
    state.commit()
    if torch.distributed.get_rank() == 1:
        evaluate(Path("evaluated"))
    model(torch.ones(2, 4)).sum().backward()
    model.zero_grad()
    if torch.distributed.get_rank() == 1:
        evaluate(Path("evaluated-again"))
    elastic.agree(1)

train(elastic.State(model=model, step=0))
"""


def test_over_torch_it_is_known_who_waits_for_gradients(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TORCH)
    line = TORCH.splitlines().index("    model(torch.ones(2, 4)).sum().backward()") + 1
    with training(tmp_path, engine="torch", HVD_ELASTIC_STALL_SECONDS="1") as job:
        job.offer("a", "b")
        run_dirs(tmp_path, "a", "b")
        job.launch("-np", "2", script=tmp_path / "train.py")
        words = (
            rf"rank 0 waits in allreduce gradients at train\.py:{line} in train; "
            r"rank 1 computes at train\.py:\d+ in evaluate.*"
        )
        job.until(lambda: "in allreduce gradients (step 1), at train.py" in job.said(), "rank 0 says what it waits for")
        job.until(lambda: re.fullmatch(words, together(tmp_path, "a", "b")), "both ranks have left word")
        (tmp_path / "evaluated").touch()
        job.until(lambda: "in which it waited in allreduce gradients" in job.said(), "rank 0 goes on")
        waits = rf"rank 0 waits in .*hvd_elastic\.agree at train\.py:{line + 4} in train; rank 1 computes .*"
        job.until(lambda: re.fullmatch(waits, together(tmp_path, "a", "b")), "it waits in an operation of ours")
        (tmp_path / "evaluated-again").touch()
        assert job.ends() == 0, job.said()


QUIET = f"""{HEAD}
state = elastic.State(step=0)
SLOW = 8.0

save = state._commits.save_to_store_sync

def slow_save(reason):
    if hvd.rank() == 0:
        time.sleep(SLOW)
        print("slow store", flush=True)
    return save(reason)

state._commits.save_to_store_sync = slow_save

def slow_reset():
    if hvd.rank() == 0:
        time.sleep(SLOW)
        print("slow reset", flush=True)

state.register_reset_callbacks([slow_reset])

@elastic.run
def train(state):
    while True:
        hvd.allreduce(torch.zeros(1), name="loss")
        time.sleep(0.02)
        state.step += 1
        state.commit()

train(state)
"""


def test_neither_a_slow_store_nor_a_resize_is_told(tmp_path: Path) -> None:
    """One and the same limit is passed twice by waits that have a reason."""
    (tmp_path / "train.py").write_text(QUIET)
    with training(tmp_path, HVD_ELASTIC_STALL_SECONDS="4", HVD_ELASTIC_CHECKPOINT=f"file://{tmp_path}/store") as job:
        job.offer("a", "b")
        run_dirs(tmp_path, "a", "b", "c")
        job.launch("-np", "2", "--min-np", "1", script=tmp_path / "train.py")
        job.trains(2)
        for name in ("a", "b"):
            (tmp_path / "at" / name / CHECKPOINT_REQUEST_FILE).write_text("a test\n")
        job.until(lambda: "slow store" in job.said(), "a checkpoint takes long")
        job.trains(2)
        job.offer("a", "b", "c")
        job.until(lambda: "slow reset" in job.said(), "a resize takes long")
        job.trains(3)
        assert "has waited" not in job.said()
        assert "has computed" not in job.said()
