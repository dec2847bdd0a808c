"""Shared storage: claims, the volumes and classes behind them, mounts, folders, checkpoint prefixes.

What exists gets a static PersistentVolume and a claim that only that volume satisfies; what does not, a StorageClass
and a claim that has it made. Facts: aws-efs-csi-driver `pkg/driver/node.go` (`parseVolumeId`: every release reads
`FILE_SYSTEM:PATH:ACCESS_POINT`; the folder must exist), aws-fsx-csi-driver `pkg/driver/controller.go` (its parameters
are strings) and `examples/kubernetes/static_provisioning`.
"""

from typing import Final

from hvd_elastic.mpijob import contract
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.description.mounts import (
    EFS_DRIVER,
    FSX_DRIVER,
    LUSTRE_OPTIONS,
    Mount,
    existing,
    has_made_claim,
    mounts,
)
from hvd_elastic.mpijob.description.volume_spec import CsiVolume, Fsx, Volume
from hvd_elastic.mpijob.manifests.manifest_parts import Manifest, cluster_metadata, metadata, without_empty
from hvd_elastic.mpijob.manifests.supporting import bucket_volume

_ANY_SIZE: Final = "1Ti"
"""EFS grows by itself, and a volume that exists has the size that it has, but a claim must name one."""
_FSX_SIZE: Final = "1200Gi"
"""The smallest file system that FSx for Lustre offers."""
_USER: Final = "1000"
_EVENTS_FOLDER: Final = "/tmp/tensorboard"  # noqa: S108 - in the container
"""Of a worker whose results go to a bucket: TensorBoard's writer appends to its file."""


def folders(spec: JobSpec) -> dict[str, str]:
    """Environment variables that tell the training script where data is and where results go.

    Each job has its own folder in the output volume, which jobs may share.
    """
    found: dict[str, str] = {}
    if spec.data is not None:
        found[contract.ENV_DATA] = spec.data.mount
    if spec.output is not None:
        own = f"{spec.output.mount.rstrip('/')}/{spec.namespace}/{spec.name}"
        kept = spec.output.tensorboard or f"{own}/tensorboard"
        found[contract.ENV_OUTPUT] = own
        found[contract.ENV_TENSORBOARD] = _EVENTS_FOLDER if spec.output.bucket else kept
        if spec.output.bucket:
            found[contract.ENV_TENSORBOARD_COPY] = kept
    return found


def kept_events(spec: JobSpec) -> str:
    """Where TensorBoard events are kept. Raises KeyError for a job without `output`."""
    found = folders(spec)
    return found.get(contract.ENV_TENSORBOARD_COPY) or found[contract.ENV_TENSORBOARD]


def checkpoint_prefix(spec: JobSpec) -> str:
    """The prefix of the job's checkpoints, which no other job has.

    Jobs of the same name in the same namespace count as one job: the later one continues from these checkpoints.
    Raises ValueError for a job without `checkpoint`.
    """
    if spec.checkpoint is None:
        raise ValueError(f"job {spec.name} has no checkpoint")
    return f"{spec.checkpoint.url.rstrip('/')}/{spec.namespace}/{spec.name}"


def pod_volumes(spec: JobSpec) -> list[Manifest]:
    """`volumes` of a worker for the job's storage."""
    return [pod_volume(spec, mount, read_only=mount.read_only) for mount in mounts(spec)]


def pod_volume(spec: JobSpec, mount: Mount, *, read_only: bool) -> Manifest:
    """One of the `volumes` of a pod."""
    if mount.bucket is not None and bucket_volume.is_inline(mount.bucket):
        return {"name": mount.name, **bucket_volume.inline(spec, mount.bucket, read_only=read_only)}
    claim = without_empty(claimName=mount.claim(spec), readOnly=read_only or None)
    return {"name": mount.name, "persistentVolumeClaim": claim}


def volume_mounts(spec: JobSpec) -> list[Manifest]:
    """`volumeMounts` of a worker for the job's storage."""
    return [
        without_empty(name=mount.name, mountPath=mount.path, readOnly=mount.read_only or None) for mount in mounts(spec)
    ]


