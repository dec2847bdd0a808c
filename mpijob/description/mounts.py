"""The volumes that a job mounts, and what is behind each: something that exists, or something to be made.

A volume that exists is named as its CSI driver names it: aws-efs-csi-driver `pkg/driver/node.go` (`parseVolumeId`:
every release reads `FILE_SYSTEM:PATH:ACCESS_POINT`; the folder must exist), aws-fsx-csi-driver
`examples/kubernetes/static_provisioning`.
"""

from dataclasses import dataclass
from typing import Final

from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.description.volume_spec import Bucket, CsiVolume, Efs, Output, Volume

EFS_DRIVER: Final = "efs.csi.aws.com"
FSX_DRIVER: Final = "fsx.csi.aws.com"
LUSTRE_OPTIONS: Final = ("flock",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A volume of a job and what the job uses it for."""

    name: str
    volume: Volume
    path: str
    read_only: bool

    @property
    def bucket(self) -> Bucket | None:
        """The bucket that it is. None: it is a claim."""
        return self.volume.bucket if isinstance(self.volume, Output) else None

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


def makes_empty(mount: Mount) -> bool:
    """Whether the job has a new volume made, with nothing in it."""
    filled = mount.volume.fsx is not None and mount.volume.fsx.s3_import is not None
    return has_made_claim(mount.volume) and existing(mount) is None and not filled


def has_made_claim(volume: Volume) -> bool:
    """Whether the job brings the claim, in place of naming one that is there."""
    return bool(volume.size or volume.efs or volume.fsx or volume.csi)


def existing(mount: Mount) -> CsiVolume | None:
    """What exists behind a volume, as its CSI driver names it. None: it is to be made."""
    volume = mount.volume
    if volume.efs is not None and (mount.read_only or volume.efs.path or volume.efs.access_point):
        return CsiVolume(driver=EFS_DRIVER, handle=_efs_handle(volume.efs))
    if volume.fsx is not None and volume.fsx.file_system is not None:
        given = {"dnsname": volume.fsx.dns_name, "mountname": volume.fsx.mount_name}
        names = {key: value for key, value in given.items() if value}
        return CsiVolume(
            driver=FSX_DRIVER, handle=volume.fsx.file_system, attributes=names, mount_options=[*LUSTRE_OPTIONS]
        )
    return volume.csi


def _efs_handle(efs: Efs) -> str:
    return ":".join((efs.file_system, efs.path or "", efs.access_point or "")).rstrip(":")
