"""Host updates on their way from the launcher to a state."""

import contextlib
import logging
import threading
import time
from collections.abc import Iterator

from hvd_elastic.trainer.collectives import notifications
from hvd_elastic.trainer.elastic.state_protocol import ElasticState
from hvd_elastic.trainer.elastic.world import rendezvous_client
from hvd_elastic.trainer.elastic.world.rendezvous_client import RendezvousLost

logger = logging.getLogger(__name__)


class HostUpdates:
    """Delivers host updates to a state, and keeps those that a reset must not lose.

    Horovod compares whole seconds and empties the queue at a reset. Here every update has its own timestamp. An update
    that arrives after this worker has asked for its new place may not be reflected in that place, so it is delivered
    again after the reset.
    """

    def __init__(self, state: ElasticState) -> None:
        self._state = state
        self._lock = threading.Lock()
        self._is_late = False

    def on_hosts_updated(self, timestamp: int, update_res: object) -> None:
        """Deliver one update; Horovod's notification service calls this in its own thread."""
        with self._lock:
            self._is_late = True
            self._deliver()

    def forget(self) -> None:
        """Drop what came so far: the launcher knows it when it is asked for a place."""
        with self._lock:
            self._is_late = False

    def redeliver(self) -> None:
        """Deliver what came since `forget` again; the state has emptied its queue."""
        with self._lock:
            if self._is_late:
                self._deliver()

    def _deliver(self) -> None:
        timestamp = getattr(self._state, "_last_updated_timestamp", 0) + 1
        self._state.on_hosts_updated(max(timestamp, time.time_ns()), notifications.any_update())


@contextlib.contextmanager
def listening(state: ElasticState) -> Iterator[HostUpdates]:
    """Listen for host updates. Raises RendezvousLost if this process cannot register with the launcher."""
    updates = HostUpdates(state)
    try:
        notifications.start(rendezvous_client.register_bytes)
    except (RuntimeError, OSError) as error:
        logger.warning("cannot register with the launcher: %s", error)
        raise RendezvousLost from error
    with notifications.listening(updates):
        yield updates
