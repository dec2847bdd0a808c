import pytest

from hvd_elastic.mpijob import contract
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.manifests.render import render
from hvd_elastic.mpijob.manifests.supporting import shared_storage
from tests.mpijob.jobs import job, one, pods

FSX = {"zone": "us-east-1a", "file_system": "fs-01234567", "dns_name": "d.amazonaws.com", "mount_name": "m"}


def kinds(spec: JobSpec) -> list[str]:
    return [manifest["kind"] for manifest in shared_storage.manifests(spec)]


def test_data_is_read_only_and_output_is_not() -> None:
    _, worker = pods(job(data="imagenet", output="results"))
    mounts = {mount["name"]: mount for mount in worker["containers"][0]["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in worker["volumes"]}
    assert mounts["data"] == {"name": "data", "mountPath": "/data", "readOnly": True}
    assert mounts["output"] == {"name": "output", "mountPath": "/output"}
    assert volumes["data"]["persistentVolumeClaim"] == {"claimName": "imagenet", "readOnly": True}
    assert volumes["output"]["persistentVolumeClaim"] == {"claimName": "results"}


def test_claims_that_exist_are_not_made() -> None:
    assert kinds(job(data="imagenet", output="results")) == []


def test_a_claim_of_an_existing_class() -> None:
    spec = job(output={"size": "20Ti", "storage_class": "nfs"})
    claim = one(spec, "PersistentVolumeClaim")
    assert claim["metadata"]["name"] == "fashion-output"
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert claim["spec"]["storageClassName"] == "nfs"
    assert kinds(spec) == ["PersistentVolumeClaim"]


def test_efs_makes_an_access_point_for_results_and_for_the_user_of_the_image() -> None:
    spec = job(cloud="eks", output={"efs": "fs-01234567"})
    storage_class = one(spec, "StorageClass")
    assert storage_class["provisioner"] == "efs.csi.aws.com"
    assert storage_class["parameters"] == {
        "provisioningMode": "efs-ap",
        "fileSystemId": "fs-01234567",
        "directoryPerms": "700",
        "uid": "1000",
        "gid": "1000",
    }
    assert storage_class["reclaimPolicy"] == "Retain"
    assert one(spec, "PersistentVolumeClaim")["spec"]["storageClassName"] == storage_class["metadata"]["name"]


@pytest.mark.parametrize(
    ("efs", "handle"),
    [
        ("fs-01234567", "fs-01234567"),
        ("fs-01234567:/sets/birds", "fs-01234567:/sets/birds"),
        ("fs-01234567::fsap-01234567", "fs-01234567::fsap-01234567"),
        ("fs-01234567:/birds:fsap-01234567", "fs-01234567:/birds:fsap-01234567"),
        ({"file_system": "fs-01234567", "access_point": "fsap-01234567"}, "fs-01234567::fsap-01234567"),
    ],
)
def test_data_on_efs_is_what_is_there(efs: object, handle: str) -> None:
    spec = job(cloud="eks", data={"efs": efs})
    volume, claim = one(spec, "PersistentVolume"), one(spec, "PersistentVolumeClaim")
    assert volume["spec"]["csi"] == {"driver": "efs.csi.aws.com", "volumeHandle": handle}
    assert volume["spec"]["claimRef"] == {"namespace": "default", "name": claim["metadata"]["name"]}
    assert claim["spec"]["volumeName"] == volume["metadata"]["name"]
    assert claim["spec"]["storageClassName"] == ""
    assert kinds(spec) == ["PersistentVolume", "PersistentVolumeClaim"]


def test_results_may_go_to_a_folder_of_efs_that_exists() -> None:
    spec = job(cloud="eks", data={"efs": "fs-01234567"}, output={"efs": "fs-01234567:/results"})
    handles = [m["spec"]["csi"]["volumeHandle"] for m in render(spec) if m["kind"] == "PersistentVolume"]
    assert handles == ["fs-01234567", "fs-01234567:/results"]


def test_any_csi_volume_that_exists_is_reached() -> None:
    csi = {"driver": "file.csi.azure.com", "handle": "a_b", "attributes": {"shareName": "b"}, "secret": "key"}
    spec = job(namespace="research", data={"csi": csi | {"mount_options": ["uid=1000"]}})
    volume = one(spec, "PersistentVolume")["spec"]
    assert volume["csi"] == {
        "driver": "file.csi.azure.com",
        "volumeHandle": "a_b",
        "volumeAttributes": {"shareName": "b"},
        "nodeStageSecretRef": {"name": "key", "namespace": "research"},
    }
    assert volume["mountOptions"] == ["uid=1000"]
    assert "nodeAffinity" not in volume
    assert one(spec, "PersistentVolumeClaim")["spec"]["storageClassName"] == ""


def test_lustre_that_exists_is_bound_to_its_claim_and_zone() -> None:
    spec = job(cloud="eks", data={"fsx": FSX})
    volume, claim = one(spec, "PersistentVolume"), one(spec, "PersistentVolumeClaim")
    assert volume["spec"]["csi"]["driver"] == "fsx.csi.aws.com"
    assert volume["spec"]["mountOptions"] == ["flock"]
    assert volume["spec"]["accessModes"] == ["ReadWriteMany"]
    assert volume["spec"]["claimRef"]["name"] == claim["metadata"]["name"]
    assert claim["spec"]["volumeName"] == volume["metadata"]["name"]
    assert claim["spec"]["storageClassName"] == ""
    assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain"


def test_new_lustre_is_filled_from_a_bucket() -> None:
    fsx = {
        "zone": "a",
        "subnet": "subnet-01234567",
        "security_groups": ["sg-01234567", "sg-12345678"],
        "s3_import": "s3://b",
    }
    spec = job(cloud="eks", data={"fsx": fsx})
    assert one(spec, "StorageClass")["parameters"] == {
        "subnetId": "subnet-01234567",
        "securityGroupIds": "sg-01234567,sg-12345678",
        "deploymentType": "SCRATCH_2",
        "s3ImportPath": "s3://b",
    }
    assert one(spec, "PersistentVolumeClaim")["spec"]["resources"]["requests"]["storage"] == "1200Gi"


def test_persistent_lustre_says_its_throughput_as_text() -> None:
    fsx: dict[str, object] = {"zone": "a", "subnet": "subnet-01234567", "security_groups": ["sg-01234567"]}
    fsx |= {"deployment": "PERSISTENT_2", "throughput": 250}
    assert one(job(cloud="eks", output={"fsx": fsx}), "StorageClass")["parameters"] == {
        "subnetId": "subnet-01234567",
        "securityGroupIds": "sg-01234567",
        "deploymentType": "PERSISTENT_2",
        "perUnitStorageThroughput": "250",
    }


def test_folders_and_prefixes_are_the_jobs_own() -> None:
    specs = [job(name=name, namespace=space, output="o", checkpoint="s3://b/p") for name in "ab" for space in "xy"]
    folders = [shared_storage.folders(spec) for spec in specs]
    for name in (contract.ENV_OUTPUT, contract.ENV_TENSORBOARD):
        assert len({folder[name] for folder in folders}) == 4
    assert len({shared_storage.checkpoint_prefix(spec) for spec in specs}) == 4
    assert shared_storage.checkpoint_prefix(specs[0]) == "s3://b/p/x/a"


def test_the_same_job_finds_its_checkpoints_again() -> None:
    before, after = job(checkpoint="s3://b/p/"), job(checkpoint="s3://b/p", image="image:2", workers="2:9")
    assert shared_storage.checkpoint_prefix(before) == shared_storage.checkpoint_prefix(after)


def test_a_job_without_checkpoint_has_no_prefix() -> None:
    with pytest.raises(ValueError, match="fashion"):
        shared_storage.checkpoint_prefix(job())


def test_a_file_system_in_the_cluster_takes_checkpoints() -> None:
    spec = job(checkpoint="file:///output/checkpoints", output="results")
    assert render(spec)
    assert shared_storage.checkpoint_prefix(spec) == "file:///output/checkpoints/default/fashion"
