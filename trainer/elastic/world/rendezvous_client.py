"""What a worker asks the launcher's rendezvous server, and what it concludes from the answers.

Each question is one HTTP GET for `HOST:LOCAL_RANK`. The server's address and this worker's name are read from the
environment at each question: a standby gets them when a launcher adopts it.
"""

import contextlib
import http.client
import logging
import math
import os
import select
import socket
import time
from collections.abc import Callable
from typing import Final

from hvd_elastic.horovod.patch_set import installed_patches
from hvd_elastic.mpijob.contract import (
    ENV_MEETING,
    ENV_RENDEZVOUS_ADDRESS,
    ENV_RENDEZVOUS_PORT,
    ENV_RENDEZVOUS_TOKEN,
    JOIN_SCOPE,
    MEETING_PATCH,
    MEETS_HEADER,
    PLACE_SCOPE,
    RENDEZVOUS_TOKEN_HEADER,
    SHOWS_TOKEN_HEADER,
    SYNCED_SCOPE,
    TOKEN_PATCH,
    WATCH_KEY,
    WRITER_SCOPE,
    Exit,
    JoinAnswer,
    WriterAnswer,
)
from hvd_elastic.trainer.collectives.engine import IS_TORCH, has_server
from hvd_elastic.trainer.elastic.world.place import Place

logger = logging.getLogger(__name__)

PLACE_TIMEOUT_SECONDS: Final = math.inf
"""The answer comes when a world can be formed again, which may take hours. A launcher whose own limit
(`--elastic-timeout`) has passed closes the connection, and one whose node is lost is noticed by keep-alives."""

PUBLISHED_MAX_BYTES: Final = 128 << 10
"""Of what another process has published; the rest is not read."""

JOIN_TIMEOUT_SECONDS: Final = 60.0
"""The server holds a join for up to 25 s."""

CONNECT_TIMEOUT_SECONDS: Final = 30.0

HANDOVER_SECONDS: Final = 1.0
"""A worker that may leave waits this long for a place first. A launcher that needs its state answers at once."""

LOOK_SECONDS: Final = 0.25
"""How often a process looks, at least, whether it still has to wait for what it does. A look may be a question."""

QUESTIONS_PER_SECOND: Final = 256
"""At most, of all members of a world together: a question costs the launcher some 0.5 ms."""

_ABLE: Final = {SHOWS_TOKEN_HEADER: TOKEN_PATCH, MEETS_HEADER: MEETING_PATCH}
"""What this process's Horovod knows, as headers say it: each by the patch that makes it so."""

_ELASTIC: Final = "HOROVOD_ELASTIC"


class Removed(SystemExit):
    """The worker has no place in the new world. It unwinds (`finally`, atexit) and ends with `Exit.REMOVED`."""

    def __init__(self) -> None:
        super().__init__(int(Exit.REMOVED))


class RendezvousLost(SystemExit):
    """The rendezvous server is gone or does not answer. The process ends with `Exit.HOST_CHANGE`."""

    def __init__(self) -> None:
        super().__init__(int(Exit.HOST_CHANGE))


def never() -> bool:
    """Return False: the answer of a worker that may not leave."""
    return False


def launched() -> bool:
    """Whether an elastic launcher started this process."""
    return has_server() and os.environ.get(_ELASTIC) == "1"


def take_place(may_leave: Callable[[], bool] = never) -> None:
    """Ask for a place, write it to the environment, and wait at the barrier until all members of the world are there.

    Raises:
        Removed: the new world has no place for this worker, or `may_leave` has returned True during the wait.
        RendezvousLost: the server is gone, or its answer is not a place.
    """
    while True:
        place = _parse(_ask(PLACE_SCOPE, PLACE_TIMEOUT_SECONDS, may_leave))
        if place.rank < 0:
            logger.info("this worker was removed from the job")
            raise Removed
        os.environ.update(place.environment())
        if join():
            return


def join() -> bool:
    """Wait at the join barrier. Return whether all members of the world came. Raises RendezvousLost.

    Then ENV_MEETING tells Horovod how they find each other.
    """
    os.environ.pop(ENV_MEETING, None)
    while True:
        answer = _ask(JOIN_SCOPE, JOIN_TIMEOUT_SECONDS)
        if answer is None:  # the stock server has no barrier
            return True
        word, _, meeting = answer.partition(" ")
        if meeting:
            os.environ[ENV_MEETING] = meeting
        if word != JoinAnswer.WAIT:
            return word == JoinAnswer.GO


def report_synced() -> None:
    """Tell the launcher that this worker has the job's state. Raises RendezvousLost."""
    _ask(SYNCED_SCOPE, JOIN_TIMEOUT_SECONDS)


def is_next_writer() -> bool:
    """Whether it is for this process, which waits for a place, to store the last commit. Raises RendezvousLost.

    It is for one of those that are left: two would take the store from each other.
    """
    return launched() and _ask(WRITER_SCOPE, JOIN_TIMEOUT_SECONDS) == WriterAnswer.YES


def publish(scope: str, key: str, text: str) -> None:
    """Leave a text at the launcher's store, for the other processes; nothing happens if it cannot be reached."""
    with contextlib.suppress(RuntimeError):
        put(scope, key, text.encode())


def published(scope: str, key: str) -> str | None:
    """Return what a process has left there; None if there is nothing, or the launcher cannot be reached."""
    with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(_server()) as connection:
        connection.request("GET", f"/{scope}/{key}", headers=_proof())
        response = connection.getresponse()
        if response.status == http.HTTPStatus.OK:
            return response.read(PUBLISHED_MAX_BYTES).decode("ascii", errors="replace")
    return None


