"""Horovod's messages, read without running what they contain.

Horovod 0.28.1 unpickles whatever is PUT to its rendezvous server and whatever answers a notification
(CVE-2024-10190), so anyone who reaches the launcher's port can run code in it. With the patch `worker-addresses` its
workers register and are notified in JSON. Here both are understood: a worker is answered in the form in which it has
registered, and of a pickle only what Horovod writes is read (`plain_pickle`). `test_horovod_messages.py` tests that.
"""

import base64
import binascii
import errno
import hashlib
import hmac
import json
import socket
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import IO, Any, Final

from hvd_elastic.launcher.protocol.plain_pickle import (
    MOST_BYTES,
    REPLIES,
    PlainPickleError,
    load_containers,
    load_reply,
)
from hvd_elastic.mpijob.contract import HOSTS_MIXED, HvdElasticError
from hvd_elastic.system.untrusted_values import json_object

CONNECT_SECONDS: Final = 2.0
"""For one address. Horovod has no limit here: a lost host holds its driver's lock for minutes."""

_MOST_ADDRESSES: Final = 32
"""Of one worker: each that does not answer holds a notification up for CONNECT_SECONDS."""
_LONGEST_ADDRESS: Final = 64
"""Characters of an IP address, with a zone."""
_KNOCKS: Final = 2
_KNOCK_SECONDS: Final = 0.2
"""A living host's kernel accepts a connection within the network's round trip, however busy its processes are."""
_UNREACHABLE: Final = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ETIMEDOUT})


class HorovodMessageError(HvdElasticError):
    """A message is not one that Horovod sends, or the peer could not be reached."""


class HostUnreachableError(HorovodMessageError):
    """The peer's host does not answer: its kernel neither accepts nor refuses a connection."""


class Form(StrEnum):
    """How a worker's Horovod writes its messages."""

    PICKLE = "pickle"
    """As Horovod is published."""
    JSON = "json"
    """With the patch `worker-addresses`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """What a worker is asked."""

    kind: str
    """The class of Horovod's that it is in a pickle."""
    arguments: Mapping[str, int]

    def as_horovods(self) -> object:
        """Horovod's own object: only a worker whose Horovod is as it is published needs it."""
        from horovod.runner.common.util import network
        from horovod.runner.elastic import worker

        kinds = {"HostsUpdatedRequest": worker.HostsUpdatedRequest, "PingRequest": network.PingRequest}
        return kinds[self.kind](**self.arguments)


class NoticeStamps:
    """Stamps for notices that the hosts have changed. Not thread-safe.

    Workers pass over a notice whose stamp is not above that of the last one. So a clock that is set back must not show.
    """

    def __init__(self) -> None:
        self._last = 0

    def next_stamp(self) -> int:
        """In nanoseconds, as the wall clock has it if that has gone on."""
        self._last = max(self._last + 1, time.time_ns())
        return self._last


