"""Checks of claims, file systems, buckets and mounts."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import unquote, urlsplit

from hvd_elastic.mpijob import contract
from hvd_elastic.mpijob.clouds.bucket_url import BUCKET_FORMS, BucketUrl
from hvd_elastic.mpijob.clouds.cloud import Cloud
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.description.mounts import Mount, makes_empty, mounts
from hvd_elastic.mpijob.description.volume_spec import Bucket, Fsx
from hvd_elastic.priorityclasses.problem import Problem
from hvd_elastic.system import quantity

_SMALLEST_FSX = "1200Gi"
_THROUGHPUT: Final = {"PERSISTENT_1": (50, 100, 200), "PERSISTENT_2": (125, 250, 500, 1000)}
"""MB/s for each TiB of SSD (Amazon FSx API, CreateFileSystemLustreConfiguration, PerUnitStorageThroughput)."""
_DRIVERS: Final = {
    "s3": (Cloud.EKS, "Mountpoint for S3"),
    "gs": (Cloud.GKE, "Cloud Storage FUSE"),
    **dict.fromkeys(("az", "abfs", "abfss", "https"), (Cloud.AKS, "BlobFuse")),
}
_PREFIX: Final = re.compile(r"[A-Za-z0-9._/-]*")
"""What all three drivers take. BlobFuse's takes no other (`pkg/blob/blob.go`, `subdirectoryRegex`)."""
_NEEDED_FOLDERS = (
    contract.RUN_DIR,
    contract.SSH_FOLDER,
    *("/tmp", "/dev", "/etc", "/proc", "/sys", "/usr", "/bin", "/lib"),  # noqa: S108
)
"""Folders with files that a worker needs. A volume mounted there would hide them."""


def problems(spec: JobSpec) -> Iterator[Problem]:
    """Checks that each volume has exactly one source, and that its mount hides nothing."""
    found = mounts(spec)
    for mount in found:
        yield from _source(spec, mount)
        yield from _content(spec, mount)
        yield from _place(mount)
        if mount.volume.fsx is not None:
            yield from _lustre(spec, mount, mount.volume.fsx)
        if mount.bucket is not None:
            yield from _bucket(spec, mount, mount.bucket)
    if len(found) == 2 and _overlap(found[0].path, found[1].path):
        what = f"hides, or is hidden by, data.mount {found[0].path}"
        yield Problem(path="output.mount", value=found[1].path, what=what, way_out="choose another folder")
    if spec.output and spec.output.tensorboard and not _inside(spec.output.tensorboard, spec.output.mount):
        what = f"is not in output.mount {spec.output.mount}: its files would not be kept"
        way_out = f"choose a folder in {spec.output.mount}"
        yield Problem(path="output.tensorboard", value=spec.output.tensorboard, what=what, way_out=way_out)


def _source(spec: JobSpec, mount: Mount) -> Iterator[Problem]:
    volume = mount.volume
    sources = [key for key in ("storage_class", "efs", "fsx", "csi", "bucket") if getattr(volume, key, None)]
    if len(sources) > 1:
        what = f"is given as well as {mount.name}.{sources[0]}"
        yield Problem(path=f"{mount.name}.{sources[1]}", value=..., what=what, way_out="keep one of them")
    if volume.size and not sources:
        what = "asks for a new claim, but not on what storage"
        way_out = f"set {mount.name}.storage_class, .efs, .fsx or .csi"
        yield Problem(path=f"{mount.name}.size", value=volume.size, what=what, way_out=way_out)
    if volume.storage_class and not volume.size:
        what = f"is missing: {mount.name}.storage_class asks for a new claim"
        yield Problem(path=f"{mount.name}.size", value=None, what=what, way_out="write a size such as 100Gi")
    if not (volume.claim or sources or volume.size or volume.local):
        bucket = "" if mount.read_only else ", or .bucket"
        way_out = f"set {mount.name}.claim, or .efs, .fsx, .csi or .storage_class to make one{bucket}"
        yield Problem(path=mount.name, value=..., what="names no storage", way_out=way_out)
    if spec.cloud is not Cloud.EKS:
        for key in {"efs", "fsx"} & set(sources):
            what = f"is not available with cloud: {spec.cloud}"
            yield Problem(path=f"{mount.name}.{key}", value=..., what=what, way_out="set cloud: eks")


