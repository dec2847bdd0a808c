"""Whether the hosts of a world's other members are still there, as the kernel's TCP knows it.

A lost host sends no FIN. Gloo waits for it until its time-out, TCP itself for a quarter of an hour. A kernel whose
process computes, or is stopped, still acknowledges what it is sent; a lost one does not. So a host that leaves
keep-alive probes or data without any acknowledgement for some two seconds is lost, and all connections to it are shut
down: Horovod's operation fails, as it does when a peer dies.

One connection to each host is probed and looked at. A probe a second on each connection of 256 processes is more than
a kernel's backlogs hold (`net.core.netdev_max_backlog`, 1,000 packets): it drops some, and living hosts are taken for
lost ones.

TCP_USER_TIMEOUT would do the same for data on its way, but it also ends the connection to a living peer that does not
read for a while.
"""

import contextlib
import logging
import socket
import struct
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Self

from hvd_elastic.system.background_threads import start_thread

logger = logging.getLogger(__name__)

_PROBES: Final = 2
_PROBED_MILLISECONDS: Final = 2200
"""An idle connection is probed after one second and after two. The last probe has 0.2 s to be answered."""

_RETRANSMISSIONS: Final = 3
_SENT_MILLISECONDS: Final = 1500
"""Linux sends data again after 0.2, 0.6 and 1.4 s. The last time has 0.1 s to be answered."""

_LOOK_SECONDS: Final = 0.25
_LOOKS_PER_SECOND: Final = 4_000
"""At most, over all sockets: a look takes some microseconds."""

_ESTABLISHED: Final = 1
_INFO: Final = struct.Struct("=4B4x13I")
"""The first fields of `struct tcp_info` (linux/tcp.h): state, ca_state, retransmits, probes; rto, ato, snd_mss,
rcv_mss, unacked, sacked, lost, retrans, fackets, last_data_sent, last_ack_sent, last_data_recv, last_ack_recv."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpInfo:
    """What the kernel knows of one connection."""

    is_established: bool
    retransmissions: int
    """In a row, without an acknowledgement."""
    probes: int
    """Keep-alive and zero-window probes in a row, without an acknowledgement."""
    unacknowledged: int
    """Segments on their way."""
    acknowledged_milliseconds: int
    """Since the last acknowledgement of any kind."""

    @classmethod
    def of(cls, connection: socket.socket) -> Self:
        """Ask the kernel. Raises OSError for what is not a TCP socket."""
        state, _, retransmissions, probes, *numbers = _INFO.unpack(
            connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size)
        )
        return cls(
            is_established=state == _ESTABLISHED,
            retransmissions=retransmissions,
            probes=probes,
            unacknowledged=numbers[4],
            acknowledged_milliseconds=numbers[12],
        )

    @property
    def is_peer_lost(self) -> bool:
        """Whether the peer's kernel has left several probes, or the same data several times, unanswered."""
        silence = self.acknowledged_milliseconds
        probed = self.probes >= _PROBES and silence >= _PROBED_MILLISECONDS
        is_sending = self.unacknowledged > 0 and self.retransmissions >= _RETRANSMISSIONS
        return self.is_established and (probed or (is_sending and silence >= _SENT_MILLISECONDS))


def probe_hosts(descriptors: Iterable[int]) -> list[int]:
    """Choose one TCP connection to each other host; the kernel probes it after each second without traffic.

    The kernel's own limit is far away: `is_peer_lost` comes first.
    """
    probed: dict[str, int] = {}
    for fd in descriptors:
        with contextlib.suppress(OSError), _borrowed(fd) as connection:
            host = _other_host(connection)
            if host and host not in probed:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 30)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                probed[host] = fd
    return list(probed.values())


class PeerWatch:
    """A thread that shuts down the connections to lost hosts."""

    def __init__(self, *, probed: Callable[[], Sequence[int]], all_sockets: Callable[[], Iterable[int]]) -> None:
        """`probed`: descriptors that `probe_hosts` has chosen; `all_sockets`: of the world. Both of those open now."""
        self._probed, self._all_sockets = probed, all_sockets
        self._started = False
        self._stopped = threading.Event()

    def start(self) -> None:
        """Start the thread, the first time that this is called."""
        if not self._started:
            self._started = True
            start_thread("peer-watch", self._run, log=logger, stopped=self._stopped)

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        pause = _LOOK_SECONDS
        while not self._stopped.wait(pause):
            probed = self._probed()
            if lost := _lost_hosts(probed):
                _shut_down(self._all_sockets(), lost)
            pause = max(_LOOK_SECONDS, len(probed) / _LOOKS_PER_SECOND)


def _lost_hosts(descriptors: Iterable[int]) -> set[str]:
    lost: set[str] = set()
    for fd in descriptors:
        with contextlib.suppress(OSError), _borrowed(fd) as connection:
            if TcpInfo.of(connection).is_peer_lost:
                lost.add(_other_host(connection))
    return lost


def _shut_down(descriptors: Iterable[int], lost: Collection[str]) -> None:
    """Shut down the connections to these hosts."""
    for host in lost:
        logger.warning("the host at %s does not answer any more", host)
    for fd in descriptors:
        with contextlib.suppress(OSError), _borrowed(fd) as connection:
            if _other_host(connection) in lost:
                connection.shutdown(socket.SHUT_RDWR)


def _other_host(connection: socket.socket) -> str:
    """The address of the host at the other end; nothing if that is this host. Raises OSError if it has no other end."""
    if connection.family == socket.AF_UNIX:
        return ""
    here, there = connection.getsockname()[0], connection.getpeername()[0]
    return "" if here == there else str(there)


@contextlib.contextmanager
def _borrowed(fd: int) -> Iterator[socket.socket]:
    """A socket object for a descriptor that another part closes.

    Raises OSError: it may be closed already, and its number may be another file's.
    """
    connection = socket.socket(fileno=fd)
    try:
        yield connection
    finally:
        connection.detach()
