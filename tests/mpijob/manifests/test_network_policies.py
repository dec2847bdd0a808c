"""The policies against a model of how a network plugin reads them: that of the test cluster, which enforces it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.mpijob import contract
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.description.target import Target
from hvd_elastic.mpijob.job_reader import read_job
from hvd_elastic.mpijob.manifests.render import render
from hvd_elastic.mpijob.problems import InvalidInputError
from testbed.kube.policy import Direction, Pod, World
from tests.mpijob import admission
from tests.mpijob.jobs import job, refused

Labels = dict[str, str]
STRANGER = {"app": "other"}
INTERNET = "203.0.113.7"
NAME_SERVER = {"k8s-app": "kube-dns"}
METADATA, POD_IDENTITY, GKE_METADATA = "169.254.169.254", "169.254.170.23", "169.254.169.252"


def labels(spec: JobSpec, role: str) -> Labels:
    (manifest,) = (manifest for manifest in render(spec) if manifest["kind"] == "MPIJob")
    found: Labels = dict(admission.templates(manifest))[role]["metadata"]["labels"]
    return found


def admits(
    spec: JobSpec,
    direction: str,
    labels_of_pod: Labels,
    peer: Labels | str,
    port: int,
    namespace: str = "default",
    protocol: str = "tcp",
) -> bool:
    """Whether traffic of a pod of the job from or to `peer` is allowed: the labels of a pod, or an address."""
    pod = Pod(namespace=spec.namespace, name="pod", labels=labels_of_pod, address="8.8.0.1")
    address = peer if isinstance(peer, str) else "8.8.0.2"
    others = () if isinstance(peer, str) else (Pod(namespace=namespace, name="peer", labels=peer, address=address),)
    policies = tuple(manifest for manifest in render(spec) if manifest["kind"] == "NetworkPolicy")
    world = World(pods=(pod, *others), namespaces={spec.namespace: {}, namespace: {}}, policies=policies)
    return world.passes(pod, address, port, protocol, Direction(direction))


def test_own_pods_reach_each_other_on_any_port() -> None:
    spec = job()
    launcher, worker = labels(spec, "Launcher"), labels(spec, "Worker")
    for port in (contract.SSH_PORT, contract.READY_PORT, 40_000):
        for pod, peer in ((launcher, worker), (worker, launcher), (worker, worker)):
            assert admits(spec, "Ingress", pod, peer, port)
            assert admits(spec, "Egress", pod, peer, port)


def test_nobody_else_reaches_them() -> None:
    spec = job()
    other = labels(job(name="other"), "Worker")
    for pod in (labels(spec, "Launcher"), labels(spec, "Worker")):
        for port in (contract.SSH_PORT, contract.READY_PORT, 40_000, contract.LAUNCHER_METRICS_PORT):
            assert not admits(spec, "Ingress", pod, STRANGER, port)
            assert not admits(spec, "Ingress", pod, other, port)
            assert not admits(spec, "Ingress", pod, labels(spec, "Worker"), port, namespace="elsewhere")


def test_monitoring_reaches_metrics_and_nothing_else() -> None:
    spec = job(workers__slots=3)
    worker = labels(spec, "Worker")
    for port in (contract.DISCOVERY_METRICS_PORT, contract.WORKER_METRICS_PORT, contract.WORKER_METRICS_PORT + 2):
        assert admits(spec, "Ingress", worker, STRANGER, port, namespace="monitoring")
    for port in (contract.SSH_PORT, contract.WORKER_METRICS_PORT + 3):
        assert not admits(spec, "Ingress", worker, STRANGER, port, namespace="monitoring")
    assert not admits(spec, "Ingress", worker, STRANGER, contract.WORKER_METRICS_PORT, namespace="elsewhere")


def test_ways_out_are_dns_storage_and_for_the_launcher_the_api_server() -> None:
    spec = job(network__storage_ports=[9000])
    launcher, worker = labels(spec, "Launcher"), labels(spec, "Worker")
    for pod in (launcher, worker):
        assert admits(spec, "Egress", pod, INTERNET, 9000)
        assert not admits(spec, "Egress", pod, INTERNET, 80)
    assert admits(spec, "Egress", launcher, INTERNET, 6443)
    assert not admits(spec, "Egress", worker, INTERNET, 6443)


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_names_are_asked_of_the_cluster_and_of_nobody_else(protocol: str) -> None:
    spec = job()
    for pod in (labels(spec, "Launcher"), labels(spec, "Worker")):
        for label in ("kube-dns", "node-local-dns"):
            server = {"k8s-app": label}
            assert admits(spec, "Egress", pod, server, 53, namespace="kube-system", protocol=protocol)
            assert not admits(spec, "Egress", pod, server, 53, namespace="elsewhere", protocol=protocol)
        for address in ("10.96.0.10", "172.20.0.10", "192.168.0.10", "100.64.0.10", "169.254.20.10"):
            assert admits(spec, "Egress", pod, address, 53, protocol=protocol)
        assert not admits(spec, "Egress", pod, INTERNET, 53, protocol=protocol)


def test_pods_with_ipv6_alone_have_ways_out_by_ipv6_alone() -> None:
    """Some network plugins fail at a block of the cluster's other kind."""
    for cloud in ("any", "eks", "gke"):
        spec = job(cloud=cloud, network__ipv6=True, checkpoint="s3://b")
        worker = labels(spec, "Worker")
        assert admits(spec, "Egress", worker, NAME_SERVER, 53, namespace="kube-system", protocol="udp")
        assert admits(spec, "Egress", worker, "fd12:3456::a", 53, protocol="udp")
        assert not admits(spec, "Egress", worker, "2001:db8::1", 53, protocol="udp")
        assert not admits(spec, "Egress", worker, "10.96.0.10", 53, protocol="udp")
        assert admits(spec, "Egress", worker, "2001:db8::1", 443)
        for service in ("fd00:ec2::23", "fd00:ec2::254"):
            assert admits(spec, "Egress", worker, service, 80) is (cloud == "eks")


