"""A node that announces its end, as each cloud's own program does it: its worker leaves first, and then the node goes.

The programs are not here, for they need a cloud. The test does to the node what they do, as their sources say it:

- AWS, the node termination handler: a taint (`TaintSpotItn`), a cordon, evictions (`pkg/interruptionevent/draincordon/
  handler.go`, in this order);
- AKS: the condition VMEventScheduled, the remediator's taint, a cordon, evictions
  (https://learn.microsoft.com/azure/aks/node-auto-drain);
- GKE: the kubelet says that its machine shuts down (`pkg/kubelet/nodeshutdown`), and the machine is gone at once.

What follows is the cloud's part too: the machine stops, its Node object is deleted, and another machine comes.
"""

import re
import signal
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest

from hvd_elastic.mpijob.contract import DISCOVERY_METRICS_PORT, Role
from testbed.cluster import jobs
from testbed.cluster.jobs import Job
from testbed.cluster.site import Site
from testbed.cluster.standing import nothing_lost, start
from testbed.cluster.timeline import Timeline
from testbed.kube import waiting
from testbed.kube.controlplane import CGROUP
from testbed.kube.kubectl import Kubectl
from testbed.kube.ledger import end_processes
from tests.cluster.incidents import evict
from tests.cluster.test_operating import told

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(480, func_only=True)]

SPOT: Final = "spot"
EVENT: Final = f"spot-itn-{'0' * 54}"
"""As the handler makes it of the notice, cut to the length of a taint's value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """How a cloud announces the end of a node."""

    taint: str = ""
    """KEY=VALUE of what is put on the node, with the effect NoSchedule."""
    condition: str = ""
    """A condition of the node's status that is set to True."""
    shuts_down: bool = False
    """Whether the kubelet says so, and nobody else."""
    drains: bool = True
    """Whether somebody evicts the pods before the machine stops."""

    @property
    def word(self) -> str:
        """What discovery gives as the reason."""
        return self.taint.partition("=")[0] or "node is shutting down"


AWS: Final = Notice(taint=f"aws-node-termination-handler/spot-itn={EVENT}")
AKS: Final = Notice(taint="remediator.kubernetes.azure.com/unschedulable=", condition="VMEventScheduled")
GKE: Final = Notice(shuts_down=True, drains=False)


class Machine:
    """The spot node, and what its cloud does to it."""

    def __init__(self, site: Site) -> None:
        self.kubectl = site.kubectl
        self.node = site.local().nodes[SPOT]
        self.is_whole = True
        self.kubelet = site.local().daemon(f"{SPOT}-kubelet")

    def announce(self, notice: Notice) -> None:
        """Say that it goes, and do nothing about it yet."""
        self.is_whole = False
        if notice.condition:
            self._condition(notice.condition, "True", "VMEventScheduled", "Preempt scheduled")
        if notice.shuts_down:
            # The kubelet of a machine without systemd hears of no shutdown. It is stopped, or it would say at its next
            # look that all is well.
            self.kubelet.pause()
            self._condition("Ready", "False", "KubeletNotReady", notice.word)
        if notice.taint:
            self.kubectl("taint", "node", SPOT, f"{notice.taint}:NoSchedule")
            self.kubectl("cordon", SPOT)

    def end(self) -> None:
        """Stop it at once, with all that runs on it, and let the cloud forget the Node."""
        self.is_whole = False
        self.node.link.set(up=False)
        self.kubelet.stop(with_signal=signal.SIGKILL)
        end_processes(f"{CGROUP}/{SPOT}")
        self.kubectl("delete", "node", SPOT, "--ignore-not-found")

    def begin(self) -> None:
        """Another machine of the name: its kubelet registers a Node that nobody has announced anything of."""
        self.node.link.set(up=True)
        self.kubelet.start()
        self.node.furnish(self.kubectl)
        self.is_whole = True

    def _condition(self, kind: str, status: str, reason: str, message: str) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        condition = {"type": kind, "status": status, "reason": reason, "message": message}
        times = {"lastTransitionTime": now, "lastHeartbeatTime": now}
        value = {"status": {"conditions": [{**condition, **times}]}}
        self.kubectl.patch("node", SPOT, value, subresource="status", how="strategic")


