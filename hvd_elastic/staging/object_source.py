"""A prefix of a bucket as a source: lists it, and reads ranges of exactly the listed version of an object."""

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

from hvd_elastic.staging.signed_reads import PIECE_BYTES, SignedReads
from hvd_elastic.staging.source_manifest import SourceObject
from hvd_elastic.staging.stage_errors import ChangedObjectError, StageError
from hvd_elastic.staging.stored_checksum import StoredChecksum
from hvd_elastic.system.backoff import Backoff

_ATTEMPTS: Final = 8
_BACKOFF: Final = Backoff(first_seconds=0.2, most_seconds=10.0)


def make_client(*, endpoint: str | None, threads: int, session: Any = None) -> Any:
    """An S3 client of boto3, with credentials from boto3's own chain. botocore repeats what is throttled or refused."""
    import boto3
    from botocore.config import Config

    own = endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    config = Config(
        retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
        max_pool_connections=threads + 2,
        tcp_keepalive=True,
        # An endpoint in the cluster has no wildcard DNS name for its buckets.
        s3={"addressing_style": "path"} if own else None,
    )
    return (session or boto3.session.Session()).client("s3", endpoint_url=endpoint, config=config)


class ObjectSource:
    """The objects below `s3://BUCKET/PREFIX`. Threads may read at the same time. boto3 is imported here, lazily."""

    def __init__(self, url: str, *, endpoint: str | None, threads: int) -> None:
        import boto3

        split = urlsplit(url)
        if split.scheme != "s3" or not split.netloc:
            raise StageError(f"{url}: write s3://bucket/prefix")
        prefix = split.path.strip("/")
        self.url = url
        self._bucket = split.netloc
        self._prefix = f"{prefix}/" if prefix else ""
        session = boto3.session.Session()
        self._client = make_client(endpoint=endpoint, threads=threads, session=session)
        self._signed = SignedReads(self._client, session.get_credentials())

    def objects(self) -> Iterator[SourceObject]:
        """List everything below the prefix, 1,000 objects in each request. Raises StageError."""
        more: dict[str, str] = {}
        while True:
            where = {"Bucket": self._bucket, "Prefix": self._prefix, **more}
            answer = self._ask("list", partial(self._client.list_objects_v2, **where))
            for entry in answer.get("Contents", ()):
                key = entry["Key"].removeprefix(self._prefix)
                if key:  # the marker of the prefix itself
                    yield SourceObject(key=key, size_bytes=entry["Size"], etag=entry["ETag"].strip('"'))
            if not answer.get("IsTruncated"):
                return
            more = {"ContinuationToken": answer["NextContinuationToken"]}

    def read(self, one: SourceObject, offset: int, length: int) -> bytes:
        """Read a range. Raises ChangedObjectError if the object is not the listed version any more, and StageError."""

        def get() -> bytes:
            span = {"Range": f"bytes={offset}-{offset + length - 1}"} if length else {}
            answer = self._client.get_object(**self._at(one), IfMatch=f'"{one.etag}"', **span)
            with answer["Body"] as body:
                data: bytes = body.read()
            if len(data) != length:
                raise ConnectionError(f"{len(data)} of {length} bytes arrived")
            return data

        at_once = self._signed.read(self._prefix + one.key, etag=one.etag, offset=offset, length=length)
        if at_once is not None:
            return at_once
        found: bytes = self._ask(one.key, lambda: _unless_changed(one, get))
        return found

    def pieces(self, one: SourceObject, offset: int, length: int) -> Iterator[bytes]:
        """Read a range as it arrives, in pieces of PIECE_BYTES or so. Raises as `read`."""
        if length > PIECE_BYTES:
            for piece in self._signed.pieces(self._prefix + one.key, etag=one.etag, offset=offset, length=length):
                yield piece
                offset, length = offset + len(piece), length - len(piece)
        if length:
            yield self.read(one, offset, length)

    def stored_checksum(self, one: SourceObject) -> StoredChecksum | None:
        """What the store has kept of the object's bytes, if it is the listed version still. None: nothing, or no CRC.

        Raises ChangedObjectError, StageError.
        """
        head = partial(self._client.head_object, **self._at(one), IfMatch=f'"{one.etag}"', ChecksumMode="ENABLED")
        return StoredChecksum.of(self._ask(one.key, lambda: _unless_changed(one, head)))

    def part_bytes(self, one: SourceObject, *, for_etag: bool = True) -> int | None:
        """Size of the first part of a multipart upload. None: `for_etag`, and its ETag does not follow from its bytes.

        If the object was replaced meanwhile, the bytes do not fit its ETag. Raises ChangedObjectError if it is gone;
        StageError.
        """
        answer = self._ask(one.key, lambda: self._client.head_object(**self._at(one), PartNumber=1))
        by_key = answer.get("ServerSideEncryption", "").startswith("aws:kms") or answer.get("SSECustomerAlgorithm")
        return None if by_key and for_etag else int(answer["ContentLength"])

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _at(self, one: SourceObject) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._prefix + one.key}

    def _ask(self, what: str, call: Callable[[], Any]) -> Any:
        """Call, and call again if the answer breaks off: botocore itself repeats only until an answer has begun."""
        from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
        from urllib3.exceptions import HTTPError

        for failures in range(1, _ATTEMPTS + 1):
            try:
                return call()
            except ClientError as error:
                gone = error.response["Error"].get("Code") in {"NoSuchKey", "404"}
                raise (ChangedObjectError if gone else StageError)(f"{self.url}: {what}: {error}") from error
            except (HTTPClientError, HTTPError, ConnectionError) as error:
                if failures == _ATTEMPTS:
                    raise StageError(f"{self.url}: {what}: {error}") from error
                time.sleep(_BACKOFF.with_jitter(failures))
            except BotoCoreError as error:
                raise StageError(f"{self.url}: {what}: {error}") from error
        raise AssertionError("unreachable")


def _unless_changed(one: SourceObject, call: Callable[[], Any]) -> Any:
    from botocore.exceptions import ClientError

    try:
        return call()
    except ClientError as error:
        if error.response["ResponseMetadata"]["HTTPStatusCode"] == 412:
            raise ChangedObjectError(f"{one.key}: was replaced while it was copied: stage again") from error
        raise