def put(scope: str, key: str, value: bytes) -> None:
    """Store a value for the other processes. Raises RuntimeError."""
    register_bytes(*_address(), scope, key, value)


def look_up(scope: str, key: str) -> bytes | None:
    """Return a value that a process has stored; None if there is none yet.

    Raises:
        RuntimeError: a member of the world has died, or the server is gone.
    """
    try:
        with contextlib.closing(_server()) as connection:
            connection.request("GET", f"/{scope}/{key}", headers=_proof())
            response = connection.getresponse()
            body = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise RuntimeError(f"the rendezvous server is lost: {error}") from error
    if response.status == http.client.NOT_FOUND:
        return None
    if response.status != http.client.OK:
        raise RuntimeError(f"no answer for {scope}/{key}: status {response.status}")
    return body


def is_world_broken(is_over: Callable[[], bool]) -> bool:
    """Whether the launcher knows of a member that died while the world is being formed; False if it cannot be asked.

    It answers as soon as it knows of one, else after a while. `is_over`: whether the answer is of no use any more.
    """
    with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(_server()) as connection:
        connection.request("GET", f"/global/{WATCH_KEY}", headers=_proof())
        poll = select.poll()
        poll.register(connection.sock, select.POLLIN)
        while not poll.poll(LOOK_SECONDS * 1000):
            if is_over():
                return False
        return connection.getresponse().status == http.HTTPStatus.GONE
    return False


def look_pause(size: int) -> float:
    """Seconds between two looks of each member of a world of this size."""
    return max(LOOK_SECONDS, size / QUESTIONS_PER_SECOND)


def _parse(answer: str | None) -> Place:
    if answer == JoinAnswer.AGAIN:  # with which a launcher answers what is still open at its end
        logger.info("the launcher has ended, and with it the job: this worker ends, too")
        raise RendezvousLost
    try:
        return Place.parse(answer or "")
    except ValueError as error:
        logger.warning("the rendezvous server answered %r instead of a place", answer)
        raise RendezvousLost from error


def _ask(scope: str, timeout_seconds: float, may_leave: Callable[[], bool] = never) -> str | None:
    """Return the answer to one GET for this worker; None if the server does not know the question."""
    host = f"{os.environ.get('HOROVOD_HOSTNAME', 'localhost')}:{os.environ.get('HOROVOD_LOCAL_RANK', '0')}"
    connection = _server()
    try:
        connection.connect()
        _keep_alive(connection.sock)
        connection.sock.settimeout(None if math.isinf(timeout_seconds) else timeout_seconds)
        connection.request("GET", f"/{scope}/{host}", headers=_proof())
        _wait(connection.sock, timeout_seconds, may_leave)
        response = connection.getresponse()
        body = response.read().decode()
    except (OSError, http.client.HTTPException) as error:
        logger.warning("the rendezvous server %s:%s is lost: %s", *_address(), error)
        raise RendezvousLost from error
    finally:
        connection.close()
    if response.status == http.client.FORBIDDEN:
        logger.warning("the launcher does not take this process for one of its job: is %s gone?", ENV_RENDEZVOUS_TOKEN)
        raise RendezvousLost
    return body if response.status == http.client.OK else None


def register_bytes(address: str, port: int, scope: str, key: str, data: bytes) -> None:
    """In place of Horovod's `put_bytes_into_kvstore`: the same, with the token. Raises RuntimeError like it."""
    try:
        with contextlib.closing(_connection(address, port)) as connection:
            connection.request("PUT", f"/{scope}/{key}", data, _proof())
            status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        raise RuntimeError(f"{address}:{port} does not take a registration: {error}") from error
    if status != http.client.OK:
        raise RuntimeError(f"{address}:{port} does not take a registration: status {status}")


def _proof() -> dict[str, str]:
    """The headers by which the launcher knows a process of its job, if it has given this process a token."""
    token = os.environ.get(ENV_RENDEZVOUS_TOKEN)
    if not token:
        return {}
    if IS_TORCH:
        return {RENDEZVOUS_TOKEN_HEADER: token} | dict.fromkeys(_ABLE, "1")
    installed = installed_patches()
    return {RENDEZVOUS_TOKEN_HEADER: token} | {name: "1" for name, patch in _ABLE.items() if patch in installed}


def _address() -> tuple[str, int]:
    return os.environ[ENV_RENDEZVOUS_ADDRESS], int(os.environ[ENV_RENDEZVOUS_PORT])


def _server() -> http.client.HTTPConnection:
    return _connection(*_address())


def _connection(address: str, port: int) -> http.client.HTTPConnection:
    """`address`: as in a URL, an IPv6 one in brackets."""
    return http.client.HTTPConnection(f"{address}:{port}", timeout=CONNECT_TIMEOUT_SECONDS)


def _wait(sock: socket.socket, timeout_seconds: float, may_leave: Callable[[], bool]) -> None:
    """Wait until the answer begins. Raises Removed if this process does not have to wait for it."""
    poll, begun, pause = select.poll(), time.monotonic(), look_pause(int(os.environ.get("HOROVOD_SIZE", "1")))
    poll.register(sock, select.POLLIN)
    while not poll.poll(pause * 1000):
        waited = time.monotonic() - begun
        if waited >= HANDOVER_SECONDS and may_leave():
            logger.info("this worker leaves: its pod is about to end, and nobody needs what it holds in memory")
            raise Removed
        if waited >= timeout_seconds:
            raise TimeoutError(f"no answer in {timeout_seconds:g} s")


def _keep_alive(sock: socket.socket) -> None:
    """Notice within about 35 s that the launcher's node is lost."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)
