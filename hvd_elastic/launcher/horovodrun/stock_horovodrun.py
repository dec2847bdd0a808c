"""`horovodrun` as it is, but for what its start, its look at the hosts and its rendezvous server cost.

    python -c CODE ARGUMENTS... COMMAND...
    python -c CODE --arguments-from DESCRIPTOR RUN_DIR

With the second form it imports Horovod, and then reads the arguments from that descriptor, each ended by a zero byte.
So its imports are done when the launcher knows what to run. At the descriptor's end without any, it ends, with 0. What
training processes tell the sidecar goes to RUN_DIR (`script_reports`).

**Its rendezvous server.** An elastic job gets ours (`horovodrun_rendezvous`).

**Whether Horovod has Gloo.** horovodrun finds out by a process that imports torch (`gloo_built` and
`_check_extension_lambda` in `horovod/common/util.py`), which is most of its start. Builds with our patches always do.

**What a command costs.** horovodrun starts a new Python for each run of the discovery script, once a second, and for
each worker (`safe_shell_exec.py`), and multiprocessing has that import the main module again. Of a horovodrun that was
started as a script that is all of its launcher. A program that was given with `-c` has no module to import.

**Workers with IPv6.** In place of an IPv6 address its list has a name that nobody else knows (`Host.name`). The
snapshot in RUN_DIR says what it stands for; ssh gets the address.

**By which clock it waits.** Its time-outs and cooldowns are differences of `time.time()` (`common/util/timeout.py`,
`elastic/discovery.py`): while it waits for hosts, NTP setting the clock right by an hour would end the job.
"""

import contextlib
import functools
import math
import os
import secrets
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from hvd_elastic.discovery.snapshot import SnapshotError, read_snapshot
from hvd_elastic.horovod.patch_set import installed_patches
from hvd_elastic.launcher.horovodrun.horovodrun_rendezvous import HorovodrunRendezvous
from hvd_elastic.launcher.script_reports import ScriptReports
from hvd_elastic.mpijob.contract import ENV_RENDEZVOUS_TOKEN

if TYPE_CHECKING:
    from horovod.runner.elastic.driver import ElasticDriver

CODE: Final = "from hvd_elastic.launcher.horovodrun.stock_horovodrun import main; main()"
ARGUMENTS_FROM: Final = "--arguments-from"


def main() -> None:
    """Run horovodrun with the arguments of this process, or with those that it is sent."""
    from horovod.runner import gloo_run, launch

    reports: ScriptReports | None = None
    arguments: Sequence[str] = sys.argv[1:]
    if arguments[:1] == [ARGUMENTS_FROM]:
        reports = ScriptReports(Path(arguments[2]))
        know_names(Path(arguments[2]))
        arguments = _received(int(arguments[1]))
        if not arguments:
            return
    gloo_run.create_rendezvous_handler = _itself
    gloo_run.launch_gloo_elastic = functools.partial(_launch_elastic, gloo_run.launch_gloo_elastic, reports)
    if installed_patches():
        launch.gloo_built = _has_gloo
    wait_by_a_steady_clock()
    sys.argv = ["horovodrun", *arguments]
    launch.run_commandline()


def know_names(run_dir: Path) -> None:
    """Have Horovod's launcher find the addresses of workers in the snapshot, where its list of hosts names them."""
    from horovod.runner.util import network, remote

    known: dict[str, str] = {}
    """By name. A worker that has just left the list is still known: its address is its own as long as it lives."""

    def number(name: str) -> str:
        if name not in known:
            with contextlib.suppress(SnapshotError, OSError):
                hosts = read_snapshot(run_dir, max_age_seconds=math.inf).hosts
                known.update((host.name, host.address) for host in hosts)
        return known.get(name, name)

    resolve, ssh = network.resolve_host_address, remote.get_ssh_command
    network.resolve_host_address = lambda name: resolve(number(name))
    remote.get_ssh_command = lambda command, host, *rest, **options: ssh(command, number(host), *rest, **options)


def wait_by_a_steady_clock() -> None:
    """Have what Horovod's launcher waits for end when so much time has passed, whatever the wall clock does."""
    from horovod.runner.common.util import timeout
    from horovod.runner.elastic import discovery

    for module in (timeout, discovery):
        module.time = SimpleNamespace(time=time.monotonic)


def _launch_elastic(launch: Callable[..., object], reports: ScriptReports | None, *arguments: Any) -> object:
    """Horovod's own with our rendezvous server, whose token the workers get."""
    command, execute, settings, environment, interfaces, _, executable = arguments
    token = secrets.token_hex()
    rendezvous = HorovodrunRendezvous(token, reports)
    environment = {**environment, ENV_RENDEZVOUS_TOKEN: token}
    return launch(command, execute, settings, environment, interfaces, rendezvous, executable)


def _itself(driver: "ElasticDriver") -> "ElasticDriver":
    """In place of what makes a handler of HTTP requests: our server asks the driver."""
    return driver


def encode(arguments: Sequence[str]) -> bytes:
    """The arguments as they are sent to the descriptor of ARGUMENTS_FROM."""
    return b"".join(os.fsencode(argument) + b"\0" for argument in arguments)


def _received(descriptor: int) -> Sequence[str]:
    with os.fdopen(descriptor, "rb") as pipe:
        return [os.fsdecode(argument) for argument in pipe.read().split(b"\0")[:-1]]


def _has_gloo(verbose: bool = False) -> bool:  # noqa: ARG001 - Horovod's signature
    return True
