"""Checkpoints in an object store with the S3 protocol: AWS, MinIO, Ceph, R2 ...

botocore's own retries are off: if the answer to a conditional write is lost, a blind retry is refused because the first
attempt succeeded. Here a refused writer reads the object and recognizes its own bytes. Facts: the answer is 412 to
`If-None-Match: *` if the key exists and to `If-Match` if the ETag differs, and 409 if another conditional write was in
progress (S3 user guide, "Conditional writes"). A multipart ETag is not a digest of the content, so each part carries
`x-amz-checksum-sha256`, which the store verifies.
"""

import os
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from hvd_elastic.stores import rotated_credentials
from hvd_elastic.stores.errors import CorruptError, StoreError, StoreFullError
from hvd_elastic.stores.retry import TransientError, call_with_retries
from hvd_elastic.stores.store import SMALL_BYTES, StoredObject

CONNECT_SECONDS: Final = 20.0
"""Also limits the time to send one part: a socket's time-out covers the whole `sendall`."""
SILENCE_SECONDS: Final = 20.0
"""Longest wait for the next byte of an answer."""
PART_SECONDS: Final = 60.0
"""Longest time to read one part, even if bytes arrive steadily."""
DELETE_AT_ONCE: Final = 1_000
_TRANSIENT_STATUS: Final = frozenset({408, 409, 429, 500, 502, 503, 504})
_TRANSIENT_CODES: Final = frozenset(
    {"SlowDown", "RequestTimeout", "BadDigest", "XAmzContentSHA256Mismatch", "IncompleteBody", "InternalError"}
)
_FULL_CODES: Final = frozenset({"QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded"})
_WRONG_CERTIFICATE: Final = "CERTIFICATE_VERIFY_FAILED"
_ADVICE: Final = {
    403: "grant s3:GetObject, PutObject, DeleteObject, ListBucket and AbortMultipartUpload on the prefix",
    404: "create the bucket, or correct the URL",
    501: "this endpoint lacks a required part of S3: use another endpoint, or a shared file system",
}


class _PreconditionFailedError(Exception):
    """The condition of a write was not met: 412."""


@contextmanager
def translate_errors(what: str) -> Iterator[None]:
    """Translate the errors of botocore and urllib3 into StoreError."""
    from botocore.exceptions import BotoCoreError, ClientError
    from urllib3.exceptions import HTTPError

    try:
        yield
    except ClientError as error:
        raise _error_of(what, error.response) from error
    except (BotoCoreError, HTTPError, OSError) as error:
        kind = TransientError if _may_pass(error) else StoreError
        raise kind(f"{what}: {error}") from error


def _may_pass(error: Exception) -> bool:
    """Whether a request that got no answer may get one at the next attempt.

    A missing credential or a wrong parameter stays so. A refused connection, a name that is not resolved, credentials
    that are not handed out: so a service looks that is being restarted.
    """
    from botocore import exceptions

    if _WRONG_CERTIFICATE in str(error):
        return False
    lasting = isinstance(error, exceptions.BotoCoreError) and not isinstance(
        error,
        exceptions.ConnectionError
        | exceptions.HTTPClientError
        | exceptions.CredentialRetrievalError
        | exceptions.MetadataRetrievalError
        | exceptions.TokenRetrievalError,
    )
    return not lasting


def _error_of(what: str, answer: Any) -> Exception:
    status = answer["ResponseMetadata"]["HTTPStatusCode"]
    code, message = answer["Error"].get("Code", ""), answer["Error"].get("Message", "")
    if status == 412:
        return _PreconditionFailedError(what)
    text = f"{what}: {status} {code} {message}".rstrip()
    if status == 507 or code in _FULL_CODES:
        return StoreFullError(f"{text}: free space, raise the quota or lower `keep`")
    if status in _TRANSIENT_STATUS or code in _TRANSIENT_CODES:
        return TransientError(text)
    return StoreError(f"{text}: {_ADVICE[status]}" if status in _ADVICE else text)


def error_code(error: StoreError) -> str:
    """Return the S3 error code of the answer that caused `error`; empty if there was no answer."""
    from botocore.exceptions import ClientError

    # An error of the connection has a `response` too, which is None.
    return str(error.__cause__.response["Error"].get("Code", "")) if isinstance(error.__cause__, ClientError) else ""


def missing(error: StoreError) -> bool:
    """Whether the store answered that there is no such key."""
    return error_code(error) in {"NoSuchKey", "404"}


def make_client(*, endpoint: str | None, region: str | None, threads: int) -> Any:
    """Return a client with these time-outs. Credentials come from boto3's own chain (role, environment, file)."""
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
        # An endpoint in the cluster has no wildcard DNS name for its buckets.
        s3={"addressing_style": "path"} if own else None,
    )
    session = boto3.session.Session(region_name=region)
    return rotated_credentials.make_client(session, endpoint_url=endpoint, config=config)


