"""Requests to object stores with the S3 protocol: AWS, MinIO, Ceph, R2 ...

Facts: the answer is 412 to `If-None-Match: *` if the key exists and to `If-Match` if the ETag differs, and 409 if
another conditional write was in progress (S3 user guide, "Conditional writes"). A multipart ETag is not a digest of the
content, so each part carries `x-amz-checksum-sha256`, which the store verifies.
"""

import os
import re
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from hvd_elastic.stores import object_requests, rotated_credentials
from hvd_elastic.stores.errors import ChangedObjectError, CorruptError, MissingError, StoreError
from hvd_elastic.stores.object_requests import ConditionError, ListedObject
from hvd_elastic.stores.retry import TransientError, no_answer, no_credentials, refusal
from hvd_elastic.stores.store import SMALL_BYTES, StoredObject
from hvd_elastic.stores.stored_digest import CRCS, StoredDigest

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import S3Credential, S3Store

DELETE_AT_ONCE: Final = 1_000
_TRANSIENT_CODES: Final = frozenset(
    {"SlowDown", "RequestTimeout", "BadDigest", "XAmzContentSHA256Mismatch", "IncompleteBody", "InternalError"}
)
_SKEWED: Final = "RequestTimeTooSkewed"
"""The request's time and that of S3 are 15 minutes apart or more. A new node may set its clock yet."""
_MISSING_CODES: Final = frozenset({"NoSuchKey", "404", "InvalidRange"})
"""The second is that of a HEAD, whose answer has no body."""
_FULL_CODES: Final = frozenset({"QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded"})
_ADVICE: Final = {
    403: "grant s3:GetObject, PutObject, DeleteObject, ListBucket and AbortMultipartUpload on the prefix",
    404: "create the bucket, or correct the URL",
    501: "this endpoint lacks a required part of S3: use another endpoint, or a shared file system",
}
_ETAG: Final = re.compile(r"([0-9a-f]{32})(?:-([0-9]+))?")
"""MD5 of the bytes, or of the MD5s of so many parts."""
_SCOPE: Final = re.compile(r"AWS4-\S+ Credential=[^,]+/\d{8}/(?P<region>[^/,]+)/s3/aws4_request,")
_CREDENTIALS_LAST: Final = timedelta(minutes=9)
"""botocore hands out credentials that are good for ten more minutes at least (credentials.py,
`_mandatory_refresh_timeout`); obstore asks again within the last five of these (object_store, client/token.rs)."""


@contextmanager
def translate_errors(what: str) -> Iterator[None]:
    """Translate the errors of botocore and urllib3 into StoreError, and 412 into ConditionError.

    A refused connection, a name that is not resolved, credentials that are not handed out: so a service looks that is
    being restarted. botocore's other errors, such as a wrong parameter, stay.
    """
    from botocore import exceptions
    from botocore.parsers import ResponseParserError
    from urllib3.exceptions import HTTPError

    try:
        yield
    except exceptions.ClientError as error:
        raise _error_of(what, error.response) from error
    except exceptions.NoCredentialsError as error:
        raise no_credentials(what, error) from error
    except ResponseParserError as error:  # such as a proxy's word, instead of that of STS, which gives a role's keys
        raise TransientError(f"{what}: an answer that is not AWS's: {str(error)[:300]!r}") from error
    except (
        exceptions.ConnectionError,
        exceptions.HTTPClientError,
        exceptions.CredentialRetrievalError,
        exceptions.MetadataRetrievalError,
        exceptions.TokenRetrievalError,
        HTTPError,
        OSError,
    ) as error:
        raise no_answer(what, error) from error
    except exceptions.BotoCoreError as error:
        raise StoreError(f"{what}: {error}") from error


