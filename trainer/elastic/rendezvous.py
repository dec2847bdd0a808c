"""A worker's way into a world, from one world to the next, and out.

It stands in for `hvd.init()` and for the reset inside `hvd.elastic.run`, under the stock `horovodrun`, under
`hvd-elastic launch`, and with no launcher at all. What it does otherwise than Horovod 0.28.1:

* A worker asks for its new place itself, once. On rank -1 it leaves with `Exit.REMOVED`; Horovod's own look-up throws
  in a C++ thread and aborts the process (exit 134).
* Before a world is formed its members meet at the launcher's join barrier, so that a newcomer's death costs a blink and
  not the job. The stock server answers 404: there is no barrier.
* A member that dies in `hvd.init()` costs the others one more question. Horovod ends them (exit 134); this needs the
  Horovod that `hvd-elastic install-horovod` builds, whose `hvd.init()` raises instead.
* Gloo's leftover sockets are shut down, so that every survivor of a death learns of it at once.
* A process whose pod is about to end, and whose state is durable, does not wait for a place that may never come.
* A lost rendezvous server ends the process with `Exit.HOST_CHANGE`, which says that a restart is worth while.
"""

import contextlib
import functools
import http.client
import logging
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from hvd_elastic.mpijob.contract import JOIN_SCOPE, SYNCED_SCOPE, Exit, JoinAnswer
from hvd_elastic.trainer.elastic.gloo_sockets import WorldSockets

logger = logging.getLogger(__name__)

PLACE_SCOPE: Final = "rank_and_size"
"""GET /rank_and_size/HOST:LOCAL_RANK (`horovod/runner/elastic/rendezvous.py`). Says READY for this worker: asked
twice in one round it counts twice, so it is never repeated."""

PLACE_TIMEOUT_SECONDS: Final = 3600.0
"""The answer comes when a world can be formed again. The driver's own limit (`--elastic-timeout`) is shorter and
closes the connection."""

JOIN_TIMEOUT_SECONDS: Final = 60.0
"""The server holds a join for up to 25 s."""

CONNECT_TIMEOUT_SECONDS: Final = 30.0

HANDOVER_SECONDS: Final = 1.0
"""Whoever could leave waits so long for a place: a launcher that wants its state handed over answers at once."""

_LOOK_SECONDS: Final = 0.1

WATCH_SECONDS: Final = 0.25
"""How often the launcher is asked about the others while `hvd.init()` lasts; mostly it is over before that."""

_INIT_FAILED: Final = "Horovod initialization failed"
"""How the ValueError begins (`horovod/common/basics.py`)."""

FORM_ATTEMPTS: Final = 10
"""Worlds that may fail to form one after the other. More deaths than that in a row are no chance: the members do not
reach each other."""

_ADDRESS: Final = "HOROVOD_GLOO_RENDEZVOUS_ADDR"
_PORT: Final = "HOROVOD_GLOO_RENDEZVOUS_PORT"
_ELASTIC: Final = "HOROVOD_ELASTIC"
_MPI_MARKS: Final = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "SLURM_PROCID")


class Removed(SystemExit):
    """The worker has no place in the new world: it unwinds (`finally`, atexit) and ends with `Exit.REMOVED`."""

    def __init__(self) -> None:
        super().__init__(int(Exit.REMOVED))


class RendezvousLost(SystemExit):
    """The rendezvous server is gone or silent: the process ends with `Exit.HOST_CHANGE`."""

    def __init__(self) -> None:
        super().__init__(int(Exit.HOST_CHANGE))


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A worker's place in a world; rank -1 means none."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int

    @classmethod
    def parse(cls, reply: str) -> "Place":
        """Read the server's six numbers (`SlotInfo.to_response_string`). Raises ValueError on anything else."""
        rank, size, local_rank, local_size, cross_rank, cross_size = map(int, reply.split(","))
        return cls(
            rank=rank,
            size=size,
            local_rank=local_rank,
            local_size=local_size,
            cross_rank=cross_rank,
            cross_size=cross_size,
        )

    def environment(self) -> dict[str, str]:
        """As `hvd.init()` reads it."""
        return {
            "HOROVOD_RANK": str(self.rank),
            "HOROVOD_SIZE": str(self.size),
            "HOROVOD_LOCAL_RANK": str(self.local_rank),
            "HOROVOD_LOCAL_SIZE": str(self.local_size),
            "HOROVOD_CROSS_RANK": str(self.cross_rank),
            "HOROVOD_CROSS_SIZE": str(self.cross_size),
        }


_sockets = WorldSockets()
_gate: list[Callable[[], None]] = []
"""What a solo standby still has to wait for; empty for everybody else."""
_untold = [SYNCED_SCOPE]
"""What the launcher is told once, when this worker has the job's state."""
_own_answers: dict[str, Callable[[], int]] = {}
"""Horovod's functions that a solo standby answers for."""


def launched() -> bool:
    """Whether an elastic launcher started this process."""
    return _ADDRESS in os.environ and os.environ.get(_ELASTIC) == "1"


