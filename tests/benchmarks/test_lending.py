"""`benchmarks.lending`: what is replayed, who waits for what, and the figures; and a short window of real servers."""

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

import pytest

from benchmarks.lend import lent_window
from benchmarks.lend.arms import ARMS, GPUS, MOST_SERVERS, Arm, StartedNodes
from benchmarks.lend.held_requests import HeldRequests
from benchmarks.lend.lent_window import Measured, replay
from benchmarks.lend.recorded_requests import WINDOW_SECONDS, at, called_for, recorded_arrivals, rises
from benchmarks.lend.servers import Servers, model_server
from benchmarks.lending import aims, chosen, table
from benchmarks.replay.trace_window import SIZE, AskedGpus
from benchmarks.report.measurements import last_measured

IDLE, LENT, RESERVED, NODE = ARMS


def schedule(*changes: tuple[float, int]) -> list[AskedGpus]:
    return [AskedGpus(second=second, gpus=gpus) for second, gpus in changes]


# --- what is replayed ------------------------------------------------------------------------------------------------


def trace(folder: Path, *rows: str) -> Path:
    path = folder / "requests.csv"
    path.write_text("\n".join(["service,t_s,requests,context_tokens,generated_tokens", *rows]) + "\n")
    return path


def test_requests_of_a_second_are_spread_over_it(tmp_path: Path) -> None:
    path = trace(tmp_path, "conv,0,1,9,9", "code,0,5,9,9", "conv,3,4,9,9")
    assert recorded_arrivals(path, "conv") == [0.5, 3.125, 3.375, 3.625, 3.875]
    with pytest.raises(ValueError, match="no requests of the service 'chat'"):
        recorded_arrivals(path, "chat")


def test_the_quarter_in_the_middle_is_played(tmp_path: Path) -> None:
    begins = [
        f"conv,{quarter * WINDOW_SECONDS + quarter},{requests},9,9" for quarter, requests in enumerate((5, 9, 2, 3))
    ]
    assert [int(second) for second in recorded_arrivals(trace(tmp_path, *begins), "conv")] == [3, 3, 3]


def test_servers_follow_the_rate_and_go_a_minute_later() -> None:
    busy = [15.0 + number / 6 for number in range(90)]  # six a second for fifteen seconds
    found = called_for(busy, 150.0, each=2.8, most=MOST_SERVERS)
    assert found == schedule((0.0, 1), (30.0, 3), (105.0, 1))
    assert called_for(busy, 150.0, each=2.8, most=2) == schedule((0.0, 1), (30.0, 2), (105.0, 1))
    assert called_for([], 150.0, each=2.8, most=3) == schedule((0.0, 1))
    assert [at(found, second) for second in (0.0, 29.9, 30.0, 104.0, 149.0)] == [1, 1, 3, 3, 1]
    assert rises(found) == 2


# --- who waits for what ----------------------------------------------------------------------------------------------


def test_the_longest_wait_goes_to_a_server_that_has_a_place() -> None:
    held = HeldRequests(slots=1)
    for request in range(3):
        held.arrive(request, float(request))
    assert held.next() is None, "there is no server"
    held.ready("a")
    assert held.next() == (0, "a")
    assert held.next() is None, "it has no place"
    held.ready("b")
    held.ready("a")  # said again at each look
    assert held.next() == (1, "b")
    held.answered("a")
    assert held.next() == (2, "a")
    assert len(held) == 0


def test_a_server_that_leaves_gets_nothing_more() -> None:
    held = HeldRequests(slots=2)
    held.ready("a")
    held.arrive(0, 0.0)
    assert held.next() == (0, "a")
    held.gone("a")
    held.arrive(1, 1.0)
    held.answered("a")
    assert held.next() is None


def test_the_server_with_the_fewest_requests_gets_the_next() -> None:
    held = HeldRequests(slots=2)
    held.ready("a")
    held.ready("b")
    for request in range(4):
        held.arrive(request, 0.0)
    assert [held.next() for _ in range(4)] == [(0, "a"), (1, "b"), (2, "a"), (3, "b")]


def test_who_waits_too_long_goes_away() -> None:
    held = HeldRequests()
    for request in range(3):
        held.arrive(request, float(request))
    assert held.give_up(1.0) == [0, 1]
    assert held.give_up(1.0) == []
    assert len(held) == 1


def test_what_training_has_in_each_arm() -> None:
    servers = range(1, MOST_SERVERS + 1)
    assert [[arm.training(count) for count in servers] for arm in ARMS] == [[1, 1, 1], [3, 2, 1], [2, 1, 1], [1, 1, 1]]
    assert all(arm.training(count) + count <= GPUS and arm.training(count) <= SIZE for arm in ARMS for count in servers)


def test_nodes_come_late_and_stay_long() -> None:
    nodes = StartedNodes(delay=200.0, stays=600.0)
    assert nodes.have(1, 0.0) == 1, "what is there at first is there"
    assert [nodes.have(3, now) for now in (10.0, 209.9, 210.0)] == [1, 1, 3]
    assert [nodes.have(1, now) for now in (300.0, 899.0)] == [3, 3]
    assert nodes.have(2, 899.0) == 3, "the second one is needed again"
    assert nodes.have(2, 900.0) == 2
    assert nodes.have(3, 901.0) == 2


