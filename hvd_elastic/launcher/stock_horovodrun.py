"""`horovodrun` as it is, but for what its start, its look at the hosts and its rendezvous server cost.

    python -c CODE ARGUMENTS... COMMAND...
    python -c CODE --arguments-from DESCRIPTOR RUN_DIR

With the second form it imports Horovod, and then reads the arguments from that descriptor, each ended by a zero byte.
So its imports are done when the launcher knows what to run. At the descriptor's end without any, it ends, with 0. What
training processes tell the sidecar goes to RUN_DIR (`script_reports`).

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
from pathlib import Path
from typing import Any, Final

from hvd_elastic.horovod.patch_set import installed_patches
from hvd_elastic.launcher.protocol.rendezvous_server import BACKLOG
from hvd_elastic.launcher.script_reports import ScriptReports
from hvd_elastic.mpijob.contract import FIGURES_SCOPE

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
        _pass_on_reports(ScriptReports(Path(arguments[2])))
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


def _pass_on_reports(reports: ScriptReports) -> None:
    """Give it what is PUT in FIGURES_SCOPE, and word of each registration, before Horovod's server answers."""
    from horovod.runner.elastic.driver import ElasticDriver
    from horovod.runner.http.http_server import KVStoreHandler

    put_value, register = KVStoreHandler._put_value, ElasticDriver.register_worker_server

    def put_value_or_report(self: Any, scope: str, key: str, value: bytes) -> None:
        if scope == FIGURES_SCOPE:
            reports.take(key, value)
        else:
            put_value(self, scope, key, value)

    def register_and_report(self: Any, host: str, slot: int, addresses: Any, secret_key: bytes) -> None:
        register(self, host, slot, addresses, secret_key)
        reports.registered()

    KVStoreHandler._put_value = put_value_or_report
    ElasticDriver.register_worker_server = register_and_report


def _has_gloo(verbose: bool = False) -> bool:  # noqa: ARG001 - Horovod's signature
    return True
