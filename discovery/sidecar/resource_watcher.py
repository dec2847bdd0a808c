"""Follows one watch in a thread of its own, and passes its messages on in batches."""

import threading
import time
from collections.abc import Callable
from typing import Any, Final

from hvd_elastic.discovery.kube.api_server import ApiServer, ApiStatusError
from hvd_elastic.discovery.kube.watch import Listed, Message, Selection, UpToDate, Watch, WatchFault
from hvd_elastic.discovery.sidecar.inbox import WatchBatch
from hvd_elastic.system.backoff import Backoff

NODES: Final = "nodes"

REFUSED: Final = Backoff(first_seconds=1.0, most_seconds=180.0)
"""Between two tries of what a job may have no right to. An API server that has started answers 403 until it has loaded
its Roles (kubernetes#121635), so no refusal is taken for the last word."""

REST_SECONDS: Final = 0.04
"""How long a watch is not read after it brought something. What comes meanwhile forms one batch, at half the price of
single events. A single event waits for nothing."""
QUEUED_SECONDS: Final = 0.002
"""A batch read this soon after a rest had come during the rest."""


def watch_resource(
    resource: str,
    selection: Selection[Any],
    server: ApiServer,
    deliver: Callable[[WatchBatch], None],
    *,
    stopped: threading.Event,
    clock: Callable[[], float],
) -> None:
    """Deliver batches until stopped; forbidden nodes are asked for less and less. `clock` gives the time of receipt."""
    rested, refusals = clock(), 0
    for messages in Watch(server=server, selection=selection, stopped=stopped).forever():
        if stopped.is_set():
            return
        now = clock()
        deliver(WatchBatch(resource, messages, now - REST_SECONDS if now - rested < QUEUED_SECONDS else now))
        if resource == NODES and any(map(is_forbidden, messages)):
            refusals += 1
            stopped.wait(REFUSED.ceiling(refusals))
        elif not any(isinstance(message, Listed) for message in messages):  # it may be let list, and not watch
            refusals = 0
        # No rest at a watch's end and at the next one's beginning: two rests would delay what comes after.
        if not all(isinstance(message, UpToDate) for message in messages):
            time.sleep(REST_SECONDS)
            rested = clock()


def is_forbidden(message: Message[Any]) -> bool:
    """Whether the API server refused the watch for lack of rights, as it says."""
    error = message.error if isinstance(message, WatchFault) else None
    return isinstance(error, ApiStatusError) and error.status in {401, 403}
