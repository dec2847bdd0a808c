"""How a data set comes from a bucket into the job's shared storage before training."""

from typing import Annotated, Any, ClassVar

from pydantic import Field

from hvd_elastic.mpijob.description.scalar_types import ContainerPath, Cpu, Memory, Text
from hvd_elastic.mpijob.description.section import Section


class StageSpec(Section):
    """A Job that copies objects into `data` before training. Launcher and workers wait until the copy is whole."""

    short_form: ClassVar[str | None] = "`s3://bucket/prefix`"

    source: Annotated[Text, Field(pattern=r"^s3://[^/]+")]
    """Bucket and prefix. Everything below it becomes a file below `into`."""
    into: ContainerPath | None = None
    """Folder in `data.mount`, one for each data set. Defaults to `data.mount` itself."""
    endpoint: Text | None = None
    """URL of an S3 service other than that of AWS."""
    rearrange: list[Text] = Field(default_factory=list)
    """Command that runs in `into` once after the copy, one word per item. It must bear being run again after it was
    killed. None by default."""
    threads: Annotated[int, Field(ge=1, le=256)] = 16
    """Objects, or parts of 16 MiB of large objects, that are read at once."""
    cpu: Cpu = "2"
    """CPUs of the copy, as request only."""
    memory: Memory = "2Gi"
    """Memory of the copy, as request and limit."""

    @classmethod
    def expand(cls, value: Any) -> Any:
        """`stage: URL` sets the source."""
        return {"source": value} if isinstance(value, str) else value
