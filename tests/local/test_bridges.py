"""The examples of docs/libraries.md: a worker leaves, another comes, and the end is that of an undisturbed training."""

import importlib.util
import struct
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from hvd_elastic.mpijob.contract import ENV_CHECKPOINT
from hvd_elastic.trainer.state.saved_state import load
from testbed.local import slowed
from testbed.local.training import Training, training
from tests.local.plain_training import BATCH, DIGITS, by_hand, close

EXAMPLES = Path(__file__).parents[2] / "examples"
SLOWED = Path(slowed.__file__)
EPOCHS = 6
STEPS = EPOCHS * -(-DIGITS // BATCH)
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "MLFLOW_ALLOW_FILE_STORE": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "WANDB_MODE": "offline",
    "WANDB_SILENT": "true",
}

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]


def need(library: str) -> None:
    """Skip where a library is missing. Importing it here would cost seconds."""
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")


def disturb(job: Training, name: str, *, epochs: int = EPOCHS) -> None:
    """Train with an example: its first worker leaves, another comes, and it ends."""
    job.offer("a", "b")
    job.launch("-np", "2", "--min-np", "1", script=SLOWED, arguments=[str(EXAMPLES / name), "--epochs", str(epochs)])
    job.trains(2)
    job.offer("b")
    job.trains(1)
    job.offer("b", "c")
    job.trains(2)
    (job.folder / "hurry").touch()
    assert job.ends() == 0, job.said()


def samples_by_epoch(job: Training) -> dict[int, int]:
    """How many samples were committed in each epoch, over all workers."""
    taken = defaultdict(set)
    for event in job.events("step"):
        taken[event["epoch"]].add(event["samples"])
    return {epoch: max(counts) for epoch, counts in taken.items()}


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Training]:
    places = {ENV_CHECKPOINT: f"file://{tmp_path}/checkpoints", "MLFLOW_TRACKING_URI": f"file://{tmp_path}/mlruns"}
    with training(tmp_path, **QUIET, **places) as job:
        yield job


def trained(job: Training) -> list[torch.Tensor]:
    return list(load(job.environment[ENV_CHECKPOINT])["model"].values())


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("bridge_lightning.py", "pytorch_lightning"),
        ("bridge_fabric.py", "lightning_fabric"),
        ("bridge_accelerate.py", "accelerate"),
    ],
)
def test_a_library_trains_as_plain_pytorch_over_resizes(job: Training, name: str, library: str) -> None:
    need(library)
    disturb(job, name)
    assert samples_by_epoch(job) == dict.fromkeys(range(EPOCHS), DIGITS)
    assert close(trained(job), by_hand(EPOCHS))


def test_the_parts_of_a_transformers_trainer_train_over_resizes(job: Training) -> None:
    """Its model is another one: it is compared with a training of one worker, of which nothing is disturbed."""
    need("transformers")
    disturb(job, "bridge_transformers.py")
    assert samples_by_epoch(job) == dict.fromkeys(range(EPOCHS), 1024)
    disturbed = trained(job)
    (job.folder / "alone").mkdir()
    tier = {ENV_CHECKPOINT: f"file://{job.folder}/alone/checkpoints"}
    with training(job.folder / "alone", **QUIET, **tier) as other:
        (other.folder / "hurry").touch()
        other.offer("a")
        arguments = [str(EXAMPLES / "bridge_transformers.py"), "--epochs", str(EPOCHS)]
        other.launch("-np", "1", script=SLOWED, arguments=arguments)
        assert other.ends() == 0, other.said()
        assert close(disturbed, trained(other))


def mlflow_steps(folder: Path) -> list[list[int]]:
    """The steps whose loss each run has."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"file://{folder}/mlruns")
    runs = client.search_runs(["0"])
    return [[each.step for each in client.get_metric_history(run.info.run_id, "step/loss")] for run in runs]


def wandb_steps(folder: Path) -> list[list[int]]:
    """The steps whose loss each run has. Each process that was rank 0 has written a folder of its own."""
    from wandb.proto.wandb_internal_pb2 import Record

    steps = defaultdict(list)
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        for raw in leveldb_records(path.read_bytes()):
            items = {
                item.nested_key[0] if item.nested_key else item.key: item.value_json
                for item in Record.FromString(raw).history.item
            }
            if "step/loss" in items:
                steps[path.stem].append(int(items["step"]))
    return list(steps.values())


def leveldb_records(data: bytes) -> Iterator[bytes]:
    """The records of W&B's file: LevelDB's log format, with 7 bytes before it that name the format."""
    at, record, block = 7, b"", 32768
    while at + 7 <= len(data):
        if block - at % block < 7:
            at += block - at % block
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield record
            record = b""


@pytest.mark.parametrize(
    ("name", "library", "found"),
    [("track_mlflow.py", "mlflow", mlflow_steps), ("track_wandb.py", "wandb", wandb_steps)],
)
def test_a_run_is_one_over_a_new_rank_0_and_a_restart(
    job: Training, monkeypatch: pytest.MonkeyPatch, name: str, library: str, found: Callable[[Path], list[Any]]
) -> None:
    need(library)
    for key, value in QUIET.items():  # this process reads what the training's processes have written
        monkeypatch.setenv(key, value)
    disturb(job, name, epochs=EPOCHS - 1)
    job.offer("d")
    job.launch("-np", "1", script=SLOWED, arguments=[str(EXAMPLES / name), "--epochs", str(EPOCHS)])
    assert job.ends() == 0, job.said()
    assert len({event["pid"] for event in job.events("step", rank=0)}) == 3, "two in the first part, one in the second"
    assert found(job.folder) == [list(range(1, STEPS + 1))], "one run, and each step once"
    assert close(trained(job), by_hand(EPOCHS))
