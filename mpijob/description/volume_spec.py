"""Shared storage as a researcher describes it: an existing claim, or a new one."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from hvd_elastic.mpijob.description.scalar_types import ContainerPath, LabelValue, Memory, ObjectName, Text
from hvd_elastic.mpijob.description.section import Section

_FileSystemId = Annotated[Text, Field(pattern=r"^fs-[0-9a-f]{8,40}$")]


class Efs(Section):
    """An Amazon EFS file system (`efs.csi.aws.com`): a folder or an access point that exists, or a new access point."""

    short_form: ClassVar[str | None] = "`fs-0123456789abcdef0`, `fs-...:/folder` or `fs-...::fsap-...`"

    file_system: _FileSystemId
    """Id of the file system."""
    path: ContainerPath | None = None
    """Existing folder of the file system, or of the access point. `data` defaults to the root; for `output`, a new
    access point is made if neither `path` nor `access_point` is given."""
    access_point: Annotated[Text, Field(pattern=r"^fsap-[0-9a-f]{8,40}$")] | None = None
    """Id of an existing access point. It decides as which user the pods read and write."""

    @classmethod
    def expand(cls, value: Any) -> Any:
        """`efs: fs-...` sets the file system, `fs-...:/folder:fsap-...` all three, as in the driver's handles."""
        if not isinstance(value, str):
            return value
        parts = dict(zip(("file_system", "path", "access_point"), value.split(":", 2), strict=False))
        return {"file_system": parts.pop("file_system"), **{key: part for key, part in parts.items() if part}}


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
    throughput: Annotated[int, Field(ge=1)] | None = None
    """MB/s of a new file system for each TiB of it. Required with `PERSISTENT_1` (50, 100 or 200) and `PERSISTENT_2`
    (125, 250, 500 or 1000)."""
    s3_import: Annotated[Text, Field(pattern=r"^s3://")] | None = None
    """Bucket and prefix whose objects a new file system shows as its files. `PERSISTENT_2` has no such import."""


class CsiVolume(Section):
    """A volume that exists, as its CSI driver names it: a Filestore instance, an Azure file share, an NFS server."""

    driver: ObjectName
    """Name of the driver, such as `filestore.csi.storage.gke.io` or `file.csi.azure.com`."""
    handle: Annotated[Text, Field(min_length=1, max_length=1024)]
    """The driver's id of the volume. The driver's documentation says what form it has."""
    attributes: dict[Text, Text] = Field(default_factory=dict)
    """What the driver needs to know of the volume, such as its address or share."""
    secret: ObjectName | None = None
    """Secret of the job's namespace with the key by which nodes mount the volume. None by default."""
    mount_options: list[Text] = Field(default_factory=list)
    """Options of the mount, such as `nconnect=4`."""


class Bucket(Section):
    """A bucket as a file system: Mountpoint for S3, Cloud Storage FUSE or BlobFuse, by the cloud's CSI driver."""

    short_form: ClassVar[str | None] = "`s3://bucket/prefix` or another URL"

    url: Text
    """`s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix` ([what it can and
    cannot](job.md#a-bucket-for-results)). It must exist."""
    account: Annotated[Text, Field(pattern=r"^[a-z0-9]{3,24}$")] | None = None
    """Storage account of `az://`. The other forms of Azure's URLs name it."""
    client_id: Annotated[Text, Field(pattern=r"^[0-9A-Fa-f-]{36}$")] | None = None
    """Azure: client ID of the managed identity of `workers.service_account`, by whose token nodes mount the container.
    By default they use `secret`, or else the account's key, which the kubelet's identity must be able to list."""
    secret: ObjectName | None = None
    """Azure: Secret of the job's namespace with the account's key or a signature."""
    mount_options: list[Text] = Field(default_factory=list)
    """More options of the mount, as the driver writes them: `region eu-west-1`, `--use-adls=true`."""

    @classmethod
    def expand(cls, value: Any) -> Any:
        """`bucket: URL` keeps all defaults."""
        return {"url": value} if isinstance(value, str) else value


class Volume(Section):
    """Shared storage that many nodes use at the same time."""

    short_form: ClassVar[str | None] = "the claim's name"

    claim: ObjectName | None = None
    """Name of the PersistentVolumeClaim. It must exist, unless another key asks for a claim to be made; that one is
    called `JOB-data` or `JOB-output` by default."""
    size: Memory | None = None
    """Size of a new claim. `storage_class`, `efs`, `fsx` or `csi` says what storage it is on."""
    storage_class: ObjectName | None = None
    """Make a new volume with this existing StorageClass. Its volumes must support many nodes (ReadWriteMany)."""
    efs: Efs | None = None
    """Make the claim on this Amazon EFS file system."""
    fsx: Fsx | None = None
    """Make the claim on this Amazon FSx for Lustre file system, or on a new one."""
    csi: CsiVolume | None = None
    """Make the claim on this existing volume of any CSI driver."""
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

    short_form: ClassVar[str | None] = "the claim's name, or a bucket's URL"

    bucket: Bucket | None = None
    """Mount this bucket, in place of a claim."""

    mount: ContainerPath = "/output"
    """Where workers see the volume. HVD_ELASTIC_OUTPUT is the job's own folder in it, `MOUNT/NAMESPACE/NAME`."""
    tensorboard: ContainerPath | None = None
    """Folder of TensorBoard events, HVD_ELASTIC_TENSORBOARD. Defaults to `MOUNT/NAMESPACE/NAME/tensorboard`. Of a
    bucket, it is where events are copied to."""

    @classmethod
    def expand(cls, value: Any) -> Any:
        """`output: URL` is a bucket, `output: CLAIM` an existing claim."""
        return {"bucket": value} if isinstance(value, str) and "://" in value else super().expand(value)
