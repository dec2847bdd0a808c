"""Parses the URL of a store and opens the store."""

import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from hvd_elastic.mpijob.contract import ENV_AZURE_ACCOUNT, ENV_STORE_ENDPOINT
from hvd_elastic.stores.errors import CheckpointUrlError
from hvd_elastic.stores.object_requests import ObjectRequests
from hvd_elastic.stores.retry import ATTEMPTS, call_with_retries
from hvd_elastic.stores.store import Store

MIB: Final = 1 << 20
PART_MIB: Final = 8
"""The same as in boto3's transfers: small enough to send again, large enough to hide the overhead of a request."""
LEAST_PART_MIB: Final = 5
"""S3 and GCS refuse smaller parts, except for the last one."""
MOST_PART_MIB: Final = 5 << 10
"""The limit of S3 and GCS. With MOST_PARTS parts it is S3's limit of an object, too: 48.8 TiB (S3 user guide,
"Multipart upload limits"). Other stores may take less, and say so."""
THREADS: Final = 8
MOST_THREADS: Final = 256
LIBRARIES: Final[Mapping[str, tuple[str, ...]]] = {
    "s3": ("boto3",),
    "gs": ("google.cloud.storage", "requests"),
    **dict.fromkeys(("az", "abfs", "abfss", "https"), ("azure.identity", "azure.storage.blob", "requests")),
}
"""What a store of this scheme imports as it is opened."""
SCHEMES: Final = frozenset({*LIBRARIES, "file"})
"""Of the URLs of stores. The last four are Azure's: as fsspec and obstore write a container, and as Azure does."""
_EXTRAS: Final = {"s3": "train", "gs": "gcs", "az": "azure"}
_SHARED: Final = {"part_mib", "threads"}
_OPTIONS: Final[Mapping[str, set[str]]] = {
    "s3": {"endpoint", "region", *_SHARED},
    "gs": {"endpoint", *_SHARED},
    "az": {"account", "endpoint", *_SHARED},
    **dict.fromkeys(("abfs", "abfss", "https", "file"), _SHARED),
}
_FORMS: Final = "s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or file:///path"
_BUCKET_FORMS: Final = {
    **{scheme: f"{scheme}://bucket/prefix" for scheme in ("s3", "gs")},
    "az": "az://container/prefix",
    **{scheme: f"{scheme}://container@account.dfs.core.windows.net/prefix" for scheme in ("abfs", "abfss")},
    "https": "https://account.blob.core.windows.net/container/prefix",
}
_ACCOUNT: Final = re.compile(r"[a-z0-9]{3,24}(\.(blob|dfs)\.[a-z0-9.-]+)?")
"""Host of an account of Azure, or its name alone."""
_ENV_ACCOUNTS: Final = (ENV_AZURE_ACCOUNT, "AZURE_STORAGE_ACCOUNT")
"""The latter is that of Azure's command line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """A parsed and checked URL."""

    scheme: str
    """`s3`, `gs`, `az` or `file`."""
    bucket: str
    """Azure's container."""
    path: str
    """Prefix within the bucket, or absolute path."""
    endpoint: str | None
    """URL of the service; of an account, for Azure. None: the cloud's own."""
    region: str | None
    part_mib: int
    """Least size of a part. An archive of more than 10,000 of them has larger ones."""
    threads: int
    """Parts transferred at once. The process holds this many parts in memory in addition to the snapshot."""

    @classmethod
    def parse(cls, url: str, *, endpoint: str | None = None, needs_prefix: bool = True) -> "Location":
        """Parse a URL. Raises CheckpointUrlError, which names every problem.

        Args:
            url: of a store.
            endpoint: as the option of this name, which comes first.
            needs_prefix: whether the root of a bucket is refused.
        """
        split = urlsplit(url)
        options = dict(parse_qsl(split.query, keep_blank_values=True))
        if endpoint and "endpoint" in _OPTIONS.get(split.scheme, ()):
            options.setdefault("endpoint", endpoint)
        problems = _problems(split, options, needs_prefix=needs_prefix)
        if problems:
            raise CheckpointUrlError("\n".join(f"{url}: {problem}" for problem in problems))
        bucket, account, path = _place(split)
        endpoint = _account_url(account) if account else options.get("endpoint")
        if split.scheme == "az":
            endpoint = _azure_endpoint(options)
        elif split.scheme == "gs":
            endpoint = endpoint or os.environ.get(ENV_STORE_ENDPOINT)
        return cls(
            scheme="az" if account else split.scheme,
            bucket=bucket,
            path=unquote(path, errors="surrogateescape"),
            endpoint=endpoint,
            region=options.get("region"),
            part_mib=int(options.get("part_mib", PART_MIB)),
            threads=int(options.get("threads", THREADS)),
        )

    def open(self, *, sleep: Callable[[float], object] = time.sleep) -> Store:
        """Open the store. For an object store this imports the library of its cloud; nothing is asked of it yet.

        Raises CheckpointUrlError if that library is not installed, and StoreError if boto3, which looks for credentials
        at once, finds a profile without any.
        """
        part_bytes = self.part_mib * MIB
        if self.scheme == "file":
            from hvd_elastic.stores.file_store import FileStore

            return FileStore(Path(self.path), part_bytes=part_bytes, threads=self.threads, sleep=sleep)
        from hvd_elastic.stores.object_store import ObjectStore

        return ObjectStore(self.requests(sleep=sleep), part_bytes=part_bytes, threads=self.threads, sleep=sleep)

    def requests(self, *, sleep: Callable[[float], object] = time.sleep) -> ObjectRequests:
        """The single requests of an object store. Raises CheckpointUrlError if its cloud's library is not installed."""
        try:
            return call_with_retries(self._requests, attempts=ATTEMPTS, sleep=sleep)
        except ImportError as error:
            way_out = f"pip install 'hvd-elastic[{_EXTRAS[self.scheme]}]'"
            raise CheckpointUrlError(f"{self.scheme}://{self.bucket}: {error}: {way_out}") from error

    def _requests(self) -> ObjectRequests:
        if self.scheme == "gs":
            from hvd_elastic.stores.gcs_requests import GcsRequests

            return GcsRequests(bucket=self.bucket, prefix=self.path, endpoint=self.endpoint, threads=self.threads)
        if self.scheme == "az":
            from hvd_elastic.stores.azure_requests import AzureRequests

            account_url = self.endpoint or ""
            return AzureRequests(account_url=account_url, container=self.bucket, prefix=self.path, threads=self.threads)
        from hvd_elastic.stores.s3_requests import S3Requests, make_client

        client = make_client(endpoint=self.endpoint, region=self.region, threads=self.threads)
        return S3Requests(client, bucket=self.bucket, prefix=self.path)


