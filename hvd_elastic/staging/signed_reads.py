"""Reads of objects in native code (obstore, which is Rust's object_store), with what boto3 knows of the bucket.

boto3 spends three quarters of a small object's read on looking up its endpoint again, on hooks and on parsing, and all
its threads share one core. So what is the same for all objects of a bucket is learned once, from the request with which
boto3 has listed it: its URL, which says host and style of address, and the region that it was signed for, which follows
the bucket's redirects. Credentials are boto3's, whichever way they come. Whatever does not succeed is left to boto3,
which repeats it, or knows the error. So is a key that obstore refuses, such as one with a control character. If
nothing succeeds, such as through a proxy that only boto3 is told of, the rest of the bucket is left to it.
"""

import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from obstore import GetOptions, GetResult
    from obstore.store import ClientConfig, S3Credential, S3Store

_SCOPE: Final = re.compile(r"AWS4-HMAC-SHA256 Credential=[^,]+/\d{8}/(?P<region>[^/,]+)/s3/aws4_request,")
_CREDENTIALS_LAST: Final = timedelta(minutes=9)
"""botocore hands out credentials that are good for ten more minutes at least (credentials.py,
`_mandatory_refresh_timeout`); object_store asks again within the last five of these (client/token.rs)."""
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

    def __init__(self, client: Any, credentials: Any) -> None:
        """`client` of boto3; it must list the bucket before anything can be read here."""
        # `obstore` and `obstore.store` import each other: threads that do so at once would see a half of them.
        import obstore.store  # noqa: F401

        self._client, self._credentials = client, credentials
        self._bucket_url = self._region = ""
        self._failures = 0
        self._opened: tuple[str, S3Store] | None = None
        self._lock = threading.Lock()
        if credentials is not None:
            client.meta.events.register("before-send.s3.ListObjectsV2", self._learn)

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

        if not (bucket_url := self._bucket_url):
            return None
        options: GetOptions = {"if_match": f'"{etag}"'}
        if length:
            options["range"] = (offset, offset + length)
        try:
            answer = self._store(bucket_url).get(key, options=options)
        except (PermissionDeniedError, UnauthenticatedError):  # so would be the next one
            self._bucket_url = ""
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
            self._bucket_url = ""

    def _store(self, bucket_url: str) -> "S3Store":
        from obstore.store import S3Store

        with self._lock:
            if self._opened is None or self._opened[0] != bucket_url:
                # obstore reads the environment, and not as boto3 does: what is named here is not taken from there.
                store = S3Store(
                    aws_endpoint_url_s3=bucket_url,
                    bucket=bucket_url.rpartition("/")[2],
                    region=self._region,
                    virtual_hosted_style_request=True,  # the endpoint names the bucket, in either style
                    skip_signature=False,
                    s3_express=False,
                    credential_provider=self._frozen,
                    client_options=self._options(bucket_url),
                    retry_config={"max_retries": 0},
                )
                self._opened = bucket_url, store
            return self._opened[1]

    def _options(self, bucket_url: str) -> "ClientConfig":
        from botocore.httpsession import get_cert_path

        found: ClientConfig = {
            "allow_http": bucket_url.startswith("http:"),
            "connect_timeout": _CONNECT,
            "read_timeout": _IDLE,
            "timeout": _WHOLE_ANSWER,
        }
        # boto3 says nowhere else which authorities it trusts: an environment variable's, a profile's, or its own, which
        # an image needs that has none. obstore trusts those of the system, too.
        if bundle := get_cert_path(self._client._endpoint.http_session._verify):
            found["root_certificate"] = Path(bundle).read_bytes()
        return found

    def _frozen(self) -> "S3Credential":
        keys = self._credentials.get_frozen_credentials()
        return {
            "access_key_id": keys.access_key,
            "secret_access_key": keys.secret_key,
            "token": keys.token,
            "expires_at": datetime.now(UTC) + _CREDENTIALS_LAST,
        }

    def _learn(self, request: Any, **_: Any) -> None:
        authorization = request.headers.get("Authorization") or ""
        text = authorization.decode() if isinstance(authorization, bytes) else str(authorization)
        scope = _SCOPE.match(text)
        self._bucket_url = request.url.partition("?")[0].rstrip("/") if scope else ""
        self._region = scope["region"] if scope else ""
