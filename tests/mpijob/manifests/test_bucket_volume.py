"""Results in a bucket: what each cloud's CSI driver is told."""

from typing import Any

import pytest

from hvd_elastic.mpijob import contract
from hvd_elastic.mpijob.contract import Role
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.description.target import Target
from hvd_elastic.mpijob.manifests.manifest_parts import pod_selector
from hvd_elastic.mpijob.manifests.render import render
from hvd_elastic.mpijob.manifests.supporting import tensorboard
from hvd_elastic.mpijob.problems import InvalidInputError
from tests.mpijob.jobs import job, one, pods, refused

CLIENT = "00000000-0000-0000-0000-000000000001"
AZURE = {"url": "az://results/vision", "account": "teamstore"}


def kinds(spec: JobSpec) -> list[str]:
    return [manifest["kind"] for manifest in render(spec)]


def worker_annotations(spec: JobSpec) -> dict[str, str]:
    template = one(spec, "MPIJob")["spec"]["mpiReplicaSpecs"]["Worker"]["template"]
    found: dict[str, str] = template["metadata"].get("annotations", {})
    return found


def worker_env(spec: JobSpec) -> dict[str, str]:
    return {entry["name"]: entry.get("value", "") for entry in pods(spec)[1]["containers"][0]["env"]}


def output(pod: dict[str, Any]) -> dict[str, Any]:
    (found,) = (volume for volume in pod["volumes"] if volume["name"] == "output")
    return dict(found)


def test_mountpoint_has_a_volume_of_its_own_for_each_job() -> None:
    spec = job(cloud="eks", namespace="vision", output="s3://team/vision/runs/", workers__service_account="trainer")
    volume = one(spec, "PersistentVolume")["spec"]
    assert volume["csi"] == {
        "driver": "s3.csi.aws.com",
        "volumeHandle": "vision.fashion.output",
        "volumeAttributes": {"bucketName": "team", "authenticationSource": "pod"},
    }
    options = ["allow-other", "uid=1000", "gid=1000", "allow-delete", "allow-overwrite", "prefix=vision/runs/"]
    assert volume["mountOptions"] == options
    assert volume["accessModes"] == ["ReadWriteMany"]
    claim = one(spec, "PersistentVolumeClaim")
    assert volume["claimRef"] == {"namespace": "vision", "name": claim["metadata"]["name"]}
    assert output(pods(spec)[1])["persistentVolumeClaim"] == {"claimName": "fashion-output"}


def test_without_an_account_mountpoint_has_the_credentials_of_its_driver() -> None:
    bucket = {"url": "s3://team", "mount_options": ["region eu-west-1"]}
    volume = one(job(cloud="eks", output={"bucket": bucket}), "PersistentVolume")["spec"]
    assert volume["csi"]["volumeAttributes"] == {"bucketName": "team"}
    assert volume["mountOptions"][-2:] == ["allow-overwrite", "region eu-west-1"]


def test_cloud_storage_fuse_is_a_volume_of_the_pod_and_its_sidecar_gets_out() -> None:
    spec = job(cloud="gke", output="gs://team/vision", network__egress=[{"cidr": "199.36.153.8/30"}])
    assert output(pods(spec)[1]) == {
        "name": "output",
        "csi": {
            "driver": "gcsfuse.csi.storage.gke.io",
            "volumeAttributes": {
                "bucketName": "team",
                "mountOptions": "implicit-dirs,uid=1000,gid=1000,only-dir=vision",
            },
        },
    }
    assert worker_annotations(spec) == {"gke-gcsfuse/volumes": "true"}
    assert not {"PersistentVolume", "PersistentVolumeClaim"} & set(kinds(spec))
    (identity,) = (m for m in render(spec) if m["metadata"]["name"] == "fashion.identity")
    assert identity["spec"]["podSelector"]["matchLabels"] == pod_selector(spec, Role.WORKER)


def test_buckets_that_nodes_mount_open_no_way_to_credentials_for_pods() -> None:
    spec = job(cloud="eks", output="s3://team/vision")
    assert "fashion.identity" not in {manifest["metadata"]["name"] for manifest in render(spec)}
    assert worker_annotations(spec) == {}


def test_blobfuse_mounts_by_the_token_of_the_workers_account() -> None:
    bucket = {**AZURE, "client_id": CLIENT, "mount_options": ["--use-adls=true"]}
    spec = job(cloud="aks", output={"bucket": bucket}, workers__service_account="trainer")
    volume = one(spec, "PersistentVolume")["spec"]
    assert volume["csi"] == {
        "driver": "blob.csi.azure.com",
        "volumeHandle": "default.fashion.output",
        "volumeAttributes": {
            "protocol": "fuse2",
            "storageAccount": "teamstore",
            "containerName": "results",
            "clientID": CLIENT,
            "mountWithWorkloadIdentityToken": "true",
        },
    }
    user = ["-o allow_other", "-o uid=1000", "-o gid=1000"]
    assert volume["mountOptions"] == [*user, "--subdirectory=vision", "--use-adls=true"]


