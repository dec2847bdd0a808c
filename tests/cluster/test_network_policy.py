"""The generated NetworkPolicies, enforced on the nodes: strangers reach nothing of a job, and the job lacks nothing."""

import ipaddress
import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pytest

from hvd_elastic.mpijob.contract import READY_PORT, SSH_PORT, Role
from testbed.cluster import jobs, pods
from testbed.cluster.jobs import Job
from testbed.cluster.site import Site, make_namespace, remove_namespace
from testbed.cluster.standing import BOTH_LAUNCHERS
from testbed.cluster.timeline import Timeline
from testbed.kube import addons, waiting
from testbed.kube.daemons import Daemon
from testbed.kube.kubectl import Kubectl

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420, func_only=True)]

SIZES: Final = {"launch": (1, 2, 3), "horovodrun": (3, 3, 3)}
"""Workers min, start, max. The first grows behind its policies; stock may never use a host that comes as it starts."""
SPOT: Final = {"kubernetes.io/hostname": "spot"}
ON_DEMAND: Final = {"kubernetes.io/hostname": "on-demand"}
SERVED: Final = 8000
API: Final = ["kubernetes.default.svc.cluster.local", 443]

Target = list[Any]
"""Address and port."""

_PROBE: Final = """
import concurrent.futures, json, socket, sys
def probe(target):
    try:
        socket.create_connection(target, timeout=3).close()
        return "open"
    except TimeoutError:
        return "silent"
    except OSError as error:
        return f"refused: {error}"
targets = [tuple(each) for each in json.loads(sys.argv[1])]
with concurrent.futures.ThreadPoolExecutor(len(targets)) as pool:
    print(json.dumps(list(pool.map(probe, targets))))
"""
_SERVE: Final = """
import os, socket, time
server = socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
if os.fork() == 0:
    os.setsid()
    for standard in range(3):
        os.close(standard)
    time.sleep(600)
"""
"""Listens on a port that nobody knew before, as Gloo does, until its pod ends."""
_LISTENING: Final = """
import json
rows = [line.split() for name in ("tcp", "tcp6") for line in open(f"/proc/net/{name}").readlines()[1:]]
listening = [row[1].split(":") for row in rows if row[3] == "0A"]
loopback = ("0100007F", "00000000000000000000000001000000")
print(json.dumps(sorted({int(port, 16) for address, port in listening if address not in loopback})))
"""
"""The ports that processes of the pod listen on (proc(5): state 0A), but for those of its loopback interface."""


@pytest.fixture(scope="module")
def enforced(cluster: Site) -> Iterator[Daemon]:
    """NetworkPolicies are enforced on both nodes while the tests of this module run."""
    machine = cluster.local()
    nodes = {name: running.link.netns for name, running in machine.nodes.items()}
    engine = addons.start_policies(machine.plane, cluster.kubectl, nodes=nodes)
    try:
        yield engine
        engine.require_alive()
    finally:
        addons.stop_policies(machine.plane, nodes=nodes)


@pytest.fixture
def elsewhere(cluster: Site, namespace: Kubectl) -> Iterator[Kubectl]:
    """Another namespace."""
    yield make_namespace(cluster, f"{namespace.namespace}-else")
    remove_namespace(cluster, f"{namespace.namespace}-else")


@pytest.mark.usefixtures("enforced")
@pytest.mark.parametrize("launcher", BOTH_LAUNCHERS)
def test_only_the_jobs_own_pods_reach_it(
    cluster: Site, namespace: Kubectl, elsewhere: Kubectl, timeline: Timeline, launcher: str
) -> None:
    strangers = {"stranger": namespace, "foreigner": elsewhere}
    for name, scope in strangers.items():
        command = ["python3", "-m", "http.server", str(SERVED), "--directory", "/etc/ssh"]
        scope.apply([pods.pod(name, image=cluster.image, command=command, selector=SPOT)])
    job = _start(cluster, namespace, launcher)
    job.wait_size(3)
    timeline.mark("trains behind its policies")
    outside = [[pods.wait_ready(scope, name), SERVED] for name, scope in strangers.items()]
    inside = {role: _listening(job, role) for role in Role}
    assert {SSH_PORT, READY_PORT} <= {port for _, port in inside[Role.WORKER]}
    assert inside[Role.LAUNCHER], "nothing listens in the launcher's pod: where is the rendezvous?"
    targets = [*inside[Role.WORKER], *inside[Role.LAUNCHER]]

    # First what is closed: before the engine knows a pod, all is open.
    for name, scope in strangers.items():
        _wait_all(scope, name, "main", targets, "silent")
    workers = [pod["metadata"]["name"] for pod in job.pods(Role.WORKER)]
    (launcher_pod,) = [pod["metadata"]["name"] for pod in job.pods(Role.LAUNCHER)]
    for name in workers:
        assert _probe(namespace, name, "worker", targets) == ["open"] * len(targets)
        assert _probe(namespace, name, "worker", outside) == ["silent"] * len(outside)
    assert _probe(namespace, launcher_pod, "launcher", targets) == ["open"] * len(targets)
    assert _probe(namespace, launcher_pod, "launcher", outside) == ["silent"] * len(outside)
    # Names are resolved in both; the API server answers the launcher's pod alone.
    assert _probe(namespace, launcher_pod, "launcher", [API]) == ["open"]
    assert _probe(namespace, workers[0], "worker", [API]) == ["silent"]
    timeline.mark("probed")

    job.wait_steps(10)
    assert not job.account.repeated()
    # What kept strangers out were the policies and nothing else.
    namespace("delete", "networkpolicies", "--all")
    for name, scope in strangers.items():
        _wait_all(scope, name, "main", targets, "open")
    job.finish()
    assert not job.account.skipped()


