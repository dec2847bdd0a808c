"""What the autoscaler takes from a job's description."""

import json
from typing import Any

import pytest

from hvd_elastic.decide.autoscale.autoscaled_job import AutoscaledJob
from hvd_elastic.mpijob.contract import ANNOTATION_SPEC


@pytest.mark.parametrize(
    ("workers", "least"),
    [
        ({"min": 1, "max": 8}, 1),
        ({"min": 1, "max": 8, "floor": 3}, 3),
        ({"min": 4, "max": 8, "floor": 3}, 4),
        ({"min": 1, "sizes": [1, 2, 4, 8], "floor": 3}, 4),
    ],
)
def test_no_job_is_asked_to_give_what_its_floor_keeps(workers: dict[str, Any], least: int) -> None:
    said = {"name": "j", "image": "a/b:1", "command": ["python", "t.py"], "autoscale": {"cooldown": 1}}
    annotations = {ANNOTATION_SPEC: json.dumps({**said, "workers": {"gpus": 1, **workers}})}
    found = AutoscaledJob.from_json({
        "apiVersion": "kubeflow.org/v2beta1",
        "metadata": {"name": "j", "namespace": "default", "uid": "j", "annotations": annotations},
        "spec": {"mpiReplicaSpecs": {"Worker": {"replicas": 8, "template": {"spec": {}}}}},
    })  # fmt: skip
    assert found is not None
    assert found.min == least
