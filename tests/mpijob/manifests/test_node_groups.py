import pytest

from hvd_elastic.mpijob.clouds.cloud import Capacity, Cloud
from hvd_elastic.mpijob.manifests.node_groups import node_groups
from tests.mpijob.jobs import job, pods
from tests.mpijob.manifests.test_node_placement import ON_DEMAND, SPOT, admits

TEMPLATE = "k8s.io/cluster-autoscaler/node-template"


@pytest.mark.parametrize("cloud", [Cloud.EKS, Cloud.GKE, Cloud.AKS])
def test_a_node_of_the_group_is_one_that_the_pods_accept(cloud: Cloud) -> None:
    spec = job(
        cloud=cloud.value,
        gpu_type="v100" if cloud is Cloud.AKS else "t4",
        workers__gpus=1,
        node_labels={"pool": "gpu"},
        launcher_node_labels={"pool": "cpu"},
    )
    launching, working = node_groups(spec)
    launcher, worker = pods(spec)
    known = {"cloud.google.com/gke-accelerator": "nvidia-tesla-t4"}
    assert admits(launcher, launching["labels"] | ON_DEMAND[cloud][0])
    assert admits(worker, working["labels"] | SPOT[cloud][0] | known)
    assert not admits(worker, launching["labels"] | SPOT[cloud][0] | known)
    tolerated = {taint["key"] for taint in worker["tolerations"]}
    assert {taint["key"] for taint in working["taints"]} <= tolerated
    assert (launching["capacity"], working["capacity"]) == (Capacity.ON_DEMAND, Capacity.SPOT)


def test_a_group_has_the_taint_and_the_resource_that_its_gpus_are_called_by() -> None:
    _, worker = node_groups(job(cloud="eks", workers__gpus=1, workers__gpu_resource="nvidia.com/mig-1g.10gb"))
    assert worker["taints"] == [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]
    assert worker["resources"] == {"nvidia.com/mig-1g.10gb": "1"}
    assert worker["tags"][f"{TEMPLATE}/resources/nvidia.com/mig-1g.10gb"] == "1"


def test_groups_begin_at_zero_and_hold_the_whole_job() -> None:
    launcher, worker = node_groups(job(workers="1:6", cloud="gke"))
    assert (launcher["minSize"], worker["minSize"], worker["maxSize"]) == (0, 0, 6)
    assert "tags" not in worker


def test_tags_tell_the_autoscaler_what_an_empty_group_would_have() -> None:
    spec = job(cloud="eks", gpu_type="a100", instance_type="p4d.24xlarge", workers__gpus=8, workers__efa=4)
    _, worker = node_groups(spec)
    assert worker["tags"] == {
        "k8s.io/cluster-autoscaler/enabled": "true",
        f"{TEMPLATE}/label/k8s.amazonaws.com/accelerator": "nvidia-a100",
        f"{TEMPLATE}/taint/nvidia.com/gpu": ":NoSchedule",
        f"{TEMPLATE}/resources/nvidia.com/gpu": "8",
        f"{TEMPLATE}/resources/vpc.amazonaws.com/efa": "4",
        f"{TEMPLATE}/resources/hugepages-2Mi": "5120Mi",
    }
    assert worker["instanceType"] == "p4d.24xlarge"