def _error_of(what: str, answer: Any) -> Exception:
    status, code = answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"].get("Code", "")
    words = f"{code} {answer['Error'].get('Message', '')}"
    if status == 412:
        return ConditionError(what)
    return refusal(
        what,
        status,
        f"{words}: set the clock of this machine" if code == _SKEWED else words,
        advice=_ADVICE,
        retry_after=answer["ResponseMetadata"].get("HTTPHeaders", {}).get("retry-after"),
        full=code in _FULL_CODES,
        transient=code in {*_TRANSIENT_CODES, _SKEWED},
        missing=code in _MISSING_CODES,
    )


def make_client(*, endpoint: str | None, region: str | None, threads: int) -> Any:
    """Return a client with these time-outs. Credentials come from boto3's own chain (role, environment, file)."""
    from botocore.config import Config

    own = endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    config = Config(
        retries={"total_max_attempts": 1},
        connect_timeout=object_requests.CONNECT_SECONDS,
        read_timeout=object_requests.SILENCE_SECONDS,
        max_pool_connections=threads + 2,
        tcp_keepalive=True,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        # An endpoint in the cluster has no wildcard DNS name for its buckets.
        s3={"addressing_style": "path"} if own else None,
    )
    with translate_errors("credentials of S3"):
        session = _session(region)
        return rotated_credentials.make_client(session, endpoint_url=endpoint, config=config)


def _session(region: str | None) -> Any:
    """One that reads times as Python does: with botocore's parser they are two thirds of what a listing takes."""
    import boto3
    from botocore.session import get_session
    from botocore.utils import parse_timestamp

    def time_of(value: Any) -> datetime:
        try:
            return datetime.fromisoformat(value)
        except (TypeError, ValueError):  # a header's date, or a number
            parsed: datetime = parse_timestamp(value)
            return parsed

    core = get_session()
    core.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=time_of)
    return boto3.session.Session(botocore_session=core, region_name=region)


