"""Does a worker answer? One loop asks all of them on their ready ports; the protocol stands at `contract.READY_PORT`.

Kubernetes takes 40 s and more to see a lost node. Here a worker that misses MISSES times in a row is out, until it
answers again. If nobody has answered since its first miss, the fault may be the launcher's own network, and nobody is
out: an empty list would end the job.

Asking costs about 0.1 ms a worker, so a large job asks each one less often, and one that missed again a second later.
"""

import contextlib
import heapq
import os
import selectors
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from hvd_elastic.discovery.rules.views import WorkerView
from hvd_elastic.mpijob.contract import READY_PORT, WorkerState

MISSES: Final = 3
INTERVAL_SECONDS: Final = 1.0
ASKED_PER_SECOND: Final = 100.0
"""Workers asked a second, at most: about 1% of a core. A job of more workers is asked round in n / 100 seconds."""
AGAIN_SECONDS: Final = 1.0
"""After a miss."""
TIMEOUT_SECONDS: Final = 1.0
TOGETHER_SECONDS: Final = 0.25
"""Who is due within it is asked with the first: fewer turns of the loop. At most a quarter of the interval, or a worker
that has just answered is due again."""
AT_ONCE: Final = 64
"""Connections open at a time: a thousand new workers must not mean a thousand descriptors."""
GREETING: Final = "hvd-elastic"
MAX_LINE_BYTES: Final = 256


def parse_ready_line(line: bytes) -> WorkerView:
    """What a worker says. Raises ValueError for anything else."""
    name, version, generation, state, step, age = line.decode("ascii").split()
    if (name, version) != (GREETING, "1"):
        raise ValueError(f"not a ready port of version 1: {line!r}")
    return WorkerView(generation=int(generation), state=WorkerState(state), step=int(step), age_seconds=int(age))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What is known of one worker's answers. Times are of a monotonic clock."""

    view: WorkerView | None = None
    """None: it never answered."""
    misses: int = 0
    first_miss: float = 0.0
    """Of the present row of misses."""

    def answered(self, view: WorkerView) -> "Tally":
        """It answered: all is forgiven."""
        return Tally(view=view)

    def missed(self, now: float) -> "Tally":
        """It did not answer in time."""
        return replace(self, misses=self.misses + 1, first_miss=self.first_miss if self.misses else now)

    def is_lost(self, last_answer: float) -> bool:
        """Whether it is out. `last_answer`: when any worker last answered."""
        return self.misses >= MISSES and last_answer > self.first_miss


Views = Mapping[str, WorkerView]
"""By pod UID; who never answered is not in it."""


