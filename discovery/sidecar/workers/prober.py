"""The reach test: one loop probes all workers on their ready ports; the protocol is at `contract.READY_PORT`.

Kubernetes takes 40 s and more to notice a lost node. Here a worker that misses MISSES_TO_LOSE probes in a row is silent
until it answers again, and lost. If no worker has answered since its first miss, the fault may be in the launcher's own
network, and no worker counts as lost: an empty list would end the job.
"""

import contextlib
import math
import os
import re
import selectors
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from hvd_elastic.discovery.rules.cluster_views import WorkerView
from hvd_elastic.discovery.sidecar.workers.probe_results import ProbeResults, Views
from hvd_elastic.discovery.sidecar.workers.probe_schedule import INTERVAL_SECONDS, RETRY_SECONDS, ProbeSchedule
from hvd_elastic.mpijob.contract import READY_PORT, WorkerState

TIMEOUT_SECONDS: Final = 1.0
MAX_OPEN: Final = 64
"""Connections open at a time: a thousand new workers must not mean a thousand descriptors."""
READY_LINE: Final = re.compile(
    rb"hvd-elastic 1 ([0-9]{1,9}) ([a-z]+) (-1|[0-9]{1,18}) (-1|[0-9]{1,18})(?: ([0-9a-f-]{1,64}))?\n"
)
"""The generation becomes a part of the host's alias, so no sign or other form of it may come through."""
MAX_LINE_BYTES: Final = 256


def parse_ready_line(line: bytes, uid: str = "") -> WorkerView:
    """Parse a worker's line. `uid`: the pod that is expected; empty: any.

    Raises ValueError for anything else: any process may listen where a worker is expected, and on a node's own address
    the pod that was there before.
    """
    match = READY_LINE.fullmatch(line)
    if match is None:
        raise ValueError(f"not a ready port of version 1: {line!r}")
    generation, state, step, age, named = match.groups()
    if uid and named is not None and named.decode() != uid:
        raise ValueError(f"the ready port of another pod: {line!r}")
    return WorkerView(
        generation=int(generation), state=WorkerState(state.decode()), step=int(step), age_seconds=int(age)
    )


