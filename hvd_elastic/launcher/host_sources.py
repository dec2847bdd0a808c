"""Where the list of hosts comes from. A source that hangs, fails or prints nonsense never takes a host away."""

import contextlib
import logging
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from hvd_elastic.discovery.expected_workers import ExpectedWorker, read_expected
from hvd_elastic.discovery.snapshot import Host, MissingSnapshotError, SnapshotError, read_snapshot
from hvd_elastic.launcher.core.hosts.host_lists import HostsError, parse_hosts_flag, parse_script_output
from hvd_elastic.launcher.file_watch import FileWatch
from hvd_elastic.launcher.launch_settings import LaunchSettings
from hvd_elastic.mpijob.contract import EXPECTED_FILE, HOSTS_SCRIPT, SNAPSHOT_FILE

logger = logging.getLogger(__name__)

Publish = Callable[[tuple[Host, ...]], None]
Expect = Callable[[tuple[ExpectedWorker, ...]], None]


class HostSource(Protocol):
    """Reports the hosts, from a thread of its own."""

    def watch(self, publish: Publish, stop: threading.Event, *, expect: Expect | None = None) -> None:
        """Publish the hosts whenever they may have changed, until `stop` is set.

        `expect` is told of workers that may soon be hosts, where the source knows of any.
        """


def host_source(settings: LaunchSettings) -> HostSource:
    """The source that the settings name. Raises HostsError for a wrong `-H`."""
    if settings.hosts is not None:
        return FixedHosts(parse_hosts_flag(settings.hosts))
    script = settings.host_discovery_script or ""
    if Path(script).name == HOSTS_SCRIPT and Path(script).is_absolute():
        return SnapshotSource(Path(script).parent)
    return ScriptSource(
        script,
        default_slots=settings.slots_per_host,
        pause_seconds=settings.discovery_seconds,
        timeout_seconds=settings.discovery_timeout_seconds,
    )


class FixedHosts:
    """Hosts that never change."""

    def __init__(self, hosts: tuple[Host, ...]) -> None:
        self._hosts = hosts

    def watch(self, publish: Publish, stop: threading.Event, *, expect: Expect | None = None) -> None:
        """Publish once."""
        publish(self._hosts)
        stop.wait()


class SnapshotSource:
    """The sidecar's snapshot in `folder`."""

    LOOK_AGAIN_SECONDS = 1.0
    """The file is read this often even without an event, for file systems that send none."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._complaint = ""
        self._has_read = False
        self._expected: tuple[ExpectedWorker, ...] = ()

    def watch(self, publish: Publish, stop: threading.Event, *, expect: Expect | None = None) -> None:
        """Publish each new snapshot within milliseconds."""
        while not stop.is_set():
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._watch_folder(publish, stop, expect)
            except OSError as error:
                self._complain(error)
                stop.wait(self.LOOK_AGAIN_SECONDS)

    def _watch_folder(self, publish: Publish, stop: threading.Event, expect: Expect | None) -> None:
        """Raises OSError where the folder cannot be watched."""
        names = (SNAPSHOT_FILE,) if expect is None else (SNAPSHOT_FILE, EXPECTED_FILE)
        with FileWatch(*(self._folder / name for name in names)) as watch:
            while not stop.is_set():
                if expect is not None:
                    self._read_expected(expect)
                hosts = self._read()
                if hosts is not None:
                    publish(hosts)
                watch.wait(self.LOOK_AGAIN_SECONDS)

    def _read(self) -> tuple[Host, ...] | None:
        try:
            snapshot = read_snapshot(self._folder)
        except (SnapshotError, OSError) as error:
            self._complain(error)
            return None
        self._complaint, self._has_read = "", True
        return snapshot.hosts

    def _read_expected(self, expect: Expect) -> None:
        with contextlib.suppress(OSError):  # only the time for a connection is lost
            expected = read_expected(self._folder)
            if expected != self._expected:
                self._expected = expected
                expect(expected)

    def _complain(self, error: Exception) -> None:
        # The rest of the message holds an age that changes each second.
        kind = str(error).split(" is ", 1)[0]
        if kind == self._complaint:
            return
        self._complaint = kind
        if isinstance(error, MissingSnapshotError) and not self._has_read:  # the sidecar starts beside its launcher
            logger.info("waiting for the first list of hosts: %s", error)
        else:
            logger.warning("the hosts stay as they are: %s", error)


class ScriptSource:
    """A discovery script that is run again and again. Its whole process group is killed after a time-out."""

    def __init__(
        self, command: str, *, default_slots: int | None, pause_seconds: float, timeout_seconds: float
    ) -> None:
        self._command, self._default_slots = command, default_slots
        self._pause, self._timeout = pause_seconds, timeout_seconds
        self._complaint = ""

    def watch(self, publish: Publish, stop: threading.Event, *, expect: Expect | None = None) -> None:
        """Publish the hosts after each run that can be trusted."""
        while not stop.is_set():
            try:
                publish(self.once())
                self._complaint = ""
            except (HostsError, OSError) as error:
                if str(error) != self._complaint:
                    logger.warning("the hosts stay as they are: %s", error)
                self._complaint = str(error)
            stop.wait(self._pause)

    def once(self) -> tuple[Host, ...]:
        """The hosts that the script prints now. Raises HostsError if it fails, takes too long or prints a wrong line.

        Raises OSError if it cannot be started.
        """
        with subprocess.Popen(
            ["/bin/sh", "-c", self._command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process:
            try:
                output, errors = process.communicate(timeout=self._timeout)
            except subprocess.TimeoutExpired:
                raise HostsError(f"the discovery script did not end within {self._timeout:g} s") from None
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        if process.returncode:
            raise HostsError(f"the discovery script ended with {process.returncode}: {errors.strip()[-500:]}")
        return parse_script_output(output, self._default_slots)
