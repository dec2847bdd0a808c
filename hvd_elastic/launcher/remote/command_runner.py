"""How a command is started on a host: as a child of the launcher, or over ssh."""

import errno
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from hvd_elastic.discovery.expected_workers import ExpectedWorker
from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.launcher.core.processes.exit_codes import CONNECTION_LOST, NOT_EXECUTABLE, NOT_FOUND
from hvd_elastic.launcher.remote.host_addresses import HostAddresses
from hvd_elastic.mpijob.contract import ENV_RUN_DIR

_OUT_OF_RESOURCES: Final = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})
"""Why fork(2) or pipe(2) fails. The command is not to blame."""


def start_failure_code(error: OSError) -> int:
    """The exit code that stands for a command that could not be started, as a shell would give it."""
    if error.errno in _OUT_OF_RESOURCES:
        return CONNECTION_LOST
    return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE


class RunningCommand:
    """A command that was started. Its process on this machine leads a session, and has pipes for its outputs."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def wait(self) -> int:
        """Wait for its end. Returns its exit code, -N after signal N, or CONNECTION_LOST."""
        return self.process.wait()

    @property
    def last_words(self) -> str:
        """After its end: what the connection to its host said, apart from the command's own outputs."""
        return ""


class CommandRunner(Protocol):
    """Starts commands on hosts."""

    def expect(self, hosts: tuple[Host, ...], workers: tuple[ExpectedWorker, ...] = ()) -> None:
        """These hosts are to be used: open what takes time ahead of need, drop what is not needed any more.

        `workers` may soon be hosts, or are: what is open for them stays, and nothing is said of what cannot be opened.
        Returns at once. Called again whenever the hosts, or what is known of them, may have changed.
        """

    def is_open(self, host: Host) -> bool:
        """Whether a command would start there at once."""

    def start(self, host: Host, command: Sequence[str], environment: Mapping[str, str]) -> RunningCommand:
        """Start the command. Raises OSError."""

    def close(self) -> None:
        """Drop everything; returns at once."""


class LocalCommandRunner:
    """Starts commands as children of the launcher.

    With `folder` (`--local-hosts`) every host is a folder in it, named like its pod, which is the HVD_ELASTIC_RUN_DIR
    of the host's processes.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    def expect(self, hosts: tuple[Host, ...], workers: tuple[ExpectedWorker, ...] = ()) -> None:
        """Nothing to prepare."""

    def is_open(self, host: Host) -> bool:
        """Always."""
        return True

    def start(self, host: Host, command: Sequence[str], environment: Mapping[str, str]) -> RunningCommand:
        variables = dict(environment)
        if self._folder is not None:
            variables[ENV_RUN_DIR] = os.fspath(self._folder / (host.pod or host.alias))
        process = subprocess.Popen(
            command,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        return RunningCommand(process)

    def close(self) -> None: ...


class MixedCommandRunner:
    """As horovodrun does: hosts that are this machine's own addresses without ssh, all others over ssh.

    A host is used once it is known which of them it is.
    """

    def __init__(self, local: CommandRunner | None, remote: CommandRunner, addresses: HostAddresses) -> None:
        """`local`: None to use `remote` for this machine, too."""
        self._local, self._remote, self._addresses = local, remote, addresses

    def expect(self, hosts: tuple[Host, ...], workers: tuple[ExpectedWorker, ...] = ()) -> None:
        self._addresses.expect([host.address for host in hosts] + [worker.address for worker in workers])
        self._remote.expect(
            tuple(host for host in hosts if self._is_remote(host.address)),
            tuple(worker for worker in workers if self._is_remote(worker.address)),
        )

    def is_open(self, host: Host) -> bool:
        return self._addresses.is_known(host.address) and self._runner_for(host.address).is_open(host)

    def start(self, host: Host, command: Sequence[str], environment: Mapping[str, str]) -> RunningCommand:
        return self._runner_for(host.address).start(host, command, environment)

    def close(self) -> None:
        self._addresses.expect(())
        self._remote.close()

    def _is_remote(self, address: str) -> bool:
        return self._addresses.is_known(address) and self._runner_for(address) is self._remote

    def _runner_for(self, address: str) -> CommandRunner:
        return self._local if self._local and self._addresses.is_local(address) else self._remote
