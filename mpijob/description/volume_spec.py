"""Shared storage as a researcher names it: a claim that exists, or one to be made."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from hvd_elastic.mpijob.description.scalar_types import ContainerPath, LabelValue, Memory, ObjectName, Text
from hvd_elastic.mpijob.description.section import Section

_FileSystemId = Annotated[Text, Field(pattern=r"^fs-[0-9a-f]{8,40}$")]


class Efs(Section):
    """An Amazon EFS file system: each claim becomes an access point (`efs.csi.aws.com`)."""

    short_form: ClassVar[str | None] = "`fs-0123456789abcdef0`"

    file_system: _FileSystemId
    """The file system's id."""

    @classmethod
    def expand(cls, value: Any) -> Any:
        """`efs: fs-...` is the file system."""
        return {"file_system": value} if isinstance(value, str) else value


class Fsx(Section):
    """An Amazon FSx for Lustre file system (`fsx.csi.aws.com`). It lives in one zone, so the job does."""

    zone: LabelValue
    """The file system's availability zone: all pods of the job run there."""
    file_system: _FileSystemId | None = None
    """Id of a file system that exists; with `dns_name` and `mount_name`."""
    dns_name: Text | None = None
    """Its DNS name."""
    mount_name: Text | None = None
    """Its mount name."""
    subnet: Annotated[Text, Field(pattern=r"^subnet-[0-9a-f]{8,40}$")] | None = None
    """Subnet in which a new file system is made; with `security_groups`. It must lie in `zone`."""
    security_groups: list[Annotated[Text, Field(pattern=r"^sg-[0-9a-f]{8,40}$")]] = Field(default_factory=list)
    """Security groups of a new file system."""
    deployment: Literal["SCRATCH_1", "SCRATCH_2", "PERSISTENT_1", "PERSISTENT_2"] = "SCRATCH_2"
    """Deployment type of a new file system. Scratch: a copy of data that is kept elsewhere."""
    s3_import: Annotated[Text, Field(pattern=r"^s3://")] | None = None
    """Bucket and prefix that a new file system shows as its content."""


class Volume(Section):
    """Shared storage that many nodes use at once."""

    short_form: ClassVar[str | None] = "the claim's name"

    claim: ObjectName | None = None
    """PersistentVolumeClaim. With `size` it is made, as `JOB-data` or `JOB-output`; without, it must exist."""
    size: Memory | None = None
    """Size of a claim to be made; `storage_class`, `efs` or `fsx` says of what."""
    storage_class: ObjectName | None = None
    """An existing StorageClass that makes volumes for many nodes (ReadWriteMany)."""
    efs: Efs | None = None
    """Make the claim on this Amazon EFS file system."""
    fsx: Fsx | None = None
    """Make the claim on this Amazon FSx for Lustre file system, or on a new one."""
    local: Text | None = None
    """Folder that `hvd-elastic run` uses on this machine in place of the claim."""

    @classmethod
    def expand(cls, value: Any) -> Any:
        """`data: CLAIM` is a claim that exists."""
        return {"claim": value} if isinstance(value, str) else value


class Data(Volume):
    """The shared data set. It is mounted read only."""

    mount: ContainerPath = "/data"
    """Where workers see it; the command finds the folder in HVD_ELASTIC_DATA too."""


class Output(Volume):
    """The folder of results. Every worker may write there."""

    mount: ContainerPath = "/output"
    """Where workers see it. The job's own folder in it is HVD_ELASTIC_OUTPUT: `MOUNT/NAMESPACE/NAME`."""
    tensorboard: ContainerPath | None = None
    """Folder of TensorBoard events, HVD_ELASTIC_TENSORBOARD. `MOUNT/NAMESPACE/NAME/tensorboard` unless you say so."""
