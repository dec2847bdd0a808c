"""What `RUN_DIR/adopt` hands to the entry point, and the entry point to a standby.

One byte `A` with four descriptors (SCM_RIGHTS): a memory file with the command, then stdin, stdout and stderr. One
message of one byte cannot arrive in part, and a large environment blocks nobody. Back to the client goes one byte, the
exit code; from the client come bytes that are signal numbers to pass on. The memory file holds fields separated by NUL,
which none of them can contain: folder, number of arguments, arguments, then `NAME=VALUE` each.
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
"""What a standby sends once it waits."""

_DESCRIPTORS: Final = 4
_LIMIT_BYTES: Final = 16 << 20
"""Above what the kernel admits as arguments and environment of one process (6 MiB)."""


class BadRequestError(HvdElasticError):
    """A message on ADOPT_SOCKET that is none of `RUN_DIR/adopt`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedCommand:
    """What a launcher wants to run: arguments, working directory and environment."""

    argv: tuple[str, ...]
    directory: str
    environment: dict[str, str]

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read the memory file's fields; raises BadRequestError."""
        directory, count, *fields = data.split(b"\0") if data.count(b"\0") > 1 else (b"", b"")
        if not count.isdigit() or not 0 < int(count) <= len(fields):
            raise BadRequestError("the request names no command")
        argv, variables = fields[: int(count)], fields[int(count) :]
        pairs = [field.partition(b"=") for field in variables]
        environment = {os.fsdecode(name): os.fsdecode(value) for name, equals, value in pairs if name and equals}
        return cls(argv=tuple(map(os.fsdecode, argv)), directory=os.fsdecode(directory), environment=environment)

    def encode(self) -> bytes:
        """Return the fields as `decode` reads them."""
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        return b"\0".join(os.fsencode(field) for field in (self.directory, str(len(self.argv)), *self.argv, *variables))


@dataclass(slots=True, kw_only=True)
class AdoptRequest:
    """A command with the descriptors that came with it; `close()` them, or the launcher's ssh session never ends."""

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
        """Close all four descriptors; harmless when they are closed already."""
        descriptors, self.memory, self.stdio = (self.memory, *self.stdio), -1, (-1, -1, -1)
        _close(descriptors)


def receive(connection: socket.socket) -> AdoptRequest | None:
    """Take one request from `connection`; None at its end. Raises BadRequestError, and what recvmsg(2) raises."""
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
    raise BadRequestError("the message on the socket is not one of RUN_DIR/adopt")


def send(connection: socket.socket, request: AdoptRequest) -> None:
    """Pass `request` on; raises what sendmsg(2) raises."""
    socket.send_fds(connection, [HAND_OVER], [request.memory, *request.stdio])


def memory_file(command: AdoptedCommand) -> int:
    """Return a descriptor of a memory file that holds `command`."""
    descriptor = os.memfd_create("hvd-elastic-adopt")
    os.write(descriptor, command.encode())
    return descriptor


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        if descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(descriptor)
