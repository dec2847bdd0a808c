"""Reads what a cluster may lack: an API that does not answer is said, once until it answers again, and left out."""

import logging
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from hvd_elastic.client.connection.cluster_client import ClusterError

log = logging.getLogger(__name__)

MOST_TEMPLATES: Final = 50
"""Read in one turn, of one kind."""

_T = TypeVar("_T")


class OptionalReading:
    """What was said of one cluster. One thread at a time."""

    def __init__(self) -> None:
        self._silent: set[str] = set()

    def of(self, what: str, read: Callable[[], Iterable[_T]]) -> list[_T]:
        """Return what `read` finds; nothing if it raises ClusterError. `what`: `HorizontalPodAutoscalers give`."""
        try:
            found = list(read())
        except ClusterError as error:
            if what not in self._silent:
                log.warning("%s no forecast: %s", what, error)
            self._silent.add(what)
            return []
        self._silent.discard(what)
        return found