def enter(init: Callable[[], None]) -> None:
    """Form this process's first world; `init` is Horovod's own.

    HOROVOD_ELASTIC stays 1 in this call: Horovod's first init asks for no place, and reads here, for the life of the
    process, whether NCCL operations watch for dead peers (`operations.cc`, `SetBoolFromEnv`: a later 0 does not unset
    it).

    Raises:
        Removed: the world was formed without this worker.
        RendezvousLost: the server is gone.
    """
    if not launched():
        _without_launcher()
        _sockets.note(init)
        return
    _arrive(init, form=_watched)


def reset(may_leave: Callable[[], bool] = lambda: False) -> None:
    """Leave the present world and form the next one; raises as `enter`.

    `may_leave`: whether this process need not wait for a place, because its pod is about to end and its state is safe.
    Asked again and again while there is no answer.
    """
    import horovod.torch as hvd

    _leave_world()
    if launched():
        _meet(hvd.init, may_leave)
    else:
        _form(hvd.init)


def synced() -> None:
    """Tell the launcher, the first time, that this worker has the job's state. Raises RendezvousLost."""
    if _untold and launched():
        _ask(_untold.pop(), JOIN_TIMEOUT_SECONDS)


def is_oldest() -> bool:
    """Whether this is rank 0: the process that has been in the job for longest."""
    import horovod.torch as hvd

    return bool(hvd.rank() == 0)


def install(wait: Callable[[], None] | None = None, *, solo: tuple[int, int] | None = None) -> None:
    """Put the cures into Horovod itself, for scripts that call `hvd.init()` and `hvd.elastic.run`.

    Called again it does nothing, so the first caller decides.

    Args:
        wait: called once before the first world is formed; a standby waits in it for its launcher's environment.
        solo: form a world of one first and call `wait` where the script enters `elastic.run`. Until then
            `hvd.local_rank()` and `hvd.local_size()` give these two numbers: a script takes the GPU of its slot.
    """
    import horovod.torch as hvd
    import horovod.torch.elastic as stock

    from hvd_elastic.trainer.elastic.run import run

    if getattr(hvd.init, "cured", False):
        return
    hvd.init = _first_init(hvd.init, wait, solo=solo)
    stock.run = run


def init() -> None:
    """Horovod's `init()` with the cures; does nothing where Horovod is initialised."""
    import horovod.torch as hvd

    install()
    hvd.init()


def pass_gate() -> bool:
    """Where a solo standby waits: from its world of one into the job's world. False, at once, for everybody else."""
    if not _gate:
        return False
    import horovod.torch as hvd

    _gate.pop()()
    for name in list(_own_answers):
        setattr(hvd, name, _own_answers.pop(name))
    hvd.shutdown()
    if launched():
        _arrive(hvd.init, form=_form)
    else:
        _form(hvd.init)
    return True


def _first_init(
    stock_init: Callable[..., None], wait: Callable[[], None] | None, *, solo: tuple[int, int] | None
) -> Callable[..., None]:
    import horovod.torch as hvd

    @functools.wraps(stock_init)
    def cured(*args: Any, **kwargs: Any) -> None:
        hvd.init = again
        if hvd.is_initialized():  # before the cures were there
            return
        if solo is not None and wait is not None:
            _gate.append(wait)
            with _alone():
                stock_init(*args, **kwargs)
            _answer_as(*solo)
            return
        if wait is not None:
            wait()
        enter(lambda: stock_init(*args, **kwargs))

    @functools.wraps(stock_init)
    def again(*args: Any, **kwargs: Any) -> None:
        stock_init(*args, **kwargs)

    cured.cured = again.cured = True  # type: ignore[attr-defined]
    return cured


def _without_launcher() -> None:
    """`python train.py`: a world of one over Gloo. `mpirun` and a static `horovodrun` bring an environment of their
    own.
    """
    if not any(mark in os.environ for mark in (_ADDRESS, *_MPI_MARKS)):
        os.environ.setdefault("HOROVOD_CONTROLLER", "gloo")
        os.environ.setdefault("HOROVOD_CPU_OPERATIONS", "gloo")


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """A solo standby's world of one. HOROVOD_ELASTIC=1, so that optimizers register their hooks for the worlds to
    come.
    """
    away = os.environ.pop(_ADDRESS, None)
    os.environ.update(HOROVOD_CONTROLLER="gloo", HOROVOD_CPU_OPERATIONS="gloo", HOROVOD_ELASTIC="1")
    try:
        yield
    finally:
        if away is not None:
            os.environ[_ADDRESS] = away


def _answer_as(local_rank: int, local_size: int) -> None:
    """In its world of one every standby is local rank 0: all slots of a pod would take the first GPU."""
    import horovod.torch as hvd

    for name, value in (("local_rank", local_rank), ("local_size", local_size)):
        _own_answers[name] = getattr(hvd, name)
        setattr(hvd, name, lambda value=value: value)


def _leave_world() -> None:
    import horovod.torch as hvd

    hvd.shutdown()
    left = _sockets.cut()
    if left:
        logger.info("shut down %d sockets that a lost peer had left open", left)


