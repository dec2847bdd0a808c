"""What one tenant may store on a real API server ends neither an administrator's `list -A` nor the autoscaler."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hvd_elastic.client.object_reading import ObjectReading
from hvd_elastic.client.report.job_list import listed
from hvd_elastic.decide.autoscale.autoscaled_job import AutoscaledJob
from hvd_elastic.decide.autoscale.shared_cluster import GpuNode, GpuPod
from hvd_elastic.discovery.rules.cluster_views import JobView, PodView
from hvd_elastic.mpijob.contract import (
    ANNOTATION_AUTOSCALER,
    ANNOTATION_SPEC,
    ANNOTATION_STATUS,
    ANNOTATION_WANTED_WORKERS,
    GPU_RESOURCE,
)
from testbed.cluster import jobs, pods
from testbed.cluster.site import Site
from testbed.kube.kubectl import Kubectl
from tests import hostile_values
from tests.cluster.test_operating import run, told

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420, func_only=True)]

STORED = 250_000
"""Characters that a job's annotations may have together on the API server."""
TEXTS = [text for text in hostile_values.TEXTS.values() if len(text) < STORED]


def mpijob(site: Site, kubectl: Kubectl, name: str) -> dict[str, Any]:
    """A suspended job that the autoscaler may change."""
    described = jobs.describe(site, kubectl, name, ["sleep", "1"], autoscale={}, suspend=True)
    found: dict[str, Any] = next(
        one for one in yaml.safe_load_all(jobs.generate(described)) if one and one["kind"] == "MPIJob"
    )
    return found


def test_every_tenants_annotations_are_read_or_left_out(cluster: Site, namespace: Kubectl) -> None:
    good = mpijob(cluster, namespace, "good")
    hostile = []
    for place, text in enumerate(TEXTS):
        for annotation in (ANNOTATION_STATUS, ANNOTATION_AUTOSCALER, ANNOTATION_SPEC, ANNOTATION_WANTED_WORKERS):
            one = json.loads(json.dumps(good))
            one["metadata"]["name"] = f"hostile-{place}-{annotation.rpartition('/')[2]}"
            one["metadata"]["annotations"][annotation] = text
            hostile.append(one)
    namespace.apply([good, *hostile])
    listed = told(namespace, "list", "-A")
    ours = {job["name"] for job in listed if job["namespace"] == namespace.namespace}
    assert ours == {one["metadata"]["name"] for one in (good, *hostile)}
    taken = run(namespace, "autoscale", "--dry-run", "-o", "json")
    assert taken.returncode == 0, taken.stderr


@pytest.mark.parametrize("gpus", ["1k", "1e3", "1000", "8000m"])
def test_a_pod_that_no_node_can_hold_ends_no_turn(cluster: Site, namespace: Kubectl, gpus: str) -> None:
    """The API server writes a quantity in its own way: 1000 as 1k."""
    waits = pods.pod("thousand", image=cluster.image, selector={}, command=["sleep", "1"])
    waits["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = gpus
    namespace.apply([waits])
    taken = run(namespace, "autoscale", "--dry-run", "-o", "json")
    assert taken.returncode == 0, taken.stderr
    assert "Traceback" not in taken.stderr


READERS: dict[str, tuple[Callable[[Any], object], ...]] = {
    "nodes": (lambda one: GpuNode.from_json(one, GPU_RESOURCE),),
    "pods": (GpuPod.each_from_json, PodView.from_json),
    "mpijobs": (lambda one: listed(one, time.time()), AutoscaledJob.from_json, JobView.from_json),
}


@pytest.mark.parametrize("kind", READERS)
def test_whatever_is_altered_in_a_real_object_it_is_read_or_left_out(
    cluster: Site, namespace: Kubectl, kind: str
) -> None:
    """With all that the API server, the kubelet and the controllers write into one."""
    waits = pods.pod("waits", image=cluster.image, selector={"no": "node"}, command=["sleep", "1"])
    waits["spec"]["containers"][0]["resources"]["limits"][GPU_RESOURCE] = "1"
    namespace.apply([mpijob(cluster, namespace, "good"), waits])
    objects = cluster.kubectl.list(kind, everywhere=True)

    @settings(max_examples=200, deadline=None, suppress_health_check=[*HealthCheck], database=None)
    @given(st.sampled_from(objects).flatmap(hostile_values.altered))
    def read(one: object) -> None:
        for reader in READERS[kind]:
            list(ObjectReading(kind, lambda words: None).each([one], reader))  # type: ignore[list-item]

    assert objects
    read()


def test_what_the_cluster_has_can_be_read(cluster: Site) -> None:
    assert any(GpuNode.from_json(node, GPU_RESOURCE) for node in cluster.kubectl.list("nodes"))
    for pod in cluster.kubectl.list("pods", everywhere=True):
        GpuPod.each_from_json(pod)
