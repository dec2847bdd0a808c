"""Reads of objects as boto3 would send them, without what boto3 does around each.

boto3 spends three quarters of a small object's read on looking up its endpoint again, on hooks and on parsing. So what
is the same for all objects of a bucket is learned once, from the request with which boto3 has listed it: its URL, which
says host and style of address, and the region that it was signed for, which follows the bucket's redirects. Requests
are signed by botocore and sent by its session, so credentials, proxies and certificates are boto3's. Whatever does not
succeed is left to boto3, which repeats it, or knows the error.
"""

import re
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

_SCOPE: Final = re.compile(r"AWS4-HMAC-SHA256 Credential=[^,]+/\d{8}/(?P<region>[^/,]+)/s3/aws4_request,")
_PASSING: Final = frozenset(
    {
        HTTPStatus.NOT_FOUND,
        HTTPStatus.PRECONDITION_FAILED,
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.INTERNAL_SERVER_ERROR,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
"""They say something of one object or of this moment. Others, such as 403, would be answered to every request."""


class SignedReads:
    """Reads from one bucket. Threads may read at the same time."""

    def __init__(self, client: Any, credentials: Any) -> None:
        """`client` of boto3; it must list the bucket before anything can be read here."""
        self._client, self._credentials = client, credentials
        self._bucket_url = self._region = ""
        if credentials is not None:
            client.meta.events.register("before-send.s3.ListObjectsV2", self._learn)

    def read(self, key: str, *, etag: str, offset: int, length: int) -> bytes | None:
        """A range of an object, if it has this ETag. None: ask boto3."""
        from botocore.auth import S3SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.exceptions import BotoCoreError, HTTPClientError
        from urllib3.exceptions import HTTPError

        bucket_url = self._bucket_url
        if not bucket_url:
            return None
        headers = {"If-Match": f'"{etag}"'}
        if length:
            headers["Range"] = f"bytes={offset}-{offset + length - 1}"
        request = AWSRequest("GET", f"{bucket_url}/{quote(key, safe='/~')}", headers=headers, stream_output=True)
        try:
            S3SigV4Auth(self._credentials.get_frozen_credentials(), "s3", self._region).add_auth(request)
            # boto3 gives no other way to its connections.
            answer = self._client._endpoint.http_session.send(request.prepare())
            data: bytes = answer.raw.read()  # `answer.content` joins pieces of 64 KiB
        except (BotoCoreError, HTTPClientError, HTTPError, OSError):
            return None
        if answer.status_code in {HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT}:
            return data if len(data) == length else None
        if answer.status_code not in _PASSING:
            self._bucket_url = ""
        return None

    def _learn(self, request: Any, **_: Any) -> None:
        authorization = request.headers.get("Authorization") or ""
        text = authorization.decode() if isinstance(authorization, bytes) else str(authorization)
        scope = _SCOPE.match(text)
        self._bucket_url = request.url.partition("?")[0].rstrip("/") if scope else ""
        self._region = scope["region"] if scope else ""
