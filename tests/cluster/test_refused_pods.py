"""A real API server refuses the pods that the linter says it does, and takes those of which it says nothing."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from testbed.cluster.pods import SAFE
from testbed.cluster.site import Site, make_namespace, remove_namespace
from testbed.kube.errors import ClusterError
from testbed.kube.kubectl import Kubectl
from tests.mpijob.lint.pod_cases import (
    LEFT_TO_THE_API_SERVER,
    REFUSED,
    REPEATED,
    RESOURCES,
    TAKEN,
    TOLERATIONS,
    VARIABLES,
    PodCase,
    whole,
)

API: Final = "kubeflow.org/v2beta1"

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300, func_only=True)]


@pytest.fixture(scope="module")
def here(cluster: Site) -> Iterator[Kubectl]:
    yield make_namespace(cluster, "refused-pods")
    remove_namespace(cluster, "refused-pods")


def refused(kubectl: Kubectl, manifest: Mapping[str, Any]) -> bool:
    """Whether the API server refuses this object. Nothing is created."""
    try:
        kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(manifest))
    except ClusterError as error:
        # The admission of service accounts comes before the validation.
        if not any(words in str(error) for words in ("is invalid", "error looking up service account")):
            raise
        return True
    return False


def pod(spec: dict[str, Any]) -> dict[str, Any]:
    whole_spec = whole(spec, securityContext=SAFE)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": whole_spec}


def job(spec: dict[str, Any]) -> dict[str, Any]:
    templates = {"Launcher": {"spec": whole({"containers": [{}]})}, "Worker": {"spec": whole(spec)}}
    replicas = {role: {"replicas": 1, "template": template} for role, template in templates.items()}
    metadata = {"name": "job"}
    return {"apiVersion": API, "kind": "MPIJob", "metadata": metadata, "spec": {"mpiReplicaSpecs": replicas}}


@pytest.mark.parametrize("spec", [*REFUSED, *LEFT_TO_THE_API_SERVER])
def test_refused_pods(here: Kubectl, spec: dict[str, Any]) -> None:
    assert refused(here, pod(spec))


@pytest.mark.parametrize("spec", [*TAKEN, *REPEATED])
def test_pods_that_are_taken(here: Kubectl, spec: dict[str, Any]) -> None:
    assert not refused(here, pod(spec))


@pytest.mark.parametrize("spec", REPEATED)
def test_jobs_with_a_key_twice(here: Kubectl, spec: dict[str, Any]) -> None:
    assert refused(here, job(spec))


@pytest.mark.parametrize("spec", TAKEN)
def test_jobs_of_such_pods_are_taken(here: Kubectl, spec: dict[str, Any]) -> None:
    assert not refused(here, job(spec))


@pytest.mark.parametrize("case", RESOURCES)
def test_resources(here: Kubectl, case: PodCase) -> None:
    assert refused(here, pod({"containers": [{"resources": case.value}]})) == bool(case.faults)


@pytest.mark.parametrize("case", TOLERATIONS)
def test_tolerations(here: Kubectl, case: PodCase) -> None:
    assert refused(here, pod({"containers": [{}], "tolerations": [case.value]})) == bool(case.faults)


@pytest.mark.parametrize("case", VARIABLES)
def test_variables(here: Kubectl, case: PodCase) -> None:
    assert refused(here, pod({"containers": [{"env": [case.value]}]})) == bool(case.faults)