class Registration:
    """Where a worker's notification service listens, the key that signs its messages, and their form."""

    def __init__(self, addresses: tuple[tuple[str, int], ...], key: bytes, form: Form = Form.PICKLE) -> None:
        self.addresses = addresses
        self.key = key
        self.form = form

    @classmethod
    def parse(cls, body: bytes) -> "Registration":
        """Read the body of PUT worker_addresses.

        That is `{"addresses": {interface: [[address, port], ...]}, "secret_key": hexadecimal}` or, in base64, the
        pickle of `({interface: [(address, port), ...]}, key)`. Raises HorovodMessageError if it is anything else.
        """
        form = Form.JSON if body.startswith(b"{") else Form.PICKLE
        try:
            if len(body) > MOST_BYTES:
                raise ValueError(f"{len(body)} bytes")
            table, key = _parse_json(body) if form is Form.JSON else _parse_pickle(body)
            return cls(_addresses(table), key, form)
        except (binascii.Error, PlainPickleError, KeyError, TypeError, ValueError) as error:
            raise HorovodMessageError(f"not a worker's registration: {error}") from error

    def notify(self, stamp_nanoseconds: int) -> None:
        """Tell the worker that the hosts have changed. Raises HorovodMessageError.

        Takes at most CONNECT_SECONDS per address. The change is always sent as `mixed`: after a mere removal Horovod's
        workers skip the sync, and a newcomer of the same world waits for that sync without end (horovod issue 3494).
        Stamps are nanoseconds: with Horovod's whole seconds the second of two changes can be lost.
        """
        self._ask(
            _Request(kind="HostsUpdatedRequest", arguments={"timestamp": stamp_nanoseconds, "res": HOSTS_MIXED}),
            _connect,
        )

    def ping(self) -> None:
        """Ask whether the process lives.

        Raises HostUnreachableError if its host does not answer, and HorovodMessageError if only the process does not.
        """
        self._ask(_Request(kind="PingRequest", arguments={}), _knock)

    def _ask(self, request: "_Request", connect: Callable[[tuple[str, int]], socket.socket]) -> None:
        failure: Exception = HorovodMessageError("the worker has registered no address")
        unreachable = 0
        for address in self.addresses:
            try:
                return self._send(connect(address), request)
            except (OSError, EOFError, struct.error, ValueError, HorovodMessageError, PlainPickleError) as error:
                failure = error
                unreachable += isinstance(error, HostUnreachableError)
        is_unreachable = 0 < unreachable == len(self.addresses)
        error_type = HostUnreachableError if is_unreachable else HorovodMessageError
        raise error_type(f"{request.kind} failed: {failure}") from failure

    def _send(self, connection: socket.socket, request: "_Request") -> None:
        with (
            connection,
            connection.makefile("rb") as reader,
            connection.makefile("wb") as writer,
        ):
            self._write(request, writer)
            digest = reader.read(hashlib.sha256().digest_size)
            (length,) = struct.unpack("i", reader.read(4))
            message = reader.read(max(0, min(length, MOST_BYTES)))
            if not hmac.compare_digest(_digest(self.key, message), digest):
                raise HorovodMessageError("the reply is not signed with the worker's key")
            self._check_reply(message)

    def _write(self, request: "_Request", writer: IO[bytes]) -> None:
        if self.form is Form.PICKLE:
            from horovod.runner.common.util.network import Wire

            Wire(self.key).write(request.as_horovods(), writer)
            return
        message = json.dumps({"type": request.kind, "arguments": request.arguments}).encode()
        writer.write(_digest(self.key, message) + struct.pack("i", len(message)) + message)
        writer.flush()

    def _check_reply(self, message: bytes) -> None:
        if self.form is Form.PICKLE:
            load_reply(message)
        elif not isinstance(kind := json_object(message.decode()).get("type"), str) or kind not in REPLIES:
            raise HorovodMessageError(f"{str(kind)[:40]!r} is not a reply")


def _parse_json(body: bytes) -> tuple[Mapping[str, Any], bytes]:
    value = json_object(body.decode())
    table = value["addresses"]
    if not isinstance(table, Mapping):
        raise TypeError("not addresses")
    return table, bytes.fromhex(value["secret_key"])


def _parse_pickle(body: bytes) -> tuple[Mapping[str, Any], bytes]:
    value = load_containers(base64.b64decode(body, validate=False))
    if not isinstance(value, tuple) or len(value) != 2:
        raise TypeError(f"{type(value).__name__} instead of a pair")
    table, key = value
    if not isinstance(table, Mapping) or not isinstance(key, bytes):
        raise TypeError("not addresses and a key")
    return table, key


def _addresses(table: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    """The first of a table by interface, each once. Raises TypeError or ValueError."""
    pairs = [pair for of_interface in table.values() for pair in of_interface]
    found = dict[tuple[str, int], None]()
    for host, port in pairs:
        if not (type(host) is str and len(host) <= _LONGEST_ADDRESS and type(port) is int and 0 < port < 1 << 16):
            raise TypeError("not an address and a port")
        found[host, port] = None
    return tuple(found)[:_MOST_ADDRESSES]


def _digest(key: bytes, message: bytes) -> bytes:
    """As `compute_digest` of Horovod's `runner/common/util/secret.py`."""
    return hmac.digest(key, message, hashlib.sha256)


def _connect(address: tuple[str, int]) -> socket.socket:
    return socket.create_connection(address, timeout=CONNECT_SECONDS)


def _knock(address: tuple[str, int]) -> socket.socket:
    """Connect, or say soon that the host does not answer. A single packet may be lost."""
    for _ in range(_KNOCKS):
        try:
            connection = socket.create_connection(address, timeout=_KNOCK_SECONDS)
        except OSError as error:
            if not isinstance(error, TimeoutError) and error.errno not in _UNREACHABLE:
                raise
        else:
            connection.settimeout(CONNECT_SECONDS)
            return connection
    raise HostUnreachableError(f"{address[0]} does not answer")
