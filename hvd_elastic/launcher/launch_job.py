"""One launch from its settings to its outcome."""

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final, TextIO

from hvd_elastic.launcher.core.process import WorldLimits
from hvd_elastic.launcher.core.slot_placement import Slot
from hvd_elastic.launcher.driver import Driver, Launching, LaunchOutcome
from hvd_elastic.launcher.host_sources import HostSource, source_of
from hvd_elastic.launcher.launch_settings import LaunchSettings, OnError
from hvd_elastic.launcher.launcher_metrics import serve
from hvd_elastic.launcher.protocol.rendezvous_server import Server
from hvd_elastic.launcher.remote.ssh import SshShell
from hvd_elastic.launcher.remote.worker_output import Outputs, Stream, rank_file
from hvd_elastic.launcher.remote.worker_processes import WorkerProcesses, end_leftovers
from hvd_elastic.launcher.remote.worker_shell import LocalShell, MixedShell, Shell, interface_address, interface_towards
from hvd_elastic.launcher.status_report import StatusReport
from hvd_elastic.mpijob.contract import ENV_RUN_DIR

logger = logging.getLogger(__name__)

GLOO_TIMEOUT_SECONDS: Final = 10
REMOVED_PATIENCE_SECONDS: Final = 2.0
"""How long a member whose host is gone may keep the others standing still."""

_NOT_EXPORTED: Final = frozenset({"OLDPWD", "_HOROVOD_SECRET_KEY", ENV_RUN_DIR})
"""As Horovod's `env.IGNORE_REGEXES`, and the launcher's own folder."""


def launch(settings: LaunchSettings, *, stdout: TextIO | None = None, stderr: TextIO | None = None) -> LaunchOutcome:
    """Run the command on every host until the job has ended. When it returns, every process it started is gone.

    In the main thread SIGINT, SIGTERM and SIGHUP end the job with 128 + signal. Workers' lines go to `stdout` and
    `stderr` (default: this process's own).

    Raises:
        InvalidInputError: the settings have problems; nothing was started.
        HostsError: `hosts` is not a list of hosts.
    """
    settings.check()
    source = source_of(settings)
    settings.run_dir.mkdir(parents=True, exist_ok=True)
    left = end_leftovers(settings.run_dir)
    if left:
        logger.warning("ended %d processes that an earlier launcher had left", left)
    return _Launch(settings, stdout, stderr).run(source)


