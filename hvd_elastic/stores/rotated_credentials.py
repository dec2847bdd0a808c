"""Credentials of S3 that are replaced while they are in use: a file that something outside rewrites.

boto3 reads a credentials file once. Only credentials that come with the time of their end are asked for again
(botocore, `RefreshableCredentials`). So where an answer says that the credentials are no longer good, they are read
anew, once for each request, and botocore signs and sends that request again (`needs-retry`, botocore's `endpoint.py`).
"""

import logging
import threading
from typing import Any, Final

log = logging.getLogger(__name__)

_REFUSED_CODES: Final = frozenset(
    {"ExpiredToken", "InvalidToken", "InvalidTokenId", "TokenRefreshRequired", "InvalidAccessKeyId",
     "SignatureDoesNotMatch", "400", "403"}
)  # fmt: skip
"""S3's codes (API reference, "Error responses") and MinIO's. The answer to a HEAD has no body, so no code but its
status."""
_READ_ANEW: Final = "hvd_elastic_credentials_read_anew"


def make_client(session: Any, **arguments: Any) -> Any:
    """An S3 client of a boto3 session, whose credentials are read anew once they are refused."""
    client, credentials = session.client("s3", **arguments), session.get_credentials()
    lock = threading.Lock()

    def retry(response: Any, request_dict: Any, **_: Any) -> float | None:
        """Seconds after which botocore sends the request again; None: it does not."""
        context = request_dict["context"]
        if response is None or response[1].get("Error", {}).get("Code") not in _REFUSED_CODES or _READ_ANEW in context:
            return None
        context[_READ_ANEW] = True
        with lock:
            return 0.0 if _read_anew(credentials) else None

    def look_again(request_signer: Any, **_: Any) -> None:
        """What handed out no credentials as the client was made may have some by now, as a node's service has."""
        # botocore asks once, as the client is made, and has no public way to ask again.
        if request_signer._credentials is None:
            with lock:
                request_signer._credentials = session.get_credentials()

    client.meta.events.register_first("needs-retry.s3", retry)
    client.meta.events.register_first("before-sign.s3", look_again)
    return client


def _read_anew(credentials: Any) -> bool:
    """Put into `credentials` what its source has by now; return whether that is known."""
    import boto3
    from botocore.credentials import Credentials
    from botocore.exceptions import BotoCoreError

    if type(credentials) is not Credentials:  # none are needed, or they ask their source by themselves
        return False
    try:
        found = boto3.session.Session().get_credentials()
        fresh = found and found.get_frozen_credentials()
    except BotoCoreError as error:
        log.warning("the store refuses its credentials, and others cannot be read: %s", error)
        return False
    if not fresh:
        return False
    if fresh.access_key != credentials.access_key:
        log.info("the store refuses its credentials: those that replace them are used")
    credentials.access_key, credentials.secret_key, credentials.token = fresh.access_key, fresh.secret_key, fresh.token
    return True