@pytest.mark.parametrize(
    "url",
    ["abfss://results@teamstore.dfs.core.chinacloudapi.cn", "https://teamstore.blob.core.chinacloudapi.cn/results"],
)
def test_a_secret_and_another_azure(url: str) -> None:
    spec = job(namespace="vision", output={"bucket": {"url": url, "secret": "store-key"}})
    csi = one(spec, "PersistentVolume")["spec"]["csi"]
    assert csi["volumeAttributes"] == {
        "protocol": "fuse2",
        "storageAccount": "teamstore",
        "containerName": "results",
        "storageEndpointSuffix": "core.chinacloudapi.cn",
    }
    assert csi["nodeStageSecretRef"] == {"name": "store-key", "namespace": "vision"}


@pytest.mark.parametrize("bucket", ["s3://b", "gs://b", AZURE])
def test_events_are_written_in_the_pod_and_copied(bucket: object) -> None:
    environment = worker_env(job(output={"bucket": bucket, "mount": "/results"}))
    assert environment[contract.ENV_OUTPUT] == "/results/default/fashion"
    assert environment[contract.ENV_TENSORBOARD].startswith("/tmp/")
    assert environment[contract.ENV_TENSORBOARD_COPY] == "/results/default/fashion/tensorboard"
    chosen = worker_env(job(output={"bucket": bucket, "tensorboard": "/output/board"}))
    assert chosen[contract.ENV_TENSORBOARD_COPY] == "/output/board"
    assert contract.ENV_TENSORBOARD_COPY not in worker_env(job(output="claim"))


def shown(spec: JobSpec) -> tuple[dict[str, Any], dict[str, Any]]:
    policy, deployment = tensorboard.manifests(spec, image="board:1")
    return policy["spec"], deployment["spec"]["template"]


def test_tensorboard_reads_the_bucket_as_the_workers_account_and_nothing_else_gets_out() -> None:
    spec = job(cloud="gke", output="gs://team/vision", workers__service_account="trainer")
    policy, template = shown(spec)
    assert template["metadata"]["annotations"] == {"gke-gcsfuse/volumes": "true"}
    assert template["spec"]["serviceAccountName"] == "trainer"
    assert output(template["spec"])["csi"]["readOnly"] is True
    addresses = [to["ipBlock"]["cidr"] for rule in policy["egress"] for to in rule.get("to", []) if "ipBlock" in to]
    assert "169.254.169.254/32" in addresses
    assert "ingress" not in policy
    command = template["spec"]["containers"][0]["command"]
    assert command[command.index("--logdir") + 1] == "/output/default/fashion/tensorboard"


def test_tensorboard_needs_no_way_out_for_a_bucket_that_its_node_mounts() -> None:
    policy, template = shown(job(cloud="eks", output="s3://team", workers__service_account="trainer"))
    assert "egress" not in policy
    assert template["spec"]["serviceAccountName"] == "trainer"
    assert output(template["spec"])["persistentVolumeClaim"] == {"claimName": "fashion-output", "readOnly": True}
    assert "annotations" not in template["metadata"]
    _, template = shown(job(output="results", workers__service_account="trainer"))
    assert "serviceAccountName" not in template["spec"]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"output": "ftp://b"}, "is not the URL of a bucket"),
        ({"output": "gs://"}, "is not the URL of a bucket"),
        ({"output": "https://example.com/b"}, "is not the URL of a bucket"),
        ({"output": "s3://["}, "is not the URL of a bucket"),
        ({"output": "s3://b/a b"}, "prefix"),
        ({"output": "gs://b/a,b"}, "prefix"),
        ({"output": "gs://b", "cloud": "eks"}, "Cloud Storage FUSE"),
        ({"output": "s3://b", "cloud": "aks"}, "Mountpoint for S3"),
        ({"output": "az://c"}, "output.bucket.account"),
        ({"output": {"bucket": "s3://b", "efs": "fs-01234567"}, "cloud": "eks"}, "keep one of them"),
        ({"output": {"bucket": "s3://b", "size": "1Ti"}}, "no size"),
        ({"output": {"bucket": "gs://b", "claim": "c"}}, "without a claim"),
        ({"output": {"bucket": {"url": "s3://b", "account": "teamstore"}}}, "not Azure's"),
        ({"output": {"bucket": {"url": "s3://b", "secret": "s"}}}, "not Azure's"),
        (
            {"output": {"bucket": {"url": "https://teamstore.blob.core.windows.net/c", "account": "teamstore"}}},
            "names the account",
        ),
        ({"output": {"bucket": {**AZURE, "client_id": CLIENT}}}, "workers.service_account"),
        (
            {"output": {"bucket": {**AZURE, "client_id": CLIENT, "secret": "s"}}, "workers__service_account": "t"},
            "keep one of them",
        ),
        ({"output": {}}, ".bucket"),
        (
            {"output": "s3://team/vision", "checkpoint": "file:///output/checkpoints"},
            "s3://team/checkpoints",
        ),
        (
            {"output": {"bucket": AZURE}, "checkpoint": "file:///output/a%20b"},
            "az://results/checkpoints",
        ),
    ],
)
def test_what_no_driver_could_mount_is_refused(keys: dict[str, Any], words: str) -> None:
    assert words in " ".join(refused(**keys).values())


def test_a_job_in_which_nobody_copies_events_takes_no_bucket() -> None:
    with pytest.raises(InvalidInputError, match=r"output\.bucket: .*PyTorchJob.*--as mpijob"):
        render(job(output="gs://team"), Target.PYTORCHJOB)
    assert render(job(output="gs://team"), Target.MPIJOB_V1)
