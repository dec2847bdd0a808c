"""Three jobs share the GPUs that inference leaves, by one autoscaler at a time, and none of them loses a step."""

import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from hvd_elastic.decide.autoscale.controller_manifests import NAME, manifests
from hvd_elastic.decide.autoscale.decision import QUANTILE
from hvd_elastic.decide.autoscale.demand_store import DEMAND_NAME, from_text
from hvd_elastic.decide.autoscale.leadership import LEASE_NAME
from hvd_elastic.mpijob.contract import ANNOTATION_WANTED_WORKERS, ENV_EVENTS, Role
from hvd_elastic.policy.reserve import DemandHistory, reserve
from testbed.cluster import inference, jobs, pods
from testbed.cluster.jobs import Job
from testbed.cluster.site import RESULTS, Site
from testbed.cluster.standing import nothing_lost
from testbed.cluster.timeline import Timeline
from testbed.kube import waiting
from testbed.kube.kubectl import Kubectl

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(540, func_only=True)]

NODE = "on-demand"
GPUS = 4
"""Of the node, as long as the test lasts."""
NAMES = ("one", "two", "three")
SOON = 150


@pytest.fixture
def room(cluster: Site) -> Iterator[None]:
    """The node has as many GPUs as the test needs."""
    node = cluster.local().nodes[NODE]
    node.set_gpus(cluster.kubectl, GPUS)
    yield
    node.set_gpus(cluster.kubectl, node.node.gpus)


@pytest.fixture
def autoscaler(cluster: Site, namespace: Kubectl) -> Iterator[None]:
    """Two replicas with the rights that `hvd-elastic autoscaler` gives, for this namespace alone."""
    made = manifests(
        image=cluster.image,
        namespace=namespace.namespace,
        of_jobs=(namespace.namespace,),
        arguments=("--period", "2"),
    )
    cluster.kubectl.apply(made)
    yield
    cluster.kubectl("delete", "clusterrole,clusterrolebinding", NAME, "--ignore-not-found")


def submitted(site: Site, kubectl: Kubectl) -> list[Job]:
    """Three jobs of one to four workers that could use all GPUs alone."""
    jobs.priority_classes(site)
    shared = jobs.share_results(site, kubectl)
    started = []
    for name in NAMES:
        folder = shared / name
        folder.mkdir(mode=0o777)
        folder.chmod(0o777)
        keys: dict[str, Any] = {
            "node_labels": {"kubernetes.io/hostname": NODE},
            "workers": jobs.workers((1, 1, GPUS)),
            "autoscale": {"cooldown": 5},
            "checkpoint": {"url": f"file:///output/{name}/checkpoints"},  # the scheduler may take a job's only worker
            "output": {"claim": RESULTS},
            "env": {ENV_EVENTS: f"/output/{name}/events"},
        }
        command = [*jobs.PACED, "--scales", "--pace=0.2", f"--stop=/output/{name}/stop"]
        kubectl.apply(jobs.generate(jobs.describe(site, kubectl, name, command, **keys)))
        started.append(Job(kubectl=kubectl, name=name, shared=folder))
    return started


def wanted(kubectl: Kubectl) -> dict[str, int]:
    """What the autoscaler asks for, by job."""
    return {
        job["metadata"]["name"]: int(job["metadata"]["annotations"].get(ANNOTATION_WANTED_WORKERS, GPUS))
        for job in kubectl.list("mpijobs")
    }


def kept(kubectl: Kubectl) -> int:
    """GPUs that stay idle, by what the autoscaler remembers of the bursts of this test: a window lasts five minutes."""
    found = kubectl.find("configmap", DEMAND_NAME) or {}
    text = found.get("data", {}).get("demand.json")  # it is applied empty
    history = from_text(text) if text else DemandHistory()
    return reserve(history, time.time(), unclaimed=GPUS, quantile=QUANTILE)


def wait_shared(kubectl: Kubectl, started: list[Job], gpus: int) -> None:
    """Until workers are asked for with so many GPUs, less the reserve, all of them train, and nobody has none."""

    def reached() -> bool:
        sizes = [job.account.size for job in started]
        workers = [pod for job in started for pod in job.pods(Role.WORKER)]
        given = max(len(started), gpus - kept(kubectl))
        return sum(wanted(kubectl).values()) == given == sum(sizes) == len(workers) and min(sizes) >= 1

    waiting.until(
        f"three jobs share {gpus} GPUs",
        reached,
        within_seconds=SOON,
        seen=lambda: f"{wanted(kubectl)}\n{kubectl('get', 'pods', '-o', 'wide')}\n{_log(kubectl)}",
    )


def leader(kubectl: Kubectl) -> str:
    """The pod that holds the Lease; empty: none."""
    lease = kubectl.find("lease", LEASE_NAME)
    return str(lease.get("spec", {}).get("holderIdentity", "")).partition("_")[0] if lease else ""


def _log(kubectl: Kubectl) -> str:
    return kubectl("logs", f"deployment/{NAME}", "--tail=30", "--all-pods", "--prefix")


@pytest.mark.usefixtures("autoscaler")
def test_it_may_create_no_lease_and_no_config_map_and_leads_all_the_same(cluster: Site, namespace: Kubectl) -> None:
    waiting.until("one replica leads", lambda: leader(namespace), within_seconds=SOON, seen=lambda: _log(namespace))
    account = f"--as=system:serviceaccount:{namespace.namespace}:{NAME}"
    for resource in ("leases.coordination.k8s.io", "configmaps"):
        made = f"--namespace={namespace.namespace}"
        said = subprocess.run(
            cluster.kubectl.argv("auth", "can-i", "create", resource, made, account), capture_output=True, check=False
        )
        assert said.stdout.strip() == b"no", resource


@pytest.mark.usefixtures("room", "autoscaler")
def test_autoscale(cluster: Site, namespace: Kubectl, timeline: Timeline) -> None:
    started = submitted(cluster, namespace)
    load = inference.deploy(cluster, namespace, node=NODE)
    wait_shared(namespace, started, GPUS)

    timeline.mark("inference 0 -> 1")
    load.scale(1)
    load.wait(1)
    wait_shared(namespace, started, GPUS - 1)

    timeline.mark("the leader is killed")
    first = leader(namespace)
    pods.delete(namespace, first, by_force=True)
    waiting.until("another leads", lambda: leader(namespace) not in {"", first}, within_seconds=SOON)

    timeline.mark("inference 1 -> 0")
    load.scale(0)
    wait_shared(namespace, started, GPUS)
    for job in started:
        job.wait_steps(10)
        (job.shared / "stop").touch()
    for job in started:
        job.wait_end()
        nothing_lost(job.account, ended=True)
