"""The reach test: one loop probes all workers on their ready ports; the protocol is at `contract.READY_PORT`.

Kubernetes takes 40 s and more to notice a lost node. Here a worker that misses MISSES_TO_LOSE probes in a row is silent
until it answers again, and lost. If no worker has answered since its first miss, the fault may be in the launcher's own
network, and no worker counts as lost: an empty list would end the job.

A probe costs about 0.1 ms, so a large job probes each worker less often, and one that missed again after a second. One
that has never answered starts: it is asked ten times a second, because every resize waits for it.
"""

import heapq
import os
import re
import selectors
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from hvd_elastic.discovery.rules.cluster_views import WorkerView
from hvd_elastic.mpijob.contract import READY_PORT, WorkerState

MISSES_TO_LOSE: Final = 3
INTERVAL_SECONDS: Final = 1.0
PROBES_PER_SECOND: Final = 100.0
"""At most: about 1% of a core. A larger job of n workers is probed once in n / 100 seconds."""
RETRY_SECONDS: Final = 1.0
"""After a miss."""
STARTING_SECONDS: Final = 0.1
"""After a miss of a worker that has never answered. With more than ten of them they share PROBES_PER_SECOND, too."""
TIMEOUT_SECONDS: Final = 1.0
BATCH_SECONDS: Final = 0.25
"""Probes due within this time of the first start with it, to save turns of the loop. At most a quarter of the shortest
interval, or a worker that has just been asked would be due again."""
MAX_OPEN: Final = 64
"""Connections open at a time: a thousand new workers must not mean a thousand descriptors."""
READY_LINE: Final = re.compile(rb"hvd-elastic 1 ([0-9]{1,9}) ([a-z]+) (-1|[0-9]{1,18}) (-1|[0-9]{1,18})\n")
"""The generation becomes a part of the host's alias, so no sign or other form of it may come through."""
MAX_LINE_BYTES: Final = 256


def parse_ready_line(line: bytes) -> WorkerView:
    """Parse a worker's line. Raises ValueError for anything else: any process may listen where a worker is expected."""
    match = READY_LINE.fullmatch(line)
    if match is None:
        raise ValueError(f"not a ready port of version 1: {line!r}")
    generation, state, step, age = match.groups()
    return WorkerView(
        generation=int(generation), state=WorkerState(state.decode()), step=int(step), age_seconds=int(age)
    )


def nonblocking_socket() -> socket.socket:
    """A TCP socket over IPv4 on which no call blocks."""
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRecord:
    """The results of one worker's probes. Times are of a monotonic clock."""

    view: WorkerView | None = None
    """The last answer; None if it never answered."""
    misses: int = 0
    """In a row."""
    first_miss: float = 0.0
    """When the present row of misses began."""

    def answered(self, view: WorkerView) -> "ProbeRecord":
        """The record after an answer, which cancels all misses."""
        return ProbeRecord(view=view)

    def missed(self, now: float) -> "ProbeRecord":
        """The record after one more miss."""
        return replace(self, misses=self.misses + 1, first_miss=self.first_miss if self.misses else now)

    @property
    def is_silent(self) -> bool:
        """Whether it has missed so many probes in a row that something is wrong, with it or with this side."""
        return self.misses >= MISSES_TO_LOSE

    def is_lost(self, last_answer: float) -> bool:
        """Whether the worker is lost. `last_answer`: when any worker last answered."""
        return self.is_silent and last_answer > self.first_miss

    def judged(self, last_answer: float) -> WorkerView | None:
        """The last answer, and what the misses since then say; None if it never answered."""
        return self.view and replace(self.view, silent=self.is_silent, lost=self.is_lost(last_answer))


