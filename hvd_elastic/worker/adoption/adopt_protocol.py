"""The message that `RUN_DIR/adopt` sends to the entry point, and the entry point to a standby.

It is one byte `A` with four descriptors (SCM_RIGHTS): a memory file with the command, then stdin, stdout and stderr. A
message of one byte cannot arrive in part, and a large environment blocks neither side. The client gets back one byte,
the exit code; each byte that it sends later is the number of a signal to pass on. The memory file holds fields
separated by NUL, which no field can contain: folder, number of arguments, arguments, then one `NAME=VALUE` each.
"""

import array
import contextlib
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from hvd_elastic.mpijob.contract import HvdElasticError

HAND_OVER: Final = b"A"
WAITING: Final = b"w"
"""What a standby sends when it begins to wait."""

_DESCRIPTORS: Final = 4
_LIMIT_BYTES: Final = 16 << 20
"""More than the kernel allows for the arguments and environment of one process (6 MiB)."""


class BadRequestError(HvdElasticError):
    """A message on ADOPT_SOCKET that does not come from `RUN_DIR/adopt`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedCommand:
    """The command that a launcher wants to run: arguments, working directory and environment."""

    argv: tuple[str, ...]
    directory: str
    environment: dict[str, str]

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read the memory file's fields. Raises BadRequestError."""
        directory, count, *fields = data.split(b"\0") if data.count(b"\0") > 1 else (b"", b"")
        if not count.isdigit() or not 0 < int(count) <= len(fields):
            raise BadRequestError("the request names no command")
        argv, variables = fields[: int(count)], fields[int(count) :]
        pairs = [field.partition(b"=") for field in variables]
        environment = {os.fsdecode(name): os.fsdecode(value) for name, equals, value in pairs if name and equals}
        return cls(argv=tuple(map(os.fsdecode, argv)), directory=os.fsdecode(directory), environment=environment)


@dataclass(slots=True, kw_only=True)
class AdoptRequest:
    """A command and its descriptors. Unless they are closed, the launcher's ssh session never ends."""

    memory: int
    stdio: tuple[int, int, int]

    def read(self) -> AdoptedCommand:
        """Return the command; raises BadRequestError."""
        try:
            size = os.fstat(self.memory).st_size
            if size > _LIMIT_BYTES:
                raise BadRequestError(f"the request has {size} bytes, above {_LIMIT_BYTES}")
            return AdoptedCommand.decode(os.pread(self.memory, size, 0))
        except OSError as error:
            raise BadRequestError(f"the request cannot be read: {error.strerror}") from error

    def close(self) -> None:
        """Close all four descriptors; does nothing if they are closed already."""
        self._keep(-1, (self.memory, *self.stdio))

    def close_all_but_stderr(self) -> None:
        """The process has its own now; what is to be said of its end still needs one."""
        self._keep(self.stdio[2], (self.memory, *self.stdio[:2]))

    def _keep(self, stderr: int, others: tuple[int, ...]) -> None:
        self.memory, self.stdio = -1, (-1, -1, stderr)
        _close(others)


def receive(connection: socket.socket) -> AdoptRequest | None:
    """Receive one request; None at the end of `connection`. Raises BadRequestError and OSError (recvmsg(2))."""
    space = socket.CMSG_SPACE(_DESCRIPTORS * array.array("i").itemsize)
    data, ancillary, flags, _ = connection.recvmsg(len(HAND_OVER), space, socket.MSG_CMSG_CLOEXEC)
    descriptors = array.array("i")
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
    if data == HAND_OVER and len(descriptors) == _DESCRIPTORS and not flags & socket.MSG_CTRUNC:
        memory, *stdio = descriptors
        return AdoptRequest(memory=memory, stdio=(stdio[0], stdio[1], stdio[2]))
    _close(descriptors)
    if not data:
        return None
    raise BadRequestError("the message on the socket does not come from RUN_DIR/adopt")


def send(connection: socket.socket, request: AdoptRequest) -> None:
    """Send `request` on. Raises OSError (sendmsg(2))."""
    socket.send_fds(connection, [HAND_OVER], [request.memory, *request.stdio])


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        if descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(descriptor)
