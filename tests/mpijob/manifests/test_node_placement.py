import json
from typing import Any

import pytest

from hvd_elastic.mpijob.clouds.cloud import Capacity, Cloud
from hvd_elastic.mpijob.clouds.cloud_nodes import NODES
from hvd_elastic.mpijob.clouds.gpu_types import GpuType
from tests.mpijob import admission
from tests.mpijob.jobs import job, one, pods

Labels = dict[str, str]

SPOT: dict[Cloud, list[Labels]] = {
    Cloud.EKS: [{"eks.amazonaws.com/capacityType": "SPOT"}, {"karpenter.sh/capacity-type": "spot"}],
    Cloud.GKE: [{"cloud.google.com/gke-spot": "true"}],
    Cloud.AKS: [{"kubernetes.azure.com/scalesetpriority": "spot"}],
}
ON_DEMAND: dict[Cloud, list[Labels]] = {
    Cloud.EKS: [{"eks.amazonaws.com/capacityType": "ON_DEMAND"}, {"karpenter.sh/capacity-type": "on-demand"}],
    Cloud.GKE: [{}],
    Cloud.AKS: [{}],
}
real_clouds = pytest.mark.parametrize("cloud", list(SPOT))


def admits(pod: dict[str, Any], node: Labels) -> bool:
    """Whether the pod's required node affinity admits a node, as the scheduler reads it."""
    required = pod.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return any(
        all((node.get(one["key"]) in one["values"]) == (one["operator"] == "In") for one in term["matchExpressions"])
        for term in required["nodeSelectorTerms"]
    )


@real_clouds
def test_the_launcher_runs_on_demand_whatever_workers_do(cloud: Cloud) -> None:
    for capacity in Capacity:
        launcher, _ = pods(job(cloud=cloud.value, capacity=capacity.value))
        assert all(admits(launcher, node) for node in ON_DEMAND[cloud])
        assert not any(admits(launcher, node) for node in SPOT[cloud])


@real_clouds
def test_workers_run_where_the_capacity_says(cloud: Cloud) -> None:
    for capacity, spot, on_demand in (("spot", True, False), ("on-demand", False, True), ("prefer-spot", True, True)):
        _, worker = pods(job(cloud=cloud.value, capacity=capacity))
        assert [admits(worker, node) for node in SPOT[cloud]] == [spot] * len(SPOT[cloud])
        assert [admits(worker, node) for node in ON_DEMAND[cloud]] == [on_demand] * len(ON_DEMAND[cloud])


