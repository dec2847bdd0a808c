"""Checkpoints in an object store that speaks S3: AWS, MinIO, Ceph, R2 ... The one place that imports boto3.

botocore's own retries are off: a conditional write whose answer was lost must not be tried again blindly, since the
second attempt is refused because of the first. Here the refused writer reads what stands there and knows its own bytes.
Facts: 412 answers `If-None-Match: *` when the key exists and `If-Match` when the ETag differs, 409 when another
conditional write was under way (S3 user guide, "Conditional writes"); a multipart ETag is no digest of the content, so
each part carries `x-amz-checksum-sha256`, which the store verifies.
"""

import os
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from hvd_elastic.trainer.checkpoint.errors import CorruptError, StoreError
from hvd_elastic.trainer.checkpoint.stores.retry import Backoff, PassingError, persist
from hvd_elastic.trainer.checkpoint.stores.store import StoredObject

CONNECT_SECONDS: Final = 20.0
"""Also bounds sending one part: a socket's time-out spans the whole of `sendall`."""
SILENCE_SECONDS: Final = 20.0
"""Longest wait for the next byte of an answer."""
PART_SECONDS: Final = 60.0
"""Longest time to read one part, however steadily it drips."""
MOST_PARTS: Final = 10_000
DELETE_AT_ONCE: Final = 1_000
_PASSING_STATUS: Final = frozenset({408, 409, 429, 500, 502, 503, 504})
_PASSING_CODES: Final = frozenset(
    {"SlowDown", "RequestTimeout", "BadDigest", "XAmzContentSHA256Mismatch", "IncompleteBody", "InternalError"}
)
_WAYS_OUT: Final = {
    403: "grant s3:GetObject, PutObject, DeleteObject, ListBucket and AbortMultipartUpload on the prefix",
    404: "create the bucket, or correct the URL",
    501: "this endpoint lacks a part of S3 that is needed: use one that has it, or a shared file system",
}


class _RefusedError(Exception):
    """A condition was not met: 412, or 404 to If-Match."""


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn what botocore and urllib3 raise into the errors of a store."""
    from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, ResponseStreamingError
    from urllib3.exceptions import HTTPError

    try:
        yield
    except ClientError as error:
        raise _of_answer(what, error.response) from error
    except (HTTPClientError, ResponseStreamingError, HTTPError, OSError) as error:
        raise PassingError(f"{what}: {error}") from error
    except BotoCoreError as error:
        raise StoreError(f"{what}: {error}") from error


def _of_answer(what: str, answer: Any) -> Exception:
    status = answer["ResponseMetadata"]["HTTPStatusCode"]
    code, message = answer["Error"].get("Code", ""), answer["Error"].get("Message", "")
    if status == 412:
        return _RefusedError(what)
    text = f"{what}: {status} {code} {message}".rstrip()
    if status in _PASSING_STATUS or code in _PASSING_CODES:
        return PassingError(text)
    return StoreError(f"{text}: {_WAYS_OUT[status]}" if status in _WAYS_OUT else text)


def code_of(error: StoreError) -> str:
    """Return the code of the store's answer behind an error; empty when it is of another origin."""
    answer: Any = getattr(error.__cause__, "response", {})
    return str(answer.get("Error", {}).get("Code", ""))


def missing(error: StoreError) -> bool:
    """Whether an error is the store's answer that there is no such key."""
    return code_of(error) in {"NoSuchKey", "404"}


def make_client(*, endpoint: str | None, region: str | None, threads: int) -> Any:
    """Return a client with our time-outs. Credentials come from boto3's own chain (role, environment, file)."""
    import boto3
    from botocore.config import Config

    own = endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    config = Config(
        retries={"total_max_attempts": 1},
        connect_timeout=CONNECT_SECONDS,
        read_timeout=SILENCE_SECONDS,
        max_pool_connections=threads + 2,
        tcp_keepalive=True,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        # An endpoint in the cluster has no wildcard name for its buckets.
        s3={"addressing_style": "path"} if own else None,
    )
    return boto3.session.Session().client("s3", endpoint_url=endpoint, region_name=region, config=config)


