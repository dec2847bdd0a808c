"""Requests to Google Cloud Storage.

Facts (Google's documentation): a write under `ifGenerationMatch` is refused with 412 if the object has another
generation; 0 means that there is none ("Request preconditions"). One object takes one write a second, more get 429
("Quotas & limits"). Parts are uploaded by the XML API, of which the library offers only a transfer of whole files with
retries of its own; it knows no preconditions, and has S3's limits of parts ("XML API multipart uploads"). A composed
object, the other way to write in parts, would leave each part as a deleted object, which a bucket keeps and bills for
seven days ("Soft delete").
"""

import base64
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote
from xml.etree import ElementTree as ET

import google.auth
import google_crc32c
from google.api_core.exceptions import GoogleAPICallError
from google.auth.credentials import AnonymousCredentials, with_scopes_if_required
from google.auth.exceptions import GoogleAuthError, TransportError
from google.auth.transport.requests import AuthorizedSession, Request
from google.cloud.storage import Client
from google.cloud.storage.exceptions import DataCorruption
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

from hvd_elastic.stores import bounded_transport, object_requests
from hvd_elastic.stores.errors import CorruptError, MissingError, StoreError
from hvd_elastic.stores.object_requests import ConditionError, ListedObject
from hvd_elastic.stores.retry import TransientError, no_answer, no_credentials, refusal
from hvd_elastic.stores.store import SMALL_BYTES, StoredObject
from hvd_elastic.stores.stored_digest import StoredDigest

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import GCSCredential, GCSStore

_SCOPES: Final = ("https://www.googleapis.com/auth/devstorage.read_write",)
_ADVICE: Final = {
    401: "the credentials are not taken: see docs/checkpoints.md on what a pod needs",
    403: "grant roles/storage.objectUser on the bucket to the job's account",
    404: "create the bucket, or correct the URL",
}
_DAMAGED: Final = "doesn't match calculated"
"""In the answer to a body that has another checksum than was announced (JSON API); the XML API has a code for it."""
_NO_BUCKET: Final = "bucket does not exist"
"""In the answer of both APIs. Else 404 says that there is no such object."""
_ONCE: Final = {"retry": None}


@contextmanager
def translate_errors(what: str) -> Iterator[None]:
    """Translate the errors of Google's libraries into StoreError, and 412 into ConditionError."""
    try:
        yield
    except GoogleAPICallError as error:
        headers = error.response.headers if error.response is not None else {}
        raise _refused(what, int(error.code or 0), str(error.message), headers) from error
    except GoogleAuthError as error:
        lost = error.retryable or isinstance(error, TransportError) or isinstance(error.__cause__, TransportError)
        raise (no_answer if lost else no_credentials)(what, error) from error
    except DataCorruption as error:
        raise TransientError(f"{what}: {error}") from error
    except (RequestException, HTTPError, OSError) as error:
        raise no_answer(what, error) from error


def _refused(what: str, status: int, reason: str, headers: Mapping[str, str], code: str = "") -> Exception:
    if status == 412:
        return ConditionError(what)
    is_damaged = _DAMAGED in reason or code == "BadDigest"
    return refusal(
        what,
        status,
        reason,
        advice=_ADVICE,
        retry_after=headers.get("Retry-After"),
        transient=is_damaged,
        missing=status in {404, 416} and _NO_BUCKET not in reason,
    )


def _checksum(data: bytes) -> str:
    return base64.b64encode(struct.pack(">I", google_crc32c.value(data))).decode()


class _Target:
    """What the library writes an object's bytes to."""

    def __init__(self, what: str, room: memoryview | None = None) -> None:
        """Without `room` it takes a small object, whatever its size."""
        self._what, self._room, self.found = what, room, bytearray()
        self.filled = 0

    def write(self, piece: bytes) -> int:
        if self._room is None:
            self.found += piece
        else:
            self._room[self.filled : self.filled + len(piece)] = piece
        self.filled += len(piece)
        if self._room is None and self.filled > SMALL_BYTES:
            raise CorruptError(f"{self._what} is longer than {SMALL_BYTES} bytes")
        return len(piece)


