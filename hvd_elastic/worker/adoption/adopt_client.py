# What `RUN_DIR/adopt COMMAND...` runs. The entry point writes this file there, with a first line that names its
# interpreter, and with SOCKET filled in. It connects a launcher's ssh session with the training process and is started
# for each adoption, so it imports only what is compiled into the interpreter: no site-packages, nothing of the project.
import _signal  # type: ignore[import-not-found]  # `signal` and `socket` would import enum and re
import _socket
import os
import select
import sys

SOCKET = ""  # replaced by the path of the entry point's socket

CUT = 129  # the reader of the output is gone: as if killed by SIGHUP
GONE = 137  # the entry point died, and the training process with it: as if killed by SIGKILL
UNREACHABLE = 78  # no entry point answers, so nothing was started


def request() -> int:
    """Write folder, arguments and environment into a memory file. Return its descriptor, for the entry point."""
    fields = [os.getcwdb(), b"%d" % (len(sys.argv) - 1), *map(os.fsencode, sys.argv[1:])]  # noqa: PTH109
    fields += [name + b"=" + value for name, value in os.environb.items()]
    memory = os.memfd_create("hvd-elastic-adopt")
    os.write(memory, b"\0".join(fields))
    return memory


def connect() -> "_socket.socket":
    """Connect through the folder's descriptor: an AF_UNIX address holds 107 bytes, and the path may be longer."""
    server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    folder, name = os.path.split(SOCKET)
    descriptor = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    server.connect(f"/proc/self/fd/{descriptor}/{name}")
    return server


def main() -> int:
    """Hand the command over, pass signals on, and return the training process's exit code."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    try:
        server = connect()
    except OSError as error:
        os.write(2, f"hvd-elastic: no entry point at {SOCKET}: {error.strerror}\n".encode(errors="replace"))
        return UNREACHABLE
    reader = select.poll()
    reader.register(1, 0)  # errors only

    def pass_on(number: int, _: object) -> None:
        """Nothing of a launcher that is gone: what watches the session for it sends SIGTERM then."""
        if not reader.poll(0):
            server.send(bytes([number]))

    for number in (1, 2, 15):
        _signal.signal(number, pass_on)
    passed = b"".join(number.to_bytes(4, sys.byteorder) for number in (request(), 0, 1, 2))
    server.sendmsg([b"A"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, passed)])
    poll = select.poll()
    poll.register(server.fileno(), select.POLLIN)
    poll.register(1, 0)  # errors only: ssh sends no signal when its connection is cut, but then nobody reads the pipe
    while True:
        for descriptor, _ in poll.poll():
            if descriptor != server.fileno():
                return CUT
            code = server.recv(1)
            return code[0] if code else GONE


if __name__ == "__main__":
    os._exit(main())
