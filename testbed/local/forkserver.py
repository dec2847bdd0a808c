"""Python processes that have torch and Horovod imported from the start: forks, in 50 ms instead of 3 s each.

    forkserver.python()                             the interpreter's command line, to put before SCRIPT or `-c` CODE
    python testbed/local/forkserver.py FD             imports, then forks a child for each connection to the listener FD
    python -S testbed/local/forkserver.py NAME ...    the client: is, for who started it, the process that runs SCRIPT

The client has the child's outputs, environment and end: it ends with its exit code or dies of its signal, and the child
does not outlive it. It passes SIGINT and SIGTERM on. The server runs no torch operation, so that a fork is safe; each
child is a real worker from there. What it cannot show is a process's own environment in /proc, nor its command line.
"""

import functools
import json
import os
import selectors
import signal
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess


def python() -> list[str]:
    """Return the command line of a client. The first call starts this process's server, which ends when it does."""
    name, _ = _started()
    return [sys.executable, "-S", __file__, name]


@functools.cache
def _started() -> "tuple[str, subprocess.Popen[bytes]]":
    """The server's name and the server, whose standard input stays open until this process ends."""
    import atexit
    import subprocess
    from pathlib import Path

    name = f"hvd-elastic-tests-{os.getpid()}"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"\0{name}")
        listener.listen(64)
        number = listener.fileno()
        command = [sys.executable, __file__, str(number)]
        server = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[number], env=environment)
    atexit.register(server.communicate)
    return name, server


def main() -> None:
    if sys.argv[1].isdigit():
        serve(int(sys.argv[1]))
    else:
        adopt(sys.argv[1], sys.argv[2:])


def adopt(name: str, command: list[str]) -> None:
    """Have `command` run by a child of the server, and end as it ends."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.connect(f"\0{name}")
        request = json.dumps({"command": command, "environment": dict(os.environ), "cwd": os.getcwd()})  # noqa: PTH109 - pathlib would double this program's start
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: server.send(str(number).encode()))
        socket.send_fds(server, [request.encode()], [1, 2])
        code = int(server.recv(16) or b"-9")
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def serve(number: int) -> None:
    """Serve until the process that started this one closes its standard input."""
    import gc
    import importlib

    for module in ("horovod.torch", "torch._dynamo"):
        importlib.import_module(module)
    # A child's collector must not write to what all share: the kernel would copy it, page by page.
    gc.collect()
    gc.freeze()
    Server(socket.socket(fileno=number)).serve()


class Server:
    """Forks, and reports how each child ended. A selector's key carries what is to be done."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
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
        self._selector.register(client, selectors.EVENT_READ, lambda: self._heard(child, client))

    def _heard(self, child: int, client: socket.socket) -> None:
        """Send the child the signal that its client was sent; SIGKILL where the client has gone."""
        number = client.recv(16)
        if not number:
            self._selector.unregister(client)
        os.kill(child, int(number or signal.SIGKILL))

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


def hide_horovod() -> None:
    """Have whoever imports it fail, as where it is not installed."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "horovod"]:
        del sys.modules[name]
    sys.modules["horovod"] = None  # type: ignore[assignment]


def run(request: dict[str, object], fds: list[int]) -> None:
    """Become the worker; never returns."""
    import atexit
    import runpy
    import threading
    import traceback

    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, fd in enumerate(fds, start=1):
        os.dup2(fd, number)
    # The listener, the clients' sockets and this copy of the outputs.
    os.closerange(3, 1024)
    os.chdir(str(request["cwd"]))
    os.environ.clear()
    os.environ.update(request["environment"])  # type: ignore[call-overload]
    sys.argv = request["command"]  # type: ignore[assignment]
    if os.environ.get("HVD_ELASTIC_ENGINE") == "torch":
        hide_horovod()
    code = 1
    try:
        if sys.argv[0] == "-c":
            source, sys.argv[1:2] = sys.argv[1], []
            sys.path[0] = ""
            exec(compile(source, "<string>", "exec"), {"__name__": "__main__"})
        else:
            sys.path[0] = os.path.dirname(sys.argv[0])  # noqa: PTH120 - as in `adopt`
            runpy.run_path(sys.argv[0], run_name="__main__")
        code = 0
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
        if isinstance(leave.code, str):
            print(leave.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 0xFF)


if __name__ == "__main__":
    main()
