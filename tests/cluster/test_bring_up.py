"""The cluster itself is what the scenarios need it to be: a scheduler that preempts, a node that can be lost, names."""

import signal
import subprocess
from typing import Any

import pytest

from testbed.cluster import pods
from testbed.cluster.site import Site
from testbed.cluster.timeline import Timeline
from testbed.kube import __main__ as kube
from testbed.kube import store, waiting
from testbed.kube.kubectl import Kubectl, condition_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300, func_only=True)]


def _pod(name: str, *, node: str, image: str = store.PAUSE_IMAGE, **keys: Any) -> dict[str, Any]:
    return pods.pod(name, image=image, selector={"kubernetes.io/hostname": node}, **keys)


def _running(kubectl: Kubectl, name: str) -> None:
    pods.wait_ready(kubectl, name, within_seconds=60)


@pytest.mark.core
def test_pods_of_two_nodes_reach_each_other_by_name(cluster: Site, namespace: Kubectl) -> None:
    cluster.local()
    files = ["python3", "-m", "http.server", "8000", "--directory", "/etc/ssh"]
    serve = _pod("server", node="spot", image=cluster.image, command=files)
    client = _pod("client", node="on-demand", image=cluster.image, command=["sleep", "600"])
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "server"},
        "spec": {"clusterIP": "None", "selector": {"app": "server"}, "ports": [{"port": 8000}]},
    }
    namespace.apply([serve, client, service])
    _running(namespace, "server")
    _running(namespace, "client")
    fetch = "import urllib.request as u; print(u.urlopen('http://server:8000/sshd_config', timeout=5).status)"
    said = waiting.until(
        "the name resolves and answers",
        lambda: _exec(namespace, "client", fetch),
        within_seconds=20,
        every_seconds=0.5,
    )
    assert said == "200"


def test_inference_preempts_on_a_full_node(cluster: Site, namespace: Kubectl, timeline: Timeline) -> None:
    gpus = cluster.local().nodes["spot"].node.gpus
    classes = [("test-low", 10, "Never"), ("test-high", 1000, "PreemptLowerPriority")]
    cluster.kubectl.apply(
        [
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
                "preemptionPolicy": policy,
            }
            for name, value, policy in classes
        ]
    )
    namespace.apply([_pod(f"low-{index}", node="spot", gpus=1, priority="test-low") for index in range(gpus)])
    for index in range(gpus):
        _running(namespace, f"low-{index}")
    began = timeline.mark("inference")
    namespace.apply([_pod("inference", node="spot", gpus=1, priority="test-high")])
    _running(namespace, "inference")
    victim = timeline.first(lambda seen: bool(seen.disrupted), since=began)
    assert victim is not None
    assert victim.disrupted == "PreemptionByScheduler"


def test_a_cut_cable_is_a_lost_node_until_it_is_plugged_in(cluster: Site, namespace: Kubectl) -> None:
    spot = cluster.local().nodes["spot"]
    spot.link.set(up=False)
    try:
        waiting.until(
            "the control plane gives the node up",
            lambda: condition_of(cluster.kubectl.get("node", "spot"), "Ready") == "Unknown",
            within_seconds=90,
            every_seconds=0.5,
        )
    finally:
        spot.link.set(up=True)
    cluster.kubectl.wait("node", "spot", condition="Ready", within_seconds=60)
    namespace.apply([_pod("back", node="spot")])
    _running(namespace, "back")


def test_the_api_server_comes_back_with_everything_it_knew(cluster: Site, namespace: Kubectl) -> None:
    namespace.apply([_pod("before", node="on-demand")])
    _running(namespace, "before")
    cluster.local().restart_api_server()
    assert namespace.find("pod", "before")
    namespace.apply([_pod("after", node="on-demand")])
    _running(namespace, "after")


def test_a_cluster_that_lost_a_part_is_not_taken_for_one_that_runs(cluster: Site) -> None:
    machine = cluster.local()
    scheduler = machine.daemon("kube-scheduler")
    assert machine.ended() == []
    scheduler.stop(with_signal=signal.SIGKILL)
    assert machine.ended() == ["kube-scheduler"]
    assert kube.main(["status"]) == 1
    scheduler.start()
    assert machine.ended() == []


def test_namespaces_of_the_tests_refuse_pods_that_are_not_restricted(namespace: Kubectl) -> None:
    pod = _pod("root", node="spot")
    pod["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    with pytest.raises(Exception, match="violates PodSecurity"):
        namespace.apply([pod])


def _exec(kubectl: Kubectl, pod: str, program: str) -> str:
    argv = kubectl.argv("exec", pod, "--", "python3", "-c", program)
    return subprocess.run(argv, text=True, capture_output=True, check=False, timeout=20).stdout.strip()
