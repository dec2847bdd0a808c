"""A cluster whose nodes, pods and services have IPv6 addresses alone: `make test-cluster-ipv6` brings one up."""

import pytest

from hvd_elastic.mpijob.contract import Role
from testbed.cluster import inference, pods
from testbed.cluster.site import Site
from testbed.cluster.standing import SIZE, nothing_lost, start
from testbed.cluster.timeline import Timeline
from testbed.kube.kubectl import Kubectl

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420, func_only=True)]


@pytest.mark.parametrize("launcher", ["launch", "horovodrun"])
def test_a_job_trains_and_gives_way_over_ipv6_alone(
    cluster: Site, namespace: Kubectl, timeline: Timeline, launcher: str
) -> None:
    if not cluster.local().plane.subnets.ipv6:
        pytest.skip("the cluster that runs has IPv4 addresses: make test-cluster-ipv6")
    load = inference.deploy(cluster, namespace)
    job = start(cluster, namespace, launcher, network={"ipv6": True})
    job.wait_size(SIZE)
    addresses = [each["ip"] for role in Role for pod in job.pods(role) for each in pod["status"]["podIPs"]]
    assert len(addresses) == SIZE + 1
    assert all(":" in address for address in addresses)

    taken = timeline.mark("inference takes two GPUs")
    load.scale(2)
    load.wait(2)
    job.wait_size(SIZE - 2, since=taken)
    back = timeline.mark("both are given back")
    load.scale(0)
    job.wait_size(SIZE, since=back)
    gone = timeline.mark("a worker is replaced")
    pods.delete(namespace, job.pods(Role.WORKER)[0]["metadata"]["name"])
    job.wait_smaller(SIZE, since=gone)
    job.wait_size(SIZE, since=gone)
    job.finish()
    nothing_lost(job.account, ended=True)
