"""Horovod's messages, read without running what they contain.

Horovod 0.28.1 unpickles whatever is PUT to its rendezvous server and whatever answers a notification
(CVE-2024-10190), so anyone who reaches the launcher's port can run code in it. With the patch `worker-addresses` its
workers register and are notified in JSON. Here both are understood: a worker is answered in the form in which it has
registered, and of a pickle only plain containers and the two replies of the notification service are built.
`test_horovod_messages.py` tests that.
"""

import base64
import binascii
import errno
import io
import json
import pickle
import socket
import struct
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import IO, Any, Final

from horovod.runner.common.util import network, secret
from horovod.runner.common.util.network import PingRequest, Wire
from horovod.runner.elastic.worker import HostsUpdatedRequest, HostUpdateResult

from hvd_elastic.mpijob.contract import HvdElasticError

CONNECT_SECONDS: Final = 2.0
"""For one address. Horovod has no limit here: a lost host holds its driver's lock for minutes."""

_REPLY_LIMIT_BYTES: Final = 65536
_KNOCKS: Final = 2
_KNOCK_SECONDS: Final = 0.2
"""A living host's kernel accepts a connection within the network's round trip, however busy its processes are."""
_UNREACHABLE: Final = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ETIMEDOUT})

_REPLIES: Final = frozenset({"PingResponse", "AckResponse"})


class HorovodMessageError(HvdElasticError):
    """A message is not one that Horovod sends, or the peer could not be reached."""


class HostUnreachableError(HorovodMessageError):
    """The peer's host does not answer: its kernel neither accepts nor refuses a connection."""


class _PlainUnpickler(pickle.Unpickler):
    """Builds containers, strings, numbers and Horovod's replies, and nothing else that a message could name."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if module_name == network.__name__ and global_name in _REPLIES:
            return super().find_class(module_name, global_name)
        raise pickle.UnpicklingError(f"{module_name}.{global_name} is not allowed here")


def load_plain(data: bytes) -> object:
    """Unpickle data of plain types. Raises HorovodMessageError for everything else."""
    try:
        return _PlainUnpickler(io.BytesIO(data)).load()
    except Exception as error:  # a hostile pickle can raise anything
        raise HorovodMessageError(f"not a message of Horovod's: {error}") from error


def _load_json(data: bytes) -> Mapping[str, Any]:
    """Read a JSON object. Raises HorovodMessageError for everything else."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise HorovodMessageError(f"not JSON: {error}") from error
    if not isinstance(value, Mapping):
        raise HorovodMessageError(f"{type(value).__name__} instead of a JSON object")
    return value


class Form(StrEnum):
    """How a worker's Horovod writes its messages."""

    PICKLE = "pickle"
    """As Horovod is published."""
    JSON = "json"
    """With the patch `worker-addresses`."""


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
            table, key = _parse_json(body) if form is Form.JSON else _parse_pickle(body)
            addresses = tuple((str(host), int(port)) for pairs in table.values() for host, port in pairs)
            return cls(addresses, key, form)
        except (binascii.Error, ArithmeticError, KeyError, TypeError, ValueError) as error:
            raise HorovodMessageError(f"not a worker's registration: {error}") from error

    def notify(self, stamp_nanoseconds: int) -> None:
        """Tell the worker that the hosts have changed. Raises HorovodMessageError.

        Takes at most CONNECT_SECONDS per address. The change is always sent as `mixed`: after a mere removal Horovod's
        workers skip the sync, and a newcomer of the same world waits for that sync without end (horovod issue 3494).
        Stamps are nanoseconds: with Horovod's whole seconds the second of two changes can be lost.
        """
        self._ask(HostsUpdatedRequest(stamp_nanoseconds, HostUpdateResult.mixed), _connect)

    def ping(self) -> None:
        """Ask whether the process lives.

        Raises HostUnreachableError if its host does not answer, and HorovodMessageError if only the process does not.
        """
        self._ask(PingRequest(), _knock)

    def _ask(self, request: object, connect: Callable[[tuple[str, int]], socket.socket]) -> None:
        failure: Exception = HorovodMessageError("the worker has registered no address")
        unreachable = 0
        for address in self.addresses:
            try:
                return self._send(connect(address), request)
            except (OSError, EOFError, struct.error, HorovodMessageError) as error:
                failure = error
                unreachable += isinstance(error, HostUnreachableError)
        is_unreachable = 0 < unreachable == len(self.addresses)
        error_type = HostUnreachableError if is_unreachable else HorovodMessageError
        raise error_type(f"{type(request).__name__} failed: {failure}") from failure

    def _send(self, connection: socket.socket, request: object) -> None:
        with (
            connection,
            connection.makefile("rb") as reader,
            connection.makefile("wb") as writer,
        ):
            self._write(request, writer)
            digest = reader.read(secret.DIGEST_LENGTH)
            (length,) = struct.unpack("i", reader.read(4))
            message = reader.read(max(0, min(length, _REPLY_LIMIT_BYTES)))
            if not secret.check_digest(self.key, message, digest):
                raise HorovodMessageError("the reply is not signed with the worker's key")
            self._check_reply(message)

    def _write(self, request: object, writer: IO[bytes]) -> None:
        if self.form is Form.PICKLE:
            Wire(self.key).write(request, writer)
            return
        message = json.dumps({"type": type(request).__name__, "arguments": vars(request)}).encode()
        writer.write(secret.compute_digest(self.key, message) + struct.pack("i", len(message)) + message)
        writer.flush()

    def _check_reply(self, message: bytes) -> None:
        if self.form is Form.PICKLE:
            load_plain(message)
        elif (kind := _load_json(message).get("type")) not in _REPLIES:
            raise HorovodMessageError(f"{kind!r} is not a reply")


def _parse_json(body: bytes) -> tuple[Mapping[str, Any], bytes]:
    value = _load_json(body)
    table = value["addresses"]
    if not isinstance(table, Mapping):
        raise TypeError("not addresses")
    return table, bytes.fromhex(value["secret_key"])


def _parse_pickle(body: bytes) -> tuple[Mapping[str, Any], bytes]:
    value = load_plain(base64.b64decode(body, validate=False))
    if not isinstance(value, tuple) or len(value) != 2:
        raise TypeError(f"{type(value).__name__} instead of a pair")
    table, key = value
    if not isinstance(table, Mapping) or not isinstance(key, bytes):
        raise TypeError("not addresses and a key")
    return table, key


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
