"""Libraries over torch.distributed: loops of their own with a State, and whole trainers, which are begun again."""

import subprocess
import sys
from pathlib import Path

import pytest

from hvd_elastic.mpijob.contract import ENV_CHECKPOINT, ENV_ENGINE
from hvd_elastic.trainer.state.saved_state import load
from testbed.local import slowed
from testbed.local.training import ROOT, training
from tests.local.plain_training import DIGITS, by_hand, close
from tests.local.test_bridges import QUIET, need
from tests.local.torch_job import TorchJob

EPOCHS = 8

pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]


@pytest.mark.parametrize("library", ["accelerate", "lightning_fabric"])
def test_its_own_loop_takes_each_sample_once(tmp_path: Path, library: str) -> None:
    """From one worker to three, of which one is killed; then the eldest leaves. The weights are those of one worker."""
    need(library)
    place = f"file://{tmp_path}/checkpoints"
    script = ROOT / "examples" / f"native_{library.removeprefix('lightning_')}.py"
    with training(tmp_path, **QUIET, **{ENV_CHECKPOINT: place, ENV_ENGINE: "torch"}) as job:
        job.offer("a")
        flags = ("-np", "1", "--min-np", "1", "--max-np", "3")
        job.launch(*flags, script=Path(slowed.__file__), arguments=[str(script), "--epochs", str(EPOCHS)])
        job.trains(1)
        job.offer("a", "b", "c")
        job.trains(3)
        job.kill("b")
        job.trains(2)
        job.offer("c")
        job.trains(1)
        job.offer("c", "d")
        job.trains(2)
        (job.folder / "hurry").touch()
        assert job.ends() == 0, job.said()
        assert job.said().count("in the last step") == 1, "the present rank 0 prints"
        verify = [sys.executable, "-m", "hvd_elastic.cli", "checkpoints", "verify", place]
        done = subprocess.run(verify, capture_output=True, text=True, env=job.environment, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if f"{DIGITS:,} samples once" in line]
    assert lines, done.stdout
    assert close(list(load(place)["model"].values()), by_hand(EPOCHS))


@pytest.mark.parametrize("library", ["pytorch_lightning", "transformers"])
def test_its_own_trainer_is_begun_again_in_each_world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    """Nothing in the script is ours: it goes on from its own checkpoint."""
    need(library)
    monkeypatch.setenv("HURRY", str(tmp_path / "hurry"))
    script = ROOT / "examples" / f"native_{library.removeprefix('pytorch_')}.py"
    command = ["python", slowed.__file__, str(script), "--epochs", str(EPOCHS), "--folder", str(tmp_path / "kept")]
    job = TorchJob(tmp_path, "--workers", "1:2:2", "--resize", "8:1,20:2", "--", *command)
    try:
        job.says(r"world 2 -> 1: ")
        job.says(r"world 1 -> 2: .* joined")
        (tmp_path / "hurry").touch()
        assert job.ends() == 0, job.said()
    finally:
        job.close()
    assert job.said().count("the script begins again") >= 2
    for rank in range(2):
        assert f"rank {rank} of 2 has trained to epoch {EPOCHS}" in job.said()