def _bucket(spec: JobSpec, mount: Mount, bucket: Bucket) -> Iterator[Problem]:
    path = f"{mount.name}.bucket"
    try:
        url = BucketUrl.parse(bucket.url)
    except ValueError:
        url = BucketUrl(scheme="", bucket="", account=None, path="")
    if url.scheme not in _DRIVERS or not url.bucket or (url.account is not None and not url.has_account):
        forms = ", ".join(f"{form}/PREFIX" for form in BUCKET_FORMS.values())
        yield Problem(path=path, value=bucket.url, what="is not the URL of a bucket", way_out=f"write one of {forms}")
        return
    if not _PREFIX.fullmatch(url.path):
        what, way_out = "has a prefix that a driver may not take", "use letters, digits, '.', '_', '-' and '/' alone"
        yield Problem(path=path, value=bucket.url, what=what, way_out=way_out)
    cloud, driver = _DRIVERS[url.scheme]
    if spec.cloud not in {cloud, Cloud.ANY}:
        what, way_out = f"needs the driver of {driver}, which is {cloud}'s", "name a bucket of the job's own cloud"
        yield Problem(path=path, value=bucket.url, what=what, way_out=way_out)
    if mount.volume.size or (url.scheme == "gs" and mount.volume.claim):
        what, key = "has no effect: a bucket has no size", f"{mount.name}.size"
        if not mount.volume.size:
            what, key = "has no effect: pods have this bucket without a claim", f"{mount.name}.claim"
        yield Problem(path=key, value=mount.volume.size or mount.volume.claim, what=what, way_out="leave it out")
    yield from _azure(spec, path, bucket, url)
    yield from _checkpoints_in_bucket(spec, mount, bucket, url)


def _azure(spec: JobSpec, path: str, bucket: Bucket, url: BucketUrl) -> Iterator[Problem]:
    is_azure = _DRIVERS[url.scheme][0] is Cloud.AKS
    for key in ("account", "client_id", "secret"):
        if not is_azure and getattr(bucket, key):
            what = "has no effect: the bucket is not Azure's"
            yield Problem(path=f"{path}.{key}", value=getattr(bucket, key), what=what, way_out="leave it out")
    if is_azure and url.account is not None and bucket.account:
        what = f"has no effect: {path} names the account"
        yield Problem(path=f"{path}.account", value=bucket.account, what=what, way_out="leave it out, or write az://")
    if is_azure and url.account is None and not bucket.account:
        what, way_out = "names a container alone", f"name the storage account: set {path}.account"
        yield Problem(path=path, value=bucket.url, what=what, way_out=way_out)
    if bucket.client_id and bucket.secret:
        what = f"is given as well as {path}.client_id"
        yield Problem(path=f"{path}.secret", value=bucket.secret, what=what, way_out="keep one of them")
    if is_azure and bucket.client_id and not spec.workers.service_account:
        what = "is the identity of a ServiceAccount, and the workers have none"
        way_out = "set workers.service_account"
        yield Problem(path=f"{path}.client_id", value=bucket.client_id, what=what, way_out=way_out)


def _checkpoints_in_bucket(spec: JobSpec, mount: Mount, bucket: Bucket, url: BucketUrl) -> Iterator[Problem]:
    """None of the drivers has hard links, by which a folder of checkpoints keeps two writers apart."""
    if spec.checkpoint is None or not spec.checkpoint.url.startswith("file:"):
        return
    if _inside(unquote(urlsplit(spec.checkpoint.url).path), mount.path):
        own = bucket.url.rstrip("/").removesuffix(url.path).rstrip("/")
        what = f"is in {mount.path}, which is a bucket, and a mounted bucket has neither hard links nor atomic renames"
        way_out = f"write the bucket itself: {own}/checkpoints"
        yield Problem(path="checkpoint.url", value=spec.checkpoint.url, what=what, way_out=way_out)


def _content(spec: JobSpec, mount: Mount) -> Iterator[Problem]:
    """Nothing could ever be written to a new volume that all pods mount read only, unless it is staged."""
    if mount.read_only and spec.stage is None and makes_empty(mount):
        what = "has a new, empty volume made, and the job only reads from it"
        way_out = "name what exists: .claim, .efs, .fsx.file_system or .csi; or fill it: stage, or .fsx.s3_import"
        yield Problem(path=mount.name, value=..., what=what, way_out=way_out)


