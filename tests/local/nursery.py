"""Processes that have torch and Horovod imported from the start: a fork of one that has, in 20 ms instead of 3 s.

    python -m tests.local.nursery serve SOCKET            imports, then forks a child for each connection
    python -S tests/local/nursery.py SOCKET SCRIPT ...    is, for its launcher, the process that runs SCRIPT

The second has the child's outputs, environment and end: it ends with its exit code or dies of its signal, and the child
does not outlive it. The first runs no torch operation, so that a fork is safe; each child is a real worker from there.
"""

import json
import os
import selectors
import signal
import socket
import sys


def main() -> None:
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        adopt(sys.argv[1], sys.argv[2:])


def adopt(path: str, command: list[str]) -> None:
    """Have `command` run by a child of the nursery, and end as it ends."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as nursery:
        nursery.connect(path)
        request = json.dumps({"command": command, "environment": dict(os.environ), "cwd": os.getcwd()})  # noqa: PTH109 - pathlib would double this program's start
        socket.send_fds(nursery, [request.encode()], [1, 2])
        code = int(nursery.recv(16) or b"-9")
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def serve(path: str) -> None:
    """Serve until the process that started this one closes its standard input."""
    import importlib

    for module in ("horovod.torch", "torch._dynamo"):
        importlib.import_module(module)
    Nursery(path).serve()


class Nursery:
    """Forks, and tells how each child ended. A selector's key carries what is to be done."""

    def __init__(self, path: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(path)
        self._listener.listen(64)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(sys.stdin, selectors.EVENT_READ, self._close)
        self._children: set[int] = set()
        self._open = True

    def serve(self) -> None:
        while self._open:
            for key, _ in self._selector.select():
                # Of a client and its child that both end, the first may have taken the other along.
                if self._selector.get_map().get(key.fd) is key:
                    key.data()

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        request, fds, _, _ = socket.recv_fds(client, 1 << 20, 2)
        if not request:  # It has gone again.
            client.close()
            return
        child = os.fork()
        if not child:
            run(json.loads(request), fds)
        for fd in fds:
            os.close(fd)
        pidfd = os.pidfd_open(child)
        self._children.add(child)
        self._selector.register(pidfd, selectors.EVENT_READ, lambda: self._ended(pidfd, child, client))
        self._selector.register(client, selectors.EVENT_READ, lambda: self._forsaken(child, client))

    def _forsaken(self, child: int, client: socket.socket) -> None:
        self._selector.unregister(client)
        os.kill(child, signal.SIGKILL)

    def _ended(self, pidfd: int, child: int, client: socket.socket) -> None:
        self._selector.unregister(pidfd)
        os.close(pidfd)
        self._children.remove(child)
        _, status = os.waitpid(child, 0)
        if client in self._selector.get_map():
            self._selector.unregister(client)
            answer(client, os.waitstatus_to_exitcode(status))
        client.close()

    def _close(self) -> None:
        for child in self._children:
            os.kill(child, signal.SIGKILL)
        self._open = False


def answer(client: socket.socket, code: int) -> None:
    """Tell a client how its child has ended."""
    import contextlib

    with contextlib.suppress(OSError):  # It has gone, which was not heard of yet.
        client.send(str(code).encode())


def run(request: dict[str, object], fds: list[int]) -> None:
    """Become the worker; never returns."""
    import runpy
    import traceback

    os.setsid()
    for number, fd in enumerate(fds, start=1):
        os.dup2(fd, number)
    # The listener, the clients' sockets and this copy of the outputs.
    os.closerange(3, 1024)
    os.chdir(str(request["cwd"]))
    os.environ.clear()
    os.environ.update(request["environment"])  # type: ignore[call-overload]
    sys.argv = request["command"]  # type: ignore[assignment]
    code = 1
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
        code = 0
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
