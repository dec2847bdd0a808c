"""Child processes of PID 1: started with a clean state, ended with all their descendants, never left behind."""

import contextlib
import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from hvd_elastic.system.processes import read_stat

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
"""<linux/prctl.h>"""

_NOT_FOUND: Final = 127
_NOT_EXECUTABLE: Final = 126
"""A shell's exit codes for a command that it cannot start."""

_libc: Final = ctypes.CDLL(None, use_errno=True)


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Have the kernel send `number` to this process when the thread that started it ends (prctl(2))."""
    _libc.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def adopt_orphans() -> None:
    """Become the reaper of all descendants, as PID 1 always is, so that none can escape."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def spawn(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    directory: str | None = None,
    stdio: tuple[int, int, int] | None = None,
    keep: Sequence[int] = (),
) -> int:
    """Start `argv` as the leader of its own session and return its process id.

    The child has default signal handlers and dies with this process. Its descriptors are `stdio` as 0, 1 and 2 (None:
    empty input and this process's output) and those in `keep` under their own numbers. A command that cannot be started
    ends as in a shell: 127 not found, 126 not executable, with a message on its stderr.
    """
    parent = os.getpid()
    # Until the child has handlers of its own, a signal that it gets would be told to this process, by the wakeup fd.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = os.fork()
        if pid == 0:
            try:
                _detach(parent)
                _exec(argv, environment, directory, stdio, keep)
            finally:
                os._exit(_NOT_EXECUTABLE)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return pid


def _detach(parent: int) -> None:
    os.setsid()
    die_with_parent()
    if os.getppid() != parent:
        os._exit(_NOT_EXECUTABLE)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _exec(
    argv: Sequence[str],
    environment: Mapping[str, str],
    directory: str | None,
    stdio: tuple[int, int, int] | None,
    keep: Sequence[int],
) -> NoReturn:
    for number, descriptor in enumerate(stdio or (os.open(os.devnull, os.O_RDONLY), 1, 2)):
        os.dup2(descriptor, number)
    for descriptor in keep:
        os.set_inheritable(descriptor, True)
    try:
        if directory is not None:
            os.chdir(directory)
        os.execvpe(argv[0], list(argv), dict(environment))  # noqa: S606
    except OSError as error:
        os.write(2, f"hvd-elastic: {argv[0]}: {error.strerror}\n".encode(errors="replace"))
        os._exit(_NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE)


def send(pid: int, number: int) -> None:
    """Send `number` to the session that `spawn` started as `pid`; does nothing if it is gone."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        # Between fork and setsid the child does not lead a group yet.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def reap(leads: Callable[[int], bool]) -> Iterator[tuple[int, int]]:
    """Yield (pid, exit code as a shell reports it) of each child that has ended.

    If `leads(pid)`, the rest of its process group (the data loaders of a killed trainer, for example) is killed first:
    until the leader is reaped, the group's number cannot belong to another group.
    """
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None:
            return
        if leads(ended.si_pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(ended.si_pid, signal.SIGKILL)
        _, status = os.waitpid(ended.si_pid, 0)
        yield ended.si_pid, shell_code(status)


def shell_code(status: int) -> int:
    """Turn a wait status into the code that a shell would report: 128 + number for a signal."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def kill_descendants(*, limit_seconds: float = 2.0) -> None:
    """Kill and reap every descendant. Needs `adopt_orphans()` to find those whose parent has ended."""
    deadline = time.monotonic() + limit_seconds
    while time.monotonic() < deadline:
        _send_each(children(), signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            time.sleep(0.002)
            continue
        return


@contextmanager
def signals_handled(
    numbers: Iterable[signal.Signals], handle: Callable[[int, FrameType | None], None]
) -> Iterator[None]:
    """Have signals call `handle`, in the main thread. Those that are ignored stay ignored, as `nohup` wants."""
    before = {number: handler for number in numbers if (handler := signal.getsignal(number)) is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def stopped_together() -> Iterator[None]:
    """Let Ctrl-Z stop every descendant with this process, and what continues this process continue them.

    They are in sessions of their own, which a terminal's signals do not reach. Does nothing outside of the main thread,
    nor where the signal is ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with signals_handled((signal.SIGTSTP,), lambda *_: _stop_all()):
        yield


def _stop_all() -> None:
    """Parents are stopped first, and continued last: none must see a child that is stopped, and none starts another."""
    stopped: list[int] = []
    while new := [pid for pid in descendants() if pid not in stopped]:
        _send_each(new, signal.SIGSTOP)
        stopped += new
    os.kill(os.getpid(), signal.SIGSTOP)
    _send_each(reversed(stopped), signal.SIGCONT)


def _send_each(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def descendants() -> list[int]:
    """Process ids of all descendants of this process, each after its parent's."""
    below, found = children_by_parent(), [os.getpid()]
    for pid in found:
        found += below.get(pid, [])
    return found[1:]


def children(parent: int | None = None) -> list[int]:
    """Process ids of the children of `parent` (None: of this process), from /proc: not every kernel lists them."""
    return children_by_parent().get(os.getpid() if parent is None else parent, [])


def children_by_parent() -> dict[int, list[int]]:
    """Process ids of all children by their parent's, from one look at /proc."""
    found: dict[int, list[int]] = {}
    for pid in [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]:
        if (stat := read_stat(pid)) is not None:
            found.setdefault(stat.parent, []).append(pid)
    return found
