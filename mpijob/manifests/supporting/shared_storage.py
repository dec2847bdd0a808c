"""Shared storage: claims, the volumes and classes behind them, mounts, folders, checkpoint prefixes."""

from dataclasses import dataclass
from typing import Final

from hvd_elastic.mpijob import contract
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.description.volume_spec import Fsx, Volume
from hvd_elastic.mpijob.manifests.manifest_parts import Manifest, cluster_metadata, metadata, without_empty

EFS_DRIVER: Final = "efs.csi.aws.com"
FSX_DRIVER: Final = "fsx.csi.aws.com"
_EFS_SIZE: Final = "1Ti"
"""EFS grows by itself, but a claim must name a size."""
_FSX_SIZE: Final = "1200Gi"
"""The smallest file system that FSx for Lustre offers."""
_USER: Final = "1000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A volume of a job and what the job uses it for."""

    name: str
    volume: Volume
    path: str
    read_only: bool

    def claim(self, spec: JobSpec) -> str:
        """The name of the volume's claim."""
        return self.volume.claim or f"{spec.name}-{self.name}"


def mounts(spec: JobSpec) -> list[Mount]:
    """The job's volumes: data is read only, and all workers may write to output."""
    found: list[Mount] = []
    if spec.data is not None:
        found.append(Mount(name="data", volume=spec.data, path=spec.data.mount, read_only=True))
    if spec.output is not None:
        found.append(Mount(name="output", volume=spec.output, path=spec.output.mount, read_only=False))
    return found


def required_zone(spec: JobSpec) -> str | None:
    """The zone of the job's FSx file system. None: no file system ties the job to a zone."""
    return next((mount.volume.fsx.zone for mount in mounts(spec) if mount.volume.fsx), None)


def folders(spec: JobSpec) -> dict[str, str]:
    """Environment variables that tell the training script where data is and where results go.

    Each job has its own folder in the output volume, which jobs may share.
    """
    found: dict[str, str] = {}
    if spec.data is not None:
        found[contract.ENV_DATA] = spec.data.mount
    if spec.output is not None:
        own = f"{spec.output.mount.rstrip('/')}/{spec.namespace}/{spec.name}"
        found[contract.ENV_OUTPUT] = own
        found[contract.ENV_TENSORBOARD] = spec.output.tensorboard or f"{own}/tensorboard"
    return found


def checkpoint_prefix(spec: JobSpec) -> str:
    """The prefix of the job's checkpoints, which no other job has.

    Jobs of the same name in the same namespace count as one job: the later one continues from these checkpoints.
    Raises ValueError for a job without `checkpoint`.
    """
    if spec.checkpoint is None:
        raise ValueError(f"job {spec.name} has no checkpoint")
    return f"{spec.checkpoint.url.rstrip('/')}/{spec.namespace}/{spec.name}"


def pod_volumes(spec: JobSpec) -> list[Manifest]:
    """`volumes` of a worker for the job's claims."""
    return [
        {
            "name": mount.name,
            "persistentVolumeClaim": without_empty(claimName=mount.claim(spec), readOnly=mount.read_only or None),
        }
        for mount in mounts(spec)
    ]


def volume_mounts(spec: JobSpec) -> list[Manifest]:
    """`volumeMounts` of a worker for the job's claims."""
    return [
        without_empty(name=mount.name, mountPath=mount.path, readOnly=mount.read_only or None) for mount in mounts(spec)
    ]


def manifests(spec: JobSpec) -> list[Manifest]:
    """The StorageClasses, PersistentVolumes and claims to make, in apply order. The data outlives them."""
    made = [mount for mount in mounts(spec) if _is_made(mount.volume)]
    classes = [_storage_class(spec, mount) for mount in made if mount.volume.efs or _new_fsx(mount.volume)]
    lustre = [(mount, mount.volume.fsx) for mount in made if mount.volume.fsx and not _new_fsx(mount.volume)]
    volumes = [_existing_fsx(spec, mount, fsx) for mount, fsx in lustre]
    return [*classes, *volumes, *(_claim(spec, mount) for mount in made)]


def _is_made(volume: Volume) -> bool:
    return bool(volume.size or volume.efs or volume.fsx)


def _new_fsx(volume: Volume) -> bool:
    return volume.fsx is not None and volume.fsx.file_system is None


def _claim(spec: JobSpec, mount: Mount) -> Manifest:
    volume = mount.volume
    size = volume.size or (_EFS_SIZE if volume.efs else _FSX_SIZE)
    static = volume.fsx is not None and not _new_fsx(volume)
    own_class = cluster_metadata(spec, mount.name)["name"]
    storage_class = "" if static else volume.storage_class or (own_class if volume.efs or volume.fsx else None)
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata(spec, mount.claim(spec)),
        "spec": without_empty(
            accessModes=["ReadWriteMany"],
            storageClassName=storage_class,
            volumeName=own_class if static else None,
            resources={"requests": {"storage": size}},
        ),
    }


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
        **({"mountOptions": ["flock"]} if lustre else {}),
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
        s3ImportPath=fsx.s3_import,
    )


def _existing_fsx(spec: JobSpec, mount: Mount, fsx: Fsx) -> Manifest:
    zone = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [fsx.zone]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": cluster_metadata(spec, mount.name),
        "spec": {
            "capacity": {"storage": mount.volume.size or _FSX_SIZE},
            "volumeMode": "Filesystem",
            "accessModes": ["ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "mountOptions": ["flock"],
            "claimRef": {"namespace": spec.namespace, "name": mount.claim(spec)},
            "csi": {
                "driver": FSX_DRIVER,
                "volumeHandle": fsx.file_system,
                "volumeAttributes": without_empty(dnsname=fsx.dns_name, mountname=fsx.mount_name),
            },
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}},
        },
    }
