"""Holds requests while a Service has no Ready pod, and sends them on when it has, as KEDA's interceptor does."""

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

from testbed.kube.errors import ClusterError, DeadlineError
from testbed.kube.kubectl import Kubectl

_LOOK_SECONDS: Final = 0.25
_MOST: Final = 64
"""Requests at once."""

Request = Callable[[str, int], float]
"""Asks a server at an address and a port, and returns when the first byte of its answer came, of the monotonic clock.
"""


class Activator:
    """Before one Service. `activator` makes it."""

    def __init__(self, kubectl: Kubectl, service: str, pool: ThreadPoolExecutor) -> None:
        self._kubectl, self._service, self._pool = kubectl, service, pool
        self._ready: tuple[tuple[str, int], ...] = ()
        self._looked = threading.Condition()
        self.in_flight = 0
        """Requests that wait or are being answered."""

    def ask(self, request: Request, *, within_seconds: float) -> "Future[float]":
        """Send a request. Its future has the seconds until the first byte of the answer came.

        It raises DeadlineError if no pod was Ready in time, and what `request` raises.
        """
        with self._looked:
            self.in_flight += 1
        asked = self._pool.submit(self._passed_on, request, time.monotonic(), within_seconds)
        asked.add_done_callback(self._answered)
        return asked

    def look(self) -> None:
        """Read which pods are Ready, and wake who waits for one."""
        slices = self._kubectl.list("endpointslices", selector=f"kubernetes.io/service-name={self._service}")
        with self._looked:
            self._ready = tuple(_ready(slices))
            self._looked.notify_all()

    def _passed_on(self, request: Request, asked: float, within_seconds: float) -> float:
        with self._looked:
            if not self._looked.wait_for(lambda: self._ready, timeout=within_seconds):
                raise DeadlineError(f"no pod of {self._service} was Ready within {within_seconds:g} s")
            address, port = random.choice(self._ready)
        return request(address, port) - asked

    def _answered(self, _answer: "Future[float]") -> None:
        with self._looked:
            self.in_flight -= 1


@contextlib.contextmanager
def activator(kubectl: Kubectl, service: str) -> Iterator[Activator]:
    """An activator that looks for Ready pods meanwhile."""
    ended = threading.Event()
    with ThreadPoolExecutor(_MOST) as pool:
        made = Activator(kubectl, service, pool)

        def look() -> None:
            while not ended.wait(_LOOK_SECONDS):
                with contextlib.suppress(ClusterError):  # what it has read before goes on
                    made.look()

        looking = threading.Thread(target=look, daemon=True)
        looking.start()
        try:
            yield made
        finally:
            ended.set()
            looking.join()


def _ready(slices: list[dict[str, Any]]) -> Iterator[tuple[str, int]]:
    for each in slices:
        ready = [one for one in each.get("endpoints") or [] if one["conditions"].get("ready")]
        for port in each.get("ports") or []:
            yield from ((one["addresses"][0], int(port["port"])) for one in ready)
