"""The few requests about a bucket's objects, without boto3: awscrt, AWS's own, signs them, and urllib3 sends them.

They are sent once. Whatever is not answered as it should be is left to boto3, which repeats it, follows a bucket to its
region, or knows the error.
"""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from hvd_elastic.stores.bucket.bucket_access import BucketAccess
from hvd_elastic.stores.bucket.listed_page import ListedPage
from hvd_elastic.system.tls import client_context

_CONNECT_SECONDS: Final = 10.0
_READ_SECONDS: Final = 60.0
"""As botocore's `read_timeout`."""
_SIGN_SECONDS: Final = 60.0


class SignedRequests:
    """Requests to one bucket. Threads may ask at the same time. What it needs is imported where one is made, lazily."""

    def __init__(self, access: BucketAccess, *, threads: int) -> None:
        """`threads`: connections that are kept."""
        import urllib3

        self.access = access
        split = urlsplit(access.address.url)
        self._host, self._path = split.netloc, split.path
        trust = {"ssl_context": client_context(cafile=access.authorities)} if split.scheme == "https" else {}
        self._pool = urllib3.connection_from_url(
            f"{split.scheme}://{split.netloc}",
            maxsize=threads,
            retries=False,
            timeout=urllib3.Timeout(connect=_CONNECT_SECONDS, read=_READ_SECONDS),
            **trust,
        )

    def page(self, prefix: str, more: str | None) -> ListedPage | None:
        """Objects below a prefix, from where the page before ended. None: ask boto3."""
        query = {"list-type": "2", "encoding-type": "url", "prefix": prefix}
        answer = self._send("GET", "", {**query, **({"continuation-token": more} if more else {})}, {})
        try:
            return ListedPage.of_xml(answer.data) if answer is not None else None
        except ValueError:
            return None

    def head(self, key: str, *, query: Mapping[str, str], headers: Mapping[str, str]) -> Mapping[str, str] | None:
        """The headers of an object, their names in small letters. None: ask boto3."""
        answer = self._send("HEAD", key, query, headers)
        return {name.lower(): value for name, value in answer.headers.items()} if answer is not None else None

    def close(self) -> None:
        self._pool.close()

    def _send(self, method: str, key: str, query: Mapping[str, str], headers: Mapping[str, str]) -> Any:
        """The answer. None: there is none, or it is none that tells what was asked for."""
        from urllib3.exceptions import HTTPError

        words = f"?{urlencode(query, quote_via=quote, safe='-_.~')}" if query else ""
        target = f"{self._path}/{quote(key, safe='/-_.~')}{words}"
        try:
            signed = self._signed(method, target, headers)
            answer = self._pool.urlopen(method, target, headers=signed, redirect=False)
        except (HTTPError, OSError, ValueError, RuntimeError, TimeoutError):
            return None
        return answer if answer.status in {200, 206} else None

    def _signed(self, method: str, target: str, headers: Mapping[str, str]) -> Mapping[str, str]:
        """All headers of the request. S3 signs paths as they are sent (Amazon S3 API, "Authenticating Requests")."""
        from awscrt import auth
        from awscrt.http import HttpHeaders, HttpRequest

        keys = self.access.credentials()
        config = auth.AwsSigningConfig(
            credentials_provider=auth.AwsCredentialsProvider.new_static(
                keys["access_key_id"], keys["secret_access_key"], keys.get("token") or None
            ),
            region=self.access.address.region,
            service="s3",
            use_double_uri_encode=False,
            should_normalize_uri_path=False,
            signed_body_value=auth.AwsSignedBodyValue.EMPTY_SHA256,
            signed_body_header_type=auth.AwsSignedBodyHeaderType.X_AMZ_CONTENT_SHA_256,
        )
        request = HttpRequest(method, target, HttpHeaders([("Host", self._host), *headers.items()]))
        return dict(auth.aws_sign_request(request, config).result(_SIGN_SECONDS).headers)
