"""Time limits of requests that a cloud's library sends through `requests`, as those of Google and of Azure do."""

import os
import time
from collections.abc import Iterator
from typing import Any, Final

from requests import Response, Session
from requests.adapters import HTTPAdapter
from requests.utils import DEFAULT_CA_BUNDLE_PATH
from urllib3 import HTTPResponse
from urllib3.exceptions import HTTPError

from hvd_elastic.stores import object_requests
from hvd_elastic.stores.retry import TransientError

_PIECE_BYTES: Final = 256 << 10


class BoundedTransport(HTTPAdapter):
    """Sends each request once. An answer that is silent, or that takes too long as a whole, is given up."""

    def __init__(self, *, threads: int) -> None:
        """`threads`: how many send at the same time."""
        super().__init__(pool_maxsize=threads + 2, max_retries=0)

    def send(self, *request: Any, **options: Any) -> Response:
        options["timeout"] = (object_requests.CONNECT_SECONDS, object_requests.SILENCE_SECONDS)
        response = super().send(*request, **options)
        body, deadline = response.raw, time.monotonic() + object_requests.PART_SECONDS
        # Of this answer alone. urllib3's own would wait for a whole piece, however slowly it arrives.
        body.stream = lambda _=0, decode_content=None: _arriving(body, deadline, decode_content)
        return response


def _arriving(body: HTTPResponse, deadline: float, decode_content: bool | None) -> Iterator[bytes]:
    """What arrives, as it arrives.

    Raises TransientError where it ends too soon: Azure's library asks again after each error that it knows.
    """
    try:
        while piece := body.read1(_PIECE_BYTES, decode_content=decode_content):
            yield piece
            if time.monotonic() > deadline:
                raise TransientError("too slow")
    except (HTTPError, OSError) as error:
        raise TransientError(f"{body.url}: {error}") from error


def mount(session: Session, *, threads: int) -> None:
    """Have all requests of a session sent within the limits."""
    for scheme in ("http://", "https://"):
        session.mount(scheme, BoundedTransport(threads=threads))


def authorities() -> str:
    """The file of those whom such a session trusts."""
    return os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE") or DEFAULT_CA_BUNDLE_PATH
