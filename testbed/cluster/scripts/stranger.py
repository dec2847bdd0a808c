"""What a pod of somebody else does to a job's ports where no NetworkPolicy keeps it out. For the test cluster alone.

    python stranger.py SECONDS ADDRESS[,ADDRESS...]

It finds all open ports, and tries each kind of harm on each of them again and again: requests that never end, pickles
that take memory or time, registrations without end, logins that nobody finishes, requests to workers with a wrong
signature, and plain rubbish. It prints how often it tried each, as JSON.
"""

import base64
import collections
import contextlib
import itertools
import json
import os
import selectors
import socket
import struct
import sys
import time
from collections.abc import Sequence

PORTS = range(1, 65536)
BATCH = 2000
HELD = 200
"""Connections that are left open at a time."""

Target = tuple[str, int]


def open_ports(address: str) -> list[int]:
    found: list[int] = []
    for first in range(0, len(PORTS), BATCH):
        with selectors.DefaultSelector() as selector:
            for port in PORTS[first : first + BATCH]:
                connection = socket.socket()
                connection.setblocking(False)
                connection.connect_ex((address, port))
                selector.register(connection, selectors.EVENT_WRITE, port)
            deadline = time.monotonic() + 2
            while selector.get_map() and (left := deadline - time.monotonic()) > 0:
                for key, _ in selector.select(left):
                    connection = key.fileobj  # type: ignore[assignment]
                    if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                        found.append(key.data)
                    selector.unregister(connection)
                    connection.close()
            for key in list(selector.get_map().values()):
                key.fileobj.close()  # type: ignore[union-attr]
    return found


TAKES_MEMORY = b"\x80\x04N" + b"r" + struct.pack("<I", 16_000_000) + b"."
"""A pickle whose twelve bytes take 270 MiB."""
TAKES_TIME = b"\x80\x04}X\x01\x00\x00\x00i]" + b"X\x01\x00\x00\x00a\x85" + b"2\x86" * 60 + b"K\x01\x86asC\x01k\x86."
"""A pickle of tuples that double with each of sixty levels."""


def put(path: str, body: bytes) -> bytes:
    return f"PUT {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def registration() -> bytes:
    addresses = [[f"10.0.{number >> 8 & 255}.{number & 255}", 1] for number in range(60_000)]
    return json.dumps({"addresses": addresses, "key": "x" * 64}).encode()


WORD = os.urandom(32).hex()
HARMS: dict[str, bytes] = {
    "half a request": b"GET /rank_and_size/h:0 HTTP/1.1\r\nX-Half: ",
    "a body that does not come": b"PUT /worker_addresses/h:0 HTTP/1.1\r\nContent-Length: 67108864\r\n\r\n",
    "a pickle that takes memory": put("/worker_addresses/h:0", base64.b64encode(TAKES_MEMORY)),
    "a pickle that takes time": put("/worker_addresses/h:0", base64.b64encode(TAKES_TIME)),
    "many addresses": put("/worker_addresses/h:0", registration()),
    "a place": b"GET /rank_and_size/h:0 HTTP/1.1\r\nHost: x\r\n\r\n",
    "a meeting": put("/meet/0", b"HVDM" + bytes(60)),
    "a wrong word": f"leave {WORD} \n".encode(),
    "a wrong signature": f"challenge\nleave {WORD} \n".encode(),
    "a line without an end": b"report" + b"x" * 100_000,
    "a login that nobody ends": b"SSH-2.0-stranger\r\n",
    "zeros": bytes(65536),
    "rubbish": os.urandom(4096),
}


def harm(targets: Sequence[Target], seconds: float) -> dict[str, int]:
    """Each harm at each target in turn, for so long; how often each was tried."""
    tried: collections.Counter[str] = collections.Counter()
    held: collections.deque[socket.socket] = collections.deque()
    deadline = time.monotonic() + seconds
    for target, (name, words) in itertools.cycle(itertools.product(targets, HARMS.items())):
        if time.monotonic() > deadline:
            return dict(tried)
        with contextlib.suppress(OSError):
            connection = socket.create_connection(target, timeout=1)
            held.append(connection)
            connection.sendall(words)
            tried[name] += 1
        while len(held) > HELD:
            held.popleft().close()
    raise AssertionError("nothing to try")


def main() -> None:
    end, addresses = time.monotonic() + float(sys.argv[1]), sys.argv[2].split(",")
    tried, targets = collections.Counter[str](), set[Target]()
    while (left := end - time.monotonic()) > 0:  # ports open and close meanwhile
        found = [(address, port) for address in addresses for port in open_ports(address)]
        targets |= set(found)
        tried.update(harm(found, min(left, 10.0)) if found else {})
    print(json.dumps({"ports": sorted({port for _, port in targets}), "tried": tried}))


if __name__ == "__main__":
    main()
