"""What is said of a script that fails, and of one that needs more memory than its workers have."""

import pytest

from testbed.cluster import jobs
from testbed.cluster.site import Site
from testbed.cluster.standing import BOTH_LAUNCHERS, LAUNCHERS, start
from testbed.cluster.timeline import Timeline
from testbed.kube import waiting
from testbed.kube.kubectl import Kubectl
from tests.cluster.test_final_exits import FAILED
from tests.cluster.test_operating import call, told

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420, func_only=True)]

FAILS = "raise RuntimeError('my own mistake')"
HUNGRY = """
import pathlib
import torch
import horovod.torch as hvd
import hvd_elastic as elastic

elastic.init()
HAS_EATEN = pathlib.Path("/tmp/has-eaten")  # a pod's second process is content, so that the job becomes whole
model = torch.nn.Linear(4, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01), model.named_parameters())

@elastic.run
def train(state):
    kept = []
    while True:
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        state.commit()
        if hvd.rank() == 1 and (kept or not HAS_EATEN.exists()):
            HAS_EATEN.touch()
            kept.append(bytearray(b"x") * (64 << 20))

train(elastic.State(model=model, optimizer=optimizer))
"""
BY_THE_KERNEL = ("killed by SIGKILL: out of memory", "whether for want of memory is not known", "OOMKilled")
"""Under cgroup v2, under v1, and where the kubelet has the whole container killed (memory.oom.group)."""


@pytest.mark.parametrize("launcher", BOTH_LAUNCHERS)
def test_a_script_that_fails_has_the_last_word_and_the_next_try_its_time(
    cluster: Site, namespace: Kubectl, timeline: Timeline, launcher: str
) -> None:
    job = start(
        cluster,
        namespace,
        launcher,
        command=["python", "-c", FAILS],
        workers=jobs.workers((1, 1, 1)),
        restarts=1,
    )

    def said() -> str:
        return call(namespace, "status", job.name, exit_code=None)

    waiting.until("the next try", lambda: "my own mistake; the next comes in" in said(), within_seconds=180, seen=said)
    job.wait_end("Failed")
    timeline.mark("the MPIJob has failed")
    status = told(namespace, "status", job.name, exit_code=FAILED)
    assert (status["restarts_used"], status["restarts"]) == (1, 1)
    assert status["why"].endswith("RuntimeError: my own mistake")
    assert call(namespace, "events", job.name).count("my own mistake)") == 2


@pytest.mark.faults
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_process_that_the_kernel_kills_for_want_of_memory_is_told_so(
    cluster: Site, namespace: Kubectl, timeline: Timeline, launcher: str
) -> None:
    job = start(
        cluster,
        namespace,
        launcher,
        command=["python", "-c", HUNGRY],
        workers=jobs.workers((1, 2, 2), memory="1Gi"),
    )

    def is_told() -> bool:
        events = call(namespace, "events", job.name)
        return any(words in events for words in BY_THE_KERNEL)

    waiting.until("the kill is told", is_told, within_seconds=240, every_seconds=2, seen=job.describe)
    killed = timeline.mark("the kernel has killed it")
    job.wait_size(2, since=killed)
    assert not job.account.skipped()
