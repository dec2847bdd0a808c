"""A script for torchrun, unchanged, over hosts that come and go: it is begun again, and goes on from its snapshot."""

import itertools
import re
from pathlib import Path

import pytest

from tests.local.torch_job import TorchJob

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


@pytest.mark.process
@pytest.mark.timeout(1800)
def test_an_unchanged_script_goes_on_from_its_snapshot(tmp_path: Path) -> None:
    snapshot = str(tmp_path / "snapshot.pt")
    script = ["python", str(SCRIPT), "--epochs", "300", "--snapshot", snapshot]
    job = TorchJob(tmp_path, "--workers", "1:2:2", "--resize", "3:1,12:2", "--", *script)
    try:
        job.says(r"(?s)world 1 -> 2: .*\n\[1\]<stdout>:epoch")
        job.kill_newest()
        # On a busy machine its successor is ready before the script has begun again.
        job.says(r"world 2 -> [12]: .*signal 9 \(SIGKILL\)")
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
    job = TorchJob(tmp_path, "--workers", "1:2:2", "--", "python", str(script), "40")
    try:
        job.says(r"step 1 of rank 1 in 2 begun 0")
        job.kill_newest()
        job.says("the script begins again")
        assert job.ends() == 0, job.said()
    finally:
        job.close()
