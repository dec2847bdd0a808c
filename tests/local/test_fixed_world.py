"""A script for torchrun, unchanged, over hosts that come and go: it is begun again, and goes on from its snapshot."""

import itertools
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.failing_threads import wait_for

SCRIPT = Path(__file__).parents[2] / "examples" / "digits_torchrun.py"

READS_FIRST = """\
import os, sys, time
import torch
from torch import distributed

# As nanoGPT and others do, to know who has started them.
assert int(os.environ.get("RANK", -1)) != -1
place = [os.environ[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")]
distributed.init_process_group("gloo")
assert place == [str(distributed.get_rank()), str(distributed.get_world_size()), os.environ["LOCAL_RANK"]]
for name in ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"):
    assert os.environ[name]
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
for step in range(int(sys.argv[1])):
    model(torch.ones(1, 2)).sum().backward()
    print(f"step {step} of rank {place[0]} in {place[1]} begun {os.environ['TORCHELASTIC_RESTART_COUNT']}", flush=True)
    time.sleep(0.05)
distributed.destroy_process_group()
"""


class Job:
    """`hvd-elastic run --engine torch` where whoever imports Horovod fails. It is gone after `close`."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        (folder / "sitecustomize.py").write_text('import sys\nsys.modules["horovod"] = None\n')
        self._mark, self._log = str(folder), folder / "log"
        environment = os.environ | {
            "HVD_ELASTIC_TEST_MARK": self._mark,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(folder),
        }
        command = [sys.executable, "-m", "hvd_elastic.cli", "run", "--engine", "torch", *arguments]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)

    def said(self) -> str:
        return self._log.read_text()

    def says(self, pattern: str) -> None:
        wait_for(lambda: re.search(pattern, self.said()) is not None or self._process.poll() is not None, 600)
        assert re.search(pattern, self.said()), self.said()

    def kill_newest(self) -> None:
        ours = [
            process
            for process in psutil.process_iter(["environ", "cmdline"])
            if (process.info["environ"] or {}).get("HVD_ELASTIC_TEST_MARK") == self._mark
            and any(word.endswith("standby.standby") for word in process.info["cmdline"] or ())
        ]
        max(ours, key=psutil.Process.create_time).kill()

    def ends(self) -> int:
        return self._process.wait(900)

    def close(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait()


@pytest.mark.process
@pytest.mark.timeout(1800)
def test_an_unchanged_script_goes_on_from_its_snapshot(tmp_path: Path) -> None:
    snapshot = str(tmp_path / "snapshot.pt")
    script = ["python", str(SCRIPT), "--epochs", "300", "--snapshot", snapshot]
    job = Job(tmp_path, "--workers", "1:2:2", "--resize", "3:1,12:2", "--", *script)
    try:
        job.says(r"world 1 -> 2: .* joined")
        job.kill_newest()
        job.says(r"world 2 -> 1: .*signal 9 \(SIGKILL\)")
        assert job.ends() == 0, job.said()
    finally:
        job.close()
    epochs = [int(epoch) for epoch in re.findall(r"\[0\]<stdout>:epoch (\d+) ", job.said())]
    begun_again = [epoch for before, epoch in itertools.pairwise(epochs) if epoch <= before]
    assert epochs[-1] == 299
    assert 0 not in epochs[1:], "no snapshot was read"
    assert len(begun_again) <= 3, "at most the epoch at hand, once for each change"
    assert job.said().count("the script begins again") >= 3


@pytest.mark.process
@pytest.mark.timeout(900)
def test_a_script_that_reads_its_rank_first_finds_the_present_one(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(READS_FIRST)
    job = Job(tmp_path, "--workers", "1:2:2", "--", "python", str(script), "40")
    try:
        job.says(r"step 1 of rank 1 in 2 begun 0")
        job.kill_newest()
        job.says("the script begins again")
        assert job.ends() == 0, job.said()
    finally:
        job.close()