@pytest.mark.parametrize("address", ["169.254.169.254", "34.118.224.10"])
def test_gke_has_name_servers_at_addresses_of_its_own(address: str) -> None:
    for cloud, there in (("gke", True), ("eks", False), ("any", False)):
        spec = job(cloud=cloud)
        assert admits(spec, "Egress", labels(spec, "Worker"), address, 53, protocol="udp") is there


def test_name_servers_can_be_named() -> None:
    spec = job(network__dns=[{"namespace": "openshift-dns", "ports": [5353]}, "10.0.0.2/32"])
    worker = labels(spec, "Worker")
    assert admits(spec, "Egress", worker, STRANGER, 5353, namespace="openshift-dns", protocol="udp")
    assert admits(spec, "Egress", worker, "10.0.0.2", 53, protocol="udp")
    assert not admits(spec, "Egress", worker, "10.0.0.3", 53, protocol="udp")
    assert not admits(spec, "Egress", worker, NAME_SERVER, 53, namespace="kube-system", protocol="udp")


def test_ways_out_can_be_named() -> None:
    peers = ["10.1.0.0/16", {"namespace": "minio", "pods": {"app": "minio"}, "ports": [9000]}, {"pods": {"app": "db"}}]
    spec = job(network__egress=peers)
    worker = labels(spec, "Worker")
    assert admits(spec, "Egress", worker, "10.1.2.3", 443)
    assert not admits(spec, "Egress", worker, "10.2.0.1", 443)
    assert not admits(spec, "Egress", worker, INTERNET, 443)
    assert admits(spec, "Egress", worker, {"app": "minio"}, 9000, namespace="minio")
    assert not admits(spec, "Egress", worker, {"app": "minio"}, 443, namespace="minio")
    assert not admits(spec, "Egress", worker, {"app": "other"}, 9000, namespace="minio")
    assert admits(spec, "Egress", worker, {"app": "db"}, 443)
    assert not admits(spec, "Egress", worker, {"app": "db"}, 443, namespace="minio")
    assert admits(spec, "Egress", labels(spec, "Launcher"), INTERNET, 6443)


