"""Real processes of which one takes longer for its own part of a step: it is named, and no other one ever is."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from hvd_elastic.discovery.ledger.entries import RankSlow, RankSlowEnded, Slowness
from hvd_elastic.discovery.ledger.history.slow_rank_history import PacedWorker, SlowRankHistory
from hvd_elastic.discovery.sidecar.workers.worker_report import WorkerReport
from hvd_elastic.mpijob.contract import PACE_FILE
from hvd_elastic.trainer.telemetry.pace.pace_file import BLOCKS
from hvd_elastic.worker.answers import report_answer
from testbed.local.training import Training, training

pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]

HOSTS = ("a", "b", "c")
SCRIPT = """
import os
import time
from pathlib import Path

import hvd_elastic as elastic
import torch
from hvd_elastic.trainer.telemetry.pace import step_pace
from torch import nn

if "IN_SECONDS" in os.environ:
    step_pace.BLOCK_SECONDS, step_pace.SETTLING_SECONDS = 1.5, 1.0  # so that the test takes seconds, not minutes
elastic.init()
model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
if os.environ.get("HVD_ELASTIC_ENGINE") == "torch":
    model = nn.parallel.DistributedDataParallel(model)
else:
    import horovod.torch as hvd
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
state = elastic.State(model=model, optimizer=optimizer)
HOST = Path(os.environ["HVD_ELASTIC_RUN_DIR"]).name

class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 3000

    def __getitem__(self, index):
        time.sleep(0.04 if Path(f"loads-slowly-{HOST}").exists() else 0.01)
        return torch.full((8,), float(index))

@elastic.run
def train(state):
    for state.epoch in state.remaining_epochs(1000):
        for x in state.batches(Numbers(), batch_size=2):
            optimizer.zero_grad()
            loss = (model(x).square().mean() * state.weight)
            times = Path(f"computes-slowly-{HOST}")
            time.sleep(0.1 * (float(times.read_text()) if times.exists() else 1.0))
            loss.backward()
            optimizer.step()
            state.commit()

train(state)
"""


class Sidecar:
    """What asks the workers, without a cluster: it reads what their entry points would answer."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._history = folder, SlowRankHistory()
        self.told: list[RankSlow | RankSlowEnded] = []

    def asked(self, *, blocks: int) -> bool:
        """Ask all. Returns whether each has so many blocks to tell of."""
        known = []
        for host in HOSTS:
            paces = WorkerReport.from_json(report_answer("report", self._folder / "at" / host, 1, None)).paces
            self._history.take(host, paces, time.time())
            known += [len(pace.blocks) for pace in paces]
        workers = {host: PacedWorker(pod=host, node=f"node-{host}") for host in HOSTS}
        self.told += self._history.pass_time(HOSTS, workers, time.time())
        return len(known) == len(HOSTS) and min(known) >= blocks

    @property
    def named(self) -> set[tuple[str, Slowness]]:
        return {(entry.pod, entry.slowness) for entry in self.told if isinstance(entry, RankSlow)}


@contextlib.contextmanager
def three_workers(folder: Path, engine: str, *, in_seconds: bool = True) -> Iterator[tuple[Training, Sidecar]]:
    """`in_seconds`: blocks are short, so that the test takes seconds; else they are those of every job."""
    (folder / "train.py").write_text(SCRIPT)
    with training(folder, engine=engine, **({"IN_SECONDS": "1"} if in_seconds else {})) as job:
        for host in HOSTS:
            (folder / "at" / host).mkdir(parents=True)
        job.launch("-np", "3", "--min-np", "2", script=folder / "train.py")
        job.offer(*HOSTS)
        job.trains(3)
        yield job, Sidecar(folder)


def compute_slowly(folder: Path, host: str, times: float) -> None:
    (folder / "new").write_text(str(times))
    (folder / "new").rename(folder / f"computes-slowly-{host}")


def looked(job: Training, sidecar: Sidecar, host: str, slowness: Slowness) -> None:
    """Wait until this one is named."""

    def is_named() -> bool:
        sidecar.asked(blocks=1)
        return (host, slowness) in sidecar.named

    job.until(is_named, f"{host} is named: {slowness}")


@pytest.mark.parametrize("engine", ["horovod", "torch"])
def test_it_is_named_with_what_it_is_slow_in(tmp_path: Path, engine: str) -> None:
    with three_workers(tmp_path, engine) as (job, sidecar):
        compute_slowly(tmp_path, "b", 1.9)
        looked(job, sidecar, "b", Slowness.COMPUTING)
        (entry,) = (entry for entry in sidecar.told if isinstance(entry, RankSlow))
        assert 1.35 <= entry.times < 2.5
        (tmp_path / "computes-slowly-b").unlink()
        (tmp_path / "loads-slowly-c").touch()
        looked(job, sidecar, "c", Slowness.LOADING)
        assert sidecar.named == {("b", Slowness.COMPUTING), ("c", Slowness.LOADING)}
        assert [entry.pod for entry in sidecar.told if isinstance(entry, RankSlowEnded)] == ["b"]


@pytest.mark.parametrize("engine", ["horovod", "torch"])
def test_one_that_takes_half_as_long_again_is_named_and_no_other(tmp_path: Path, engine: str) -> None:
    """Loading is a sixth of its own part of a step. Before, one is stopped for a while: that names nobody."""
    with three_workers(tmp_path, engine, in_seconds=False) as (job, sidecar):
        job.until(lambda: sidecar.asked(blocks=3), "the first blocks are there")
        os.kill(job.pid("c"), signal.SIGSTOP)
        time.sleep(4.0)
        os.kill(job.pid("c"), signal.SIGCONT)
        job.until(lambda: sidecar.asked(blocks=BLOCKS), "all blocks are there that are kept")
        assert sidecar.told == []
        began = time.monotonic()
        compute_slowly(tmp_path, "b", 1.6)
        looked(job, sidecar, "b", Slowness.COMPUTING)
        print(f"named after {time.monotonic() - began:.1f} s")  # 41 s; on a machine whose cores all wait it is later
        assert {entry.pod for entry in sidecar.told} == {"b"}


def test_a_process_that_is_stopped_every_other_moment(tmp_path: Path) -> None:
    with three_workers(tmp_path, "horovod") as (job, sidecar):
        over, process = threading.Event(), psutil.Process(job.pid("b"))

        def stop_and_go() -> None:
            while not over.wait(0.1):
                os.kill(process.pid, signal.SIGSTOP)
                over.wait(0.3)
                os.kill(process.pid, signal.SIGCONT)

        thread = threading.Thread(target=stop_and_go)
        thread.start()
        try:
            looked(job, sidecar, "b", Slowness.COMPUTING)
        finally:
            over.set()
            thread.join()
        assert {host for host, _ in sidecar.named} == {"b"}


def test_what_a_rank_leaves_is_of_its_present_world(tmp_path: Path) -> None:
    with three_workers(tmp_path, "horovod") as (job, _):
        paths = [tmp_path / "at" / host / f"{PACE_FILE}.0" for host in HOSTS]
        job.until(lambda: all(path.exists() for path in paths), "all have left word")
        job.offer("a", "b")
        job.trains(2)
        job.until(lambda: all('"size":2' in path.read_text() for path in paths[:2] if path.exists()), "it is of two")
