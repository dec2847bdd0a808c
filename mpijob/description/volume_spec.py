"""Shared storage as a researcher describes it: an existing claim, or a new one."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from hvd_elastic.mpijob.description.scalar_types import ContainerPath, LabelValue, Memory, ObjectName, Text
from hvd_elastic.mpijob.description.section import Section

_FileSystemId = Annotated[Text, Field(pattern=r"^fs-[0-9a-f]{8,40}$")]


class Efs(Section):
    """An Amazon EFS file system: each claim becomes an access point (`efs.csi.aws.com`)."""

    short_form: ClassVar[str | None] = "`fs-0123456789abcdef0`"

    file_system: _FileSystemId
    """Id of the file system."""

    @classmethod
    def expand(cls, value: Any) -> Any:
        """`efs: fs-...` sets the file system."""
        return {"file_system": value} if isinstance(value, str) else value


class Fsx(Section):
    """An Amazon FSx for Lustre file system (`fsx.csi.aws.com`). It is in one zone, so the whole job is."""

    zone: LabelValue
    """Availability zone of the file system. All pods of the job run there."""
    file_system: _FileSystemId | None = None
    """Id of an existing file system. It needs `dns_name` and `mount_name` too."""
    dns_name: Text | None = None
    """DNS name of the existing file system."""
    mount_name: Text | None = None
    """Mount name of the existing file system."""
    subnet: Annotated[Text, Field(pattern=r"^subnet-[0-9a-f]{8,40}$")] | None = None
    """Subnet in `zone` for a new file system. It needs `security_groups` too."""
    security_groups: list[Annotated[Text, Field(pattern=r"^sg-[0-9a-f]{8,40}$")]] = Field(default_factory=list)
    """Security groups of a new file system."""
    deployment: Literal["SCRATCH_1", "SCRATCH_2", "PERSISTENT_1", "PERSISTENT_2"] = "SCRATCH_2"
    """Deployment type of a new file system. Scratch types are for copies of data that is kept elsewhere."""
    s3_import: Annotated[Text, Field(pattern=r"^s3://")] | None = None
    """Bucket and prefix whose objects a new file system shows as its files."""


class Volume(Section):
    """Shared storage that many nodes use at the same time."""

    short_form: ClassVar[str | None] = "the claim's name"

    claim: ObjectName | None = None
    """Name of the PersistentVolumeClaim. It must exist, unless `size`, `efs` or `fsx` asks for a new one; that one is
    called `JOB-data` or `JOB-output` by default."""
    size: Memory | None = None
    """Size of a new claim. `storage_class`, `efs` or `fsx` says what storage it is on."""
    storage_class: ObjectName | None = None
    """Make the claim with this existing StorageClass. Its volumes must support many nodes (ReadWriteMany)."""
    efs: Efs | None = None
    """Make the claim on this Amazon EFS file system."""
    fsx: Fsx | None = None
    """Make the claim on this Amazon FSx for Lustre file system, or on a new one."""
    local: Text | None = None
    """Folder on this machine that `hvd-elastic run` uses instead of the claim."""

    @classmethod
    def expand(cls, value: Any) -> Any:
        """`data: CLAIM` names an existing claim."""
        return {"claim": value} if isinstance(value, str) else value


class Data(Volume):
    """The shared data set. It is mounted read only."""

    mount: ContainerPath = "/data"
    """Where workers see the data. HVD_ELASTIC_DATA tells the command this path."""


class Output(Volume):
    """The folder of results. Every worker may write there."""

    mount: ContainerPath = "/output"
    """Where workers see the volume. HVD_ELASTIC_OUTPUT is the job's own folder in it, `MOUNT/NAMESPACE/NAME`."""
    tensorboard: ContainerPath | None = None
    """Folder of TensorBoard events, HVD_ELASTIC_TENSORBOARD. Defaults to `MOUNT/NAMESPACE/NAME/tensorboard`."""
