"""One arm: training and servers on the GPUs of one node, recorded requests, and what each of them waited for."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Final

from benchmarks.lend.arms import GPUS, MOST_SERVERS, Arm, StartedNodes
from benchmarks.lend.held_requests import HeldRequests
from benchmarks.lend.recorded_requests import at
from benchmarks.lend.servers import ANSWER_SECONDS, Command, Servers, first_byte
from benchmarks.peers.local_system import EVENTS, Places
from benchmarks.peers.local_window import wait_trained
from benchmarks.replay import measured_window
from benchmarks.replay.trace_window import SIZE, AskedGpus
from benchmarks.report import measurements
from testbed.cluster.training import Account

LOOK_SECONDS: Final = 0.01
START_SECONDS: Final = 120.0
"""In which the first servers must listen."""
SLOTS: Final = 4
"""Requests that a server answers at once. With one, the queue that any burst makes would hide what a GPU costs."""


class NeverServedError(Exception):
    """No server came to listen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What happened in one arm."""

    arm: str
    seconds: float
    requests: int
    waits: list[float]
    """Seconds from each request to the first byte of its answer, of those that were answered."""
    errors: list[str]
    """Of the others."""
    gpu_waits: list[float]
    """Seconds from the call for each server that was added until it had a GPU."""
    starts: list[float]
    """And from there until it listened."""
    goodput: float | None
    """Share of the GPU-time that was left to training which kept steps have used. None: no step was done."""

    def keep(self, folder: Path) -> None:
        """Write it into a file, for a report."""
        measurements.keep(folder, self.arm, self)


@dataclass(slots=True, kw_only=True)
class _Requests:
    """All requests of a window."""

    arrivals: Sequence[float]
    """Seconds of the monotonic clock."""
    held: HeldRequests = field(default_factory=lambda: HeldRequests(slots=SLOTS))
    waits: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    _come: int = 0
    _asked: dict[Future[float], tuple[int, str]] = field(default_factory=dict)

    def look(self, pool: ThreadPoolExecutor, ports: dict[str, int], now: float) -> None:
        """Hold those that have come, send those for which there is a place, note those that are answered."""
        while self._come < len(self.arrivals) and self.arrivals[self._come] <= now:
            self.held.arrive(self._come, self.arrivals[self._come])
            self._come += 1
        for answered in [one for one in self._asked if one.done()]:
            self._note(answered, *self._asked.pop(answered))
        self.errors += ["no server within the time-out" for _ in self.held.give_up(now - ANSWER_SECONDS)]
        while (sent := self.held.next()) is not None:
            self._asked[pool.submit(first_byte, "127.0.0.1", ports[sent[1]])] = sent

    @property
    def all_are_done(self) -> bool:
        return self._come == len(self.arrivals) and not self._asked and not len(self.held)

    def _note(self, answer: Future[float], request: int, server: str) -> None:
        self.held.answered(server)
        try:
            self.waits.append(answer.result() - self.arrivals[request])
        except (OSError, HTTPException) as error:
            self.errors.append(f"{type(error).__name__}: {error}"[:200])


def replay(
    arm: Arm,
    schedule: Sequence[AskedGpus],
    arrivals: Sequence[float],
    seconds: float,
    folder: Path,
    *,
    training: Callable[[Path, int], AbstractContextManager[Places]],
    serving: Command,
    node_seconds: float,
) -> Measured:
    """Play the first seconds of a window. Raises NeverTrainedError and NeverServedError."""
    (folder / EVENTS).mkdir(parents=True)
    servers = Servers(command=serving, folder=folder)
    nodes = StartedNodes(delay=node_seconds)
    first = at(schedule, 0.0)
    with training(folder, SIZE) as places, ThreadPoolExecutor(2 * SLOTS * MOST_SERVERS) as pool, ExitStack() as ending:
        ending.callback(servers.end)
        wait_trained(places, folder)
        places.want(arm.training(first))
        wait_trained(places, folder, arm.training(first))
        _start_first(servers, first)
        nodes.have(first, time.monotonic())
        unix, begin = time.time(), time.monotonic()
        requests = _Requests(arrivals=[begin + one for one in arrivals if one < seconds])
        while (now := time.monotonic()) < begin + seconds or not requests.all_are_done:
            wanted = at(schedule, min(now - begin, seconds))
            places.want(arm.training(wanted))
            places.tend(now)
            gpus = nodes.have(wanted, now) if arm.starts_nodes else GPUS - places.held
            servers.want(wanted, gpus, now)
            _tell(requests.held, servers, now)
            requests.look(pool, {server.name: server.port for server in servers.held}, now)
            time.sleep(LOOK_SECONDS)
    added = servers.added[first:]
    return Measured(
        arm=arm.name,
        seconds=seconds,
        requests=len(requests.arrivals),
        waits=requests.waits,
        errors=requests.errors,
        gpu_waits=[server.started - server.called for server in added],
        starts=[server.ready - server.started for server in added if server.ready is not None],
        goodput=_goodput(arm, schedule, seconds, unix, folder),
    )


def _start_first(servers: Servers, count: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while sum(server.look(time.monotonic()) for server in servers.held) < count:
        if time.monotonic() > deadline:
            raise NeverServedError(f"not all of {count} servers listened within {START_SECONDS:g} s: {servers.folder}")
        servers.want(count, GPUS, time.monotonic())
        time.sleep(LOOK_SECONDS)


def _tell(held: HeldRequests, servers: Servers, now: float) -> None:
    for server in servers.held:
        if server.look(now):
            held.ready(server.name)
        else:
            held.gone(server.name)


def _goodput(arm: Arm, schedule: Sequence[AskedGpus], seconds: float, began: float, folder: Path) -> float | None:
    events = [event for event in Account.read(folder / EVENTS).events if event["time"] < began + seconds]
    steps = [step for step in Account(events=tuple(events)).steps if step["time"] >= began]
    asks = [AskedGpus(second=ask.second, gpus=SIZE - arm.training(ask.gpus)) for ask in schedule]
    found = measured_window.Measured(
        window="",
        system=arm.name,
        seconds=seconds,
        began=began,
        asks=[asdict(ask) for ask in asks if ask.second < seconds],
        steps=[{name: step[name] for name in ("time", "step", "size")} for step in steps],
        waits=[],
    )
    return measured_window.goodput(found) if steps else None