class S3Upload:
    """A multipart upload; S3 keeps its parts out of sight until it is completed."""

    def __init__(self, store: "S3Store", key: str, size_bytes: int) -> None:
        self._store = store
        self._at = {"Bucket": store.bucket, "Key": store.prefix + key}
        self._size_bytes = size_bytes
        self._parts: dict[int, dict[str, object]] = {}
        start = store.request("start", store.client.create_multipart_upload, **self._at, ChecksumAlgorithm="SHA256")
        self._id = start["UploadId"]

    def put(self, number: int, offset: int, data: bytearray, sha256: bytes) -> None:
        """Send one part. The store refuses it if its SHA-256 differs on arrival."""
        checksum = b64encode(sha256).decode()
        answer = self._store.request(
            f"part {number}",
            self._store.client.upload_part,
            **self._at,
            UploadId=self._id,
            PartNumber=number,
            Body=data,
            ChecksumSHA256=checksum,
        )
        self._parts[number] = {"PartNumber": number, "ETag": answer["ETag"], "ChecksumSHA256": checksum}

    def finish(self) -> None:
        """Complete it, and look that it is whole."""
        parts = [self._parts[number] for number in sorted(self._parts)]
        try:
            self._store.request(
                "complete",
                self._store.client.complete_multipart_upload,
                **self._at,
                UploadId=self._id,
                MultipartUpload={"Parts": parts},
            )
        except StoreError:
            # The answer to an attempt that succeeded may have been lost: then the upload is gone, the object is there.
            if self._stored_bytes() != self._size_bytes:
                raise
        if (stored := self._stored_bytes()) != self._size_bytes:
            raise StoreError(f"{self._at['Key']}: {stored} of {self._size_bytes} bytes were stored")

    def _stored_bytes(self) -> int | None:
        try:
            return int(self._store.request("look", self._store.client.head_object, **self._at)["ContentLength"])
        except StoreError as error:
            if missing(error):
                return None
            raise

    def abort(self) -> None:
        """Give the parts back."""
        with suppress(StoreError), translated("abort"):
            self._store.client.abort_multipart_upload(**self._at, UploadId=self._id)


