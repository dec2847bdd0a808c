"""One launch, from its settings to its outcome."""

import contextlib
import logging
import math
import secrets
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final, TextIO

from hvd_elastic.launcher.core.hosts.slot_placement import Slot
from hvd_elastic.launcher.core.world_limits import WorldLimits
from hvd_elastic.launcher.driver import Driver, LaunchOutcome, WorkerCommand
from hvd_elastic.launcher.host_sources import HostSource, host_source
from hvd_elastic.launcher.launch_settings import LaunchSettings, OnError
from hvd_elastic.launcher.protocol.rendezvous_server import RendezvousServer
from hvd_elastic.launcher.remote.command_runner import CommandRunner, LocalCommandRunner, MixedCommandRunner
from hvd_elastic.launcher.remote.ssh import SshCommandRunner
from hvd_elastic.launcher.remote.worker_environment import bind_address, worker_environment
from hvd_elastic.launcher.remote.worker_output import OutputReader, OutputStream, open_rank_file
from hvd_elastic.launcher.remote.worker_processes import WorkerProcesses, end_leftovers
from hvd_elastic.launcher.status_report import StatusReport

logger = logging.getLogger(__name__)

FIRST_START_TIMEOUT_SECONDS: Final = 600.0
"""How long the first world waits for a worker that imports slowly. Nobody who trains is kept waiting by it."""

REMOVED_PATIENCE_SECONDS: Final = 2.0
"""How long a member whose host is gone may keep the others waiting."""


def launch(settings: LaunchSettings, *, stdout: TextIO | None = None, stderr: TextIO | None = None) -> LaunchOutcome:
    """Run the command on every host until the job has ended. When it returns, every process it started is gone.

    In the main thread SIGINT, SIGTERM and SIGHUP end the job with 128 + signal. Workers' lines go to `stdout` and
    `stderr` (default: this process's own).

    Raises:
        InvalidInputError: the settings have problems; nothing was started.
        HostsError: `hosts` is not a list of hosts.
        OSError: a network interface or the metrics port cannot be used.
    """
    settings.check()
    source = host_source(settings)
    settings.run_dir.mkdir(parents=True, exist_ok=True)
    left = end_leftovers(settings.run_dir)
    if left:
        logger.warning("ended %d processes that an earlier launcher had left", left)
    return _Launch(settings, stdout, stderr).run(source)


class _Launch:
    """The parts of one launch, and the order in which they start and stop."""

    def __init__(self, settings: LaunchSettings, stdout: TextIO | None, stderr: TextIO | None) -> None:
        self._settings = settings
        self._sinks = (stdout or sys.stdout, stderr or sys.stderr)
        self._runner = _command_runner(settings, self._connections_changed)
        self._outputs = OutputReader(now=datetime.now if settings.prefix_timestamp else None)
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
        self._server = RendezvousServer(bind_address(settings), self._driver, token=self._token)

    def run(self, source: HostSource) -> LaunchOutcome:
        stopping = threading.Event()
        with contextlib.ExitStack() as stack:
            stack.callback(self._outputs.close, 1.0)
            stack.callback(self._server.close)
            stack.callback(self._runner.close)
            stack.callback(self._workers.end_all)
            stack.callback(stopping.set)
            stack.enter_context(_signals_stop(self._driver))
            if self._settings.metrics_port is not None:
                stack.callback(self._serve_metrics(self._settings.metrics_port))
            self._outputs.start()
            self._server.start()
            threading.Thread(
                target=source.run, args=(self._driver.hosts_seen, stopping), name="hosts", daemon=True
            ).start()
            return self._driver.run(self._server)

    def _serve_metrics(self, port: int) -> Callable[[], None]:
        from hvd_elastic.launcher.launcher_metrics import serve_metrics

        port, stop = serve_metrics(self._report, port)
        logger.info("metrics on port %d", port)
        return stop

    def _connections_changed(self) -> None:
        self._driver.connections_changed()

    def _environment(self, slot: Slot) -> Mapping[str, str]:
        return worker_environment(self._settings, slot, self._server.port, token=self._token)

    def _streams(self, number: int, slot: Slot, label: Callable[[], str]) -> tuple[OutputStream, OutputStream]:
        folder = self._settings.output_filename
        names = ("stdout", "stderr")
        copies = [open_rank_file(folder, slot.rank, slot.size, name) if folder else None for name in names]
        stdout, stderr = (
            OutputStream(name, sink, label, copy) for name, sink, copy in zip(names, self._sinks, copies, strict=True)
        )
        return stdout, stderr


def _command_runner(settings: LaunchSettings, changed: Callable[[], None]) -> CommandRunner:
    if settings.local_hosts is not None:
        return LocalCommandRunner(Path(settings.local_hosts))
    ssh = SshCommandRunner(
        settings.run_dir, port=settings.ssh_port, identity_file=settings.ssh_identity_file, changed=changed
    )
    return ssh if settings.always_ssh else MixedCommandRunner(LocalCommandRunner(), ssh)


def _world_limits(settings: LaunchSettings) -> WorldLimits:
    return WorldLimits(
        start=settings.num_proc,
        minimum=settings.minimum,
        maximum=settings.max_num_proc,
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
def _signals_stop(driver: Driver) -> Iterator[None]:
    """Let a signal end the job. A second one of the same kind has the effect that it had before the launch."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_signal(number: int, _: object) -> None:
        signal.signal(number, before[signal.Signals(number)])
        driver.stop(128 + number, f"ended by {signal.Signals(number).name}")

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
