"""What the launcher asks a training process: whether it lives, and to take note of host updates.

It is the service that a Horovod with the patch `worker-addresses` has, and speaks as that does (`JsonWire` in its
`runner/common/util/network.py`): thirty-two bytes of HMAC-SHA256 over the message, four of its length, and the message,
an object in JSON with `type` and `arguments`.
"""

import contextlib
import hashlib
import hmac
import json
import logging
import os
import secrets
import socket
import socketserver
import struct
from collections.abc import Callable, Iterator
from http.client import HTTPException
from typing import Any, Final, Protocol

from hvd_elastic.mpijob.contract import ADDRESSES_SCOPE, ENV_RENDEZVOUS_ADDRESS, ENV_RENDEZVOUS_PORT, HOSTS_MIXED
from hvd_elastic.system.background_threads import start_thread

logger = logging.getLogger(__name__)

_LENGTH: Final = struct.Struct("i")
_MOST_BYTES: Final = 4096
"""Of a message; the launcher's have some eighty."""
_SECONDS: Final = 10.0
"""For one request."""


PutBytes = Callable[[str, int, str, str, bytes], None]
"""Sends the launcher a value: its address and port, scope and key, and the value. Raises RuntimeError."""


class HostUpdateListener(Protocol):
    """Who is told of host updates."""

    def on_hosts_updated(self, timestamp: int, update_res: Any) -> None: ...


class NotificationService:
    """The service of one process."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes()
        self._listener: HostUpdateListener | None = None
        self._server: socketserver.BaseServer | None = None

    def start(self, put_bytes: PutBytes) -> None:
        """Listen, and register with the launcher; nothing without one, or a second time.

        Raises:
            RuntimeError: the launcher does not take the registration.
            OSError: there is no port.
        """
        launcher = os.environ.get(ENV_RENDEZVOUS_ADDRESS)
        if launcher is None or self._server is not None:
            return
        interface = os.environ.get("HOROVOD_GLOO_IFACE", "")
        addresses = _addresses(interface)
        server = _Server((addresses[0] if addresses else "", 0), self._handler())
        self._server = server
        start_thread("notifications", server.serve_forever, log=logger)
        port = server.server_address[1]
        table = {interface: [(address, port) for address in addresses[:1]]}
        body = json.dumps({"addresses": table, "secret_key": self._key.hex()}).encode()
        name = f"{os.environ['HOROVOD_HOSTNAME']}:{os.environ['HOROVOD_LOCAL_RANK']}"
        put_bytes(launcher, int(os.environ[ENV_RENDEZVOUS_PORT]), ADDRESSES_SCOPE, name, body)

    def stop(self) -> None:
        """Listen no more; does nothing if it does not."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    @contextlib.contextmanager
    def listening(self, listener: HostUpdateListener) -> Iterator[None]:
        """Tell the listener of host updates."""
        self._listener = listener
        try:
            yield
        finally:
            self._listener = None

    def answer(self, message: bytes) -> bytes:
        """Do what a message says that is signed with this process's key. Raises ValueError."""
        content = json.loads(message)
        if content == {"type": "PingRequest", "arguments": {}}:
            return b'{"type": "PingResponse", "arguments": {}}'
        if not isinstance(content, dict) or content.get("type") != "HostsUpdatedRequest":
            raise ValueError("not a message of the launcher's")
        if self._listener is not None:
            self._listener.on_hosts_updated(int(content["arguments"]["timestamp"]), HOSTS_MIXED)
        return b'{"type": "AckResponse", "arguments": {}}'

    def sign(self, message: bytes) -> bytes:
        return hmac.digest(self._key, message, hashlib.sha256)

    def _handler(self) -> type[socketserver.StreamRequestHandler]:
        service = self

        class Handler(socketserver.StreamRequestHandler):
            timeout = _SECONDS

            def handle(self) -> None:
                """Answer one message; hang up on what is none of the launcher's."""
                with contextlib.suppress(OSError, ValueError, KeyError, TypeError, struct.error, HTTPException):
                    digest = self.rfile.read(hashlib.sha256().digest_size)
                    (length,) = _LENGTH.unpack(self.rfile.read(_LENGTH.size))
                    message = self.rfile.read(min(max(length, 0), _MOST_BYTES))
                    if hmac.compare_digest(digest, service.sign(message)):
                        reply = service.answer(message)
                        self.wfile.write(service.sign(reply) + _LENGTH.pack(len(reply)) + reply)

        return Handler


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: whoever connects may send anything, and hang up."""


def _addresses(interface: str) -> list[str]:
    """The interface's addresses, IPv4 first; of all interfaces where it is not known."""
    import psutil

    families = (socket.AF_INET, socket.AF_INET6)
    found = psutil.net_if_addrs()
    named = found.get(interface) or [each for name in found for each in found[name]]
    usable = [each for each in named if each.family in families]
    return [each.address for each in sorted(usable, key=lambda each: families.index(each.family))]


THIS_PROCESS: Final = NotificationService()
"""A launcher knows one address of a process."""