def test_ports_of_a_peer_open_nothing_but_that_peer() -> None:
    spec = job(network__egress=[{"cidr": "10.1.0.0/16", "ports": [9000]}])
    worker = labels(spec, "Worker")
    assert admits(spec, "Egress", worker, "10.1.2.3", 9000)
    assert not admits(spec, "Egress", worker, "10.1.2.3", 443)
    assert not admits(spec, "Egress", worker, INTERNET, 443)


def test_the_api_server_can_be_named() -> None:
    spec = job(network__api_server=["10.0.0.5/32"], network__api_ports=[6443])
    launcher = labels(spec, "Launcher")
    assert admits(spec, "Egress", launcher, "10.0.0.5", 6443)
    assert not admits(spec, "Egress", launcher, INTERNET, 6443)


@given(
    blocks=st.lists(st.ip_addresses(network="10.0.0.0/8").map(lambda address: f"{address}/32"), min_size=1, max_size=4),
    address=st.ip_addresses(v=4).map(str),
)
def test_with_blocks_named_nothing_else_is_open(blocks: list[str], address: str) -> None:
    spec = job(network={"egress": blocks, "dns": blocks, "api_server": blocks})
    for role in ("Launcher", "Worker"):
        for port in (53, 443):
            assert admits(spec, "Egress", labels(spec, role), address, port) is (f"{address}/32" in blocks)


@pytest.mark.parametrize(
    ("keys", "reached", "closed"),
    [
        ({"cloud": "eks", "workers__service_account": "s3"}, [(POD_IDENTITY, 80)], [(METADATA, 80)]),
        ({"cloud": "eks", "checkpoint": "s3://b/p"}, [(POD_IDENTITY, 80), (METADATA, 80)], [(METADATA, 81)]),
        ({"cloud": "eks", "env": {"DATA": "s3://b/p"}}, [(POD_IDENTITY, 80), (METADATA, 80)], []),
        ({"cloud": "eks", "command": ["train", "--data=s3://b/p"]}, [(POD_IDENTITY, 80), (METADATA, 80)], []),
        ({"cloud": "eks"}, [], [(POD_IDENTITY, 80), (METADATA, 80)]),
        (
            {"cloud": "eks", "checkpoint": "s3://b/p", "network__identity": False},
            [],
            [(POD_IDENTITY, 80), (METADATA, 80)],
        ),
        ({"cloud": "eks", "network__identity": True}, [(POD_IDENTITY, 80), (METADATA, 80)], []),
        (
            {"cloud": "gke", "workers__service_account": "gs"},
            [(METADATA, 80), (METADATA, 988), (GKE_METADATA, 988)],
            [(POD_IDENTITY, 80), (GKE_METADATA, 80)],
        ),
        ({"cloud": "aks", "workers__service_account": "az"}, [(INTERNET, 443)], [(METADATA, 80)]),
        ({"cloud": "aks", "command": ["train", "az://c/p"]}, [(METADATA, 80)], []),
        (
            {"cloud": "eks", "checkpoint": {"url": "file:///output/c", "warm_start": "s3://b/m.pt"}, "output": "o"},
            [(POD_IDENTITY, 80), (METADATA, 80)],
            [(METADATA, 81)],
        ),
        ({"cloud": "any", "checkpoint": "s3://b/p"}, [], [(METADATA, 80), (POD_IDENTITY, 80)]),
    ],
)
def test_workers_reach_the_service_that_hands_out_credentials(
    keys: dict[str, object], reached: list[tuple[str, int]], closed: list[tuple[str, int]]
) -> None:
    spec = job(**keys)
    for address, port in reached:
        assert admits(spec, "Egress", labels(spec, "Worker"), address, port)
    for address, port in closed:
        assert not admits(spec, "Egress", labels(spec, "Worker"), address, port)
    for address in (METADATA, POD_IDENTITY, GKE_METADATA):
        assert not admits(spec, "Egress", labels(spec, "Launcher"), address, 80)


