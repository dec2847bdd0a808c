"""How a data set comes from a bucket into the job's shared storage before training."""

from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from hvd_elastic.mpijob.description.scalar_types import ContainerPath, Cpu, Memory, Text
from hvd_elastic.mpijob.description.section import Section


def _is_url(value: str) -> bool:
    try:
        return bool(urlsplit(value).hostname) and urlsplit(value).port != 0
    except ValueError:  # of the port, or of an address in brackets
        return False


def _endpoint(value: str) -> str:
    if urlsplit(value).scheme not in {"http", "https"} or not _is_url(value):
        raise ValueError("is not the URL of a service: write https://host or http://host:9000")
    return value


def _source(value: str) -> str:
    if not _is_url(value):
        raise ValueError("is not a URL: write s3://bucket/prefix, or https://host/folder/list.tsv")
    return value


Endpoint = Annotated[Text, AfterValidator(_endpoint)]
Source = Annotated[Text, Field(pattern=r"^(s3|gs|az|abfss?|https)://[^/]+"), AfterValidator(_source)]


class StageSpec(Section):
    """A Job that copies objects into `data` before training. Launcher and workers wait until the copy is whole."""

    short_form: ClassVar[str | None] = "`s3://bucket/prefix` or another URL"

    source: Source
    """`s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix` or another form of an Azure URL. Everything
    below it becomes a file below `into`. Or `https://host/folder/list.tsv`, [a list of
    files](job.md#staging-a-data-set)."""
    into: ContainerPath | None = None
    """Folder in `data.mount`, one for each data set. Defaults to `data.mount` itself."""
    endpoint: Endpoint | None = None
    """URL of the store's service, if it is not the cloud's own. For `az://` it is that of the account."""
    account: Annotated[Text, Field(pattern=r"^[a-z0-9]{3,24}$")] | None = None
    """Storage account of `az://`. The other forms of Azure's URLs name it."""
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
    def port(self) -> int | None:
        """The TCP port of `endpoint`, else of the source. None: the URL is not one of HTTP."""
        url = urlsplit(self.endpoint or self.source)
        return url.port or {"http": 80, "https": 443}.get(url.scheme)

    @classmethod
    def expand(cls, value: Any) -> Any:
        """`stage: URL` sets the source."""
        return {"source": value} if isinstance(value, str) else value
