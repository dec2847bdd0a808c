"""One launch, from its settings to its outcome."""

import contextlib
import errno
import functools
import logging
import math
import secrets
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final, TextIO

import psutil

from hvd_elastic.discovery.job_beginning import has_begun
from hvd_elastic.discovery.snapshot import Host
from hvd_elastic.launcher.core.slot_placement import Slot
from hvd_elastic.launcher.core.world_limits import WorldLimits
from hvd_elastic.launcher.driver import Driver, LaunchOutcome, WorkerCommand
from hvd_elastic.launcher.host_sources import HostSource, host_source
from hvd_elastic.launcher.launch_settings import LaunchSettings, OnError
from hvd_elastic.launcher.protocol.rendezvous_server import RendezvousServer
from hvd_elastic.launcher.remote.command_runner import CommandRunner, LocalCommandRunner, MixedCommandRunner
from hvd_elastic.launcher.remote.host_addresses import HostAddresses
from hvd_elastic.launcher.remote.output_sinks import LossySink, RankFile, StreamSink
from hvd_elastic.launcher.remote.ssh import SshCommandRunner
from hvd_elastic.launcher.remote.worker_environment import bind_address, worker_environment
from hvd_elastic.launcher.remote.worker_output import OutputReader, OutputStream
from hvd_elastic.launcher.remote.worker_processes import WorkerProcesses, end_leftovers
from hvd_elastic.launcher.script_reports import ScriptReports
from hvd_elastic.launcher.status_report import StatusReport
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses.problem import Problem
from hvd_elastic.system.background_threads import start_thread
from hvd_elastic.system.child_processes import signals_handled

logger = logging.getLogger(__name__)

