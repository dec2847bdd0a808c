"""Training with a library of others gives way to inference and takes its GPUs back.

Over Horovod by our bridges, over torch.distributed as the library does it: a loop with a State loses no sample, a whole
trainer is begun again from its own checkpoint.
"""

from collections.abc import Callable
from importlib import metadata
from typing import Any

import pytest

from hvd_elastic.trainer.state.saved_state import load as read_checkpoint
from testbed.cluster import inference, jobs
from testbed.cluster.jobs import Job
from testbed.cluster.site import Site
from testbed.cluster.standing import DURABLE, SIZE, nothing_lost, start
from testbed.cluster.timeline import Timeline
from testbed.kube import images, waiting
from testbed.kube.errors import ClusterError
from testbed.kube.kubectl import Kubectl
from tests.local import plain_training

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600, func_only=True)]

LIBRARIES = ("accelerate", "lightning-fabric", "pytorch-lightning", "scikit-learn")
"""Installed here as well: of the same versions."""
TRANSFORMERS = "transformers==5.23.0"
EPOCHS = 6
HURRY = {"HURRY": "/output/hurry"}

GiveWay = Callable[..., Job]


def slowed(example: str, *arguments: str) -> list[str]:
    """Return the command of an example whose steps take longer and longer, until the job is to hurry."""
    path = f"/workspace/examples/{example}"
    return ["python", "/output/scripts/slowed.py", path, "--epochs", str(EPOCHS), *arguments]


@pytest.fixture(scope="module")
def image(cluster: Site) -> str:
    """A user's own image with the libraries."""
    pinned = [TRANSFORMERS, *(f"{library}=={metadata.version(library)}" for library in LIBRARIES)]
    install = f"RUN uv pip install --no-cache --compile-bytecode {' '.join(pinned)}"
    tag = images.derive("bridges", "\n".join([f"FROM {cluster.image}", "USER 0", install, "USER 1000:1000"]))
    name = f"{images.REPOSITORY}-bridges:{tag}"
    cluster.local().load_image(images.layout(), tag, name)
    return name


@pytest.fixture
def give_way(cluster: Site, namespace: Kubectl, timeline: Timeline, image: str) -> GiveWay:
    """Train with an example to its end, while inference takes half of its GPUs and gives them back."""

    def done(example: str, *, launcher: str, **more: Any) -> Job:
        keys: dict[str, Any] = {"image": image, "env": HURRY, "checkpoint": DURABLE, **more}
        job = start(cluster, namespace, launcher, command=slowed(example), **keys)
        load = inference.deploy(cluster, namespace)
        job.wait_size(SIZE)

        timeline.mark("inference 0 -> 2")
        load.scale(2)
        load.wait(2)
        job.wait_size(SIZE - 2)
        job.wait_steps(5)

        back = timeline.mark("inference 2 -> 0")
        load.scale(0)
        job.wait_size(SIZE, since=back)
        (job.shared / "hurry").touch()
        job.wait_end()
        return job

    return done


@pytest.mark.parametrize(
    ("example", "launcher", "engine"),
    [
        ("bridge_lightning.py", "launch", "horovod"),
        ("bridge_lightning.py", "horovodrun", "horovod"),
        ("bridge_fabric.py", "launch", "horovod"),
        ("bridge_accelerate.py", "launch", "horovod"),
        ("native_fabric.py", "launch", "torch"),
        ("native_accelerate.py", "launch", "torch"),
    ],
)
def test_a_library_trains_as_plain_pytorch(give_way: GiveWay, example: str, launcher: str, engine: str) -> None:
    job = give_way(example, launcher=launcher, engine=engine)
    nothing_lost(job.account, ended=True)
    durable = f"file://{job.shared}/checkpoints/{job.kubectl.namespace}/{job.name}"
    parameters = list(read_checkpoint(durable)["model"].values())
    assert plain_training.close(parameters, plain_training.by_hand(EPOCHS))


def test_the_parts_of_a_transformers_trainer(give_way: GiveWay) -> None:
    job = give_way("bridge_transformers.py", launcher="launch")
    nothing_lost(job.account, ended=True, samples=1024)


@pytest.mark.parametrize("example", ["native_lightning.py", "native_transformers.py"])
def test_a_whole_trainer_is_begun_again_from_its_own_checkpoint(
    cluster: Site, namespace: Kubectl, timeline: Timeline, image: str, example: str
) -> None:
    command = slowed(example, "--folder", "/output/kept")
    keys: dict[str, Any] = {"image": image, "env": HURRY, "engine": "torch", "workers": jobs.workers((1, 2, 2))}
    job = start(cluster, namespace, "launch", command=command, **keys)
    load = inference.deploy(cluster, namespace)
    until_logged(job, "world of 2")

    timeline.mark("inference 0 -> 3")
    load.scale(3)
    load.wait(3)
    until_logged(job, "world 2 -> 1")

    timeline.mark("inference 3 -> 0")
    load.scale(0)
    until_logged(job, "world 1 -> 2")
    (job.shared / "hurry").touch()
    job.wait_end(within_seconds=240)
    for rank in range(2):
        until_logged(job, f"rank {rank} of 2 has trained to epoch {EPOCHS}")


def until_logged(job: Job, words: str) -> None:
    """Wait until the launcher has said it."""

    def said() -> str:
        try:
            return job.log()
        except ClusterError as error:  # it has not started yet
            return str(error)

    waiting.until(words, lambda: words in said(), within_seconds=240, every_seconds=2, seen=said)
