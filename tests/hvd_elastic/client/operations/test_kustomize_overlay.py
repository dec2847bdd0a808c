"""A job out of an overlay: kustomize's result, with the promises of patches, and kept as patches."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from hvd_elastic.client.operations.kustomize_overlay import KustomizeError, Overlay, build, read_overlay
from hvd_elastic.client.operations.restart import plan_restart, restart
from hvd_elastic.client.operations.submission import submit
from hvd_elastic.mpijob.contract import ANNOTATION_SPEC
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.description.target import Target
from hvd_elastic.mpijob.job_reader import read_job
from hvd_elastic.mpijob.manifests.render import render
from hvd_elastic.mpijob.manifests.writers import kustomize as bases
from hvd_elastic.mpijob.manifests.writers.yaml_stream import dump
from hvd_elastic.mpijob.problems import InvalidInputError
from tests.hvd_elastic.client.operations.jobs_cluster import BINDINGS, MAPS, ROLES, JobsCluster, spec
from tests.hvd_elastic.client.operations.test_restart import never
from tests.mpijob.examples import EXAMPLES, Example

pytestmark = pytest.mark.timeout(900)  # kustomize is built by whichever test comes first

LEDGER_DELETED = "{apiVersion: v1, kind: ConfigMap, metadata: {name: bert-ledger}, $patch: delete}"
WORKER = "/spec/mpiReplicaSpecs/Worker/template"


@pytest.fixture
def on_path(kustomize: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(kustomize.parent))
    return kustomize


def written(folder: Path, job: JobSpec, **overlay: Any) -> Path:
    """An overlay of a job's base."""
    bases.write(bases.base_files(render(job)), folder / "base")
    (folder / "overlay").mkdir()
    (folder / "overlay" / "kustomization.yaml").write_text(yaml.safe_dump({"resources": ["../base"], **overlay}))
    return folder / "overlay"


def overlaid(folder: Path, job: JobSpec, **overlay: Any) -> Overlay:
    return read_overlay(build(written(folder, job, **overlay)), source="prod")


def refusal(folder: Path, job: JobSpec, **overlay: Any) -> str:
    with pytest.raises(InvalidInputError) as caught:
        overlaid(folder, job, **overlay)
    return str(caught.value)


def patch(*operations: dict[str, Any], kind: str = "MPIJob") -> dict[str, Any]:
    return {"target": {"kind": kind}, "patch": json.dumps(operations)}


@pytest.mark.usefixtures("on_path")
@pytest.mark.parametrize(
    "example", [one for one in EXAMPLES if one.target is Target.MPIJOB], ids=lambda example: example.name
)
def test_an_overlay_that_says_nothing_changes_nothing(tmp_path: Path, example: Example) -> None:
    found = overlaid(tmp_path, example.spec())
    assert (found.spec, list(found.changed), list(found.beside)) == (example.spec(), [], [])


@pytest.mark.usefixtures("on_path")
def test_what_an_overlay_changes_becomes_patches(tmp_path: Path) -> None:
    job = spec(patches=[{"target": {"kind": "MPIJob"}, "patch": {"spec": {"runPolicy": {"backoffLimit": 9}}}}])
    changes = [
        patch({"op": "add", "path": f"{WORKER}/spec/runtimeClassName", "value": "nvidia"}),
        patch({"op": "add", "path": f"{WORKER}/spec/containers/0/env/-", "value": {"name": "A", "value": "1"}}),
        patch({"op": "remove", "path": "/spec/egress"}, kind="NetworkPolicy"),
    ]
    folder = written(tmp_path, job, patches=changes, commonAnnotations={"team": "vision"})
    printed = build(folder)
    found = read_overlay(printed, source="prod")
    assert "MPIJob/bert" in found.changed
    assert found.spec.patches[0] == job.patches[0]
    ours = {one["kind"] + one["metadata"]["name"]: one for one in render(found.spec)}
    theirs = {one["kind"] + one["metadata"]["name"]: one for one in yaml.safe_load_all(printed)}
    for objects in (ours, theirs):
        del objects["MPIJobbert"]["metadata"]["annotations"][ANNOTATION_SPEC]
    assert ours == theirs
    assert read_job(found.spec.as_json()) == found.spec


@pytest.mark.usefixtures("on_path")
def test_an_image_for_all_of_the_jobs_containers_is_the_jobs_image(tmp_path: Path) -> None:
    found = overlaid(tmp_path, spec(), images=[{"name": "train", "newName": "registry/train", "newTag": "2"}])
    assert found.spec == spec(image="registry/train:2")


@pytest.mark.usefixtures("on_path")
def test_what_an_overlay_adds_goes_into_the_jobs_namespace(tmp_path: Path, cluster: JobsCluster) -> None:
    role = {"kind": "Role", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "mine"}, "rules": []}
    folder = written(
        tmp_path,
        spec(),
        generatorOptions={"disableNameSuffixHash": True},
        configMapGenerator=[{"name": "settings", "literals": ["a=b"]}],
    )
    (folder / "role.yaml").write_text(dump([role]))
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    kustomization["resources"].append("role.yaml")
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    found = read_overlay(build(folder), source="prod")
    done = submit(cluster.client(), found.spec, beside=found.beside)
    assert {one.name for one in done.objects[:2]} == {"configmap/settings", "role/mine"}
    assert cluster.objects[MAPS]["settings"]["data"] == {"a": "b"}
    assert "ownerReferences" not in cluster.objects[ROLES]["mine"]["metadata"], "it is not the job's"
    assert "ownerReferences" in cluster.objects[BINDINGS]["bert-discovery"]["metadata"]
    again = submit(cluster.client(), found.spec, beside=found.beside)
    assert {one.change for one in again.objects} == {"unchanged"}