def _arrive(init: Callable[[], None], *, form: Callable[[Callable[[], None]], None]) -> None:
    """Form the first world under the launcher, with the place that it gave at the start if that still holds."""
    if not _joined():
        _take_place()
    if not _is_formed(lambda: form(init)):
        _meet(init)


def _meet(init: Callable[[], None], may_leave: Callable[[], bool] = lambda: False) -> None:
    """Ask for a place in the next world and form it, until one is formed that nobody dies in."""
    for _ in range(FORM_ATTEMPTS):
        _take_place(may_leave)
        if _is_formed(lambda: _form(init)):
            return
    raise RendezvousLost


def _is_formed(form: Callable[[], None]) -> bool:
    try:
        form()
    except ValueError as error:
        if not str(error).startswith(_INIT_FAILED):
            raise
        logger.warning("a member of the new world was lost before it was formed")
        _leave_world()
        return False
    return True


def _form(init: Callable[[], None]) -> None:
    """Any world but the first. The place is in the environment already: with HOROVOD_ELASTIC=0 Horovod asks no second
    time.
    """
    was = os.environ.get(_ELASTIC, "0")
    os.environ[_ELASTIC] = "0"
    try:
        _watched(init)
    finally:
        os.environ[_ELASTIC] = was


def _watched(init: Callable[[], None]) -> None:
    """Call `init`, and end it when a member has died whom Gloo still waits for.

    Gloo's listening side waits the Gloo time-out for a peer to connect, and nothing tells it that the peer is gone. The
    launcher knows, and answers Gloo's look-ups with 410 from then on.
    """
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(WATCH_SECONDS):
            if _is_broken() and not ended.is_set():
                _sockets.cut_new()
                return

    watcher = threading.Thread(target=watch, name="init-watch", daemon=True)
    if _ADDRESS in os.environ:
        watcher.start()
    try:
        _sockets.note(init)
    finally:
        ended.set()


def _is_broken() -> bool:
    """Whether the launcher knows of a member of the forming world that has died."""
    with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(_server()) as connection:
        connection.request("GET", "/global/watch")
        return connection.getresponse().status == http.HTTPStatus.GONE
    return False


def _take_place(may_leave: Callable[[], bool] = lambda: False) -> None:
    """Ask for a place and meet the others there, until all of them have come."""
    while True:
        reply = _ask(PLACE_SCOPE, PLACE_TIMEOUT_SECONDS, may_leave)
        place = _parsed(reply)
        if place.rank < 0:
            logger.info("this worker was removed from the job")
            raise Removed
        os.environ.update(place.environment())
        if _joined():
            return


def _parsed(reply: str | None) -> Place:
    try:
        return Place.parse(reply or "")
    except ValueError as error:
        logger.warning("the rendezvous server answered %r instead of a place", reply)
        raise RendezvousLost from error


def _joined() -> bool:
    """Wait at the join barrier; whether all members of the world came."""
    while True:
        answer = _ask(JOIN_SCOPE, JOIN_TIMEOUT_SECONDS)
        if answer is None:  # the stock server has no barrier
            return True
        if answer != JoinAnswer.WAIT:
            return answer == JoinAnswer.GO


def _ask(scope: str, timeout_seconds: float, may_leave: Callable[[], bool] = lambda: False) -> str | None:
    """One GET for this worker; None where the server knows no such thing."""
    host = f"{os.environ.get('HOROVOD_HOSTNAME', 'localhost')}:{os.environ.get('HOROVOD_LOCAL_RANK', '0')}"
    connection = _server()
    try:
        connection.connect()
        _keep_alive(connection.sock)
        connection.sock.settimeout(timeout_seconds)
        connection.request("GET", f"/{scope}/{host}")
        _wait(connection.sock, timeout_seconds, may_leave)
        response = connection.getresponse()
        body = response.read().decode()
    except (OSError, http.client.HTTPException) as error:
        logger.warning("the rendezvous server %s:%s is lost: %s", os.environ[_ADDRESS], os.environ[_PORT], error)
        raise RendezvousLost from error
    finally:
        connection.close()
    return body if response.status == http.client.OK else None


def _server() -> http.client.HTTPConnection:
    return http.client.HTTPConnection(os.environ[_ADDRESS], int(os.environ[_PORT]), CONNECT_TIMEOUT_SECONDS)


def _wait(sock: socket.socket, timeout_seconds: float, may_leave: Callable[[], bool]) -> None:
    """Until the answer begins. Raises Removed where this process does not have to wait for it."""
    poll, begun = select.poll(), time.monotonic()
    poll.register(sock, select.POLLIN)
    while not poll.poll(_LOOK_SECONDS * 1000):
        waited = time.monotonic() - begun
        if waited >= HANDOVER_SECONDS and may_leave():
            logger.info("this worker leaves: its pod is about to end, and its state is durable")
            raise Removed
        if waited >= timeout_seconds:
            raise TimeoutError(f"no answer in {timeout_seconds:g} s")


def _keep_alive(sock: socket.socket) -> None:
    """Notice within about 35 s that the launcher's node is lost."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)