FIRST_START_TIMEOUT_SECONDS: Final = 600.0
"""How long the first world waits for a worker that imports slowly. Nobody who trains is kept waiting by it."""

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""A launcher that is started again must not fail where one that runs goes on."""

REMOVED_PATIENCE_SECONDS: Final = 2.0
"""How long a member whose host is gone may keep the others waiting."""


def launch(settings: LaunchSettings, *, stdout: TextIO | None = None, stderr: TextIO | None = None) -> LaunchOutcome:
    """Run the command on every host until the job has ended. When it returns, every process it started is gone.

    In the main thread SIGINT, SIGTERM and SIGHUP end the job with 128 + signal, unless they are ignored when it is
    called; a second signal kills the workers at once. Workers' lines go to `stdout` and
    `stderr` (default: this process's own).

    Raises:
        InvalidInputError: the settings have problems, or name a folder, an interface or a port that cannot be used;
            nothing was started.
        HostsError: `hosts` is not a list of hosts.
    """
    settings.check()
    source = host_source(settings)
    problems = tuple(_machine_problems(settings))
    if problems:
        raise InvalidInputError(problems)
    left = end_leftovers(settings.run_dir)
    if left:
        logger.warning("ended %d processes that an earlier launcher had left", left)
    return _Launch(settings, stdout, stderr).run(source)


def _machine_problems(settings: LaunchSettings) -> Iterator[Problem]:
    """What the settings name and this machine lacks. Makes the folders."""
    for flag, folder in (("--run-dir", settings.run_dir), ("--output-filename", settings.output_filename)):
        try:
            if folder is not None:
                Path(folder).mkdir(parents=True, exist_ok=True)
                tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            if error.errno not in _FULL:
                yield Problem(path=flag, value=str(folder), what=f"cannot be written ({error.strerror})")
    try:
        bind_address(settings)
    except OSError as error:
        known = ", ".join(psutil.net_if_addrs())
        yield Problem(
            path="--network-interface",
            value=settings.network_interfaces[0],
            what=str(error),
            way_out=f"this machine has {known}",
        )


class _Launch:
    """The parts of one launch, and the order in which they start and stop."""

    def __init__(self, settings: LaunchSettings, stdout: TextIO | None, stderr: TextIO | None) -> None:
        self._settings = settings
        self._sinks = (
            LossySink("stdout", StreamSink(stdout or sys.stdout)),
            LossySink("stderr", StreamSink(stderr or sys.stderr)),
        )
        self._addresses = HostAddresses(self._connections_changed)
        self._runner = _command_runner(settings, self._addresses, self._connections_changed)
        self._outputs = OutputReader()
        self._workers = WorkerProcesses(self._runner, self._outputs, settings.run_dir)
        self._report = StatusReport(settings.run_dir)
        self._driver = Driver(
            _world_limits(settings),
            cooldown=settings.blacklist_cooldown_range,
            runner=self._runner,
            workers=self._workers,
            command=WorkerCommand(argv=settings.command, environment=self._environment, streams=self._streams),
            report=self._report,
        )
        self._token = secrets.token_hex()
        reports = ScriptReports(settings.run_dir)
        self._server = RendezvousServer(bind_address(settings), self._driver, token=self._token, reports=reports)

    def run(self, source: HostSource) -> LaunchOutcome:
        """Callbacks are pushed once what they undo was done, so an error on the way leaves nothing behind."""
        stopping = threading.Event()
        with contextlib.ExitStack() as stack:
            stack.callback(self._server.stop)
            stack.enter_context(_signals_stop(self._driver, self._workers))
            if self._settings.metrics_port is not None:
                stack.callback(self._serve_metrics(self._settings.metrics_port))
            self._outputs.start()
            stack.callback(self._outputs.drain, 1.0)
            self._server.start()
            stack.callback(self._runner.close)
            stack.callback(self._workers.end_all)
            stack.callback(stopping.set)
            watch = functools.partial(source.watch, self._hosts_seen, stopping, expect=self._driver.workers_expected)
            start_thread("hosts", watch, log=logger, stopped=stopping)
            return self._driver.run(self._server)

    def _hosts_seen(self, hosts: tuple[Host, ...]) -> None:
        """Before its first list the sidecar has said whether the job has begun, and it may start after the launcher."""
        if has_begun(self._settings.run_dir):
            self._driver.begun_before()
        self._driver.hosts_seen(hosts)

    def _serve_metrics(self, port: int) -> Callable[[], None]:
        from hvd_elastic.launcher.launcher_metrics import metrics_server

        try:
            server = metrics_server(self._report, port)
        except (OSError, OverflowError) as error:
            problem = Problem(path="--metrics-port", value=port, what=f"cannot be served ({error})")
            raise InvalidInputError((problem,)) from error
        server.start()
        logger.info("metrics on port %d", server.port)
        return server.stop

    def _connections_changed(self) -> None:
        self._driver.connections_changed()

    def _environment(self, slot: Slot) -> Mapping[str, str]:
        return worker_environment(self._settings, slot, self._server.port, self._addresses, token=self._token)

    def _streams(self, number: int, slot: Slot, label: Callable[[], str]) -> tuple[OutputStream, OutputStream]:
        now = datetime.now if self._settings.prefix_timestamp else None
        names = ("stdout", "stderr")
        stdout, stderr = (
            OutputStream(name, (sink, self._rank_file(slot, name)), label, now=now)
            for name, sink in zip(names, self._sinks, strict=True)
        )
        return stdout, stderr

    def _rank_file(self, slot: Slot, name: str) -> LossySink | None:
        folder = self._settings.output_filename
        if folder is None:
            return None
        file = RankFile(folder, slot.rank, slot.size, name)
        return LossySink(str(file), file)


def _command_runner(settings: LaunchSettings, addresses: HostAddresses, changed: Callable[[], None]) -> CommandRunner:
    if settings.local_hosts is not None:
        return LocalCommandRunner(Path(settings.local_hosts))
    ssh = SshCommandRunner(
        settings.run_dir, port=settings.ssh_port, identity_file=settings.ssh_identity_file, changed=changed
    )
    if settings.always_ssh and settings.network_interfaces:
        return ssh  # nothing depends on the hosts' numbers
    return MixedCommandRunner(None if settings.always_ssh else LocalCommandRunner(), ssh, addresses)


def _world_limits(settings: LaunchSettings) -> WorldLimits:
    return WorldLimits(
        start=settings.num_proc,
        minimum=settings.minimum,
        maximum=settings.max_num_proc,
        sizes=settings.sizes,
        elastic_timeout=math.inf if settings.elastic_timeout_seconds is None else settings.elastic_timeout_seconds,
        reset_limit=settings.reset_limit,
        restart_errors=settings.on_error is OnError.RESTART,
        settle=settings.settle_seconds,
        hang_timeout=settings.hang_timeout_seconds,
        removed_patience=REMOVED_PATIENCE_SECONDS,
        start_timeout=settings.start_timeout_seconds,
        first_start_timeout=max(settings.start_timeout_seconds, FIRST_START_TIMEOUT_SECONDS),
    )


@contextlib.contextmanager
def _signals_stop(driver: Driver, workers: WorkerProcesses) -> Iterator[None]:
    """Let a signal end the job, and a second one of any kind kill the workers at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []

    def on_signal(number: int, _: object) -> None:
        if received:
            workers.at_once = True
        received.append(number)
        driver.stop(128 + number, f"ended by {signal.Signals(number).name}")

    with signals_handled((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), on_signal):
        yield
