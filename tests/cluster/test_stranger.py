"""A pod of somebody else, where no policy keeps it out, tries all that it can on a job's ports; the job trains on."""

import json
import subprocess
from typing import Final

import pytest

from hvd_elastic.mpijob.contract import READY_PORT, SSH_PORT, Role
from testbed.cluster import inference, jobs, pods
from testbed.cluster.jobs import Job
from testbed.cluster.site import Site
from testbed.cluster.standing import LAUNCHERS, SIZE, nothing_lost, start
from testbed.cluster.timeline import Timeline
from testbed.kube import waiting
from testbed.kube.kubectl import Kubectl

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420, func_only=True)]

SCRIPT: Final = (jobs.SCRIPTS / "stranger.py").read_text()
SECONDS: Final = 60
ON_DEMAND: Final = {"kubernetes.io/hostname": "on-demand"}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_stranger_at_all_ports_costs_no_step(
    cluster: Site, namespace: Kubectl, timeline: Timeline, launcher: str
) -> None:
    cluster.local()  # which enforces no NetworkPolicy
    namespace.apply([pods.pod("stranger", image=cluster.image, command=["sleep", "600"], selector=ON_DEMAND)])
    pods.wait_ready(namespace, "stranger")
    job = start(cluster, namespace, launcher)
    first = _attack(namespace, [_launcher_address(job)])  # from before any worker has shown the launcher its token
    timeline.mark("the stranger is at the launcher's ports")
    job.wait_size(SIZE, within_seconds=240)
    everywhere = _attack(namespace, [_launcher_address(job), *(_address(pod) for pod in job.pods(Role.WORKER))])
    timeline.mark("and at all workers' ports")

    # Worlds form under it, too.
    load = inference.deploy(cluster, namespace)
    load.scale(1)
    job.wait_size(SIZE - 1)
    load.wait(1)
    back = timeline.mark("inference has taken a worker")
    load.scale(0)
    job.wait_size(SIZE, since=back)
    for attack in (first, everywhere):
        output, errors = attack.communicate(timeout=120)
        assert attack.returncode == 0, errors
        said = json.loads(output)
        assert said["tried"], "it found nothing to try"
        timeline.mark(f"it tried {sum(said['tried'].values())} times at ports {said['ports']}")
    assert {SSH_PORT, READY_PORT} <= set(said["ports"])
    (launcher_pod,) = job.pods(Role.LAUNCHER)
    assert sum(one["restartCount"] for one in launcher_pod["status"]["containerStatuses"]) == 0
    job.wait_steps(20)
    nothing_lost(job.account)


def _address(pod: dict[str, dict[str, str]]) -> str:
    return pod["status"]["podIP"]


def _launcher_address(job: Job) -> str:
    def address() -> str | None:
        found = job.pods(Role.LAUNCHER)
        return found[0]["status"].get("podIP") if found else None

    return str(waiting.until("the launcher has an address", address, within_seconds=60, seen=job.describe))


def _attack(kubectl: Kubectl, addresses: list[str]) -> subprocess.Popen[str]:
    argv = kubectl.argv("exec", "stranger", "--", "python3", "-c", SCRIPT, str(SECONDS), ",".join(addresses))
    return subprocess.Popen(argv, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