class S3Requests:
    """Of a prefix of a bucket."""

    most_bytes = 10_000 * (5 << 30)
    """48.8 TiB (S3 user guide, "Multipart upload limits")."""
    honoured_by = "AWS S3, a current MinIO or Ceph, R2"
    other_version = f'"{"0" * 32}"'

    def __init__(self, client: Any, *, bucket: str, prefix: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.client = client
        self._bucket, self._clock = bucket, clock
        self._prefix = f"{prefix}/" if prefix else ""
        self.where = f"s3://{bucket}/{self._prefix}"
        self._listed_at: tuple[str, str] | None = None
        client.meta.events.register("before-send.s3.ListObjectsV2", self._learn)

    def _learn(self, request: Any, **_: Any) -> None:
        """Note where boto3 sends a listing, after redirects: nothing else says host, style of address and region."""
        authorization = request.headers.get("Authorization") or b""
        text = authorization.decode() if isinstance(authorization, bytes) else authorization
        if scope := _SCOPE.match(text):
            self._listed_at = request.url.partition("?")[0].rstrip("/"), scope["region"]

    def _send(self, what: str, call: Callable[..., Any], **arguments: object) -> Any:
        with translate_errors(f"{self.where}{what}"):
            return call(Bucket=self._bucket, **arguments)

    def read(self, key: str) -> StoredObject:
        with translate_errors(f"{self.where}{key}"):
            answer = self.client.get_object(Bucket=self._bucket, Key=self._prefix + key)
            if answer["ContentLength"] > SMALL_BYTES:
                raise CorruptError(f"{self.where}{key} is longer than {SMALL_BYTES} bytes")
            data = bytearray(answer["ContentLength"])
            self._read_body(answer["Body"], memoryview(data), key)
            return StoredObject(data=bytes(data), version=self._etag(answer, key))

    def size_of(self, key: str) -> int:
        return int(self._send(f"{key}: look", self.client.head_object, Key=self._prefix + key)["ContentLength"])

    def write(self, key: str, data: bytes, *, version: str | None) -> str:
        """Write with `If-None-Match: *` or `If-Match`."""
        condition = {"IfNoneMatch": "*"} if version is None else {"IfMatch": version}
        put = {"Key": self._prefix + key, "Body": data, "ChecksumAlgorithm": "SHA256", **condition}
        return self._etag(self._send(f"{key}: put", self.client.put_object, **put), key)

    def _etag(self, answer: Mapping[str, Any], key: str) -> str:
        if etag := answer.get("ETag"):
            return str(etag)
        raise StoreError(f"{self.where}{key}: an answer without ETag, by which writes are told apart: not S3")

    def page(self, below: str, more: str | None) -> tuple[Sequence[ListedObject], str | None]:
        """1000 objects at most."""
        follows = {"ContinuationToken": more} if more else {}
        prefix = self._prefix + below
        answer = self._send(f"{below}: list", self.client.list_objects_v2, Prefix=prefix, **follows)
        found = [self._listed(entry, below) for entry in answer.get("Contents", ())]
        return found, answer["NextContinuationToken"] if answer.get("IsTruncated") else None

    def _listed(self, entry: Mapping[str, Any], below: str) -> ListedObject:
        version = self._etag(entry, below).strip('"')
        etag = _ETAG.fullmatch(version)
        digest = StoredDigest(algorithm="md5", value=bytes.fromhex(etag[1])) if etag and not etag[2] else None
        key = entry["Key"].removeprefix(self._prefix)
        return ListedObject(key=key, size_bytes=entry["Size"], version=version, digest=digest)

    def digest_of(self, one: ListedObject) -> StoredDigest | None:
        """Its CRC; else its ETag, unless that is none of its bytes. None also if its parts have different lengths."""
        head = self._head(one, IfMatch=f'"{one.version}"', ChecksumMode="ENABLED")
        for algorithm in CRCS:
            encoded, _, parts = head.get(f"x-amz-checksum-{algorithm}", "").partition("-")
            if encoded:
                value = b64decode(encoded)
                break
        else:
            etag = _ETAG.fullmatch(one.version)
            by_key = head.get("x-amz-server-side-encryption", "").startswith("aws:kms")
            if etag is None or by_key or "x-amz-server-side-encryption-customer-algorithm" in head:
                return None
            algorithm, value, parts = "md5", bytes.fromhex(etag[1]), etag[2]
        if not parts:
            return StoredDigest(algorithm=algorithm, value=value)
        part_bytes = int(self._head(one, PartNumber=1)["content-length"])
        is_even = part_bytes and -(-one.size_bytes // part_bytes) == int(parts)
        return StoredDigest(algorithm=algorithm, value=value, part_bytes=part_bytes) if is_even else None

    def _head(self, one: ListedObject, **options: Any) -> Mapping[str, str]:
        try:
            answer = self._send(f"{one.key}: look", self.client.head_object, Key=self._prefix + one.key, **options)
        except (ConditionError, MissingError) as error:
            raise ChangedObjectError(f"{self.where}{one.key}: was replaced or deleted") from error
        headers: Mapping[str, str] = answer["ResponseMetadata"]["HTTPHeaders"]
        return headers

    def bulk(self, one: ListedObject) -> "tuple[str, GetOptions]":
        return self._prefix + one.key, {"if_match": f'"{one.version}"'}

    def bulk_store(self) -> "S3Store":
        from botocore.httpsession import get_cert_path
        from obstore.store import S3Store

        if self._listed_at is None:
            raise StoreError(f"{self.where}: its listing was not signed, so its objects cannot be read")
        url, region = self._listed_at
        # boto3 says nowhere else which authorities it trusts: an environment variable's, a profile's, or its own.
        authorities = get_cert_path(self.client._endpoint.http_session._verify)
        # obstore reads the environment, and not as boto3 does: what is named here is not taken from there.
        return S3Store(
            aws_endpoint_url_s3=url,
            bucket=url.rpartition("/")[2],
            region=region,
            virtual_hosted_style_request=True,  # the endpoint names the bucket, in either style
            skip_signature=False,
            s3_express=False,
            credential_provider=self._credential,
            client_options=object_requests.bulk_options(url, authorities=authorities),
            retry_config={"max_retries": 0},
        )

    def _credential(self) -> "S3Credential":
        keys = self.client._get_credentials().get_frozen_credentials()
        return {
            "access_key_id": keys.access_key,
            "secret_access_key": keys.secret_key,
            "token": keys.token,
            "expires_at": datetime.now(UTC) + _CREDENTIALS_LAST,
        }

    def delete(self, keys: Sequence[str]) -> None:
        """Up to 1000 keys per request."""
        objects = [{"Key": self._prefix + key} for key in keys]
        for at in range(0, len(objects), DELETE_AT_ONCE):
            batch = {"Objects": objects[at : at + DELETE_AT_ONCE], "Quiet": True}
            answer = self._send("delete", self.client.delete_objects, Delete=batch)
            if errors := answer.get("Errors"):
                raise StoreError(f"s3://{self._bucket}/{errors[0]['Key']}: delete: {errors[0].get('Message', '')}")

    def read_into(self, key: str, offset: int, target: memoryview) -> None:
        """Read a range of bytes."""
        with translate_errors(f"{self.where}{key}"):
            span = f"bytes={offset}-{offset + len(target) - 1}"
            answer = self.client.get_object(Bucket=self._bucket, Key=self._prefix + key, Range=span)
            if answer["ContentLength"] != len(target):
                raise CorruptError(f"{self.where}{key} is too short")
            self._read_body(answer["Body"], target, key)

    def _read_body(self, body: Any, target: memoryview, key: str) -> None:
        """Fill `target`. `read1` returns what has arrived; `read` would wait for all of it, however slow it is."""
        stream = getattr(body, "_raw_stream", body)
        deadline = self._clock() + object_requests.PART_SECONDS
        with body:
            while target:
                piece = stream.read1(len(target))
                if not piece:
                    raise TransientError(f"{self.where}{key}: {len(target)} bytes are missing")
                target[: len(piece)] = piece
                target = target[len(piece) :]
                if target and self._clock() > deadline:
                    raise TransientError(f"{self.where}{key}: too slow")
            # A connection is reused only if its answer was read to the end.
            stream.read1(1)

    def start_upload(self, key: str) -> str:
        start = {"Key": self._prefix + key, "ChecksumAlgorithm": "SHA256"}
        return str(self._send(f"{key}: start", self.client.create_multipart_upload, **start)["UploadId"])

    def put_part(self, key: str, upload: str, number: int, data: bytearray, sha256: bytes) -> object:
        part = {"PartNumber": number, "ChecksumSHA256": b64encode(sha256).decode()}
        at = {"Key": self._prefix + key, "UploadId": upload}
        answer = self._send(f"{key}: part {number}", self.client.upload_part, **at, **part, Body=data)
        return {**part, "ETag": self._etag(answer, key)}

    def finish_upload(self, key: str, upload: str, parts: Mapping[int, object]) -> None:
        whole = {"Parts": [parts[number] for number in sorted(parts)]}
        at = {"Key": self._prefix + key, "UploadId": upload, "MultipartUpload": whole}
        self._send(f"{key}: complete", self.client.complete_multipart_upload, **at)

    def abort_upload(self, key: str, upload: str) -> None:
        at = {"Key": self._prefix + key, "UploadId": upload}
        self._send(f"{key}: abort", self.client.abort_multipart_upload, **at)

    def uploads(self, folder: str) -> Iterator[tuple[str, str]]:
        """1000 at most: the next save finds more."""
        listed = {"Prefix": f"{self._prefix}{folder}/"}
        answer = self._send(f"{folder}/: list uploads", self.client.list_multipart_uploads, **listed)
        for upload in answer.get("Uploads", ()):
            yield upload["Key"].removeprefix(self._prefix), upload["UploadId"]

    def close(self) -> None:
        self.client.close()