@pytest.mark.usefixtures("enforced")
@pytest.mark.parametrize("launcher", BOTH_LAUNCHERS)
def test_workers_in_the_nodes_network_and_their_launcher_reach_each_other(
    cluster: Site, namespace: Kubectl, timeline: Timeline, launcher: str
) -> None:
    """The launcher is behind its policy; that of the workers has no effect."""
    namespace("label", "namespace", namespace.namespace, "pod-security.kubernetes.io/enforce=privileged", "--overwrite")
    command = ["sleep", "600"]
    namespace.apply([pods.pod("stranger", image=cluster.image, command=command, selector=SPOT)])
    nodes = [str(ipaddress.ip_network(node.address)) for node in cluster.local().nodes.values()]
    workers = jobs.workers((2, 2, 2), pod={"spec": {"hostNetwork": True}})
    job = _start(cluster, namespace, launcher, workers=workers, nodes=nodes)
    job.wait_size(2)
    timeline.mark("trains behind the launcher's policy")
    pods.wait_ready(namespace, "stranger")
    listening = _listening(job, Role.LAUNCHER)
    assert listening
    _wait_all(namespace, "stranger", "main", listening, "silent")
    job.wait_steps(10)
    job.finish()
    assert not job.account.skipped()


def _start(
    cluster: Site,
    namespace: Kubectl,
    launcher: str,
    *,
    workers: dict[str, Any] | None = None,
    nodes: Sequence[str] = (),
) -> Job:
    jobs.priority_classes(cluster)
    plane = cluster.local().plane
    description = jobs.describe(
        cluster,
        namespace,
        "walled",
        jobs.PACED,
        launcher={"kind": launcher, "cpu": "100m"},
        workers=workers or jobs.workers(SIZES[launcher]),
        # As in any cluster whose API server listens on a port of its own.
        network={"api_ports": [plane.api_port], "ipv6": plane.subnets.ipv6, "nodes": [*nodes]},
    )
    return jobs.submit(cluster, namespace, description)


def _listening(job: Job, role: Role) -> list[Target]:
    """Return all that listens in the job's pods of a role, and one port more in each worker, opened now."""
    found: list[Target] = []
    for pod in job.pods(role):
        name, address = pod["metadata"]["name"], pod["status"]["podIP"]
        if role is Role.WORKER:
            pods.python(job.kubectl, name, _SERVE, container=role)
        ports = json.loads(pods.python(job.kubectl, name, _LISTENING, container=role))
        found += [[address, port] for port in ports]
    return found


def _probe(kubectl: Kubectl, pod: str, container: str, targets: list[Target]) -> list[str]:
    """Try to connect from a pod to each target: `open`, `silent`, or an error that some host answered with."""
    said: list[str] = json.loads(pods.python(kubectl, pod, _PROBE, json.dumps(targets), container=container))
    return said


def _wait_all(kubectl: Kubectl, pod: str, container: str, targets: list[Target], wanted: str) -> None:
    """Wait until all targets answer as wanted: an engine may be a moment behind the pods that it hears of."""
    said: list[str] = []

    def agrees() -> bool:
        said[:] = _probe(kubectl, pod, container, targets)
        return said == [wanted] * len(targets)

    waiting.until(
        f"{pod} finds all {len(targets)} ports {wanted}",
        agrees,
        within_seconds=60,
        seen=lambda: str(list(zip(targets, said, strict=True))),
    )