def nonblocking_socket(address: str) -> socket.socket:
    """A TCP socket to an IPv4 or IPv6 address, on which no call blocks."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)


class Prober:
    """Probes all workers again and again. `run` blocks; `set_targets` may be called from another thread."""

    def __init__(
        self,
        report: Callable[[Views], None],
        *,
        known: Views | None = None,
        port: int = READY_PORT,
        interval_seconds: float = INTERVAL_SECONDS,
        timeout_seconds: float = TIMEOUT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`report` gets the views of which more than the heartbeat changed. `known`: views to start from."""
        self._report, self._port, self._clock, self._timeout = report, port, clock, timeout_seconds
        self.results = ProbeResults(known or {}, clock())
        self.targets: Mapping[str, str] = {}
        """The workers that are probed from the next turn on: pod UID to address. Safe to read from any thread."""
        self._probed: Mapping[str, str] = {}
        """The targets of the last turn."""
        self._interval = interval_seconds
        self._schedule = ProbeSchedule(interval_seconds)
        self._open: dict[str, tuple[socket.socket, float]] = {}
        """Probes under way: connection and start; the oldest first."""
        self._selector = selectors.DefaultSelector()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._wake_lock = threading.Lock()
        """Held to write to `_wake` or close it: once closed, its number may be another file's."""
        self._closed = False
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._stopped = False
        self.probes = self.misses = 0
        """Totals, for the metrics."""

    def set_targets(self, addresses: Mapping[str, str]) -> None:
        """Probe these workers from now on: pod UID to address."""
        self.targets = addresses
        self._wake_up()

    def stop(self) -> None:
        self._stopped = True
        self._wake_up()

    def run(self) -> None:
        """Probe until stopped. After an unforeseen error, which is raised, it may be called again."""
        try:
            while not self._stopped:
                self.turn()
        except BaseException:
            self._begin_anew()
            raise
        self.close()

    def _begin_anew(self) -> None:
        """Forget the probes under way, which an error may have left half done: the next turn probes all targets."""
        for uid in list(self._open):
            with contextlib.suppress(KeyError, ValueError):  # it was not registered yet
                self._close(uid)
        self._probed, self._schedule = {}, ProbeSchedule(self._interval)

    def _wake_up(self) -> None:
        with self._wake_lock:
            if not self._closed:
                os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Close all connections. Only for callers that use `turn` instead of `run`."""
        for uid in list(self._open):
            self._close(uid)
        self._selector.close()
        with self._wake_lock:
            self._closed = True
            os.close(self._wake)

    def turn(self) -> None:
        """Wait until something is to be done, and do it."""
        for key, _ in self._selector.select(self._wait_seconds()):
            if key.fileobj == self._wake:
                os.eventfd_read(self._wake)
            else:
                self._read(key.data)
        self._switch_targets()
        now = self._clock()
        while (oldest := self._oldest()) and now - oldest[1] >= self._timeout:
            self._miss(oldest[0])
        until = now + self._schedule.batch_seconds(self.results.starting)
        while self._schedule.earliest <= until and len(self._open) < MAX_OPEN:
            self._probe(self._schedule.pop(), now)
        if changed := self.results.report_changes():
            self._report(changed)

    def _oldest(self) -> tuple[str, float] | None:
        """The probe that has been under way longest: its worker and its start."""
        return next(((uid, since) for uid, (_, since) in self._open.items()), None)

    def _wait_seconds(self) -> float | None:
        oldest = self._oldest()
        moment = oldest[1] + self._timeout if oldest else math.inf
        if len(self._open) < MAX_OPEN:
            moment = min(moment, self._schedule.earliest)
        return None if moment == math.inf else max(0.0, moment - self._clock())

    def _switch_targets(self) -> None:
        targets = self.targets
        if targets is self._probed:
            return
        for uid in self._open.keys() - targets.keys():
            self._close(uid)
        self.results.keep(targets.keys())
        now = self._clock()
        for uid in targets.keys() - self._schedule.uids - self._open.keys():
            self._schedule.add(uid, now)
        self._probed = targets

    def _probe(self, uid: str, now: float) -> None:
        if uid not in self._probed:
            return
        try:
            connection = nonblocking_socket(self._probed[uid])
        except OSError:  # this process has no descriptor left, which says nothing of the worker
            self._schedule.add(uid, now + RETRY_SECONDS)
            return
        self.probes += 1
        self._open[uid] = (connection, now)
        self._selector.register(connection, selectors.EVENT_READ, uid)
        try:
            connection.connect_ex((self._probed[uid], self._port))
        except OSError:
            self._miss(uid)

    def _read(self, uid: str) -> None:
        connection = self._open[uid][0]
        try:
            # One read: the line is one small segment, sent at once. A worker that splits it is probed again.
            view = parse_ready_line(connection.recv(MAX_LINE_BYTES), uid)
        except (OSError, ValueError):
            self._miss(uid)
            return
        now = self._clock()
        self._close(uid)
        self.results.add_answer(uid, view, now)
        self._schedule.add(uid, now + self._schedule.present_interval(len(self._probed)))

    def _miss(self, uid: str) -> None:
        now = self._clock()
        self.misses += 1
        starting = self.results.starting
        self._close(uid)
        has_answered = self.results.add_miss(uid, now)
        pause = self._schedule.retry_interval() if has_answered else self._schedule.starting_interval(starting)
        self._schedule.add(uid, now + pause)

    def _close(self, uid: str) -> None:
        if uid in self._open:
            connection, _ = self._open.pop(uid)
            self._selector.unregister(connection)
            connection.close()