def copier(spec: JobSpec) -> Labels:
    """The labels of the pod that copies the data set."""
    (manifest,) = (manifest for manifest in render(spec) if manifest["kind"] == "Job")
    found: Labels = manifest["spec"]["template"]["metadata"]["labels"]
    return found


def test_the_copy_of_a_data_set_reaches_names_and_storage_and_nothing_else() -> None:
    spec = job(data="d", stage="s3://b/set")
    assert admits(spec, "Egress", copier(spec), INTERNET, 443)
    assert admits(spec, "Egress", copier(spec), NAME_SERVER, 53, namespace="kube-system", protocol="udp")
    assert not admits(spec, "Egress", copier(spec), INTERNET, 6443)
    assert not admits(spec, "Egress", copier(spec), INTERNET, 80)
    worker = labels(spec, "Worker")
    assert not admits(spec, "Egress", copier(spec), worker, contract.SSH_PORT)
    assert not admits(spec, "Ingress", worker, copier(spec), contract.SSH_PORT)
    for peer in (worker, STRANGER, copier(spec)):
        assert not admits(spec, "Ingress", copier(spec), peer, 443)


def test_the_copy_of_another_job_is_none_of_its_business() -> None:
    spec = job(data="d", stage="s3://b/set", network__storage_ports=[9000])
    other = copier(job(name="other", data="d", stage="s3://b/set"))
    assert admits(spec, "Ingress", other, STRANGER, 443)


@pytest.mark.parametrize(
    ("keys", "reached", "closed"),
    [
        ({"cloud": "eks", "workers__service_account": "s3"}, [(POD_IDENTITY, 80)], [(METADATA, 80)]),
        ({"cloud": "eks"}, [(POD_IDENTITY, 80), (METADATA, 80)], [(METADATA, 81)]),
        ({"cloud": "eks", "network__identity": False}, [], [(POD_IDENTITY, 80), (METADATA, 80)]),
        ({"cloud": "eks", "stage__endpoint": "https://s3.example.com"}, [], [(POD_IDENTITY, 80), (METADATA, 80)]),
        ({"cloud": "gke"}, [(METADATA, 80), (GKE_METADATA, 988)], [(POD_IDENTITY, 80)]),
        ({"cloud": "gke", "stage__source": "gs://b/set"}, [(METADATA, 80), (GKE_METADATA, 988)], [(POD_IDENTITY, 80)]),
        ({"cloud": "aks", "stage__source": "abfss://c@account1.dfs.core.windows.net"}, [(METADATA, 80)], []),
        ({"cloud": "aks", "stage__source": "https://files.example.com/set/list.tsv"}, [], [(METADATA, 80)]),
        (
            {"cloud": "gke", "stage__source": "https://a.example.com/l.tsv", "workers__service_account": "r"},
            [],
            [(METADATA, 80)],
        ),
    ],
)
def test_the_copy_reaches_the_service_that_hands_out_credentials(
    keys: dict[str, object], reached: list[tuple[str, int]], closed: list[tuple[str, int]]
) -> None:
    spec = job(data="d", **{"stage__source": "s3://b/set", **keys})
    for address, port in reached:
        assert admits(spec, "Egress", copier(spec), address, port)
    for address, port in closed:
        assert not admits(spec, "Egress", copier(spec), address, port)