@pytest.fixture
def machine(cluster: Site, namespace: Kubectl) -> Iterator[Machine]:
    """The spot node with one GPU, so that of three workers one stands there. It is whole again after the test."""
    found = Machine(cluster)
    found.node.set_gpus(cluster.kubectl, 1)
    yield found
    if not found.is_whole:
        found.end()
        found.begin()
    found.node.set_gpus(cluster.kubectl, found.node.node.gpus)
    for kind in ("clusterrole", "clusterrolebinding"):
        cluster.kubectl("delete", kind, f"{namespace.namespace}.sponge.node-reader", "--ignore-not-found")


@pytest.mark.parametrize(
    ("notice", "launcher"),
    [
        pytest.param(AWS, "launch", id="aws-launch", marks=pytest.mark.core),
        pytest.param(AKS, "horovodrun", id="aks-horovodrun"),
        pytest.param(GKE, "launch", id="gke-launch"),
    ],
)
def test_a_worker_leaves_before_its_node(
    cluster: Site, namespace: Kubectl, timeline: Timeline, machine: Machine, notice: Notice, launcher: str
) -> None:
    job = start(cluster, namespace, launcher, node_labels={}, workers=jobs.workers((1, 3, 3)), read_nodes=True)
    job.wait_size(3)
    (worker,) = [pod["metadata"] for pod in job.pods(Role.WORKER) if pod["spec"]["nodeName"] == SPOT]

    announced = timeline.mark("the node announces its end")
    machine.announce(notice)
    job.wait_size(2, since=announced)
    left = time.time()
    assert offered(job) == 2
    why = f"node-at-risk: {notice.condition}" if notice.condition else f"node-draining: {notice.word}"
    waiting.until("discovery says why", lambda: why in job.log("discovery"), within_seconds=30, seen=job.describe)
    assert not timeline.first(lambda seen: seen.uid == worker["uid"] and (seen.leaving or bool(seen.disrupted)))
    assert namespace.get("pod", worker["name"])["metadata"]["uid"] == worker["uid"], "it has left, but nobody took it"

    if notice.drains:
        timeline.mark("its pods are evicted")
        evict(job, worker["name"])
        waiting.until("the worker is gone", lambda: gone(namespace, worker), within_seconds=60, seen=job.describe)
        words = f"drained with its node ({notice.word})"
        waiting.until("the story says why", lambda: words in story(job), within_seconds=60, seen=lambda: story(job))
    timeline.mark("the machine stops")
    machine.end()
    job.wait_steps(20)
    assert job.account.since(left).sizes == [2]

    back = timeline.mark("another machine comes")
    machine.begin()
    job.wait_size(3, since=back, within_seconds=180)
    job.finish()
    nothing_lost(job.account, ended=True)


def offered(job: Job) -> int:
    """The hosts that the sidecar of the job offers now, by its metrics."""
    (launcher,) = job.pods(Role.LAUNCHER)
    url = f"http://{launcher['status']['podIP']}:{DISCOVERY_METRICS_PORT}/metrics"
    with urllib.request.urlopen(url, timeout=10) as answer:
        (line,) = re.findall(r"^hvd_elastic_discovery_hosts (.*)$", answer.read().decode(), re.MULTILINE)
    return int(float(line))


def gone(namespace: Kubectl, worker: dict[str, Any]) -> bool:
    found = namespace.find("pod", worker["name"])
    return found is None or found["metadata"]["uid"] != worker["uid"]


def story(job: Job) -> str:
    return "\n".join(one["what"] for one in told(job.kubectl, "events", job.name))