def is_url_list(url: str) -> bool:
    """Whether a URL is that of a file on some HTTP server, not of a container of Azure."""
    split = urlsplit(url)
    is_account = ".blob." in split.netloc and _ACCOUNT.fullmatch(split.netloc)
    return split.scheme in {"http", "https"} and not is_account


def _place(split: SplitResult) -> tuple[str, str | None, str]:
    """Bucket or container, account of Azure if it is in the URL, and path, as they are written."""
    if split.scheme == "file":
        return split.netloc, None, split.path
    path = split.path.strip("/")
    if split.scheme in {"abfs", "abfss"}:
        container, _, account = split.netloc.partition("@")
        return container, account, path
    if split.scheme == "https":
        container, _, path = path.partition("/")
        return container, split.netloc, path
    return split.netloc, None, path


def _account_url(host: str) -> str:
    """The blob service of an account, from its host, also that of Data Lake Storage, or from its name alone."""
    return f"https://{host.replace('.dfs.', '.blob.', 1) if '.' in host else f'{host}.blob.core.windows.net'}"


def _azure_endpoint(options: Mapping[str, str]) -> str | None:
    """None: no account is named."""
    account = options.get("account") or next(filter(None, map(os.environ.get, _ENV_ACCOUNTS)), "")
    endpoint = options.get("endpoint") or os.environ.get(ENV_STORE_ENDPOINT)
    return endpoint or (_account_url(account) if account else None)


def _problems(split: SplitResult, options: dict[str, str], *, needs_prefix: bool) -> list[str]:
    if split.scheme not in _OPTIONS:
        return [f"write {_FORMS}"]
    problems = [
        f"unknown option {name!r}: the options are {', '.join(sorted(_OPTIONS[split.scheme]))}"
        for name in options.keys() - _OPTIONS[split.scheme]
    ]
    bucket, account, path = _place(split)
    if split.scheme == "file":
        if bucket or not path.strip("/"):
            problems.append("write three slashes and an absolute path: file:///output/checkpoints")
    else:
        form = _BUCKET_FORMS[split.scheme]
        if account is not None and not _ACCOUNT.fullmatch(account):
            problems.append(f"name an account of Azure: {form}")
        if not bucket:
            problems.append(f"name a {'bucket' if split.scheme in {'s3', 'gs'} else 'container'}: {form}")
        if not path and needs_prefix:
            problems.append(f"name a prefix of this job's own: {form}")
    if split.scheme == "az" and _azure_endpoint(options) is None:
        problems.append(f"name the account: az://container/prefix?account=NAME, or {_ENV_ACCOUNTS[0]}")
    for name, least, most in (("part_mib", LEAST_PART_MIB, MOST_PART_MIB), ("threads", 1, MOST_THREADS)):
        if name in options and not (options[name].isdecimal() and least <= int(options[name]) <= most):
            problems.append(f"{name}={options[name]}: write a whole number of at least {least}, and at most {most}")
    return problems
