"""`horovodrun` as it is, but for what its start, its look at the hosts and its rendezvous server cost.

    python -c CODE ARGUMENTS... COMMAND...
    python -c CODE --arguments-from DESCRIPTOR

With the second form it imports Horovod, and then reads the arguments from that descriptor, each ended by a zero byte.
So its imports are done when the launcher knows what to run. At the descriptor's end without any, it ends, with 0.

**Connections that wait.** Horovod's own backlog is 5 (`socketserver.TCPServer.request_queue_size`, under
`horovod/runner/http/http_server.py`). When many workers ask for each other's addresses at once, the kernel drops or
resets what does not fit. A worker tries three times, half a second apart (`MAX_RETRY_TIMES` in Horovod's
`common/gloo/http_store.h`), and then gives up, and its whole host with it.

**Whether Horovod has Gloo.** horovodrun finds out by a process that imports torch (`gloo_built` and
`_check_extension_lambda` in `horovod/common/util.py`), which is most of its start. Builds with our patches always do.

**What a command costs.** horovodrun starts a new Python for each run of the discovery script, once a second, and for
each worker (`safe_shell_exec.py`), and multiprocessing has that import the main module again. Of a horovodrun that was
started as a script that is all of its launcher. A program that was given with `-c` has no module to import.
"""

import os
import sys
from collections.abc import Sequence
from typing import Final

from hvd_elastic.horovod.patch_set import installed_patches
from hvd_elastic.launcher.protocol.rendezvous_server import BACKLOG

CODE: Final = "from hvd_elastic.launcher.stock_horovodrun import main; main()"
ARGUMENTS_FROM: Final = "--arguments-from"


def main() -> None:
    """Run horovodrun with the arguments of this process, or with those that it is sent."""
    from horovod.runner import launch
    from horovod.runner.http.http_server import RendezvousHTTPServer

    RendezvousHTTPServer.request_queue_size = BACKLOG
    if installed_patches():
        launch.gloo_built = _has_gloo
    arguments: Sequence[str] = sys.argv[1:]
    if arguments[:1] == [ARGUMENTS_FROM]:
        arguments = _received(int(arguments[1]))
        if not arguments:
            return
    sys.argv = ["horovodrun", *arguments]
    launch.run_commandline()


def encode(arguments: Sequence[str]) -> bytes:
    """The arguments as they are sent to the descriptor of ARGUMENTS_FROM."""
    return b"".join(os.fsencode(argument) + b"\0" for argument in arguments)


def _received(descriptor: int) -> Sequence[str]:
    with os.fdopen(descriptor, "rb") as pipe:
        return [os.fsdecode(argument) for argument in pipe.read().split(b"\0")[:-1]]


def _has_gloo(verbose: bool = False) -> bool:  # noqa: ARG001 - Horovod's signature
    return True
