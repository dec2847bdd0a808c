"""One job on this machine: its hosts, their warm-up and its launcher."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hvd_elastic.discovery import EligibilityRules
from hvd_elastic.local.launcher_commands import LauncherCommand, launcher_command
from hvd_elastic.local.local_cluster import LocalCluster
from hvd_elastic.local.run_folder import run_folder
from hvd_elastic.mpijob.contract import HvdElasticError
from hvd_elastic.mpijob.description.job_spec import JobSpec, LauncherKind
from hvd_elastic.system.child_processes import adopt_orphans, die_with_parent, kill_descendants, stopped_together
from hvd_elastic.system.plain_words import printable

WARM_UP_SECONDS: Final = 600
"""How long the hosts of this machine may take to be ready. Nothing else comes here whose end is worth waiting for."""

LAST_LINES: Final = 20
"""Lines of a worker's log that a message has."""

END_SECONDS: Final = 3.0
"""How long the launcher may take to end its processes after SIGTERM, before it is killed. Below 5 s in all."""

Say = Callable[[str], None]


class WarmUpError(HvdElasticError):
    """Too few hosts became ready in time."""


@dataclass(slots=True, kw_only=True)
class LocalJob:
    """A running job: its hosts and its launcher."""

    cluster: LocalCluster
    launcher: subprocess.Popen[bytes]

    def wait(self, seconds: float) -> int | None:
        """The launcher's exit code, as a shell reports it; None if it has not ended after `seconds`."""
        try:
            code = self.launcher.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        return code if code >= 0 else 128 - code

    def end(self, number: int = signal.SIGTERM) -> None:
        """End the launcher and all that it started, within END_SECONDS; does nothing if it has ended.

        `number`: the signal that it gets, and so names as the reason.
        """
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.launcher.pid, number)
        if self.wait(END_SECONDS) is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.launcher.pid, signal.SIGKILL)
            self.launcher.wait()


@contextmanager
def local_cluster(
    spec: JobSpec, *, environment: Mapping[str, str] = os.environ, hosts: int | None = None
) -> Iterator[LocalCluster]:
    """Start the job's hosts in a new folder; on the way out all processes are ended and the folder is removed.

    `hosts`: how many; `workers.max` if None. Raises TemporaryFolderError.
    """
    adopt_orphans()
    wanted = spec.workers.max if hosts is None else hosts
    with stopped_together(), run_folder() as folder, _served(_cluster(spec, folder, environment), wanted) as cluster:
        yield cluster


def _cluster(spec: JobSpec, folder: Path, environment: Mapping[str, str]) -> LocalCluster:
    sizes = () if spec.launcher.kind is LauncherKind.LAUNCH else spec.workers.allowed_sizes
    return LocalCluster(
        folder=folder,
        command=spec.command,
        environment=environment,
        directory=spec.workdir,
        rules=EligibilityRules(slots=spec.workers.slots, min_workers=spec.workers.min, sizes=sizes),
        names=[f"{spec.name}-worker-{index}" for index in range(spec.workers.max)],
    )


@contextmanager
def _served(cluster: LocalCluster, hosts: int) -> Iterator[LocalCluster]:
    cluster.want(hosts)
    rounds = threading.Thread(target=cluster.serve, name="local hosts")
    rounds.start()
    try:
        yield cluster
    finally:
        cluster.stop()
        rounds.join()
        kill_descendants()


def _last_lines(cluster: LocalCluster) -> str:
    """What the first host that is not ready has printed last: its log goes with the run's folder."""
    host = next((host for host in cluster.hosts.values() if host.ready_since is None), None)
    if host is None:
        return "None of the others was started"
    log = cluster.folder / f"{host.name}.log"
    lines = log.read_text(errors="replace").splitlines()[-LAST_LINES:] if log.exists() else []
    if not lines:
        return f"{host.name} has printed nothing"
    return "\n".join((f"The last lines of {host.name}:", *map(printable, lines)))


def warm_up(cluster: LocalCluster, spec: JobSpec, say: Say) -> None:
    """Wait until `workers.start` hosts are offered, with progress lines to `say`.

    Raises WarmUpError after the job's `elastic_timeout`, or after WARM_UP_SECONDS if it has none.
    """
    limit = WARM_UP_SECONDS if spec.elastic_timeout is None else spec.elastic_timeout
    deadline = time.monotonic() + limit
    shown = -1
    while len(cluster.offered) < min(spec.workers.start, cluster.wanted):
        if time.monotonic() > deadline:
            raise WarmUpError(
                f"{len(cluster.offered)} of {spec.workers.start} workers were ready after {limit} s (elastic_timeout). "
                + _last_lines(cluster)
            )
        if len(cluster.offered) != shown:
            shown = len(cluster.offered)
            say(f"warming up: {shown} of {cluster.wanted} workers ready")
        time.sleep(0.02)


@contextmanager
def local_job(
    spec: JobSpec,
    cluster: LocalCluster,
    *,
    stdout: int | None = None,
    environment: Mapping[str, str] = os.environ,
    bare: bool = False,
) -> Iterator[LocalJob]:
    """Start the launcher over the hosts of `cluster`; on the way out it is ended with all that it started.

    Args:
        spec: the job.
        cluster: its hosts.
        stdout: a descriptor for the launcher's standard output and standard error; None: this process's own.
        environment: the launcher's.
        bare: see `launcher_command`.
    """
    command = launcher_command(spec, cluster.folder, environment, bare=bare)
    job = LocalJob(cluster=cluster, launcher=_start(command, spec.workdir, stdout))
    try:
        yield job
    finally:
        job.end()


def _start(command: LauncherCommand, directory: str | None, stdout: int | None) -> subprocess.Popen[bytes]:
    # In a session of its own, so that Ctrl-C reaches only this process, which then ends the others in order.
    return subprocess.Popen(
        command.argv,
        env=command.environment,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=None if stdout is None else subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=die_with_parent,  # noqa: PLW1509 - one prctl(2), and no thread here holds a lock that it needs
    )