class S3Upload:
    """A multipart upload. S3 shows the object only when the upload is completed."""

    def __init__(self, store: "S3Store", key: str, size_bytes: int) -> None:
        self._store, self._key = store, key
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
        """Complete the upload, and check the size of the object."""
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
        return self._store.size_of(self._key)

    def abort(self) -> None:
        """Abort the upload, which deletes its parts."""
        with suppress(StoreError), translate_errors("abort"):
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
        attempts: int = 8,
    ) -> None:
        self.client = client
        self.bucket = bucket
        self.prefix = f"{prefix}/" if prefix else ""
        self.part_bytes = part_bytes
        self.threads = threads
        self._sleep = sleep
        self._clock = clock
        self._attempts = attempts

    def request(self, what: str, call: Callable[..., Any], **arguments: object) -> Any:
        """Send one request, and retry it after transient errors."""
        where = f"s3://{self.bucket}/{arguments.get('Key', self.prefix)}: {what}"

        def once() -> Any:
            with translate_errors(where):
                return call(**arguments)

        return call_with_retries(once, attempts=self._attempts, sleep=self._sleep)

    def read(self, key: str) -> StoredObject | None:
        """Return a small object."""

        def once() -> StoredObject | None:
            with translate_errors(f"s3://{self.bucket}/{self.prefix}{key}"):
                answer = self.client.get_object(Bucket=self.bucket, Key=self.prefix + key)
                if answer["ContentLength"] > SMALL_BYTES:
                    raise CorruptError(f"s3://{self.bucket}/{self.prefix}{key} is longer than {SMALL_BYTES} bytes")
                data = bytearray(answer["ContentLength"])
                self._read_body(answer["Body"], memoryview(data), key)
                return StoredObject(data=bytes(data), version=answer["ETag"])

        return self._unless_missing(once)

    def _unless_missing(self, once: Callable[[], StoredObject | None]) -> StoredObject | None:
        try:
            return call_with_retries(once, attempts=self._attempts, sleep=self._sleep)
        except StoreError as error:
            if missing(error):
                return None
            raise

    def size_of(self, key: str) -> int | None:
        try:
            answer = self.request("look", self.client.head_object, Key=self.prefix + key, Bucket=self.bucket)
        except StoreError as error:
            if missing(error):
                return None
            raise
        return int(answer["ContentLength"])

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
        except _PreconditionFailedError:
            found = self.read(key)
            return found.version if found and found.data == data else None
        except StoreError as error:
            if missing(error):
                return None
            raise

    def _put_checked(self, **arguments: object) -> Any:
        return self.client.put_object(Bucket=self.bucket, ChecksumAlgorithm="SHA256", **arguments)

    def check_conditional_writes(self, key: str, data: bytes) -> None:
        """Write the same bytes twice under conditions that are false: both writes must be refused."""
        for condition in ({"IfNoneMatch": "*"}, {"IfMatch": f'"{"0" * 32}"'}):
            try:
                self.request("put", self._put_checked, Key=self.prefix + key, Body=data, **condition)
            except _PreconditionFailedError:
                continue
            raise StoreError(
                f"s3://{self.bucket}/{self.prefix}: this endpoint ignores {next(iter(condition))} on writes, so two"
                " writers cannot be kept apart: use one that honours it (AWS S3, a current MinIO or Ceph, R2), or file://"
            )

    def keys(self, folder: str) -> tuple[str, ...]:
        """List the keys, 1000 in each answer."""
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
        """Delete in the given order, up to 1000 keys per request."""
        objects = [{"Key": self.prefix + key} for key in keys]
        for at in range(0, len(objects), DELETE_AT_ONCE):
            batch = {"Objects": objects[at : at + DELETE_AT_ONCE], "Quiet": True}
            answer = self.request("delete", self.client.delete_objects, Bucket=self.bucket, Delete=batch)
            if errors := answer.get("Errors"):
                raise StoreError(f"s3://{self.bucket}/{errors[0]['Key']}: delete: {errors[0].get('Message', '')}")

    def start_upload(self, key: str, size_bytes: int) -> S3Upload:
        return S3Upload(self, key, size_bytes)

    def read_into(self, key: str, offset: int, target: memoryview) -> None:
        """Read a range of bytes."""

        def once() -> None:
            with translate_errors(f"s3://{self.bucket}/{self.prefix}{key}"):
                span = f"bytes={offset}-{offset + len(target) - 1}"
                answer = self.client.get_object(Bucket=self.bucket, Key=self.prefix + key, Range=span)
                if answer["ContentLength"] != len(target):
                    raise CorruptError(f"s3://{self.bucket}/{self.prefix}{key} is too short")
                self._read_body(answer["Body"], target, key)

        try:
            call_with_retries(once, attempts=self._attempts, sleep=self._sleep)
        except StoreError as error:
            if error_code(error) in {"NoSuchKey", "404", "InvalidRange"}:
                raise CorruptError(f"s3://{self.bucket}/{self.prefix}{key} is missing or too short") from error
            raise

    def _read_body(self, body: Any, target: memoryview, key: str) -> None:
        """Fill `target`. `read1` returns what has arrived; `read` would wait for all of it, however slow it is."""
        stream = getattr(body, "_raw_stream", body)
        deadline = self._clock() + PART_SECONDS
        with body:
            while target:
                piece = stream.read1(len(target))
                if not piece:
                    raise TransientError(f"s3://{self.bucket}/{self.prefix}{key}: {len(target)} bytes are missing")
                target[: len(piece)] = piece
                target = target[len(piece) :]
                if target and self._clock() > deadline:
                    raise TransientError(f"s3://{self.bucket}/{self.prefix}{key}: too slow")
            # A connection is reused only if its answer was read to the end.
            stream.read1(1)

    def free_bytes(self) -> None:
        """Unknown: an upload that finds no room fails."""

    def discard_uploads(self, folder: str, should_discard: Callable[[str], bool]) -> None:
        """Abort unfinished multipart uploads: their parts cost money and are in no listing of objects."""
        where = {"Bucket": self.bucket, "Prefix": f"{self.prefix}{folder}/"}
        answer = self.request("list uploads", self.client.list_multipart_uploads, **where)
        for upload in answer.get("Uploads", ()):
            if should_discard(upload["Key"].removeprefix(self.prefix)):
                at = {"Bucket": self.bucket, "Key": upload["Key"], "UploadId": upload["UploadId"]}
                with suppress(StoreError):
                    self.request("abort", self.client.abort_multipart_upload, **at)

    def close(self) -> None:
        self.client.close()
