"""Parses the URL of a store and opens the store."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from hvd_elastic.mpijob.contract import ENV_STORE_ENDPOINT
from hvd_elastic.stores.errors import CheckpointUrlError
from hvd_elastic.stores.object_requests import ObjectRequests
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
}
"""What a store of this scheme imports as it is opened."""
SCHEMES: Final = frozenset({*LIBRARIES, "file"})
"""Of the URLs of stores."""
_SHARED: Final = {"part_mib", "threads"}
_OPTIONS: Final[Mapping[str, set[str]]] = {
    "s3": {"endpoint", "region", *_SHARED},
    "gs": {"endpoint", *_SHARED},
    "file": _SHARED,
}
_FORMS: Final = "s3://bucket/prefix, gs://bucket/prefix or file:///path"


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """A parsed and checked URL."""

    scheme: str
    bucket: str
    path: str
    """Prefix within the bucket, or absolute path."""
    endpoint: str | None
    region: str | None
    part_mib: int
    """Least size of a part. An archive of more than 10,000 of them has larger ones."""
    threads: int
    """Parts transferred at once. The process holds this many parts in memory in addition to the snapshot."""

    @classmethod
    def parse(cls, url: str) -> "Location":
        """Parse a URL. Raises CheckpointUrlError, which names every problem."""
        split = urlsplit(url)
        options = dict(parse_qsl(split.query, keep_blank_values=True))
        problems = _problems(split, options)
        if problems:
            raise CheckpointUrlError("\n".join(f"{url}: {problem}" for problem in problems))
        path = unquote(split.path, errors="surrogateescape")
        return cls(
            scheme=split.scheme,
            bucket=split.netloc,
            path=path if split.scheme == "file" else path.strip("/"),
            endpoint=options.get("endpoint"),
            region=options.get("region"),
            part_mib=int(options.get("part_mib", PART_MIB)),
            threads=int(options.get("threads", THREADS)),
        )

    def open(self, *, sleep: Callable[[float], object] = time.sleep) -> Store:
        """Open the store. For an object store this imports the library of its cloud; no request is sent yet.

        Raises CheckpointUrlError if that library is not installed.
        """
        part_bytes = self.part_mib * MIB
        if self.scheme == "file":
            from hvd_elastic.stores.file_store import FileStore

            return FileStore(Path(self.path), part_bytes=part_bytes, threads=self.threads, sleep=sleep)
        from hvd_elastic.stores.object_store import ObjectStore

        try:
            requests = self._requests()
        except ImportError as error:
            extra = {"s3": "train", "gs": "gcs"}[self.scheme]
            way_out = f"pip install 'hvd-elastic[{extra}]'"
            raise CheckpointUrlError(f"{self.scheme}://{self.bucket}: {error}: {way_out}") from error
        return ObjectStore(requests, part_bytes=part_bytes, threads=self.threads, sleep=sleep)

    def _requests(self) -> ObjectRequests:
        if self.scheme == "gs":
            from hvd_elastic.stores.gcs_requests import GcsRequests

            endpoint = self.endpoint or os.environ.get(ENV_STORE_ENDPOINT)
            return GcsRequests(bucket=self.bucket, prefix=self.path, endpoint=endpoint, threads=self.threads)
        from hvd_elastic.stores.s3_requests import S3Requests, make_client

        client = make_client(endpoint=self.endpoint, region=self.region, threads=self.threads)
        return S3Requests(client, bucket=self.bucket, prefix=self.path)


def _problems(split: SplitResult, options: dict[str, str]) -> list[str]:
    if split.scheme not in _OPTIONS:
        return [f"write {_FORMS}"]
    problems = [
        f"unknown option {name!r}: the options are {', '.join(sorted(_OPTIONS[split.scheme]))}"
        for name in options.keys() - _OPTIONS[split.scheme]
    ]
    if split.scheme != "file":
        form = f"{split.scheme}://bucket/prefix"
        if not split.netloc:
            problems.append(f"name a bucket: {form}")
        if not split.path.strip("/"):
            problems.append(f"name a prefix of this job's own: {form}")
    elif split.netloc or not split.path.strip("/"):
        problems.append("write three slashes and an absolute path: file:///output/checkpoints")
    for name, least, most in (("part_mib", LEAST_PART_MIB, MOST_PART_MIB), ("threads", 1, MOST_THREADS)):
        if name in options and not (options[name].isdecimal() and least <= int(options[name]) <= most):
            problems.append(f"{name}={options[name]}: write a whole number of at least {least}, and at most {most}")
    return problems