Views = Mapping[str, WorkerView]
"""By pod UID; a worker that never answered is not in it."""


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
        self._report, self._port, self._clock = report, port, clock
        self._interval, self._timeout = interval_seconds, timeout_seconds
        self._records = {uid: ProbeRecord(view=view) for uid, view in (known or {}).items()}
        self._reported: dict[str, WorkerView] = dict(known or {})
        self._new_targets: Mapping[str, str] = {}
        self._targets: Mapping[str, str] = {}
        self._touched: set[str] = set()
        """Targets whose record has changed since the last report."""
        self._missing: set[str] = set()
        """Targets that have missed MISSES_TO_LOSE probes in a row, or more."""
        self._due: list[tuple[float, str]] = []
        """A heap of when to probe which worker."""
        self._scheduled: set[str] = set()
        self._open: dict[str, tuple[socket.socket, float]] = {}
        """Probes under way: connection and start; the oldest first."""
        self._last_answer = clock()
        self._selector = selectors.DefaultSelector()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._wake_lock = threading.Lock()
        """Held to write to `_wake` or close it: once closed, its number may be another file's."""
        self._closed = False
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._stopped = False
        self.probes = self.misses = 0
        """Totals, for the metrics."""

    @property
    def views(self) -> Views:
        """The last answer of each worker, heartbeat included. Safe from any thread."""
        return {uid: record.view for uid, record in list(self._records.items()) if record.view}

    @property
    def targets(self) -> Mapping[str, str]:
        """The workers that are probed: pod UID to address. Safe from any thread."""
        return self._new_targets

    @property
    def probed(self) -> int:
        """How many targets have answered or missed at least once."""
        return sum(record.view is not None or record.misses > 0 for record in self._records.values())

    @property
    def silent(self) -> frozenset[str]:
        """Targets that have missed MISSES_TO_LOSE probes in a row, whoever is to blame. Safe from any thread."""
        return frozenset(self._missing)

    @property
    def is_own_network_suspect(self) -> bool:
        """Whether no worker answers any more, so that the fault may be on this side.

        Workers that have never answered prove nothing: they start.
        """
        missing = 0 < len(self._targets) <= len(self._missing)
        return missing and bool(self._reported) and not self._any_reported_lost()

    def set_targets(self, addresses: Mapping[str, str]) -> None:
        """Probe these workers from now on: pod UID to address."""
        self._new_targets = addresses
        self._wake_up()

    def stop(self) -> None:
        """End `run`."""
        self._stopped = True
        self._wake_up()

    def run(self) -> None:
        """Probe until stopped."""
        try:
            while not self._stopped:
                self.turn()
        finally:
            self.close()

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
        until = now + self._batch_seconds()
        while self._due and self._due[0][0] <= until and len(self._open) < MAX_OPEN:
            self._probe(heapq.heappop(self._due)[1], now)
        self._report_changes()

    def _oldest(self) -> tuple[str, float] | None:
        """The probe that has been under way longest: its worker and its start."""
        return next(((uid, since) for uid, (_, since) in self._open.items()), None)

    def _wait_seconds(self) -> float | None:
        oldest = self._oldest()
        moments = [oldest[1] + self._timeout] if oldest else []
        if self._due and len(self._open) < MAX_OPEN:
            moments.append(self._due[0][0])
        return max(0.0, min(moments) - self._clock()) if moments else None

    def _switch_targets(self) -> None:
        if self._new_targets is self._targets:
            return
        for uid in (self._targets.keys() | self._reported.keys()) - self._new_targets.keys():
            self._close(uid)
            self._records.pop(uid, None)
            self._reported.pop(uid, None)
            self._missing.discard(uid)
            self._touched.discard(uid)
        now = self._clock()
        for uid in self._new_targets.keys() - self._scheduled - self._open.keys():
            self._schedule(uid, now)
        self._targets = self._new_targets

    def _schedule(self, uid: str, when: float) -> None:
        self._scheduled.add(uid)
        heapq.heappush(self._due, (when, uid))

    def _probe(self, uid: str, now: float) -> None:
        self._scheduled.discard(uid)
        if uid not in self._targets:
            return
        try:
            connection = nonblocking_socket()
        except OSError:  # this process has no descriptor left, which says nothing of the worker
            self._schedule(uid, now + RETRY_SECONDS)
            return
        self.probes += 1
        self._open[uid] = (connection, now)
        self._selector.register(connection, selectors.EVENT_READ, uid)
        try:
            connection.connect_ex((self._targets[uid], self._port))
        except OSError:
            self._miss(uid)

    def _read(self, uid: str) -> None:
        connection = self._open[uid][0]
        try:
            # One read: the line is one small segment, sent at once. A worker that splits it is probed again.
            view = parse_ready_line(connection.recv(MAX_LINE_BYTES))
        except (OSError, ValueError):
            self._miss(uid)
            return
        now = self._clock()
        self._last_answer = now
        self._finish(uid, self._records.get(uid, ProbeRecord()).answered(view), now + self._present_interval())

    def _miss(self, uid: str) -> None:
        now = self._clock()
        self.misses += 1
        record = self._records.get(uid, ProbeRecord()).missed(now)
        retry = min(RETRY_SECONDS, self._interval) if record.view else self._starting_interval()
        self._finish(uid, record, now + retry)

    def _finish(self, uid: str, record: ProbeRecord, next_probe: float) -> None:
        self._close(uid)
        self._records[uid] = record
        self._touched.add(uid)
        # Whether these are lost depends on the others' answers too, so each turn looks at them again.
        (self._missing.add if record.is_silent else self._missing.discard)(uid)
        self._schedule(uid, next_probe)

    def _present_interval(self) -> float:
        return max(self._interval, len(self._targets) / PROBES_PER_SECOND)

    def _starting_interval(self) -> float:
        return min(RETRY_SECONDS, self._interval, max(STARTING_SECONDS, self._starting / PROBES_PER_SECOND))

    def _batch_seconds(self) -> float:
        return min(BATCH_SECONDS, (self._starting_interval() if self._starting else self._interval) / 4)

    @property
    def _starting(self) -> int:
        """How many targets have never answered."""
        return len(self._targets) - len(self._reported)

    def _close(self, uid: str) -> None:
        if uid in self._open:
            connection, _ = self._open.pop(uid)
            self._selector.unregister(connection)
            connection.close()

    def _any_reported_lost(self) -> bool:
        return any(view.lost for view in list(self._reported.values()))

    def _report_changes(self) -> None:
        changed: dict[str, WorkerView] = {}
        for uid in self._touched | self._missing:
            view = self._records[uid].judged(self._last_answer)
            if view is not None:
                before = self._reported.get(uid)
                if before is None or _reported_part(before) != _reported_part(view):
                    changed[uid] = view
        self._touched.clear()
        if changed:
            self._reported.update(changed)
            self._report(changed)


def _reported_part(view: WorkerView) -> tuple[int, WorkerState, bool, bool]:
    return view.generation, view.state, view.silent, view.lost
