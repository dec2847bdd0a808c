"""A real API server refuses the pods that the linter says it does, and takes those of which it says nothing."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from testbed.cluster.pods import SAFE
from testbed.cluster.site import Site, make_namespace, remove_namespace
from testbed.kube.errors import ClusterError
from testbed.kube.kubectl import Kubectl
from tests.mpijob.lint.pod_cases import RESOURCES, TOLERATIONS, VARIABLES, PodCase

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300, func_only=True)]


@pytest.fixture(scope="module")
def here(cluster: Site) -> Iterator[Kubectl]:
    yield make_namespace(cluster, "refused-pods")
    remove_namespace(cluster, "refused-pods")


def refused(kubectl: Kubectl, container: Mapping[str, Any], **spec: object) -> bool:
    """Whether the API server refuses a pod with these fields. Nothing is created."""
    containers = [{"name": "main", "image": "example.com/train:1", "securityContext": SAFE, **container}]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": {"containers": containers, **spec}}
    try:
        kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))
    except ClusterError as error:
        if "is invalid" not in str(error):
            raise
        return True
    return False


@pytest.mark.parametrize("case", RESOURCES)
def test_resources(here: Kubectl, case: PodCase) -> None:
    assert refused(here, {"resources": case.value}) == bool(case.faults)


@pytest.mark.parametrize("case", TOLERATIONS)
def test_tolerations(here: Kubectl, case: PodCase) -> None:
    assert refused(here, {}, tolerations=[case.value]) == bool(case.faults)


@pytest.mark.parametrize("case", VARIABLES)
def test_variables(here: Kubectl, case: PodCase) -> None:
    assert refused(here, {"env": [case.value]}) == bool(case.faults)