# --- figures ---------------------------------------------------------------------------------------------------------


def measured(arm: str, waits: Sequence[float], *, errors: Sequence[str] = (), goodput: float | None = None) -> Measured:
    return Measured(
        arm=arm,
        seconds=60.0,
        requests=len(waits) + len(errors),
        waits=list(waits),
        errors=list(errors),
        gpu_waits=[1.0],
        starts=[2.0],
        goodput=goodput,
    )


def test_aims_are_of_the_tail_above_idle_gpus(tmp_path: Path) -> None:
    found = [
        measured(IDLE.name, [0.2, 0.2, 1.0]),
        measured(LENT.name, [0.2, 0.2, 3.0], goodput=0.96),
        measured(RESERVED.name, [0.2, 0.2, 1.2], goodput=0.9),
    ]
    by_aim = {aim.what: aim for aim in aims(found)}
    assert by_aim["seconds of p99 above idle GPUs, lent"].measured == pytest.approx(1.96)
    assert by_aim["seconds of p99 above idle GPUs, lent with a reserve"].measured == pytest.approx(0.196)
    assert [aim.outcome for aim in aims(found)] == ["met", "missed", "met", "missed"]
    for one in found:
        one.keep(tmp_path)
    read = last_measured(tmp_path, Measured).parts
    assert sorted(read, key=lambda one: one.arm) == sorted(found, key=lambda one: one.arm)


@pytest.mark.parametrize("other", [measured(LENT.name, [0.2], errors=["refused"] * 2), measured(LENT.name, [0.2] * 9)])
def test_a_tail_beside_another_window_or_with_lost_requests_is_none(other: Measured) -> None:
    found = [measured(IDLE.name, [0.2, 0.2, 1.0]), other]
    assert [aim.measured for aim in aims(found) if "p99" in aim.what] == [None, None]
    assert table(found, []).figures("errors") == [0, len(other.errors)]


def test_arms_are_chosen_by_name() -> None:
    assert chosen("lent, idle GPUs") == [IDLE, LENT]
    with pytest.raises(Exception, match="no arm is called 'borrowed'"):
        chosen("lent,borrowed")


# --- a short window with real servers --------------------------------------------------------------------------------

SERVER = """
import signal, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Answers(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200); self.end_headers(); self.wfile.write(b"7")
    def log_message(self, *_): pass
server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Answers)
server.daemon_threads = False
signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
server.serve_forever(0.01)
server.server_close()
"""
GIVES_WAY_SECONDS = 0.3


@dataclass
class SlowPlaces:
    """Training that needs some time to give a place back, and none to take it."""

    held: int
    wanted: int = 0
    since: float | None = None

    def want(self, count: int) -> None:
        self.wanted = count

    def kill(self) -> None:
        raise NotImplementedError

    def tend(self, now: float) -> None:
        if self.wanted >= self.held:
            self.held, self.since = self.wanted, None
        elif self.since is None:
            self.since = now
        elif now - self.since >= GIVES_WAY_SECONDS:
            self.held, self.since = self.wanted, None


@contextmanager
def slow_training(_folder: Path, size: int) -> Iterator[SlowPlaces]:
    yield SlowPlaces(held=size)


@pytest.mark.process
@pytest.mark.parametrize(("arm", "waits"), [(LENT, True), (RESERVED, False)])
def test_a_server_waits_for_training_unless_there_is_a_reserve(
    arm: Arm, waits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lent_window, "wait_trained", lambda *_: None)
    arrivals = [number * 0.05 for number in range(40)]
    found = replay(
        arm,
        schedule((0.0, 1), (0.5, 2), (1.5, 1)),
        arrivals,
        2.0,
        tmp_path,
        training=slow_training,
        serving=lambda port: [sys.executable, "-c", SERVER, str(port)],
        node_seconds=9.0,
    )
    assert (found.errors, len(found.waits), found.requests) == ([], 40, 40)
    assert len(found.gpu_waits) == 1
    assert (found.gpu_waits[0] >= GIVES_WAY_SECONDS) is waits
    assert found.goodput is None


@pytest.mark.process
def test_the_model_server_sends_a_first_byte_before_the_rest_and_ends_when_all_is_answered(tmp_path: Path) -> None:
    servers = Servers(command=lambda port: [*model_server(tmp_path)(port), "--rest=2"], folder=tmp_path)
    servers.want(1, GPUS, time.monotonic())
    (server,) = servers.held
    try:
        until(lambda: server.look(time.monotonic()))
        connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request("POST", "/", json.dumps([[0.5] * 64]))
        answer = connection.getresponse()
        assert answer.read(1).isdigit()
        server.host.take(time.monotonic())
        assert not server.look(time.monotonic())
        assert answer.read() == b"\n"
        connection.close()
        until(lambda: server.host.gone(time.monotonic()))
        assert server.host.process.returncode == 0
    finally:
        servers.end()


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)
