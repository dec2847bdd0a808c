"""HTTP requests of strangers, read with asyncio: one on each connection, and bounded before it is read."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

HEAD_LIMIT_BYTES: Final = 16 << 10
"""Of a request line with its headers."""

METHODS: Final = frozenset({"GET", "PUT", "DELETE"})

_LENGTH: Final = re.compile(r"[0-9]{1,18}", re.ASCII)


class RefusedRequestError(Exception):
    """A request that is answered with a status, and nothing else."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


@dataclass(frozen=True, slots=True)
class RequestHead:
    """All of a request but its body."""

    method: str
    """One of METHODS."""
    path: str
    headers: Mapping[str, str]
    """By name, in small letters."""

    def says(self, header: str) -> bool:
        """Whether a header is `1`."""
        return self.headers.get(header.lower()) == "1"


async def read_head(reader: asyncio.StreamReader) -> RequestHead:
    """Read up to the empty line.

    Args:
        reader: its `limit` is the most bytes of a head.

    Raises:
        RefusedRequestError: it is too long, malformed, or of another method.
        asyncio.IncompleteReadError: the client has hung up.
    """
    try:
        text = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.LimitOverrunError as error:
        raise RefusedRequestError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE) from error
    line, *fields = text.removesuffix("\r\n\r\n").split("\r\n")
    method, _, rest = line.partition(" ")
    path, _, version = rest.partition(" ")
    if not version.startswith("HTTP/1."):
        raise RefusedRequestError(HTTPStatus.BAD_REQUEST)
    if method not in METHODS:
        raise RefusedRequestError(HTTPStatus.NOT_IMPLEMENTED)
    headers: dict[str, str] = {}
    for field in fields:
        name, _, value = field.partition(":")
        headers.setdefault(name.strip().lower(), value.strip())
    return RequestHead(method, path, headers)


async def read_body(reader: asyncio.StreamReader, head: RequestHead, *, limit_bytes: int) -> bytes:
    """Read as many bytes as `Content-Length` says.

    Raises:
        RefusedRequestError: it says no length, one over the limit, or more than was sent.
    """
    length = head.headers.get("content-length", "")
    if not _LENGTH.fullmatch(length):
        raise RefusedRequestError(HTTPStatus.LENGTH_REQUIRED)
    if int(length) > limit_bytes:
        raise RefusedRequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    try:
        return await reader.readexactly(int(length))
    except asyncio.IncompleteReadError as error:
        raise RefusedRequestError(HTTPStatus.BAD_REQUEST) from error


def response(status: HTTPStatus, body: bytes = b"") -> bytes:
    """A whole response. The connection ends with it."""
    return f"HTTP/1.0 {status.value} {status.phrase}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
