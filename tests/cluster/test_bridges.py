"""What comes with a library of others gives way to inference and takes its GPUs back, and no sample is lost by it."""

from collections.abc import Callable
from importlib import metadata
from typing import Any

import pytest

from hvd_elastic.trainer.state.saved_state import load as read_checkpoint
from testbed.cluster import inference
from testbed.cluster.jobs import Job
from testbed.cluster.site import Site
from testbed.cluster.standing import DURABLE, SIZE, nothing_lost, start
from testbed.cluster.timeline import Timeline
from testbed.kube import images
from testbed.kube.kubectl import Kubectl
from tests.local import plain_training

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420, func_only=True)]

LIBRARIES = ("accelerate", "lightning-fabric", "pytorch-lightning", "scikit-learn")
"""Installed here as well: of the same versions."""
TRANSFORMERS = "transformers==5.23.0"
EPOCHS = 6

GiveWay = Callable[..., Job]


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

    def done(example: str, *, launcher: str) -> Job:
        command = ["python", "/output/scripts/slowed.py", f"/workspace/examples/{example}", "--epochs", str(EPOCHS)]
        keys: dict[str, Any] = {"image": image, "env": {"HURRY": "/output/hurry"}, "checkpoint": DURABLE}
        job = start(cluster, namespace, launcher, command=command, **keys)
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
    ("example", "launcher"),
    [
        ("bridge_lightning.py", "launch"),
        ("bridge_lightning.py", "horovodrun"),
        ("bridge_fabric.py", "launch"),
        ("bridge_accelerate.py", "launch"),
    ],
)
def test_a_library_trains_as_plain_pytorch(give_way: GiveWay, example: str, launcher: str) -> None:
    job = give_way(example, launcher=launcher)
    nothing_lost(job.account, ended=True)
    durable = f"file://{job.shared}/checkpoints/{job.kubectl.namespace}/{job.name}"
    parameters = list(read_checkpoint(durable)["model"].values())
    assert plain_training.close(parameters, plain_training.by_hand(EPOCHS))


def test_the_parts_of_a_transformers_trainer(give_way: GiveWay) -> None:
    job = give_way("bridge_transformers.py", launcher="launch")
    nothing_lost(job.account, ended=True, samples=1024)
