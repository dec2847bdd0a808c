"""Requests to Azure Blob Storage.

Facts (Azure's REST reference and "Scalability and performance targets for Blob storage"): `If-None-Match: *` is refused
with 409 and `If-Match` with 412. A block blob has 50,000 blocks of 4,000 MiB; blocks are of the name that is written,
and belong to no upload. Those that were never committed go after a week, or as another list of blocks is committed
("Put Block List"). Put Block and Put Blob compare the Content-MD5 that they are given.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from azure.core import MatchConditions
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError
from azure.core.pipeline.transport import RequestsTransport
from azure.identity import DefaultAzureCredential
from azure.storage.blob import BlobBlock, ContainerClient
from requests import Session

from hvd_elastic.stores import bounded_transport, object_requests
from hvd_elastic.stores.errors import CorruptError, MissingError
from hvd_elastic.stores.object_requests import ConditionError, ListedObject
from hvd_elastic.stores.retry import TransientError, no_answer, no_credentials, refusal
from hvd_elastic.stores.store import SMALL_BYTES, StoredObject
from hvd_elastic.stores.stored_digest import StoredDigest

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import AzureCredential, AzureStore

_ADVICE: Final = {
    401: "the credentials are not taken: see docs/checkpoints.md on what a pod needs",
    403: "grant the role Storage Blob Data Contributor on the container to the job's identity",
    404: "create the container, or correct the URL",
}
_REFUSED_CONDITIONS: Final = frozenset({"BlobAlreadyExists", "ConditionNotMet", "TargetConditionNotMet"})
_MISSING: Final = frozenset({"BlobNotFound", "ResourceNotFound", "InvalidRange"})
_WHOLE_RANGE_BYTES: Final = 1 << 30
"""A range of up to this is read by one request."""
_SCOPE: Final = "https://storage.azure.com/.default"


@contextmanager
def translate_errors(what: str) -> Iterator[None]:
    """Translate the errors of Azure's libraries into StoreError, and refused conditions into ConditionError."""
    try:
        yield
    except HttpResponseError as error:
        if error.response is None:
            raise no_credentials(what, error) from error
        raise _refused(what, error) from error
    except AzureError as error:
        raise no_answer(what, error) from error


def _refused(what: str, error: HttpResponseError) -> Exception:
    headers = error.response.headers
    given = getattr(error, "error_code", None) or headers.get("x-ms-error-code", "")
    code = str(getattr(given, "value", given))
    if code in _REFUSED_CONDITIONS or error.status_code == 412:
        return ConditionError(what)
    is_login = isinstance(error, ClientAuthenticationError) and "x-ms-error-code" not in headers
    reason = f"{code} {'no token: ' if is_login else ''}{(error.message or '').partition(chr(10))[0][:300]}"
    return refusal(
        what,
        int(error.status_code or 0),
        reason,
        advice=_ADVICE,
        retry_after=headers.get("Retry-After"),
        transient=code == "Md5Mismatch",
        missing=code in _MISSING,
    )


def _account(account_url: str) -> str:
    url = urlsplit(account_url)
    return url.path.strip("/") or url.netloc.partition(".")[0]


def _credential(account_url: str) -> Any:
    """An account's key or signature of the environment, else an identity, whichever way this machine has one."""
    for name in ("AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY"):  # of Azure's command line; of fsspec and obstore
        if key := os.environ.get(name):
            return AzureNamedKeyCredential(_account(account_url), key)
    if signature := os.environ.get("AZURE_STORAGE_SAS_TOKEN"):
        return AzureSasCredential(signature)
    return DefaultAzureCredential()


