"""Follows the pods of a namespace, cheaply enough for thousands: one connection, and nothing kept but what changed.

`Timeline` tells the whole story of a scenario; this tells only when what became of which pod.
"""

import json
import subprocess
import threading
from typing import IO, Self
from urllib.parse import urlencode

from testbed.cluster.pod_lives import PodLife, pod_lives
from testbed.cluster.timeline import Sighting, sighting
from testbed.kube.kubectl import Kubectl


class PodWatch:
    """Watches from `with` to its end. What was there before counts as created when the watch began."""

    def __init__(self, kubectl: Kubectl, *, selector: str = "") -> None:
        query = urlencode({"watch": "true", "labelSelector": selector})
        # As they come over the wire: kubectl neither reads nor prints the objects, which would cost more than all else.
        self._argv = kubectl.argv("get", "--raw", f"/api/v1/namespaces/{kubectl.namespace}/pods?{query}")
        self.sightings: list[Sighting] = []
        self._last: dict[str, Sighting] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._argv, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._thread = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(timeout=10)
        self._thread.join(timeout=10)

    def pods(self) -> list[Sighting]:
        """The pods that are there now, as they were last seen."""
        self._require_alive()
        with self._lock:
            return list(self._last.values())

    def lives(self, *, since: float = 0.0) -> list[PodLife]:
        """The lives of pods that were created then or later (seconds since the epoch)."""
        return [life for life in pod_lives(list(self.sightings)) if life.created >= since]

    def _read(self, out: IO[str]) -> None:
        for line in out:
            event = json.loads(line)
            seen = sighting(event["type"], event["object"])
            self.sightings.append(seen)
            with self._lock:
                if seen.change == "DELETED":
                    self._last.pop(seen.uid, None)
                else:
                    self._last[seen.uid] = seen

    def _require_alive(self) -> None:
        """Raise if the watch has ended: what comes then would be missed, and waited for in vain."""
        if (code := self._process.poll()) is not None:
            raise ConnectionError(f"the watch of pods has ended with exit code {code}: {' '.join(self._argv)}")