def _place(mount: Mount) -> Iterator[Problem]:
    for needed in _NEEDED_FOLDERS:
        if _inside(mount.path, needed) or mount.path == "/":
            what = "would hide files that a worker needs"
            way_out = f"choose another folder, such as /{mount.name}"
            yield Problem(path=f"{mount.name}.mount", value=mount.path, what=what, way_out=way_out)
            return


def _lustre(spec: JobSpec, mount: Mount, fsx: Fsx) -> Iterator[Problem]:
    if fsx.file_system is None:
        yield from _new_lustre(mount, fsx)
    else:
        yield from _existing_lustre(mount, fsx)
    if spec.zones and spec.zones != [fsx.zone]:
        what = f"is not the zone of the file system, {fsx.zone}"
        yield Problem(path="zones", value=spec.zones, what=what, way_out="leave it out: the file system decides")
    if spec.one_zone is False:
        what = f"is not possible: the file system of {mount.name} is in one zone"
        yield Problem(path="one_zone", value=False, what=what, way_out="leave it out")
    others = [other.volume.fsx for other in mounts(spec) if other.volume.fsx and other.name != mount.name]
    if mount.name == "output" and others and others[0].zone != fsx.zone:
        what = f"is not the zone of data.fsx, {others[0].zone}, and a pod runs in one zone"
        yield Problem(path="output.fsx.zone", value=fsx.zone, what=what, way_out="use file systems of one zone")


def _new_lustre(mount: Mount, fsx: Fsx) -> Iterator[Problem]:
    path = f"{mount.name}.fsx"
    if fsx.subnet is None:
        way_out = "set file_system, dns_name and mount_name, or subnet and security_groups for a new one"
        yield Problem(path=path, value=..., what="names no file system", way_out=way_out)
    elif not fsx.security_groups:
        what, way_out = (
            "is missing for a new file system",
            "name a security group that lets the nodes reach Lustre's ports",
        )
        yield Problem(path=f"{path}.security_groups", value=None, what=what, way_out=way_out)
    if mount.volume.size and quantity.parse(mount.volume.size) < quantity.parse(_SMALLEST_FSX):
        what = f"is less than the smallest file system, {_SMALLEST_FSX}"
        way_out = f"write {_SMALLEST_FSX} or more"
        yield Problem(path=f"{mount.name}.size", value=mount.volume.size, what=what, way_out=way_out)
    offered = _THROUGHPUT.get(fsx.deployment, ())
    if offered and fsx.throughput not in offered:
        what = f"is not a throughput of {fsx.deployment}" if fsx.throughput else f"is missing for {fsx.deployment}"
        way_out = f"write {', '.join(map(str, offered[:-1]))} or {offered[-1]}"
        yield Problem(path=f"{path}.throughput", value=fsx.throughput, what=what, way_out=way_out)
    if fsx.throughput and not offered:
        what, way_out = f"is not a choice with {fsx.deployment}", "leave it out, or choose a PERSISTENT deployment"
        yield Problem(path=f"{path}.throughput", value=fsx.throughput, what=what, way_out=way_out)
    if fsx.deployment == "PERSISTENT_2" and fsx.s3_import is not None:
        what = "is refused by FSx for PERSISTENT_2, which is linked to a bucket by data repository associations"
        way_out = (
            "make it with `aws fsx create-file-system` and `create-data-repository-association`, and name it by "
            "file_system; or choose SCRATCH_2 or PERSISTENT_1"
        )
        yield Problem(path=f"{path}.s3_import", value=fsx.s3_import, what=what, way_out=way_out)


def _existing_lustre(mount: Mount, fsx: Fsx) -> Iterator[Problem]:
    path = f"{mount.name}.fsx"
    for key in ("dns_name", "mount_name"):
        if getattr(fsx, key) is None:
            what = "is missing for an existing file system"
            yield Problem(path=f"{path}.{key}", value=None, what=what, way_out="add it")
    if made := [key for key in ("subnet", "security_groups", "s3_import", "throughput") if getattr(fsx, key)]:
        what = f"exists already, but {' and '.join(made)} asks for a new file system"
        yield Problem(path=f"{path}.file_system", value=fsx.file_system, what=what, way_out="keep one of them")


def _inside(path: str, folder: str) -> bool:
    return PurePosixPath(path).is_relative_to(folder)


def _overlap(one: str, other: str) -> bool:
    return _inside(one, other) or _inside(other, one)