class S3Store:
    """A prefix of a bucket."""

    def __init__(
        self,
        client: Any,
        *,
        bucket: str,
        prefix: str,
        part_bytes: int,
        threads: int,
        sleep: Callable[[float], object],
        clock: Callable[[], float] = time.monotonic,
        backoff: Backoff = Backoff(),  # noqa: B008 - a frozen value
    ) -> None:
        self.client = client
        self.bucket = bucket
        self.prefix = f"{prefix}/" if prefix else ""
        self.part_bytes = part_bytes
        self.threads = threads
        self._sleep = sleep
        self._clock = clock
        self._backoff = backoff

    def request(self, what: str, call: Callable[..., Any], **arguments: object) -> Any:
        """Make one request, waiting out what passes."""
        where = f"s3://{self.bucket}/{arguments.get('Key', self.prefix)}: {what}"

        def once() -> Any:
            with translated(where):
                return call(**arguments)

        return persist(once, backoff=self._backoff, sleep=self._sleep)

    def read(self, key: str) -> StoredObject | None:
        """Return a small object."""

        def once() -> StoredObject | None:
            with translated(f"s3://{self.bucket}/{self.prefix}{key}"):
                answer = self.client.get_object(Bucket=self.bucket, Key=self.prefix + key)
                data = bytearray(answer["ContentLength"])
                self._drain(answer["Body"], memoryview(data), key)
                return StoredObject(data=bytes(data), version=answer["ETag"])

        return self._unless_missing(once)

    def _unless_missing(self, once: Callable[[], StoredObject | None]) -> StoredObject | None:
        try:
            return persist(once, backoff=self._backoff, sleep=self._sleep)
        except StoreError as error:
            if missing(error):
                return None
            raise

    def create(self, key: str, data: bytes) -> bool:
        """Write with `If-None-Match: *`."""
        return self._put(key, data, IfNoneMatch="*") is not None

    def replace(self, key: str, data: bytes, *, version: str | None) -> str | None:
        """Write with `If-Match`."""
        condition = {"IfNoneMatch": "*"} if version is None else {"IfMatch": version}
        return self._put(key, data, **condition)

    def _put(self, key: str, data: bytes, **condition: str) -> str | None:
        try:
            answer = self.request("put", self._put_checked, Key=self.prefix + key, Body=data, **condition)
            return str(answer["ETag"])
        except _RefusedError:
            found = self.read(key)
            return found.version if found and found.data == data else None
        except StoreError as error:
            if missing(error):
                return None
            raise

    def _put_checked(self, **arguments: object) -> Any:
        return self.client.put_object(Bucket=self.bucket, ChecksumAlgorithm="SHA256", **arguments)

    def vouch(self, key: str, data: bytes) -> None:
        """Write the same bytes twice under conditions that do not hold: both must be refused."""
        for condition in ({"IfNoneMatch": "*"}, {"IfMatch": f'"{"0" * 32}"'}):
            try:
                self.request("put", self._put_checked, Key=self.prefix + key, Body=data, **condition)
            except _RefusedError:
                continue
            raise StoreError(
                f"s3://{self.bucket}/{self.prefix}: this endpoint ignores {next(iter(condition))} on writes, so two"
                " writers cannot be kept apart: use one that honours it (AWS S3, a current MinIO or Ceph, R2), or file://"
            )

    def keys(self, folder: str) -> tuple[str, ...]:
        """List; S3 answers 1000 at a time."""
        found: list[str] = []
        more: dict[str, str] = {}
        while True:
            listed = {"Bucket": self.bucket, "Prefix": f"{self.prefix}{folder}/", **more}
            answer = self.request("list", self.client.list_objects_v2, **listed)
            found += (entry["Key"].removeprefix(self.prefix) for entry in answer.get("Contents", ()))
            if not answer.get("IsTruncated"):
                return tuple(found)
            more = {"ContinuationToken": answer["NextContinuationToken"]}

    def delete(self, keys: Iterable[str]) -> None:
        """Delete in the order given, up to 1000 a request."""
        doomed = [{"Key": self.prefix + key} for key in keys]
        for at in range(0, len(doomed), DELETE_AT_ONCE):
            batch = {"Objects": doomed[at : at + DELETE_AT_ONCE], "Quiet": True}
            answer = self.request("delete", self.client.delete_objects, Bucket=self.bucket, Delete=batch)
            if errors := answer.get("Errors"):
                raise StoreError(f"s3://{self.bucket}/{errors[0]['Key']}: delete: {errors[0].get('Message', '')}")

    def begin(self, key: str, size_bytes: int) -> S3Upload:
        """Start a multipart upload."""
        return S3Upload(self, key, size_bytes)

    def read_into(self, key: str, offset: int, target: memoryview) -> None:
        """Fetch a range."""

        def once() -> None:
            with translated(f"s3://{self.bucket}/{self.prefix}{key}"):
                span = f"bytes={offset}-{offset + len(target) - 1}"
                answer = self.client.get_object(Bucket=self.bucket, Key=self.prefix + key, Range=span)
                if answer["ContentLength"] != len(target):
                    raise CorruptError(f"s3://{self.bucket}/{self.prefix}{key} is too short")
                self._drain(answer["Body"], target, key)

        try:
            persist(once, backoff=self._backoff, sleep=self._sleep)
        except StoreError as error:
            if code_of(error) in {"NoSuchKey", "404", "InvalidRange"}:
                raise CorruptError(f"s3://{self.bucket}/{self.prefix}{key} is missing or too short") from error
            raise

    def _drain(self, body: Any, target: memoryview, key: str) -> None:
        """Fill `target`. `read1` returns what has come: `read` would wait for all of it, however slowly it drips."""
        stream = getattr(body, "_raw_stream", body)
        deadline = self._clock() + PART_SECONDS
        with body:
            while target:
                piece = stream.read1(len(target))
                if not piece:
                    raise PassingError(f"s3://{self.bucket}/{self.prefix}{key}: {len(target)} bytes are missing")
                target[: len(piece)] = piece
                target = target[len(piece) :]
                if target and self._clock() > deadline:
                    raise PassingError(f"s3://{self.bucket}/{self.prefix}{key}: too slow")
            # What is left unread keeps the connection from being used again: the end of the answer must be seen.
            stream.read1(1)

    def sweep(self, folder: str, doomed: Callable[[str], bool]) -> None:
        """Abort unfinished multipart uploads, whose parts cost money and are in no listing of objects."""
        where = {"Bucket": self.bucket, "Prefix": f"{self.prefix}{folder}/"}
        answer = self.request("list uploads", self.client.list_multipart_uploads, **where)
        for upload in answer.get("Uploads", ()):
            if doomed(upload["Key"].removeprefix(self.prefix)):
                at = {"Bucket": self.bucket, "Key": upload["Key"], "UploadId": upload["UploadId"]}
                with suppress(StoreError):
                    self.request("abort", self.client.abort_multipart_upload, **at)

    def close(self) -> None:
        """Let the connections go."""
        self.client.close()
