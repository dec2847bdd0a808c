"""URLs of object stores: what each names, and the forms in which it may be written."""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

BUCKET_FORMS: Final = {
    "s3": "s3://BUCKET",
    "gs": "gs://BUCKET",
    "az": "az://CONTAINER",
    "abfs": "abfs://CONTAINER@ACCOUNT.dfs.core.windows.net",
    "abfss": "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net",
    "https": "https://ACCOUNT.blob.core.windows.net/CONTAINER",
}
"""By scheme. All but the first two are Azure's."""
_ACCOUNT: Final = re.compile(r"[a-z0-9]{3,24}(\.(blob|dfs)\.[a-z0-9.-]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketUrl:
    """What a URL names."""

    scheme: str
    bucket: str
    """Azure's container."""
    account: str | None
    """Azure's account, or the host that serves it; None: the URL has no place for it."""
    path: str
    """Below the bucket, without slashes at its ends."""

    @classmethod
    def parse(cls, url: str) -> "BucketUrl":
        """Raises ValueError for what is not a URL."""
        parts = urlsplit(url)
        path = parts.path.strip("/")
        if parts.scheme in {"abfs", "abfss"}:
            container, _, account = parts.netloc.partition("@")
            return cls(scheme=parts.scheme, bucket=container, account=account, path=path)
        if parts.scheme == "https":
            container, _, path = path.partition("/")
            return cls(scheme=parts.scheme, bucket=container, account=parts.netloc, path=path)
        return cls(scheme=parts.scheme, bucket=parts.netloc, account=None, path=path)

    @property
    def has_account(self) -> bool:
        """Whether `account` is well-formed."""
        return self.account is not None and _ACCOUNT.fullmatch(self.account) is not None

    @property
    def is_url_list(self) -> bool:
        """Whether it is a file of some HTTP server, as a list of a data set's files is, and not a container."""
        return self.scheme == "https" and not (self.has_account and ".blob." in (self.account or ""))