class GcsRequests:
    """Of a prefix of a bucket."""

    most_bytes = 5 << 40
    honoured_by = "Google Cloud Storage"
    other_version = "1"

    def __init__(self, *, bucket: str, prefix: str, endpoint: str | None, threads: int) -> None:
        """Nothing is sent, and no credentials are looked for. An `endpoint` without TLS gets none."""
        self._bucket, self._endpoint, self._threads = bucket, endpoint, threads
        self._prefix = f"{prefix}/" if prefix else ""
        self.where = f"gs://{bucket}/{self._prefix}"
        self._lock = threading.Lock()
        self._opened: tuple[Client, AuthorizedSession] | None = None

    def _client(self) -> tuple[Client, AuthorizedSession]:
        with self._lock:
            if self._opened is None:
                if self._endpoint and self._endpoint.startswith("http:"):
                    credentials: Any = AnonymousCredentials()
                else:
                    # Given scopes it would ask Google's Resource Manager for the name of a pool's project.
                    credentials = with_scopes_if_required(google.auth.default()[0], _SCOPES)
                session = AuthorizedSession(credentials)
                bounded_transport.mount(session, threads=self._threads)
                options = {"api_endpoint": self._endpoint.rstrip("/")} if self._endpoint else None
                client = Client(project=None, credentials=credentials, _http=session, client_options=options)
                self._opened = client, session
            return self._opened

    def _blob(self, key: str, generation: int | None = None) -> Any:
        return self._client()[0].bucket(self._bucket).blob(self._prefix + key, generation=generation)

    def read(self, key: str) -> StoredObject:
        """The library compares its CRC32C."""
        target = _Target(f"{self.where}{key}")
        with translate_errors(f"{self.where}{key}"):
            blob = self._blob(key)
            blob.download_to_file(target, raw_download=True, checksum="crc32c", **_ONCE)
        return StoredObject(data=bytes(target.found), version=str(blob.generation))

    def size_of(self, key: str) -> int:
        with translate_errors(f"{self.where}{key}: look"):
            blob = self._blob(key)
            blob.reload(**_ONCE)
            return int(blob.size)

    def write(self, key: str, data: bytes, *, version: str | None) -> str:
        with translate_errors(f"{self.where}{key}: put"):
            blob = self._blob(key)
            blob.upload_from_string(data, if_generation_match=int(version or 0), checksum="crc32c", **_ONCE)
            return str(blob.generation)

    def page(self, below: str, more: str | None) -> tuple[Sequence[ListedObject], str | None]:
        """1000 objects at most."""
        with translate_errors(f"{self.where}{below}: list"):
            wanted = "items(name,size,generation,crc32c),nextPageToken"
            found = self._client()[0].list_blobs(
                self._bucket, prefix=self._prefix + below, page_token=more, fields=wanted, **_ONCE
            )
            page = next(found.pages, ())
            return [self._listed(blob) for blob in page], found.next_page_token

    def _listed(self, blob: Any) -> ListedObject:
        digest = StoredDigest(algorithm="crc32c", value=base64.b64decode(blob.crc32c)) if blob.crc32c else None
        key = blob.name.removeprefix(self._prefix)
        return ListedObject(key=key, size_bytes=blob.size, version=str(blob.generation), digest=digest)

    def digest_of(self, one: ListedObject) -> StoredDigest | None:
        """That of the listing."""
        return one.digest

    def bulk(self, one: ListedObject) -> "tuple[str, GetOptions]":
        return self._prefix + one.key, {"version": one.version}

    def bulk_store(self) -> "GCSStore":
        from obstore.store import GCSStore

        client, session = self._client()
        is_plain = isinstance(session.credentials, AnonymousCredentials)
        # Else it would unpack what is stored with `Content-Encoding: gzip` ("Transcoding of gzip-compressed files").
        as_stored = {"Accept-Encoding": "gzip"}
        url, authorities = client.api_endpoint, bounded_transport.authorities()
        return GCSStore(
            self._bucket,
            base_url=url,
            skip_signature=is_plain,
            credential_provider=None if is_plain else self._credential,
            client_options=object_requests.bulk_options(
                client.api_endpoint, authorities=authorities, headers=as_stored
            ),
            retry_config={"max_retries": 0},
        )

    def _credential(self) -> "GCSCredential":
        credentials = self._client()[1].credentials
        credentials.before_request(Request(), "GET", "", {})  # renews them if they are about to end
        return {"token": credentials.token, "expires_at": credentials.expiry and credentials.expiry.replace(tzinfo=UTC)}

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            with suppress(MissingError), translate_errors(f"{self.where}{key}: delete"):
                self._blob(key).delete(**_ONCE)

    def read_into(self, key: str, offset: int, target: memoryview) -> None:
        into = _Target(f"{self.where}{key}", target)
        with translate_errors(f"{self.where}{key}"):
            span = {"start": offset, "end": offset + len(target) - 1}
            self._blob(key).download_to_file(into, raw_download=True, checksum=None, **span, **_ONCE)
        if into.filled != len(target):
            raise CorruptError(f"{self.where}{key} is too short")

    def _xml(self, what: str, method: str, path: str, **options: Any) -> Any:
        """An answer of the XML API."""
        with translate_errors(f"{self.where}{what}"):
            client, session = self._client()
            answer = session.request(method, f"{client.api_endpoint}/{self._bucket}{path}", **options)
            if answer.ok:
                return answer
            code = _text(answer.content, "Code")
            reason = f"{code} {_text(answer.content, 'Message')}"
            raise _refused(f"{self.where}{what}", answer.status_code, reason, answer.headers, code)

    def _path(self, key: str) -> str:
        return f"/{quote(self._prefix + key)}"

    def start_upload(self, key: str) -> str:
        answer = self._xml(f"{key}: start", "POST", f"{self._path(key)}?uploads", data=b"")
        if not (upload := _text(answer.content, "UploadId")):
            raise StoreError(f"{self.where}{key}: start: an answer that names no upload")
        return upload

    def put_part(self, key: str, upload: str, number: int, data: bytearray, sha256: bytes) -> object:
        """The store compares the part's CRC32C."""
        body = bytes(data)
        answer = self._xml(
            f"{key}: part {number}",
            "PUT",
            f"{self._path(key)}?partNumber={number}&uploadId={quote(upload, safe='')}",
            data=body,
            headers={"x-goog-hash": f"crc32c={_checksum(body)}"},
        )
        if etag := answer.headers.get("ETag"):
            return etag
        raise StoreError(f"{self.where}{key}: part {number}: an answer without ETag, which names a part")

    def finish_upload(self, key: str, upload: str, parts: Mapping[int, object]) -> None:
        whole = ET.Element("CompleteMultipartUpload")
        for number in sorted(parts):
            part = ET.SubElement(whole, "Part")
            ET.SubElement(part, "PartNumber").text = str(number)
            ET.SubElement(part, "ETag").text = str(parts[number])
        path = f"{self._path(key)}?uploadId={quote(upload, safe='')}"
        self._xml(f"{key}: complete", "POST", path, data=ET.tostring(whole))

    def abort_upload(self, key: str, upload: str) -> None:
        self._xml(f"{key}: abort", "DELETE", f"{self._path(key)}?uploadId={quote(upload, safe='')}")

    def uploads(self, folder: str) -> Iterator[tuple[str, str]]:
        """1000 at most: the next save finds more."""
        query = {"uploads": "", "prefix": f"{self._prefix}{folder}/"}
        answer = self._xml(f"{folder}/: list uploads", "GET", "", params=query)
        for upload in _parsed(answer.content).iterfind(".//{*}Upload"):
            yield upload.findtext("{*}Key", "").removeprefix(self._prefix), upload.findtext("{*}UploadId", "")

    def close(self) -> None:
        if self._opened is not None:
            self._opened[1].close()


def _parsed(document: bytes) -> ET.Element:
    try:
        return ET.fromstring(document)  # noqa: S314 - from the store that the checkpoints are in
    except ET.ParseError:
        return ET.Element("none")


def _text(document: bytes, name: str) -> str:
    """Of the first element of this name, whatever its namespace."""
    return _parsed(document).findtext(f".//{{*}}{name}", "")
