"""Requests to a bucket through boto3, which knows profiles, sources of credentials, redirects, proxies and errors.

What it finds out about a bucket as it lists it serves native code for the reads (`signed_reads.py`): the URL of its
request, which says host and style of address, and the region that it was signed for, which follows redirects.
"""

import os
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hvd_elastic.stores import rotated_credentials
from hvd_elastic.stores.bucket.bucket_access import BucketAccess
from hvd_elastic.stores.bucket.bucket_address import BucketAddress
from hvd_elastic.stores.bucket.listed_page import ListedPage
from hvd_elastic.stores.errors import BucketError, ChangedObjectError
from hvd_elastic.system.backoff import Backoff

if TYPE_CHECKING:
    from obstore.store import S3Credential

_ATTEMPTS: Final = 8
_BACKOFF: Final = Backoff(first_seconds=0.2, most_seconds=10.0)
_SCOPE: Final = re.compile(r"AWS4-HMAC-SHA256 Credential=[^,]+/\d{8}/(?P<region>[^/,]+)/s3/aws4_request,")
_CREDENTIALS_LAST: Final = timedelta(minutes=9)
"""botocore hands out credentials that are good for ten more minutes at least (credentials.py,
`_mandatory_refresh_timeout`); object_store asks again within the last five of these (client/token.rs)."""


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
    return rotated_credentials.make_client(session or boto3.session.Session(), endpoint_url=endpoint, config=config)


class Boto3Requests:
    """Requests to one bucket. Threads may ask at the same time. boto3 is imported where one is made, lazily."""

    def __init__(
        self, bucket: str, *, endpoint: str | None, threads: int, learned: Callable[[BucketAccess | None], None]
    ) -> None:
        """`learned` is told what each listing says of the bucket. None: its requests are not signed."""
        import boto3

        session = boto3.session.Session()
        self._bucket, self._learned = bucket, learned
        self.credentials = session.get_credentials()
        """botocore's, whichever way they come. None: there are none."""
        self.client = make_client(endpoint=endpoint, threads=threads, session=session)
        self.client.meta.events.register("before-send.s3.ListObjectsV2", self._learn)

    def page(self, prefix: str, more: str | None) -> ListedPage:
        """Objects below a prefix, from where the page before ended. Raises BucketError."""
        where = {"Bucket": self._bucket, "Prefix": prefix, **({"ContinuationToken": more} if more else {})}
        return ListedPage.of_boto3(self._ask("list", lambda: self.client.list_objects_v2(**where)))

    def read(self, key: str, *, etag: str, offset: int, length: int) -> bytes:
        """A range of an object. Raises ChangedObjectError if it has another ETag or is gone, and BucketError."""

        def get() -> bytes:
            span = {"Range": f"bytes={offset}-{offset + length - 1}"} if length else {}
            answer = self.client.get_object(Bucket=self._bucket, Key=key, IfMatch=f'"{etag}"', **span)
            with answer["Body"] as body:
                data: bytes = body.read()
            if len(data) != length:
                raise ConnectionError(f"{len(data)} of {length} bytes arrived")
            return data

        found: bytes = self._ask(key, get)
        return found

    def head(self, key: str, **options: Any) -> Mapping[str, str]:
        """The headers of an object, their names in small letters. `options` are those of boto3. Raises as `read`."""
        answer = self._ask(key, lambda: self.client.head_object(Bucket=self._bucket, Key=key, **options))
        headers: Mapping[str, str] = answer["ResponseMetadata"]["HTTPHeaders"]
        return headers

    def close(self) -> None:
        self.client.close()

    def _ask(self, what: str, call: Callable[[], Any]) -> Any:
        """Call, and call again if the answer breaks off: botocore itself repeats only until an answer has begun."""
        from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
        from urllib3.exceptions import HTTPError

        name = f"s3://{self._bucket}: {what}"
        for failures in range(1, _ATTEMPTS + 1):
            try:
                return call()
            except ClientError as error:
                if error.response["ResponseMetadata"]["HTTPStatusCode"] == 412:
                    raise ChangedObjectError(f"{what}: was replaced while it was copied: stage again") from error
                gone = error.response["Error"].get("Code") in {"NoSuchKey", "404"}
                raise (ChangedObjectError if gone else BucketError)(f"{name}: {error}") from error
            except (HTTPClientError, HTTPError, ConnectionError) as error:
                if failures == _ATTEMPTS:
                    raise BucketError(f"{name}: {error}") from error
                time.sleep(_BACKOFF.with_jitter(failures))
            except BotoCoreError as error:
                raise BucketError(f"{name}: {error}") from error
        raise AssertionError("unreachable")

    def _learn(self, request: Any, **_: Any) -> None:
        authorization = request.headers.get("Authorization") or ""
        text = authorization.decode() if isinstance(authorization, bytes) else str(authorization)
        scope = _SCOPE.match(text)
        if scope is None or self.credentials is None:
            self._learned(None)
            return
        address = BucketAddress(url=request.url.partition("?")[0].rstrip("/"), region=scope["region"])
        self._learned(BucketAccess(address=address, credentials=self._frozen, authorities=self._authorities()))

    def _authorities(self) -> Path | None:
        """boto3 says nowhere else which authorities it trusts: an environment variable's, a profile's, or its own."""
        from botocore.httpsession import get_cert_path

        bundle = get_cert_path(self.client._endpoint.http_session._verify)
        return Path(bundle) if bundle else None

    def _frozen(self) -> "S3Credential":
        keys = self.credentials.get_frozen_credentials()
        return {
            "access_key_id": keys.access_key,
            "secret_access_key": keys.secret_key,
            "token": keys.token,
            "expires_at": datetime.now(UTC) + _CREDENTIALS_LAST,
        }
