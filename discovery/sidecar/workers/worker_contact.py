"""All that goes between the sidecar and the workers, and whom the launcher is told to expect."""

import logging
import threading
from collections.abc import Callable
from typing import Final

from hvd_elastic.discovery.expected_workers import write_expected
from hvd_elastic.discovery.rules.inventory import Inventory
from hvd_elastic.discovery.sidecar.sidecar_options import SidecarOptions
from hvd_elastic.discovery.sidecar.workers.probe_results import Views
from hvd_elastic.discovery.sidecar.workers.prober import Prober
from hvd_elastic.discovery.sidecar.workers.worker_report import WorkerReport, read_report
from hvd_elastic.discovery.sidecar.workers.worker_requests import WorkerRequests

log = logging.getLogger(__name__)

ANNOUNCE_SECONDS: Final = 30.0
"""How often the workers are told that their launcher is there; far below the time that they wait for one."""


class WorkerContact:
    """The `update_*` and `log_suspicion` are not thread-safe; all else is."""

    def __init__(self, options: SidecarOptions, known: Views, report: Callable[[Views], None]) -> None:
        """As for `Prober`."""
        self._run_dir = options.run_dir
        self.prober = Prober(report, known=known, port=options.ready_port)
        self.requests = WorkerRequests(key=options.request_key, port=options.ready_port)
        self._targets_version = self._expected_version = 0
        self._was_suspect = False

    def update_expected(self, inventory: Inventory) -> None:
        """Tell the launcher which workers are on its list, or soon may be. Raises OSError."""
        if self._expected_version != inventory.expected_changes:
            self._expected_version = inventory.expected_changes
            write_expected(self._run_dir, inventory.expected)

    def update_targets(self, inventory: Inventory) -> None:
        if self._targets_version != inventory.address_changes:
            self._targets_version = inventory.address_changes
            self.prober.set_targets(dict(inventory.addresses))

    def read_report(self, address: str) -> WorkerReport:
        return read_report(address, port=self.requests.port)

    def keep_announcing(self, stopped: threading.Event) -> None:
        """Tell the workers that their launcher is there, until stopped."""
        while not stopped.wait(ANNOUNCE_SECONDS):
            self.requests.announce_launcher(tuple(self.prober.targets.values()))

    def log_suspicion(self) -> None:
        """Log when this side's own network becomes suspect, and when it no longer is."""
        suspect = self.prober.results.is_own_network_suspect
        if suspect != self._was_suspect:
            self._was_suspect = suspect
            log.warning(
                "no worker answers: the fault may be on this side, so the list stays" if suspect else "workers answer"
            )