def test_the_port_of_an_endpoint_is_open_to_the_copy_alone() -> None:
    endpoint = {"source": "s3://b/set", "endpoint": "http://minio.storage:9000"}
    spec = job(data="d", stage=endpoint)
    assert admits(spec, "Egress", copier(spec), INTERNET, 9000)
    assert not admits(spec, "Egress", labels(spec, "Worker"), INTERNET, 9000)
    peers = [{"namespace": "storage", "pods": {"app": "minio"}}, {"cidr": "10.0.0.0/8", "ports": [2049]}]
    spec = job(data="d", stage=endpoint, network__egress=peers)
    assert admits(spec, "Egress", copier(spec), {"app": "minio"}, 9000, namespace="storage")
    assert not admits(spec, "Egress", copier(spec), INTERNET, 9000)
    (problem,) = refused(data="d", stage=endpoint, network__egress=peers[1:]).values()
    assert "port 9000, which the NetworkPolicy blocks" in problem


@pytest.mark.parametrize("endpoint", ["minio:9000", "ftp://minio", "http://", "http://minio:x", "http://minio:0"])
def test_an_endpoint_is_the_url_of_a_service(endpoint: str) -> None:
    (problem,) = refused(data="d", stage={"source": "s3://b/set", "endpoint": endpoint}).values()
    assert "is not the URL of a service" in problem


def test_the_port_of_a_list_is_open_to_the_copy_alone() -> None:
    source = "https://files.example.com:8443/set/list.tsv"
    spec = job(data="d", stage=source)
    assert admits(spec, "Egress", copier(spec), INTERNET, 8443)
    assert not admits(spec, "Egress", labels(spec, "Worker"), INTERNET, 8443)
    (problem,) = refused(data="d", stage=source, network__egress=[{"cidr": "10.0.0.0/8", "ports": [443]}]).values()
    assert "port 8443, which the NetworkPolicy blocks" in problem


def test_the_workers_of_a_pytorchjob_do_too() -> None:
    spec = job(cloud="eks", command=["python", "train.py", "--data", "s3://b/p"])
    names = [one["metadata"]["name"] for one in render(spec, Target.PYTORCHJOB) if one["kind"] == "NetworkPolicy"]
    assert "fashion.identity" in names


@pytest.mark.parametrize("cloud", ["eks", "aks"])
def test_an_account_whose_tokens_cannot_be_fetched_is_refused(cloud: str) -> None:
    keys = {"cloud": cloud, "workers__service_account": "storage"}
    (problem,) = refused(**keys, network__storage_ports=[9000]).values()
    assert "443, which the NetworkPolicy blocks" in problem
    job(**keys, network={"storage_ports": [9000], "egress": [{"cidr": "10.0.0.0/8", "ports": [443]}]})
    job(**keys, network={"storage_ports": [9000], "policy": False})


@pytest.mark.parametrize(
    ("network", "path", "what"),
    [
        ("egress: [{ports: [1]}]", "network.egress[0]", "names no place"),
        ("egress: [{cidr: 10.0.0.0/8, namespace: x}]", "network.egress[0].cidr", "Kubernetes takes one of them"),
        ("dns: [10.0.0.1/8]", "network.dns[0].cidr", "without bits beyond the mask"),
        ("policy: false, api_server: [10.0.0.0/8]", "network.api_server", "there is no NetworkPolicy"),
        ("identity: true", "network.identity", "not known with cloud: any"),
    ],
)
def test_what_says_nothing_or_too_much_is_refused(network: str, path: str, what: str) -> None:
    with pytest.raises(InvalidInputError) as refusal:
        read_job(f"name: a\nimage: b\ncommand: [python, train.py]\nnetwork: {{{network}}}")
    (problem,) = refusal.value.problems
    assert problem.path == path
    assert what in str(problem)


def test_it_can_be_left_out() -> None:
    assert "NetworkPolicy" not in {manifest["kind"] for manifest in render(job(network__policy=False))}
