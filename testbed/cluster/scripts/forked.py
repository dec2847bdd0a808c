"""A script as a fork of a process of its pod that has imported torch: four of them take the memory of two.

    python -S forked.py SCRIPT [ARGUMENTS...]

The first one in a pod starts the server (`testbed/local/forkserver.py`, which lies beside this file in a pod). It ends
with its pod.
"""

import contextlib
import fcntl
import os
import socket
import subprocess
import sys

import forkserver  # type: ignore[import-not-found]

NAME = "hvd-elastic-training"
LOCK = "/tmp/forked.lock"


def main() -> None:
    """Have SCRIPT run by a child of the pod's server, and end as it ends."""
    with open(LOCK, "w") as lock:  # noqa: PTH123 - pathlib would double this program's start
        fcntl.flock(lock, fcntl.LOCK_EX)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with listener, contextlib.suppress(OSError):  # there is one already
            listener.bind(f"\0{NAME}")
            listener.listen(64)
            start_server(listener)
    forkserver.adopt(NAME, sys.argv[1:])


def start_server(listener: socket.socket) -> None:
    """Start it. Its standard input is a pipe that it keeps open itself, so that it never ends.

    It must not hold this process's output: under horovodrun that is a pipe of sshd, which waits until nobody has it.
    """
    reading, writing = os.pipe()
    command = [sys.executable, forkserver.__file__, str(listener.fileno())]
    quiet = subprocess.DEVNULL
    kept = [listener.fileno(), writing]
    subprocess.Popen(command, stdin=reading, stdout=quiet, stderr=quiet, pass_fds=kept, start_new_session=True)


main()