def manifests(spec: JobSpec) -> list[Manifest]:
    """The StorageClasses, PersistentVolumes and claims to make, in apply order. The data outlives them."""
    made = [mount for mount in mounts(spec) if has_made_claim(mount.volume) or _is_static_bucket(mount)]
    sources = [(mount, _source(spec, mount)) for mount in made]
    classes = [
        _storage_class(spec, mount) for mount, source in sources if source is None and _needs_class(mount.volume)
    ]
    volumes = [_persistent_volume(spec, mount, source) for mount, source in sources if source is not None]
    return [*classes, *volumes, *(_claim(spec, mount, static=source is not None) for mount, source in sources)]


def _is_static_bucket(mount: Mount) -> bool:
    return mount.bucket is not None and not bucket_volume.is_inline(mount.bucket)


def _source(spec: JobSpec, mount: Mount) -> CsiVolume | None:
    if mount.bucket is not None:
        return bucket_volume.static(spec, mount.bucket, handle=str(cluster_metadata(spec, mount.name)["name"]))
    return existing(mount)


def _needs_class(volume: Volume) -> bool:
    return bool(volume.efs or volume.fsx)


def _claim(spec: JobSpec, mount: Mount, *, static: bool) -> Manifest:
    volume = mount.volume
    own_name = cluster_metadata(spec, mount.name)["name"]
    made_class = volume.storage_class or (own_name if _needs_class(volume) else None)
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata(spec, mount.claim(spec)),
        "spec": without_empty(
            accessModes=["ReadWriteMany"],
            storageClassName="" if static else made_class,
            volumeName=own_name if static else None,
            resources={"requests": {"storage": _size(volume)}},
        ),
    }


def _size(volume: Volume) -> str:
    return volume.size or (_FSX_SIZE if volume.fsx else _ANY_SIZE)


def _storage_class(spec: JobSpec, mount: Mount) -> Manifest:
    volume = mount.volume
    lustre = volume.fsx is not None
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": cluster_metadata(spec, mount.name),
        "provisioner": FSX_DRIVER if lustre else EFS_DRIVER,
        "parameters": _lustre_parameters(volume.fsx) if volume.fsx else _efs_parameters(volume),
        "reclaimPolicy": "Retain",
        **({"mountOptions": [*LUSTRE_OPTIONS]} if lustre else {}),
        "volumeBindingMode": "Immediate",
    }


def _efs_parameters(volume: Volume) -> Manifest:
    assert volume.efs is not None
    return {
        "provisioningMode": "efs-ap",
        "fileSystemId": volume.efs.file_system,
        "directoryPerms": "700",
        "uid": _USER,
        "gid": _USER,
    }


def _lustre_parameters(fsx: Fsx) -> Manifest:
    return without_empty(
        subnetId=fsx.subnet,
        securityGroupIds=",".join(fsx.security_groups),
        deploymentType=fsx.deployment,
        perUnitStorageThroughput=None if fsx.throughput is None else str(fsx.throughput),
        s3ImportPath=fsx.s3_import,
    )


def _persistent_volume(spec: JobSpec, mount: Mount, source: CsiVolume) -> Manifest:
    secret = {"name": source.secret, "namespace": spec.namespace} if source.secret else None
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": cluster_metadata(spec, mount.name),
        "spec": without_empty(
            capacity={"storage": _size(mount.volume)},
            volumeMode="Filesystem",
            accessModes=["ReadWriteMany"],
            persistentVolumeReclaimPolicy="Retain",
            mountOptions=source.mount_options,
            claimRef={"namespace": spec.namespace, "name": mount.claim(spec)},
            csi=without_empty(
                driver=source.driver,
                volumeHandle=source.handle,
                volumeAttributes=source.attributes,
                nodeStageSecretRef=secret,
            ),
            nodeAffinity=_only_in(mount.volume.fsx.zone) if mount.volume.fsx else None,
        ),
    }


def _only_in(zone: str) -> Manifest:
    term = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}}
