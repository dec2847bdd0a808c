"""A prefix of a bucket as a source: lists it, and reads ranges of exactly the listed version of an object.

Each request is made without boto3 where that is known to do, and by boto3 where it is not, or has not done. So boto3,
which takes half a second of CPU to start, is imported only for the latter.
"""

import os
import threading
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import urlsplit

from hvd_elastic.stores.bucket.boto3_requests import Boto3Requests
from hvd_elastic.stores.bucket.bucket_access import access_of_environment
from hvd_elastic.stores.bucket.listed_page import ListedPage, SourceObject
from hvd_elastic.stores.bucket.signed_reads import PIECE_BYTES, SignedReads
from hvd_elastic.stores.bucket.signed_requests import SignedRequests
from hvd_elastic.stores.bucket.stored_checksum import StoredChecksum
from hvd_elastic.stores.errors import BucketError

_BY_KEY: Final = "aws:kms"


class ObjectSource:
    """The objects below `s3://BUCKET/PREFIX`. Threads may read at the same time."""

    def __init__(self, url: str, *, endpoint: str | None, threads: int) -> None:
        split = urlsplit(url)
        if split.scheme != "s3" or not split.netloc:
            raise BucketError(f"{url}: write s3://bucket/prefix")
        prefix = split.path.strip("/")
        self.url = url
        self._bucket, self._endpoint, self._threads = split.netloc, endpoint, threads
        self._prefix = f"{prefix}/" if prefix else ""
        access = access_of_environment(self._bucket, endpoint=endpoint, environment=os.environ)
        self._signed = SignedRequests(access, threads=threads) if access else None
        self._reads = SignedReads()
        self._opened: Boto3Requests | None = None
        self._lock = threading.Lock()

    @property
    def boto3(self) -> Boto3Requests:
        """The same bucket through boto3. Is opened when it is needed first."""
        with self._lock:
            if self._opened is None:
                self._opened = Boto3Requests(
                    self._bucket, endpoint=self._endpoint, threads=self._threads, learned=self._reads.use
                )
            return self._opened

    def objects(self) -> Iterator[SourceObject]:
        """List everything below the prefix, 1,000 objects in each request. Raises BucketError."""
        more: str | None = None
        while True:
            for one in (page := self._page(more)).objects:
                if key := one.key.removeprefix(self._prefix):  # else it is the marker of the prefix itself
                    yield SourceObject(key=key, size_bytes=one.size_bytes, etag=one.etag)
            if (more := page.more) is None:
                return

    def _page(self, more: str | None) -> ListedPage:
        if self._signed is not None:
            if (page := self._signed.page(self._prefix, more)) is not None:
                self._reads.use(self._signed.access)
                return page
            self._signed.close()
            self._signed = None  # what it takes for true may not be so
        return self.boto3.page(self._prefix, more)

    def read(self, one: SourceObject, offset: int, length: int) -> bytes:
        """Read a range. Raises ChangedObjectError if the object is not the listed version any more, and BucketError."""
        at_once = self._reads.read(self._prefix + one.key, etag=one.etag, offset=offset, length=length)
        if at_once is not None:
            return at_once
        return self.boto3.read(self._prefix + one.key, etag=one.etag, offset=offset, length=length)

    def pieces(self, one: SourceObject, offset: int, length: int) -> Iterator[bytes]:
        """Read a range as it arrives, in pieces of PIECE_BYTES or so. Raises as `read`."""
        if length > PIECE_BYTES:
            for piece in self._reads.pieces(self._prefix + one.key, etag=one.etag, offset=offset, length=length):
                yield piece
                offset, length = offset + len(piece), length - len(piece)
        if length:
            yield self.read(one, offset, length)

    def stored_checksum(self, one: SourceObject) -> StoredChecksum | None:
        """What the store has kept of the object's bytes, if it is the listed version still. None: nothing, or no CRC.

        Raises ChangedObjectError, BucketError.
        """
        match = f'"{one.etag}"'
        key, headers = self._prefix + one.key, {"If-Match": match, "x-amz-checksum-mode": "ENABLED"}
        found = self._signed.head(key, query={}, headers=headers) if self._signed else None
        if found is None:
            found = self.boto3.head(key, IfMatch=match, ChecksumMode="ENABLED")
        return StoredChecksum.of(found)

    def part_bytes(self, one: SourceObject, *, for_etag: bool = True) -> int | None:
        """Size of the first part of a multipart upload. None: `for_etag`, and its ETag does not follow from its bytes.

        If the object was replaced meanwhile, the bytes do not fit its ETag. Raises ChangedObjectError if it is gone;
        BucketError.
        """
        key = self._prefix + one.key
        found = self._signed.head(key, query={"partNumber": "1"}, headers={}) if self._signed else None
        if found is None:
            found = self.boto3.head(key, PartNumber=1)
        return None if for_etag and _is_encrypted_by_key(found) else int(found["content-length"])

    def close(self) -> None:
        for opened in (self._signed, self._opened):
            if opened is not None:
                opened.close()


def _is_encrypted_by_key(headers: Mapping[str, str]) -> bool:
    by_key = headers.get("x-amz-server-side-encryption", "").startswith(_BY_KEY)
    return by_key or "x-amz-server-side-encryption-customer-algorithm" in headers