class AzureRequests:
    """Of a prefix of a container."""

    most_bytes = 10_000 * (4_000 << 20)
    honoured_by = "Azure Blob Storage"
    other_version = '"0x1"'

    def __init__(self, *, account_url: str, container: str, prefix: str, threads: int) -> None:
        """Nothing is sent. `account_url`: `https://ACCOUNT.blob.core.windows.net`."""
        self._prefix = f"{prefix}/" if prefix else ""
        self.where = f"{account_url}/{container}/{self._prefix}"
        self._account_url, self._credential = account_url, _credential(account_url)
        self._session = Session()
        bounded_transport.mount(self._session, threads=threads)
        self._container = ContainerClient(
            account_url,
            container,
            credential=self._credential,
            transport=RequestsTransport(session=self._session, session_owner=False),
            retry_total=0,
            max_single_put_size=SMALL_BYTES,
            max_single_get_size=_WHOLE_RANGE_BYTES,
        )

    def _blob(self, key: str) -> Any:
        return self._container.get_blob_client(self._prefix + key)

    def read(self, key: str) -> StoredObject:
        """The MD5 that the store has is compared, if it has one."""
        with translate_errors(f"{self.where}{key}"):
            found = self._blob(key).download_blob(length=SMALL_BYTES + 1, offset=0)
            data = found.readall()
        if len(data) > SMALL_BYTES:
            raise CorruptError(f"{self.where}{key} is longer than {SMALL_BYTES} bytes")
        md5 = found.properties.content_settings.content_md5
        if md5 and bytes(md5) != hashlib.md5(data, usedforsecurity=False).digest():
            raise TransientError(f"{self.where}{key}: other bytes have arrived than are stored")
        return StoredObject(data=data, version=found.properties.etag)

    def size_of(self, key: str) -> int:
        with translate_errors(f"{self.where}{key}: look"):
            return int(self._blob(key).get_blob_properties().size)

    def write(self, key: str, data: bytes, *, version: str | None) -> str:
        missing = {"match_condition": MatchConditions.IfMissing}
        condition = missing if version is None else {"match_condition": MatchConditions.IfNotModified, "etag": version}
        with translate_errors(f"{self.where}{key}: put"):
            put = self._blob(key).upload_blob(data, overwrite=True, validate_content=True, **condition)
            return str(put["etag"])

    def page(self, below: str, more: str | None) -> tuple[Sequence[ListedObject], str | None]:
        """5000 objects at most, without the folders of an account with a hierarchical namespace."""
        with translate_errors(f"{self.where}{below}: list"):
            pages = self._container.list_blobs(self._prefix + below, include=["metadata"]).by_page(more)
            found = [self._listed(blob) for blob in next(pages, ()) if not (blob.metadata or {}).get("hdi_isfolder")]
            return found, pages.continuation_token or None

    def _listed(self, blob: Any) -> ListedObject:
        md5 = blob.content_settings.content_md5
        digest = StoredDigest(algorithm="md5", value=bytes(md5)) if md5 else None
        key = blob.name.removeprefix(self._prefix)
        return ListedObject(key=key, size_bytes=blob.size, version=blob.etag.strip('"'), digest=digest)

    def digest_of(self, one: ListedObject) -> StoredDigest | None:
        """That of the listing."""
        return one.digest

    def bulk(self, one: ListedObject) -> "tuple[str, GetOptions]":
        return self._prefix + one.key, {"if_match": f'"{one.version}"'}

    def bulk_store(self) -> "AzureStore":
        from obstore.store import AzureStore

        authorities = bounded_transport.authorities()
        return AzureStore(
            self._container.container_name,
            account_name=_account(self._account_url),
            endpoint=self._account_url,
            use_emulator=False,
            skip_signature=False,
            credential_provider=self._bulk_credential,
            client_options=object_requests.bulk_options(self._account_url, authorities=authorities),
            retry_config={"max_retries": 0},
        )

    def _bulk_credential(self) -> "AzureCredential":
        if isinstance(self._credential, AzureNamedKeyCredential):
            return {"access_key": self._credential.named_key.key, "expires_at": None}
        if isinstance(self._credential, AzureSasCredential):
            return {"sas_token": self._credential.signature, "expires_at": None}
        token = self._credential.get_token(_SCOPE)
        return {"token": token.token, "expires_at": datetime.fromtimestamp(token.expires_on, UTC)}

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            with suppress(MissingError), translate_errors(f"{self.where}{key}: delete"):
                self._blob(key).delete_blob(delete_snapshots="include")

    def read_into(self, key: str, offset: int, target: memoryview) -> None:
        with translate_errors(f"{self.where}{key}"):
            found = self._blob(key).download_blob(offset=offset, length=len(target)).readall()
        if len(found) != len(target):
            raise CorruptError(f"{self.where}{key} is too short")
        target[:] = found

    def start_upload(self, key: str) -> str:
        """Sends nothing: blocks belong to the name alone."""
        return ""

    def put_part(self, key: str, upload: str, number: int, data: bytearray, sha256: bytes) -> object:
        """The store compares the block's MD5."""
        block = f"{number:05d}"
        with translate_errors(f"{self.where}{key}: part {number}"):
            self._blob(key).stage_block(block, bytes(data), validate_content=True)
        return block

    def finish_upload(self, key: str, upload: str, parts: Mapping[int, object]) -> None:
        with translate_errors(f"{self.where}{key}: complete"):
            self._blob(key).commit_block_list([BlobBlock(str(parts[number])) for number in sorted(parts)])

    def abort_upload(self, key: str, upload: str) -> None:
        """Commit no blocks, unless the object is there, which discards those that are; delete the empty object."""
        blob = self._blob(key)
        with suppress(ConditionError, MissingError), translate_errors(f"{self.where}{key}: abort"):
            empty = blob.commit_block_list([], match_condition=MatchConditions.IfMissing)
            blob.delete_blob(etag=empty["etag"], match_condition=MatchConditions.IfNotModified)

    def uploads(self, folder: str) -> Iterator[tuple[str, str]]:
        """Names with blocks and no object: a listing with them less one without."""
        prefix = f"{self._prefix}{folder}/"
        with translate_errors(f"{self.where}{folder}/: list uploads"):
            found = {blob.name for blob in self._container.list_blobs(prefix, include=["uncommittedblobs"])}
            for name in sorted(found - set(self._container.list_blob_names(name_starts_with=prefix))):
                yield name.removeprefix(self._prefix), ""

    def close(self) -> None:
        self._container.close()
        self._session.close()
