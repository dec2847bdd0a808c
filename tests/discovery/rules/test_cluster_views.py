"""What discovery reads off objects as the API server writes them."""

import pytest

from hvd_elastic.discovery.rules.cluster_views import JobView, PodView
from hvd_elastic.mpijob.description.target import Target
from testbed.kube_api import mpijob
from tests.mpijob.jobs import job, one


@pytest.mark.parametrize("target", [Target.MPIJOB, Target.MPIJOB_V1])
@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "amd.com/gpu", "nvidia.com/mig-1g.10gb", "example.com/vgpu"])
def test_gpus_of_a_worker_are_those_of_its_resource(resource: str, target: Target) -> None:
    """Adapters of the network, which have a resource of their own beside it, are none."""
    spec = job(workers__gpus=1, workers__gpu_resource=resource, workers__resources={"rdma/hca": 4})
    mpijob = one(spec, "MPIJob", target)
    mpijob["metadata"]["uid"] = "uid"
    assert JobView.from_json(mpijob).gpus == 1


def test_a_worker_without_gpus_has_none() -> None:
    mpijob = one(job(workers__resources={"rdma/hca": 4}), "MPIJob")
    mpijob["metadata"]["uid"] = "uid"
    assert JobView.from_json(mpijob).gpus == 0


@pytest.mark.parametrize(
    ("limits", "gpus"),
    [
        ({"nvidia.com/gpu": 8}, 8),
        ({"nvidia.com/gpu": "1k"}, 1000),
        ({"amd.com/gpu": "1", "nvidia.com/gpu": "2e1", "cpu": "4"}, 20),
        ({"nvidia.com/gpu": "many"}, 0),
        ({"nvidia.com/gpu": "1" * 5000}, 0),
    ],
)
def test_gpus_are_counted_in_every_form_of_a_quantity(limits: dict[str, object], gpus: int) -> None:
    counted = mpijob()
    containers = [{"name": "worker", "resources": {"limits": limits}}]
    counted["spec"]["mpiReplicaSpecs"]["Worker"]["template"] = {"spec": {"containers": containers}}
    assert JobView.from_json(counted).gpus == gpus


@pytest.mark.parametrize(
    ("status", "address"),
    [
        ({"podIP": "fd00::1", "podIPs": [{"ip": "fd00::1"}, {"ip": "10.0.0.1"}]}, "10.0.0.1"),
        ({"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}, "10.0.0.1"),
        ({"podIP": "fd00::1", "podIPs": [{"ip": "fd00::1"}]}, "fd00::1"),
        ({"podIP": "10.0.0.1"}, "10.0.0.1"),
        ({}, ""),
    ],
)
def test_of_a_pods_addresses_ipv4_counts_as_for_gloo(status: dict[str, object], address: str) -> None:
    assert PodView.from_json({"metadata": {"name": "a", "uid": "u"}, "status": status}).ip == address
