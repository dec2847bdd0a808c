"""A service mesh is named, with what it means for a job's pods."""

from collections.abc import Mapping
from typing import Any

import pytest

from hvd_elastic.client.doctor.checks.mesh_checks import service_mesh
from hvd_elastic.client.doctor.cluster_facts import ClusterFacts, Fact
from hvd_elastic.client.doctor.diagnosis import Level
from hvd_elastic.mpijob.manifests.manifest_parts import outside_mesh
from tests.mpijob.jobs import job, one


def injector(name: str, *, namespaces: Any = None, objects: Any = None) -> dict[str, Any]:
    return {"webhooks": [{"name": name, "namespaceSelector": namespaces, "objectSelector": objects}]}


ISTIO = injector("rev.namespace.sidecar-injector.istio.io", namespaces={"matchLabels": {"istio.io/rev": "default"}})
UNLABELLED = {"matchExpressions": [{"key": "istio-injection", "operator": "DoesNotExist"}]}
BY_POD = injector(
    "object.sidecar-injector.istio.io",
    namespaces=UNLABELLED,
    objects={"matchLabels": {"sidecar.istio.io/inject": "true"}},
)
EVERYWHERE = injector("auto.sidecar-injector.istio.io", namespaces=UNLABELLED)
LINKERD = injector("linkerd-proxy-injector.linkerd.io")


def told(
    *webhooks: dict[str, Any],
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    unreadable: Mapping[Fact, str] | None = None,
) -> tuple[Level, str, str]:
    metadata = {"name": "team", "labels": labels, "annotations": annotations}
    facts = ClusterFacts(
        namespace="team",
        namespace_object={"metadata": metadata},
        mutating_webhooks=webhooks,
        unreadable=unreadable or {},
    )
    (found,) = service_mesh.run(facts)
    return found.level, found.evidence, found.fix


@pytest.mark.parametrize(
    ("labels", "webhooks", "why"),
    [
        ({"istio-injection": "enabled"}, [], "the label istio-injection=enabled"),
        ({"istio.io/rev": "asm-managed"}, [ISTIO], "the label istio.io/rev=asm-managed"),
        ({}, [ISTIO, EVERYWHERE], "its webhook takes every namespace"),
    ],
)
def test_istio_leaves_a_jobs_pods_alone(labels: dict[str, str], webhooks: list[dict[str, Any]], why: str) -> None:
    level, evidence, _ = told(*webhooks, labels=labels)
    assert level is Level.OK
    assert f"Istio puts its proxy into the pods of team ({why})" in evidence
    ((label, value),) = outside_mesh(job()).items()
    assert f"carry the label {label}={value} and get none, unless it has `network.mesh`" in evidence


@pytest.mark.parametrize(
    "labels", [{}, {"istio-injection": "disabled"}, {"istio-injection": "disabled", "istio.io/rev": "a"}]
)
def test_istio_that_is_installed_for_others(labels: dict[str, str]) -> None:
    assert told(ISTIO, BY_POD, labels=labels) == (Level.OK, "Istio is installed, and leaves team alone", "")


def test_istios_ambient_mode() -> None:
    level, evidence, fix = told(labels={"istio.io/dataplane-mode": "ambient"})
    assert level is Level.WARNING
    assert "a proxy of each node" in evidence
    assert "`labels: {istio.io/dataplane-mode: none}`" in fix
    replicas = one(job(labels={"istio.io/dataplane-mode": "none"}), "MPIJob")["spec"]["mpiReplicaSpecs"].values()
    assert {each["template"]["metadata"]["labels"]["istio.io/dataplane-mode"] for each in replicas} == {"none"}


@pytest.mark.parametrize("value", ["enabled", "ingress"])
def test_linkerd(value: str) -> None:
    level, evidence, fix = told(LINKERD, annotations={"linkerd.io/inject": value})
    assert level is Level.WARNING
    assert f"Linkerd puts its proxy into the pods of team (the annotation linkerd.io/inject={value})" in evidence
    assert "`pod: {metadata: {annotations: {linkerd.io/inject: disabled}}}` under `workers` and `launcher`" in fix
    for annotations in (None, {"linkerd.io/inject": "disabled"}):
        assert told(LINKERD, annotations=annotations) == (Level.OK, "Linkerd is installed, and leaves team alone", "")


def test_no_mesh() -> None:
    assert told(injector("pod-identity-webhook.amazonaws.com"))[:2] == (Level.OK, "none is seen")
    unread = told(unreadable={Fact.WEBHOOKS: "forbidden"})
    assert unread[:2] == (Level.OK, "none is seen; which webhooks there are could not be read")
    (found,) = service_mesh.run(ClusterFacts(namespace="team"))
    assert found.evidence == "none is seen"