class _Launch:
    """The parts of one launch, and the order in which they come and go."""

    def __init__(self, settings: LaunchSettings, stdout: TextIO | None, stderr: TextIO | None) -> None:
        self._settings = settings
        self._sinks = (stdout or sys.stdout, stderr or sys.stderr)
        self._shell = _shell_of(settings, self._shell_changed)
        now = datetime.now if settings.prefix_timestamp else None
        self._outputs = Outputs(now=now)
        self._workers = WorkerProcesses(self._shell, self._outputs, settings.run_dir)
        self._report = StatusReport(settings.run_dir)
        self._driver = Driver(
            _rules_of(settings),
            cooldown=settings.blacklist_cooldown_range,
            shell=self._shell,
            workers=self._workers,
            launching=Launching(command=settings.command, environment=self._environment, streams=self._streams),
            report=self._report,
        )
        self._server = Server(self._bind_address(), self._driver)

    def run(self, source: HostSource) -> LaunchOutcome:
        stopping = threading.Event()
        with contextlib.ExitStack() as stack:
            stack.callback(self._outputs.close, 1.0)
            stack.callback(self._server.close)
            stack.callback(self._shell.close)
            stack.callback(self._workers.end_all)
            stack.callback(stopping.set)
            stack.enter_context(_signals(self._driver))
            if self._settings.metrics_port is not None:
                port, stop = serve(self._report, self._settings.metrics_port)
                logger.info("metrics on port %d", port)
                stack.callback(stop)
            self._outputs.start()
            self._server.start()
            threading.Thread(
                target=source.run, args=(self._driver.hosts_seen, stopping), name="hosts", daemon=True
            ).start()
            return self._driver.run(self._server)

    def _shell_changed(self) -> None:
        self._driver.shell_changed()

    def _bind_address(self) -> str:
        if self._settings.local_hosts is not None:
            return "127.0.0.1"
        if self._settings.network_interfaces:
            return interface_address(self._settings.network_interfaces[0])
        return "0.0.0.0"  # noqa: S104 - which interface leads to the hosts is known when there is one

    def _network(self, slot: Slot) -> tuple[str, str, str]:
        """The rendezvous server's address as the workers reach it, Gloo's interface, and NCCL's."""
        named = self._settings.network_interfaces
        if named:
            return interface_address(named[0]), named[0], ",".join(named)
        if self._settings.local_hosts is not None:
            return "127.0.0.1", "lo", "lo"
        name, address = interface_towards(slot.host.address)
        return address, name, name

    def _environment(self, slot: Slot) -> Mapping[str, str]:
        """As Horovod's (`gloo_run.create_run_env_vars`, `_slot_info_to_command_fn`)."""
        address, interface, nccl = self._network(slot)
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name not in _NOT_EXPORTED and not name.startswith("BASH_FUNC_")
            if not name.endswith("CUDA_VISIBLE_DEVICES") or self._settings.local_hosts is not None
        }
        timeout = self._settings.gloo_timeout_seconds
        if timeout is not None or "HOROVOD_GLOO_TIMEOUT_SECONDS" not in inherited:
            inherited["HOROVOD_GLOO_TIMEOUT_SECONDS"] = str(timeout or GLOO_TIMEOUT_SECONDS)
        return {
            **inherited,
            **slot.environment(),
            "PYTHONUNBUFFERED": "1",
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": address,
            "HOROVOD_GLOO_RENDEZVOUS_PORT": str(self._server.port),
            "HOROVOD_CONTROLLER": "gloo",
            "HOROVOD_CPU_OPERATIONS": "gloo",
            "HOROVOD_GLOO_IFACE": interface,
            "NCCL_SOCKET_IFNAME": nccl,
            "HOROVOD_ELASTIC": "1",
        }

    def _streams(self, number: int, slot: Slot, label: Callable[[], str]) -> tuple[Stream, Stream]:
        folder = self._settings.output_filename
        names = ("stdout", "stderr")
        copies = [rank_file(folder, slot.rank, slot.size, name) if folder else None for name in names]
        first, second = (
            Stream(name, sink, label, copy) for name, sink, copy in zip(names, self._sinks, copies, strict=True)
        )
        return first, second


def _shell_of(settings: LaunchSettings, changed: Callable[[], None]) -> Shell:
    if settings.local_hosts is not None:
        return LocalShell(Path(settings.local_hosts))
    ssh = SshShell(settings.run_dir, port=settings.ssh_port, identity_file=settings.ssh_identity_file, changed=changed)
    return ssh if settings.always_ssh else MixedShell(LocalShell(), ssh)


def _rules_of(settings: LaunchSettings) -> WorldLimits:
    return WorldLimits(
        start=settings.num_proc,
        minimum=settings.minimum,
        maximum=settings.max_num_proc,
        elastic_timeout=settings.elastic_timeout_seconds,
        reset_limit=settings.reset_limit,
        restart_errors=settings.on_error is OnError.RESTART,
        settle=settings.settle_seconds,
        hang_timeout=settings.hang_timeout_seconds,
        removed_patience=REMOVED_PATIENCE_SECONDS,
        start_timeout=settings.start_timeout_seconds,
        first_start_timeout=max(settings.start_timeout_seconds, settings.elastic_timeout_seconds),
    )


@contextlib.contextmanager
def _signals(driver: Driver) -> Iterator[None]:
    """End the job on a signal. A second one of the same kind does what it did before."""
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