@real_clouds
def test_prefer_spot_prefers_each_kind_of_spot_node(cloud: Cloud) -> None:
    _, worker = pods(job(cloud=cloud.value, capacity="prefer-spot"))
    preferred = worker["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert len(preferred) == len(SPOT[cloud])


def test_any_cloud_asks_for_no_label() -> None:
    launcher, worker = pods(job())
    assert "affinity" not in launcher
    assert "affinity" not in worker


@pytest.mark.parametrize("cloud", list(Cloud))
def test_spot_and_gpu_taints_are_tolerated_by_workers_only(cloud: Cloud) -> None:
    launcher, worker = pods(job(cloud=cloud.value, workers__gpus=1, tolerations=["dedicated=a:NoSchedule", "b"]))
    own = {"key": "dedicated", "operator": "Equal", "value": "a", "effect": "NoSchedule"}
    assert own in worker["tolerations"]
    assert {"key": "b", "operator": "Exists"} in worker["tolerations"]
    assert "nvidia.com/gpu" in {taint["key"] for taint in worker["tolerations"]}
    for taint in NODES[cloud].spot_tolerations:
        assert taint in worker["tolerations"]
    assert all(taint["key"].startswith("node.kubernetes.io/") for taint in launcher["tolerations"])


@pytest.mark.parametrize(
    ("resource", "taints"),
    [
        ("amd.com/gpu", {"amd.com/gpu"}),
        ("nvidia.com/mig-1g.5gb", {"nvidia.com/gpu", "nvidia.com/mig-1g.5gb"}),
        ("example.com/vgpu", {"example.com/vgpu"}),
    ],
)
def test_the_taints_that_are_tolerated_follow_the_resource(resource: str, taints: set[str]) -> None:
    _, worker = pods(job(workers__gpus=1, workers__gpu_resource=resource))
    assert {one["key"] for one in worker["tolerations"] if one.get("effect") == "NoSchedule"} == taints


def test_tolerations_in_kubernetes_own_form_are_taken_as_they_are() -> None:
    pasted = [
        {"key": "dedicated", "operator": "Equal", "value": "a", "effect": "NoExecute", "tolerationSeconds": 60},
        {"key": "pool", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "empty", "operator": "Equal", "value": ""},
    ]
    _, worker = pods(job(tolerations=pasted))
    assert worker["tolerations"][: len(pasted)] == pasted


EVERY_TAINT = {"operator": "Exists"}
LOST = [f"node.kubernetes.io/{state}" for state in ("not-ready", "unreachable")]


@pytest.mark.parametrize("own", [[], [EVERY_TAINT]])
def test_a_lost_node_is_given_up_after_a_set_time(own: list[dict[str, str]]) -> None:
    """Of all that tolerate a taint the first counts."""
    for pod in pods(job(lost_node=45, tolerations=own)):
        lost = {
            taint["key"]: taint["tolerationSeconds"] for taint in pod["tolerations"] if "tolerationSeconds" in taint
        }
        assert lost == dict.fromkeys(LOST, 45)
        for taint in LOST:
            first = next(each for each in pod["tolerations"] if each.get("key", taint) == taint)
            assert first["tolerationSeconds"] == 45


def test_whoever_names_a_lost_nodes_taint_says_himself_how_long_he_stays() -> None:
    own = {"key": LOST[0], "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 600}
    _, worker = pods(job(tolerations=[own, EVERY_TAINT]))
    assert worker["tolerations"].index(own) == 0
    assert worker["tolerations"][-1] == EVERY_TAINT


@pytest.mark.parametrize("cloud", list(Cloud))
@pytest.mark.parametrize("gpu", list(GpuType))
def test_each_gpu_that_a_cloud_has_becomes_a_label(cloud: Cloud, gpu: GpuType) -> None:
    if not NODES[cloud].knows(gpu):
        return
    _, worker = pods(job(cloud=cloud.value, gpu_type=gpu.value, workers__gpus=1))
    for provisioner in NODES[cloud].provisioners:
        node = {one["key"]: one["values"][0] for one in (*provisioner.spot, *provisioner.gpus[gpu])}
        assert admits(worker, node)
        assert not admits(worker, {one["key"]: one["values"][0] for one in provisioner.spot})


def test_well_known_gpu_labels() -> None:
    def admitted(cloud: str, gpu: str, node: Labels) -> bool:
        return admits(pods(job(cloud=cloud, gpu_type=gpu, workers__gpus=1, capacity="prefer-spot"))[1], node)

    assert admitted("eks", "t4", {"karpenter.k8s.aws/instance-gpu-name": "t4"})
    assert admitted("eks", "v100", {"k8s.amazonaws.com/accelerator": "nvidia-tesla-v100"})
    assert admitted("gke", "t4", {"cloud.google.com/gke-accelerator": "nvidia-tesla-t4"})
    assert admitted("gke", "h100", {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"})
    assert admitted("any", "a100", {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"})
    assert not admitted("any", "a100", {"nvidia.com/gpu.product": "Tesla-T4"})


def matches(term: dict[str, Any], labels: Labels) -> bool:
    """Whether a pod with these labels counts for a term of a pod affinity."""
    return bool(term["labelSelector"]["matchLabels"].items() <= labels.items())


@real_clouds
def test_workers_stay_in_the_zone_that_the_first_of_them_picks(cloud: Cloud) -> None:
    manifest = one(job(cloud=cloud.value), "MPIJob")
    labels = {path: template["metadata"]["labels"] for path, template in admission.templates(manifest)}
    launcher, worker = labels.values()
    (term,) = pods(job(cloud=cloud.value))[1]["affinity"]["podAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert term["topologyKey"] == "topology.kubernetes.io/zone"
    # kube-scheduler lets a pod pass that matches its own term and is the only one to.
    assert matches(term, worker)
    assert not matches(term, worker | {"app.kubernetes.io/part-of": "another"})
    # The launcher has a node first. If it counted, its zone would be the workers'.
    assert not matches(term, launcher)


@real_clouds
def test_no_rule_of_the_launcher_draws_workers_to_its_zone(cloud: Cloud) -> None:
    """Not a preference either: the scheduler reads those of running pods, too."""
    launcher, _ = pods(job(cloud=cloud.value, output={"claim": "shared"}))
    assert not launcher.get("affinity", {}).keys() & {"podAffinity", "podAntiAffinity"}
    assert not {volume["name"] for volume in launcher["volumes"] if "persistentVolumeClaim" in volume}
    assert "topology.kubernetes.io/zone" not in json.dumps(launcher)


def test_pods_stay_in_the_candidate_zones() -> None:
    for pod, kind in zip(pods(job(cloud="eks", zones=["a", "b"])), (ON_DEMAND, SPOT), strict=True):
        node = kind[Cloud.EKS][0]
        assert admits(pod, {"topology.kubernetes.io/zone": "b"} | node)
        assert not admits(pod, {"topology.kubernetes.io/zone": "c"} | node)


def test_workers_need_no_rule_for_one_zone_where_none_is_wanted_or_only_one_allowed() -> None:
    for spec in (job(cloud="eks", one_zone=False), job(cloud="eks", zones=["a"]), job()):
        assert all("podAffinity" not in pod.get("affinity", {}) for pod in pods(spec))


def test_the_zone_of_a_lustre_file_system_is_required() -> None:
    fsx = {"zone": "us-east-1a", "file_system": "fs-01234567", "dns_name": "d", "mount_name": "m"}
    for pod in pods(job(cloud="eks", capacity="prefer-spot", data={"fsx": fsx})):
        assert "podAffinity" not in pod["affinity"]
        for kind in (*ON_DEMAND[Cloud.EKS],):
            assert admits(pod, {"topology.kubernetes.io/zone": "us-east-1a"} | kind)
            assert not admits(pod, {"topology.kubernetes.io/zone": "us-east-1b"} | kind)


def test_own_labels_and_the_instance_type() -> None:
    spec = job(node_labels={"pool": "gpu"}, launcher_node_labels={"pool": "cpu"}, instance_type="p4d.24xlarge")
    launcher, worker = pods(spec)
    assert admits(worker, {"pool": "gpu", "node.kubernetes.io/instance-type": "p4d.24xlarge"})
    assert not admits(worker, {"pool": "gpu"})
    assert admits(launcher, {"pool": "cpu"})
    assert not admits(launcher, {"pool": "gpu"})
