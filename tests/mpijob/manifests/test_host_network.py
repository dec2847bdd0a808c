"""Workers in their nodes' network: ports that the scheduler keeps apart, an identity beside the address, policies."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.mpijob import contract
from hvd_elastic.mpijob.checks import job_notes
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.description.network_spec import NODE_PORTS, WorkerPorts, port_count
from hvd_elastic.mpijob.description.target import Target
from hvd_elastic.mpijob.manifests.render import render
from hvd_elastic.mpijob.problems import InvalidInputError
from tests.mpijob.jobs import job, one, pods, refused
from tests.mpijob.manifests.test_network_policies import admits, labels

ON_NODES: dict[str, Any] = {"workers__pod": {"spec": {"hostNetwork": True}}}
NODE, INTERNET = "10.1.2.3", "203.0.113.7"


def variables(pod: dict[str, Any]) -> dict[str, Any]:
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in pod["containers"][0]["env"]}


def option(command: list[str], name: str) -> int:
    return int(command[command.index(name) + 1])


@pytest.mark.parametrize("kind", ["launch", "horovodrun"])
def test_all_parts_agree_on_ports_that_the_node_gives_to_one_pod(kind: str) -> None:
    spec = job(**ON_NODES, workers__slots=2, launcher__kind=kind, network__host_port=25_000)
    launcher, worker = pods(spec)
    (training,) = worker["containers"]
    assert (worker["hostNetwork"], worker["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert "hostNetwork" not in launcher
    assert {port["name"]: port["hostPort"] for port in training["ports"]} == {
        "ssh": 25_000,
        "ready": 25_001,
        "metrics-0": 25_002,
        "metrics-1": 25_003,
    }
    assert all(port["hostPort"] == port["containerPort"] for port in training["ports"])
    assert training["readinessProbe"]["tcpSocket"] == {"port": 25_001}
    assert option(training["command"], "--ssh-port") == option(launcher["containers"][0]["command"], "--ssh-port")
    sidecar = launcher["initContainers"][0]["command"]
    assert option(training["command"], "--ready-port") == option(sidecar, "--ready-port") == 25_001
    for pod in (launcher, worker):  # the launcher's variables go to the processes that it starts
        assert variables(pod)[contract.ENV_METRICS_PORT] == "25002"


def test_a_worker_is_told_what_tells_it_from_others_and_no_interface_of_a_pod() -> None:
    launcher, worker = pods(job(**ON_NODES, workers__gpus=1))
    assert variables(worker)[contract.ENV_POD_UID] == {"fieldRef": {"fieldPath": "metadata.uid"}}
    assert variables(worker)[contract.ENV_HOST_ADDRESS] == {"fieldRef": {"fieldPath": "status.hostIP"}}
    assert "NCCL_SOCKET_IFNAME" not in variables(launcher) | variables(worker)
    named = {"NCCL_SOCKET_IFNAME": "ib0"}
    assert variables(pods(job(**ON_NODES, env=named))[1])["NCCL_SOCKET_IFNAME"] == "ib0"


def test_without_it_nothing_is_different() -> None:
    for pod in pods(job()):
        assert not {"hostNetwork", "dnsPolicy"} & pod.keys()
        assert not {contract.ENV_POD_UID, contract.ENV_HOST_ADDRESS, contract.ENV_METRICS_PORT} & variables(pod).keys()
        assert not any("hostPort" in port for port in pod["containers"][0].get("ports", ()))
    assert job().worker_ports == WorkerPorts()


def test_a_worker_of_the_training_operator_has_such_ports_too() -> None:
    _, worker = pods(job(**ON_NODES), Target.MPIJOB_V1)
    assert [port["hostPort"] for port in worker["containers"][0]["ports"]] == [
        job(**ON_NODES).worker_ports.ssh + number for number in range(3)
    ]


@given(st.from_regex(r"[a-z]{1,20}", fullmatch=True), st.integers(1, 64))
def test_chosen_ports_are_those_that_nobody_else_takes(name: str, slots: int) -> None:
    spec = job(**ON_NODES, name=name, workers__slots=slots)
    first = spec.worker_ports.ssh
    assert job(**ON_NODES, name=name, workers__slots=slots).worker_ports.ssh == first
    assert NODE_PORTS.start <= first
    assert first + port_count(spec.workers.slots) <= NODE_PORTS.stop


def test_two_jobs_may_share_a_node() -> None:
    """Jobs of one size take blocks that are the same or have nothing in common; hardly two have the same."""
    first = [job(**ON_NODES, name=f"job-{number}").worker_ports.ssh for number in range(20)]
    assert len(set(first)) == 20
    assert {port % 3 for port in first} == {NODE_PORTS.start % 3}
    assert job(**ON_NODES, namespace="other").worker_ports != job(**ON_NODES).worker_ports


@pytest.mark.parametrize(
    ("keys", "path", "words"),
    [
        ({"network__host_port": 25_000}, "--network-host-port", "has no effect"),
        ({"network__nodes": ["10.0.0.0/8"]}, "--network-nodes", "has no effect"),
        ({**ON_NODES, "network__host_port": 29_998}, "--network-host-port", "choose one from 1024 to 29997"),
        ({**ON_NODES, "network__host_port": 40_000}, "--network-host-port", "connections that the node makes"),
        ({**ON_NODES, "network__host_port": 65_535}, "--network-host-port", "the node's ports 65535 to 65537"),
        ({**ON_NODES, "network__host_port": 22}, "--network-host-port", "1024"),
        ({**ON_NODES, "workers__slots": 10_000}, "network.host_port", "lower workers.slots"),
        (
            {**ON_NODES, "network__nodes": ["10.0.0.0/8"], "network__policy": False},
            "--network-nodes",
            "there is no NetworkPolicy",
        ),
    ],
)
def test_ports_that_are_none_are_refused(keys: dict[str, Any], path: str, words: str) -> None:
    assert words in refused(**keys)[path]


def problems(spec: JobSpec, target: Target = Target.MPIJOB) -> dict[str, str]:
    with pytest.raises(InvalidInputError) as caught:
        render(spec, target)
    return {problem.path: str(problem) for problem in caught.value.problems}


def test_where_ports_are_not_chosen_it_is_refused() -> None:
    on_nodes = {"spec": {"mpiReplicaSpecs": {"Worker": {"template": {"spec": {"hostNetwork": True}}}}}}
    (said,) = problems(job(patches=[{"target": {"kind": "MPIJob"}, "patch": on_nodes}])).values()
    assert "set it in workers.pod alone" in said
    assert list(problems(job(launcher__pod=ON_NODES["workers__pod"]))) == ["launcher.pod.spec.hostNetwork"]
    assert "torchrun's ports" in problems(job(**ON_NODES), Target.PYTORCHJOB)["workers.pod.spec.hostNetwork"]


def test_the_launcher_reaches_nodes_and_nodes_reach_it() -> None:
    spec = job(**ON_NODES)
    launcher = labels(spec, "Launcher")
    for direction in ("Ingress", "Egress"):
        assert admits(spec, direction, launcher, NODE, 40_000)
        assert not admits(spec, direction, launcher, INTERNET, 40_000)
        assert not admits(job(), direction, launcher, NODE, 40_000)
    named = job(**ON_NODES, network__nodes=["10.1.2.0/24"])
    assert admits(named, "Egress", launcher, NODE, 40_000)
    assert not admits(named, "Egress", launcher, "10.1.3.3", 40_000)


def test_what_it_costs_is_said() -> None:
    assert job_notes(job()) == []
    ports, policies = job_notes(job(**ON_NODES, network__host_port=25_000))
    assert "ports 25000 to 25002 of its node" in ports
    assert "NetworkPolicies mostly do not apply" in policies


def test_the_description_keeps_it() -> None:
    annotations = one(job(**ON_NODES), "MPIJob")["metadata"]["annotations"]
    assert "hostNetwork" in annotations[contract.ANNOTATION_SPEC]
