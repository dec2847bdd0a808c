"""How a data set comes from a bucket into the job's shared storage before training."""

from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from hvd_elastic.mpijob.description.scalar_types import ContainerPath, Cpu, Memory, Text
from hvd_elastic.mpijob.description.section import Section


def _endpoint(value: str) -> str:
    try:
        url = urlsplit(value)
        valid = url.scheme in {"http", "https"} and bool(url.hostname) and url.port != 0
    except ValueError:  # of the port
        valid = False
    if not valid:
        raise ValueError("is not the URL of an S3 service: write https://host or http://host:9000")
    return value


Endpoint = Annotated[Text, AfterValidator(_endpoint)]


class StageSpec(Section):
    """A Job that copies objects into `data` before training. Launcher and workers wait until the copy is whole."""

    short_form: ClassVar[str | None] = "`s3://bucket/prefix`"

    source: Annotated[Text, Field(pattern=r"^s3://[^/]+")]
    """Bucket and prefix. Everything below it becomes a file below `into`."""
    into: ContainerPath | None = None
    """Folder in `data.mount`, one for each data set. Defaults to `data.mount` itself."""
    endpoint: Endpoint | None = None
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

    @property
    def endpoint_port(self) -> int | None:
        """The TCP port of `endpoint`; None: there is none."""
        if self.endpoint is None:
            return None
        url = urlsplit(self.endpoint)
        return url.port or (80 if url.scheme == "http" else 443)

    @classmethod
    def expand(cls, value: Any) -> Any:
        """`stage: URL` sets the source."""
        return {"source": value} if isinstance(value, str) else value