@pytest.mark.usefixtures("on_path")
def test_a_restart_keeps_the_overlay(tmp_path: Path, cluster: JobsCluster) -> None:
    change = patch({"op": "add", "path": f"{WORKER}/spec/runtimeClassName", "value": "nvidia"})
    images = [{"name": "train", "newTag": "2"}]
    found = overlaid(tmp_path, spec(checkpoint="s3://bucket/jobs"), patches=[change], images=images)
    submit(cluster.client(), found.spec, beside=found.beside)
    first = cluster.job()
    cluster.change_job(status={"completionTime": "2026-01-01T00:00:00Z"})
    restart(cluster.client(), plan_restart(cluster.client(), "bert"), sleep=never)
    again = cluster.job()
    assert again["metadata"]["uid"] != first["metadata"]["uid"]
    assert again["spec"] == first["spec"]
    pod = again["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]
    assert (pod["runtimeClassName"], pod["containers"][0]["image"]) == ("nvidia", "train:2")


@pytest.mark.usefixtures("on_path")
@pytest.mark.parametrize(
    ("overlay", "said"),
    [
        (
            {"patches": [patch({"op": "add", "path": f"{WORKER}/spec/hostPID", "value": True})]},
            "prod: MPIJob/bert: spec.mpiReplicaSpecs.Worker.template.spec.hostPID: True: shows a pod's processes",
        ),
        ({"patches": [patch({"op": "replace", "path": "/spec/slotsPerWorker", "value": 4})]}, "set workers.slots"),
        ({"namespace": "team"}, "prod: namespace: 'team': is 'default' in the job's own arguments: generate the base"),
        ({"namePrefix": "prod-"}, "prod: name: 'prod-bert': is 'bert' in the job's own arguments: generate the base"),
        ({"commonLabels": {"team": "vision"}}, "NetworkPolicy/bert: spec.podSelector: selects the job's pods"),
        (
            {"patches": [{"patch": LEDGER_DELETED}]},
            "prod: 'ConfigMap/bert-ledger': is missing: leave it in",
        ),
        (
            {"patches": [patch({"op": "replace", "path": f"{WORKER}/spec/containers/0/image", "value": "other:1"})]},
            "containers[worker].image: 'other:1': must be the same in all",
        ),
    ],
)
def test_what_an_overlay_may_not_change(tmp_path: Path, overlay: dict[str, Any], said: str) -> None:
    assert said in refusal(tmp_path, spec(), **overlay)


def changed(job: JobSpec, *more: dict[str, Any], **annotations: str | None) -> str:
    """What kustomize might print, with other annotations of the MPIJob."""
    manifests = render(job)
    notes = manifests[-1]["metadata"]["annotations"]
    manifests[-1]["metadata"]["annotations"] = {ANNOTATION_SPEC: annotations.get("spec", notes[ANNOTATION_SPEC])}
    return dump([*manifests, *more])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "prod: holds no MPIJob that hvd-elastic has generated: name under `resources` one base"),
        (changed(spec(), spec=None), "prod: holds no MPIJob that hvd-elastic has generated"),
        (changed(spec(), *render(spec(name="other"))), "prod: holds several MPIJobs (bert, other)"),
        (changed(spec(), spec="{nothing: 1}"), "prod: has the job description of another release (name: is missing"),
        (changed(spec(), {"kind": "Secret"}), "prod: an object has no apiVersion, kind or name"),
        (
            changed(spec(), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}),
            "prod: 'Namespace/team': is not submitted with a job: apply it with kubectl before the job",
        ),
        ("a: [", "not YAML"),
    ],
)
def test_what_is_no_overlay_of_one_job(text: str, said: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_overlay(text, source="prod")
    assert said in str(caught.value)


@pytest.mark.usefixtures("on_path")
def test_what_kustomize_refuses_is_told_in_its_words(tmp_path: Path) -> None:
    folder = written(tmp_path, spec(), patches=[{"path": "nowhere.yaml"}])
    with pytest.raises(KustomizeError, match=f"kustomize build {folder}: .*nowhere.yaml"):
        build(folder)


def test_kubectl_will_do(on_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    kubectl = tmp_path / "bin" / "kubectl"
    kubectl.write_text(f'#!/bin/sh\ntest "$1" = kustomize && exec {on_path} build "$2"\n')
    kubectl.chmod(0o755)
    folder = written(tmp_path, spec())
    printed = build(folder)
    monkeypatch.setenv("PATH", str(kubectl.parent))
    assert build(folder) == printed


def test_without_either_the_way_out_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KustomizeError, match="neither kustomize nor kubectl, which has it built in"):
        build(tmp_path)
