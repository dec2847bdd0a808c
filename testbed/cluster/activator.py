"""Holds requests while a Service has no Ready pod, and sends them on when it has, as KEDA's interceptor does."""

import http.client
import json
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from testbed.kube.errors import DeadlineError
from testbed.kube.kubectl import Kubectl

_LOOK_SECONDS: Final = 0.25
_ANSWER_SECONDS: Final = 30.0
_MOST: Final = 64
"""Requests at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of a request."""

    server: str
    """Address of the pod that answered."""
    first_byte: float
    """Seconds from the request until the first byte of its answer was there."""


class Activator:
    """Before one Service. `activator` makes it."""

    def __init__(self, kubectl: Kubectl, service: str, pool: ThreadPoolExecutor) -> None:
        self._kubectl, self._service, self._pool = kubectl, service, pool
        self._ready: tuple[tuple[str, int], ...] = ()
        self._looked = threading.Condition()
        self._in_flight: set[Future[Answer]] = set()

    @property
    def in_flight(self) -> int:
        """Requests that wait or are being answered."""
        self._in_flight = {each for each in self._in_flight if not each.done()}
        return len(self._in_flight)

    def ask(self, question: object, *, within_seconds: float) -> "Future[Answer]":
        """Send a request. Its future raises DeadlineError if no pod was Ready in time, OSError and HTTPException."""
        asked = self._pool.submit(self._passed_on, json.dumps(question), time.monotonic(), within_seconds)
        self._in_flight.add(asked)
        return asked

    def look(self) -> None:
        """Read which pods are Ready, and wake who waits for one."""
        slices = self._kubectl.list("endpointslices", selector=f"kubernetes.io/service-name={self._service}")
        with self._looked:
            self._ready = tuple(_ready(slices))
            self._looked.notify_all()

    def _passed_on(self, question: str, asked: float, within_seconds: float) -> Answer:
        with self._looked:
            if not self._looked.wait_for(lambda: self._ready, timeout=within_seconds):
                raise DeadlineError(f"no pod of {self._service} was Ready within {within_seconds:g} s")
            address, port = random.choice(self._ready)
        connection = http.client.HTTPConnection(address, port, timeout=_ANSWER_SECONDS)
        try:
            connection.request("POST", "/", question)
            answer = connection.getresponse()
            if answer.status != http.client.OK or not answer.read(1):
                raise http.client.HTTPException(f"{address} answered {answer.status}")
            first_byte = time.monotonic() - asked
            answer.read()
        finally:
            connection.close()
        return Answer(server=address, first_byte=first_byte)


@contextmanager
def activator(kubectl: Kubectl, service: str) -> Iterator[Activator]:
    """An activator that looks for Ready pods meanwhile."""
    ended = threading.Event()
    with ThreadPoolExecutor(_MOST) as pool:
        made = Activator(kubectl, service, pool)

        def look() -> None:
            while not ended.wait(_LOOK_SECONDS):
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
        (port,) = each["ports"] or [{"port": None}]
        for endpoint in each.get("endpoints") or []:
            if endpoint["conditions"].get("ready"):
                yield endpoint["addresses"][0], int(port["port"])
