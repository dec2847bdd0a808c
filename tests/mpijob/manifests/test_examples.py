"""Each example against its golden file, the real schemas and Pod Security."""

import os
from dataclasses import replace

import pytest
import yaml

from hvd_elastic.mpijob.description.target import Target
from hvd_elastic.mpijob.manifests.writers.yaml_stream import dump
from testbed.kube.gomodules import VERSIONS
from tests.mpijob import admission, modules
from tests.mpijob.examples import EXAMPLES, GOLDEN, Example, golden_manifests

each_example = pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)


@each_example
def test_example_renders_as_its_golden_file(example: Example) -> None:
    text = dump(example.manifests())
    if os.environ.get("HVD_ELASTIC_UPDATE_GOLDEN"):
        example.golden.write_text(text, encoding="utf-8")
    assert text == example.golden.read_text(encoding="utf-8")


def test_there_is_a_golden_file_for_each_example_and_no_other() -> None:
    assert {path.stem for path in GOLDEN.glob("*.yaml")} == {example.name for example in EXAMPLES}


@each_example
def test_example_is_admitted(example: Example) -> None:
    assert [error for manifest in example.manifests() for error in admission.errors(manifest)] == []


@pytest.mark.parametrize("version", VERSIONS["mpi-operator"][1:])
def test_older_operators_know_every_field_of_the_examples(version: str) -> None:
    crd = replace(modules.MPI_OPERATOR, version=f"v{version}")
    known = admission.validators_of(crd)["kubeflow.org/v2beta1", "MPIJob"]
    jobs = [job for example in EXAMPLES for job in example.manifests() if job["apiVersion"] == "kubeflow.org/v2beta1"]
    assert [error.message for job in jobs for error in known.iter_errors(job)] == []


@each_example
def test_pods_meet_restricted_pod_security(example: Example) -> None:
    found = [admission.restricted(pod["spec"]) for job in example.manifests() for _, pod in admission.templates(job)]
    assert found
    assert not any(found)


@each_example
def test_the_job_comes_last_and_what_it_needs_before(example: Example) -> None:
    kinds = [manifest["kind"] for manifest in example.manifests()]
    job = "PyTorchJob" if example.target is Target.PYTORCHJOB else "MPIJob"
    assert kinds.index(job) == len(kinds) - (2 if "HorizontalPodAutoscaler" in kinds else 1)
    order = ["StorageClass", "PersistentVolume", "PersistentVolumeClaim", "ServiceAccount", "Role", "RoleBinding"]
    positions = [kinds.index(kind) for kind in order if kind in kinds]
    assert positions == sorted(positions)


def test_golden_manifests_are_what_the_examples_render() -> None:
    expected = [(example.name, manifest) for example in EXAMPLES for manifest in example.manifests()]
    assert list(golden_manifests()) == expected


def test_rendering_twice_gives_the_same_and_shares_nothing() -> None:
    example = EXAMPLES[0]
    first = example.manifests()
    text = dump(first)
    for manifest in first:
        _spoil(manifest)
    assert dump(example.manifests()) == text


def _spoil(value: object) -> None:
    if isinstance(value, dict):
        for inner in value.values():
            _spoil(inner)
        value.clear()
    elif isinstance(value, list):
        for inner in value:
            _spoil(inner)
        value.clear()


def test_the_schemas_are_closed() -> None:
    example = next(example for example in EXAMPLES if example.name == "first")
    job = yaml.load(dump(example.manifests()[-1:]), Loader=yaml.CSafeLoader)
    job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["tolerationz"] = []
    job["spec"]["slotPerWorker"] = 1
    found = " ".join(admission.errors(job))
    assert "tolerationz" in found
    assert "slotPerWorker" in found
