"""The Job that stages a data set, and the gate before training."""

import json

import pytest

from hvd_elastic.mpijob.contract import Role
from hvd_elastic.mpijob.description.target import Target
from hvd_elastic.mpijob.manifests.manifest_parts import pod_selector
from hvd_elastic.mpijob.manifests.render import render
from tests.mpijob import admission
from tests.mpijob.jobs import job, one, pods, refused


def test_no_stage_no_job_and_no_gate() -> None:
    spec = job(data="imagenet")
    assert "Job" not in {manifest["kind"] for manifest in render(spec)}
    assert all("stage-gate" not in str(pod) for pod in pods(spec))


def test_the_copier_writes_to_the_data_that_all_others_only_read() -> None:
    spec = job(data="imagenet", stage="s3://b/set")
    pod = one(spec, "Job")["spec"]["template"]["spec"]
    (volume,) = (each for each in pod["volumes"] if each["name"] == "data")
    assert volume["persistentVolumeClaim"] == {"claimName": "imagenet"}
    assert {"name": "data", "mountPath": "/data"} in pod["containers"][0]["volumeMounts"]
    assert admission.restricted(pod) == []
    for reader in pods(spec):
        (claim,) = (each["persistentVolumeClaim"] for each in reader["volumes"] if each["name"] == "data")
        assert claim == {"claimName": "imagenet", "readOnly": True}
        assert admission.restricted(reader) == []


@pytest.mark.parametrize("target", list(Target))
def test_nothing_of_a_job_runs_before_its_gate(target: Target) -> None:
    spec = job(data="imagenet", stage={"source": "s3://b/set", "into": "/data/set", "rearrange": ["sort", "$(A)"]})
    templates = [each for manifest in render(spec, target) for _, each in admission.templates(manifest)]
    assert templates
    for template in templates:
        first = template["spec"]["initContainers"][0]
        assert first["command"] == ["hvd-elastic", "stage-gate", "--wanted", "/etc/hvd-elastic/stage/stage.json"]
        (folder,) = (mount for mount in first["volumeMounts"] if mount["mountPath"] == "/etc/hvd-elastic/stage")
        assert "subPath" not in folder
        (volume,) = (volume for volume in template["spec"]["volumes"] if volume["name"] == folder["name"])
        assert volume["configMap"] == {"name": "fashion-stage"}
    (config,) = (one for one in render(spec, target) if one["metadata"]["name"] == "fashion-stage")
    wanted = json.loads(config["data"]["stage.json"])
    assert wanted == {"source": "s3://b/set", "into": "/data/set", "rearrange": ["sort", "$(A)"]}


@pytest.mark.parametrize(
    "changed",
    [
        {"stage": "s3://b/other"},
        {"stage": {"source": "s3://b/set", "into": "/data/set"}},
        {"stage": {"source": "s3://b/set", "memory": "4Gi"}},
        {"image": "image:2"},
        {"data": "elsewhere"},
    ],
)
def test_another_pod_template_is_another_job(changed: dict[str, object]) -> None:
    """A Job's pod template cannot be changed."""
    keys: dict[str, object] = {"data": "imagenet", "stage": "s3://b/set"}
    before, again, after = (one(job(**each), "Job") for each in (keys, keys, {**keys, **changed}))
    assert before == again
    assert before["metadata"]["name"] != after["metadata"]["name"]


def test_what_changes_nothing_in_its_pods_keeps_its_name() -> None:
    keys: dict[str, object] = {"data": "imagenet", "stage": "s3://b/set"}
    assert one(job(**keys), "Job") == one(job(**keys, workers="2:8", command=["python", "other.py"]), "Job")


@pytest.mark.parametrize("length", [1, 48, 52])
def test_its_name_is_a_label_of_its_pods(length: int) -> None:
    names = {
        one(job(name=(f"a{end}" * 26)[:length], data="d", stage="s3://b"), "Job")["metadata"]["name"] for end in "bc"
    }
    assert all(len(name) <= 63 for name in names)
    assert length == 1 or len(names) == 2


def test_the_copy_does_not_decide_the_zone_of_the_gpus() -> None:
    spec = job(cloud="eks", data="imagenet", stage="s3://b/set")
    template = one(spec, "Job")["spec"]["template"]
    assert "podAffinity" not in template["spec"]["affinity"]
    assert not pod_selector(spec).items() <= template["metadata"]["labels"].items()
    assert not pod_selector(spec, Role.LAUNCHER).items() <= template["metadata"]["labels"].items()


def test_a_new_volume_may_be_data_if_it_is_staged() -> None:
    assert "--data" in refused(data={"size": "1Ti", "storage_class": "nfs"})
    spec = job(data={"size": "1Ti", "storage_class": "nfs"}, stage="s3://b/set")
    kinds = [manifest["kind"] for manifest in render(spec)]
    assert kinds.index("PersistentVolumeClaim") < kinds.index("Job") < kinds.index("MPIJob")


@pytest.mark.parametrize(
    "source",
    [
        "s3://b/set",
        "gs://b/set",
        "abfs://c@account1/set",
        "abfss://c@account1.dfs.core.windows.net/set",
        "https://account1.blob.core.windows.net/c/set",
        "https://files.example.com/set/list.tsv",
    ],
)
def test_the_copier_is_given_what_is_staged(source: str) -> None:
    (copier,) = one(job(data="d", stage=source), "Job")["spec"]["template"]["spec"]["containers"]
    words = copier["command"]
    assert words[words.index("--source") + 1] == source


def test_the_copier_alone_is_told_the_account_of_a_container() -> None:
    spec = job(data="d", stage={"source": "az://set", "account": "account1"})
    (copier,) = one(spec, "Job")["spec"]["template"]["spec"]["containers"]
    account = {"name": "AZURE_STORAGE_ACCOUNT_NAME", "value": "account1"}
    assert account in copier["env"]
    assert all(account not in container.get("env", []) for pod in pods(spec) for container in pod["containers"])


def test_what_cannot_be_staged_is_refused() -> None:
    assert "--stage" in refused(stage="s3://b/set")
    assert "--stage" in refused(data="d", stage={"source": "s3://b", "into": "/elsewhere"})


@pytest.mark.parametrize(
    ("key", "stage"),
    [
        ("source", {"source": "http://b/set"}),
        ("source", {"source": "file:///set"}),
        ("source", {"source": "https://files.example.com"}),
        ("source", {"source": "https://files.example.com:0/set"}),
        ("source", {"source": "https://files.example.com:port/set"}),
        ("source", {"source": "https://[files/set"}),
        ("source", {"source": "https://account1.blob.core.windows.net"}),
        ("source", {"source": "abfss://account1.dfs.core.windows.net/set"}),
        ("source", {"source": "az://set"}),
        ("account", {"source": "gs://b/set", "account": "account1"}),
        ("endpoint", {"source": "https://files.example.com/l.tsv", "endpoint": "https://files.example.com"}),
        ("endpoint", {"source": "abfs://c@account1/set", "endpoint": "https://account1.example.com"}),
    ],
)
def test_a_source_names_a_data_set_and_nothing_beside_it_is_without_effect(key: str, stage: dict[str, str]) -> None:
    found = refused(data="d", **{f"stage__{name}": value for name, value in stage.items()})
    assert list(found) == [f"--stage-{key}"]
