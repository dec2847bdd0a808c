"""Reads of objects in native code (obstore, which is Rust's object_store), from a bucket that was listed.

boto3 spends three quarters of a small object's read on looking up its endpoint again, on hooks and on parsing, and all
its threads share one core. What is the same for all objects of a bucket is known from its listing (BucketAccess).
Whatever does not succeed is left to boto3, which repeats it, or knows the error. So is a key that obstore refuses, such
as one with a control character. If nothing succeeds, such as through a proxy that only boto3 is told of, the rest of
the bucket is left to it.
"""

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from hvd_elastic.stores.bucket.bucket_access import BucketAccess

if TYPE_CHECKING:
    from obstore import GetOptions, GetResult
    from obstore.store import ClientConfig, S3Store

_CONNECT: Final = timedelta(seconds=10)
"""boto3, whose turn is next, waits for a minute."""
_IDLE: Final = timedelta(seconds=60)
"""As botocore's `read_timeout`."""
_WHOLE_ANSWER: Final = timedelta(hours=1)
"""obstore's default, 30 seconds, would end a range that arrives slowly on many connections."""
PIECE_BYTES: Final = 256 << 10
"""A piece is still in the processor's cache when it is written and added to its checksum."""
_MOST_FAILURES: Final = 32
"""One after the other, before all is left to boto3."""


class SignedReads:
    """Reads from one bucket. Threads may read at the same time. obstore is imported where one is made, lazily."""

    def __init__(self) -> None:
        # `obstore` and `obstore.store` import each other: threads that do so at once would see a half of them.
        import obstore.store  # noqa: F401

        self._access: BucketAccess | None = None
        self._failures = 0
        self._opened: tuple[BucketAccess, S3Store] | None = None
        self._lock = threading.Lock()

    def use(self, access: BucketAccess | None) -> None:
        """Read with what has served to list the bucket. None: leave everything to boto3."""
        self._access = access

    def read(self, key: str, *, etag: str, offset: int, length: int) -> bytes | None:
        """A range of an object, if it has this ETag. None: ask boto3."""
        from obstore.exceptions import BaseError

        answer = self._get(key, etag=etag, offset=offset, length=length)
        try:
            data = answer.bytes().to_bytes() if answer else None
        except (BaseError, OSError):
            self._count_failure()
            return None
        return data if data is not None and len(data) == length else None

    def pieces(self, key: str, *, etag: str, offset: int, length: int) -> Iterator[bytes]:
        """A range of an object as it arrives, if it has this ETag. It may end too soon: ask boto3 for the rest."""
        from obstore.exceptions import BaseError

        answer = self._get(key, etag=etag, offset=offset, length=length)
        try:
            yield from answer.stream(min_chunk_size=PIECE_BYTES) if answer else ()
        except (BaseError, OSError):
            self._count_failure()

    def _get(self, key: str, *, etag: str, offset: int, length: int) -> "GetResult | None":
        from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

        if (access := self._access) is None:
            return None
        options: GetOptions = {"if_match": f'"{etag}"'}
        if length:
            options["range"] = (offset, offset + length)
        try:
            answer = self._store(access).get(key, options=options)
        except (PermissionDeniedError, UnauthenticatedError):  # so would be the next one
            self._access = None
            return None
        except ValueError:  # a key that obstore cannot send
            return None
        except (BaseError, OSError):
            self._count_failure()
            return None
        self._failures = 0
        return answer

    def _count_failure(self) -> None:
        self._failures += 1
        if self._failures >= _MOST_FAILURES:
            self._access = None

    def _store(self, access: BucketAccess) -> "S3Store":
        from obstore.store import S3Store

        with self._lock:
            if self._opened is None or self._opened[0] is not access:
                url = access.address.url
                # obstore reads the environment, and not as boto3 does: what is named here is not taken from there.
                store = S3Store(
                    aws_endpoint_url_s3=url,
                    bucket=url.rpartition("/")[2],
                    region=access.address.region,
                    virtual_hosted_style_request=True,  # the endpoint names the bucket, in either style
                    skip_signature=False,
                    s3_express=False,
                    credential_provider=access.credentials,
                    client_options=_options(access),
                    retry_config={"max_retries": 0},
                )
                self._opened = access, store
            return self._opened[1]


def _options(access: BucketAccess) -> "ClientConfig":
    found: ClientConfig = {
        "allow_http": access.address.url.startswith("http:"),
        "connect_timeout": _CONNECT,
        "read_timeout": _IDLE,
        "timeout": _WHOLE_ANSWER,
    }
    if access.authorities:  # obstore trusts those of the system, too
        found["root_certificate"] = access.authorities.read_bytes()
    return found
