"""The pods with GPUs: listed once, then what has changed. A list of ten thousand pods is some 45 MB."""

import json
import logging
import time
from collections.abc import Callable
from itertools import chain
from typing import Final

from hvd_elastic.client.connection.cluster_client import ClusterClient, ClusterError, ForbiddenError, Json
from hvd_elastic.client.object_reading import ObjectReading, object_name
from hvd_elastic.decide.autoscale.shared_cluster import GpuPod
from hvd_elastic.system.untrusted_values import UNREADABLE

log = logging.getLogger(__name__)

PATH: Final = "/api/v1/pods"
_LIVE: Final = "status.phase!=Succeeded,status.phase!=Failed"
CHANGES_SECONDS: Final = 1
"""How long the API server sends changes at each reading: those since the last one come at once."""
FRESH_SECONDS: Final = 60.0
"""After so long without a reading, as of one that did not lead, the changes may not come within CHANGES_SECONDS."""
_SILENCE_SECONDS: Final = 10.0


class GpuPodReader:
    """Reads the pods of one cluster, again and again. One caller, one thread at a time."""

    def __init__(self, cluster: ClusterClient, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._cluster, self._clock = cluster, clock
        self._reading = ObjectReading("pod")
        self._pods: dict[str, tuple[GpuPod, ...]] = {}
        """By namespace and name; each once for each resource that it asks for."""
        self._version = ""
        """Of the API server's, up to which they are known; empty: they are not."""
        self._read_at = float("-inf")
        self._may_watch = True

    def read(self) -> tuple[GpuPod, ...]:
        """Those that have not ended, now. Raises ClusterError."""
        is_fresh = bool(self._version) and self._clock() - self._read_at < FRESH_SECONDS
        if not (is_fresh and self._may_watch and self._take_changes()):
            self._list()
        self._read_at = self._clock()
        return tuple(chain.from_iterable(self._pods.values()))

    def _list(self) -> None:
        self._pods, self._version = {}, ""
        for page in self._cluster.pages(PATH, fieldSelector=_LIVE):
            for pod in page["items"]:
                self._keep(pod)
            version = str(page["metadata"].get("resourceVersion", ""))
        self._version = version

    def _take_changes(self) -> bool:
        """Whether what is known is the present: after any fault it is listed anew."""
        query = {
            "watch": "1",
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(CHANGES_SECONDS),
        }
        try:
            for line in self._cluster.stream(PATH, query, silence_seconds=_SILENCE_SECONDS):
                if not self._take(json.loads(line)):
                    return False
        except ForbiddenError as error:
            self._may_watch = False
            log.warning("all pods are listed at each turn, print the rights anew (hvd-elastic autoscaler): %s", error)
            return False
        except (ClusterError, ValueError, LookupError, TypeError) as error:
            log.info("the pods are listed anew: %s", error)
            return False
        return True

    def _take(self, event: Json) -> bool:
        """False: the API server does not know any more what has changed."""
        kind, about = event["type"], event["object"]
        if kind == "ERROR":
            return False
        self._version = str(about["metadata"]["resourceVersion"])
        if kind != "BOOKMARK":
            self._keep(about, is_gone=kind == "DELETED")
        return True

    def _keep(self, pod: Json, *, is_gone: bool = False) -> None:
        name, seen = object_name(pod), () if is_gone else self._seen(pod)
        if seen:
            self._pods[name] = seen
        else:
            self._pods.pop(name, None)

    def _seen(self, pod: Json) -> tuple[GpuPod, ...]:
        """One that cannot be read is named once, and still counts as occupying its node."""
        try:
            return GpuPod.each_from_json(pod)
        except UNREADABLE as error:
            self._reading.name(pod, error)
            occupying = GpuPod.occupying(pod)
            return () if occupying is None else (occupying,)