class Prober:
    """Asks all workers round and round. `run` blocks; `aim` may be called from another thread."""

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
        """`report` gets the views that changed in generation, state or being lost. `known`: to start from."""
        self._report, self._port, self._clock = report, port, clock
        self._interval, self._timeout = interval_seconds, timeout_seconds
        self._together = min(TOGETHER_SECONDS, interval_seconds / 4)
        self._tallies = {uid: Tally(view=view) for uid, view in (known or {}).items()}
        self._reported: dict[str, WorkerView] = dict(known or {})
        self._addresses: Mapping[str, str] = {}
        self._touched: set[str] = set()
        self._missing: set[str] = set()
        """Of those aimed at, who has missed MISSES times in a row."""
        self._due: list[tuple[float, str]] = []
        self._scheduled: set[str] = set()
        self._open: dict[str, tuple[socket.socket, float]] = {}
        """Who is being asked, since when; the oldest first."""
        self._last_answer = clock()
        self._selector = selectors.DefaultSelector()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._aimed: Mapping[str, str] = {}
        self._stopped = False
        self.asked = self.missed = 0

    @property
    def views(self) -> Views:
        """The last answer of each worker, heartbeat included. Safe from any thread."""
        return {uid: tally.view for uid, tally in list(self._tallies.items()) if tally.view}

    @property
    def settled(self) -> int:
        """How many of those aimed at have answered or missed at least once."""
        return sum(tally.view is not None or tally.misses > 0 for tally in self._tallies.values())

    @property
    def is_suspect(self) -> bool:
        """Whether nobody answers, so that the fault may be on this side."""
        return 0 < len(self._addresses) <= len(self._missing) and not self._reported_lost()

    def aim(self, addresses: Mapping[str, str]) -> None:
        """Ask these from now on: pod UID to address."""
        self._aimed = addresses
        os.eventfd_write(self._wake, 1)

    def stop(self) -> None:
        """End `run`."""
        self._stopped = True
        os.eventfd_write(self._wake, 1)

    def run(self) -> None:
        """Ask until stopped."""
        try:
            while not self._stopped:
                self.turn()
        finally:
            self.close()

    def close(self) -> None:
        """Let go of all connections; for who calls `turn` and not `run`."""
        for uid in list(self._open):
            self._close(uid)
        self._selector.close()
        os.close(self._wake)

    def turn(self) -> None:
        """Wait for the next thing to do, and do it."""
        for key, _ in self._selector.select(self._patience()):
            if key.fileobj == self._wake:
                os.eventfd_read(self._wake)
            else:
                self._read(key.data)
        self._take_aim()
        now = self._clock()
        while (oldest := self._oldest()) and now - oldest[1] >= self._timeout:
            self._miss(oldest[0])
        while self._due and self._due[0][0] <= now + self._together and len(self._open) < AT_ONCE:
            self._ask(heapq.heappop(self._due)[1], now)
        self._tell()

    def _oldest(self) -> tuple[str, float] | None:
        """Who has been asked for longest, and since when."""
        return next(((uid, since) for uid, (_, since) in self._open.items()), None)

    def _patience(self) -> float | None:
        oldest = self._oldest()
        moments = [oldest[1] + self._timeout] if oldest else []
        if self._due and len(self._open) < AT_ONCE:
            moments.append(self._due[0][0])
        return max(0.0, min(moments) - self._clock()) if moments else None

    def _take_aim(self) -> None:
        if self._aimed is self._addresses:
            return
        for uid in self._addresses.keys() - self._aimed.keys():
            self._close(uid)
            self._tallies.pop(uid, None)
            self._reported.pop(uid, None)
            self._missing.discard(uid)
            self._touched.discard(uid)
        now = self._clock()
        for uid in self._aimed.keys() - self._scheduled - self._open.keys():
            self._schedule(uid, now)
        self._addresses = self._aimed

    def _schedule(self, uid: str, when: float) -> None:
        self._scheduled.add(uid)
        heapq.heappush(self._due, (when, uid))

    def _ask(self, uid: str, now: float) -> None:
        self._scheduled.discard(uid)
        if uid not in self._addresses:
            return
        self.asked += 1
        asking = _nonblocking()
        self._open[uid] = (asking, now)
        self._selector.register(asking, selectors.EVENT_READ, uid)
        try:
            asking.connect_ex((self._addresses[uid], self._port))
        except OSError:
            self._miss(uid)

    def _read(self, uid: str) -> None:
        asking = self._open[uid][0]
        try:
            # One read: the line is one small segment, sent at once. A worker that splits it is asked again.
            view = parse_ready_line(asking.recv(MAX_LINE_BYTES))
        except (OSError, ValueError):
            self._miss(uid)
            return
        now = self._clock()
        self._last_answer = now
        self._settle(uid, self._tallies.get(uid, Tally()).answered(view), now + self._pace())

    def _miss(self, uid: str) -> None:
        now = self._clock()
        self.missed += 1
        self._settle(uid, self._tallies.get(uid, Tally()).missed(now), now + min(AGAIN_SECONDS, self._interval))

    def _settle(self, uid: str, tally: Tally, again: float) -> None:
        self._close(uid)
        self._tallies[uid] = tally
        self._touched.add(uid)
        # Whether these are out depends on the others' answers as well: they are looked at again each turn.
        (self._missing.add if tally.misses >= MISSES else self._missing.discard)(uid)
        self._schedule(uid, again)

    def _pace(self) -> float:
        return max(self._interval, len(self._addresses) / ASKED_PER_SECOND)

    def _close(self, uid: str) -> None:
        if uid in self._open:
            asking, _ = self._open.pop(uid)
            self._selector.unregister(asking)
            asking.close()

    def _reported_lost(self) -> bool:
        return any(view.lost for view in list(self._reported.values()))

    def _tell(self) -> None:
        changed: dict[str, WorkerView] = {}
        for uid in self._touched | self._missing:
            view = self._tallies[uid].view
            if view is not None:
                if view.lost != (lost := self._tallies[uid].is_lost(self._last_answer)):
                    view = replace(view, lost=lost)
                before = self._reported.get(uid)
                if before is None or _essence(before) != _essence(view):
                    changed[uid] = view
        self._touched.clear()
        if changed:
            self._reported.update(changed)
            self._report(changed)


def _essence(view: WorkerView) -> tuple[int, WorkerState, bool]:
    return view.generation, view.state, view.lost


def ask_for_checkpoint(
    addresses: Iterable[str], reason: str, *, port: int = READY_PORT, timeout_seconds: float = 0.3
) -> int:
    """Tell workers to write a durable checkpoint at their next commit; how many took the word in time."""
    line = f"checkpoint {' '.join(reason.split())}\n".encode("ascii", "replace")
    deadline = time.monotonic() + timeout_seconds
    told = 0
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as sockets:
        for address in addresses:
            asking = sockets.enter_context(_nonblocking())
            asking.connect_ex((address, port))
            selector.register(asking, selectors.EVENT_WRITE, asking)
        while selector.get_map() and (left := deadline - time.monotonic()) > 0:
            for key, events in selector.select(left):
                if _said(key.data, line, events):
                    # Not closed before its own line is read: that would be a reset, which may overtake ours.
                    selector.modify(key.data, selectors.EVENT_READ, key.data)
                else:
                    selector.unregister(key.data)
                    told += bool(events & selectors.EVENT_READ)
    return told


def _said(asking: socket.socket, line: bytes, events: int) -> bool:
    """Whether the line went out just now and the answer is still to come."""
    try:
        if events & selectors.EVENT_WRITE:
            return asking.send(line) == len(line)
        asking.recv(MAX_LINE_BYTES)
    except OSError:
        pass
    return False


def _nonblocking() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
