"""What is read of the API server's own words."""

import pytest

from hvd_elastic.discovery.rules.cluster_views import JobView
from testbed.kube_api import mpijob


@pytest.mark.parametrize(
    ("limits", "gpus"),
    [
        ({"nvidia.com/gpu": 8}, 8),
        ({"nvidia.com/gpu": "1k"}, 1000),
        ({"amd.com/gpu": "1", "nvidia.com/gpu": "2e1", "cpu": "4"}, 21),
        ({"nvidia.com/gpu": "many"}, 0),
        ({"nvidia.com/gpu": "1" * 5000}, 0),
    ],
)
def test_gpus_are_counted_in_every_form_of_a_quantity(limits: dict[str, object], gpus: int) -> None:
    job = mpijob()
    containers = [{"name": "worker", "resources": {"limits": limits}}]
    job["spec"]["mpiReplicaSpecs"]["Worker"]["template"] = {"spec": {"containers": containers}}
    assert JobView.from_json(job).gpus == gpus
