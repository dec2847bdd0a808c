"""Which watches fail at present: counted, and logged when it changes."""

import logging
from typing import Any

from hvd_elastic.discovery.kube.watch import Listed, Message, WatchFault
from hvd_elastic.discovery.sidecar.resource_watcher import NODES, is_forbidden
from hvd_elastic.discovery.sidecar.sidecar_metrics import Metrics

log = logging.getLogger(__name__)


class WatchHealth:
    """The last fault of each watch that has not recovered since."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._faults: dict[str, str] = {}
        """Resource to the fault's text."""

    def take(self, resource: str, message: Message[Any]) -> None:
        """Count a message of the watch of `resource`; log its first fault of a kind and its recovery."""
        if isinstance(message, WatchFault):
            self._take_fault(resource, message)
            return
        if isinstance(message, Listed):
            self._metrics.lists.labels(resource).inc()
        if self._faults.pop(resource, None):
            log.info("%s: the API server answers again", resource)

    def _take_fault(self, resource: str, fault: WatchFault) -> None:
        self._metrics.faults.labels(resource).inc()
        if resource == NODES and is_forbidden(fault):
            log.info("nodes may not be read: draining and spot nodes show only by what happens to their pods")
        elif self._faults.get(resource) != str(fault.error):
            self._faults[resource] = str(fault.error)
            log.warning("%s: %s; trying again", resource, fault.error)
