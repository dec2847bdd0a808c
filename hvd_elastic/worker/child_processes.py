"""Child processes of PID 1: started clean, ended with all they started, never left behind."""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
"""<linux/prctl.h>"""

_NOT_FOUND: Final = 127
_NOT_EXECUTABLE: Final = 126
"""What a shell answers for a command it cannot start."""

_libc: Final = ctypes.CDLL(None, use_errno=True)


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Let the kernel send `number` to this process when the thread that started it ends (prctl(2))."""
    _libc.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def adopt_orphans() -> None:
    """Become the reaper of all descendants, as PID 1 is by nature, so that none can slip away."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def spawn(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    directory: str | None = None,
    stdio: tuple[int, int, int] | None = None,
    keep: Sequence[int] = (),
) -> int:
    """Start `argv` as the leader of a session of its own and return its process id.

    The child has default signals, `stdio` as descriptors 0, 1 and 2 (nothing to read and this process' output where it
    is None), the descriptors in `keep` under their own numbers, no others, and it dies with this process. A command
    that cannot be started ends as in a shell: 127 not found, 126 not executable, with a message on its stderr.
    """
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            _detach(parent)
            _exec(argv, environment, directory, stdio, keep)
        finally:
            os._exit(_NOT_EXECUTABLE)
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
    """Send `number` to the session that `spawn` made with `pid`, gone or not."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        # Between fork and setsid the child leads no group yet.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def reap(leads: Callable[[int], bool]) -> Iterator[tuple[int, int]]:
    """Yield (pid, exit code as a shell reports it) of each child that has ended.

    Where `leads(pid)`, what is left of its process group, data loaders of a killed trainer for one, is killed while the
    group's number cannot belong to another yet: before the leader is reaped.
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
    """Kill every process below this one, and reap it. Needs `adopt_orphans()` to find those that changed parents."""
    deadline = time.monotonic() + limit_seconds
    while time.monotonic() < deadline:
        for pid in children():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            time.sleep(0.002)
            continue
        return


def children(parent: int | None = None) -> list[int]:
    """Process ids of the children of `parent` (this process), from /proc: not every kernel lists them."""
    wanted = os.getpid() if parent is None else parent
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _parent(entry) == wanted]


def _parent(entry: Path) -> int:
    try:
        # The name in parentheses may hold anything, spaces and parentheses too.
        return int((entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return -1
