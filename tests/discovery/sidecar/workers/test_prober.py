import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.discovery.rules.cluster_views import WorkerView
from hvd_elastic.discovery.sidecar.workers.probe_results import MISSES_TO_LOSE, ProbeRecord, Views
from hvd_elastic.discovery.sidecar.workers.probe_schedule import INTERVAL_SECONDS as INTERVAL
from hvd_elastic.discovery.sidecar.workers.probe_schedule import STARTING_SECONDS, ProbeSchedule
from hvd_elastic.discovery.sidecar.workers.prober import Prober, parse_ready_line
from hvd_elastic.discovery.sidecar.workers.worker_requests import WorkerRequests
from hvd_elastic.mpijob.contract import WorkerState
from hvd_elastic.system.job_key import sign
from tests.discovery.conftest import until
from tests.discovery.workers import NONCE, Workers
from tests.ipv6 import needs_ipv6

A, B = "127.0.3.1", "127.0.3.2"


INTERVAL_SECONDS = 0.02


class Probing:
    def __init__(
        self, workers: Workers, addresses: dict[str, str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.reports: list[Views] = []
        self.prober = Prober(
            self.reports.append, port=workers.port, interval_seconds=INTERVAL_SECONDS, timeout_seconds=0.1, clock=clock
        )
        self.prober.set_targets(addresses)

    def until_reports(self, count: int) -> WorkerView:
        while len(self.reports) < count:
            self.prober.turn()
        (view,) = self.reports[count - 1].values()
        return view

    def probes(self, count: int) -> None:
        already = self.prober.probes
        while self.prober.probes < already + count:
            self.prober.turn()


@pytest.fixture
def probing(workers: Workers) -> Iterator[Probing]:
    made = Probing(workers, {"a": A})
    yield made
    made.prober.close()


@needs_ipv6
def test_a_worker_with_ipv6_alone_is_probed_and_told(workers: Workers) -> None:
    probing = Probing(workers, {"a": "::1"})
    try:
        workers.say("::1", generation=3)
        assert probing.until_reports(1).generation == 3
    finally:
        probing.prober.close()
    assert WorkerRequests(port=workers.port).request_checkpoint(["::1", A], "short", timeout_seconds=30.0) == 2


def test_reads_a_workers_answer(workers: Workers, probing: Probing) -> None:
    workers.say(A, generation=3, state=WorkerState.TRAINING, step=70)
    assert probing.until_reports(1) == WorkerView(generation=3, state=WorkerState.TRAINING, step=70)


def test_reports_what_changes_and_not_each_step(workers: Workers, probing: Probing) -> None:
    probing.until_reports(1)
    workers.say(A, step=5)
    probing.probes(5)
    assert len(probing.reports) == 1
    assert probing.prober.results.views["a"].step == 5
    workers.say(A, generation=1)
    assert probing.until_reports(2).generation == 1


def test_a_worker_is_lost_after_three_misses_until_it_answers(workers: Workers) -> None:
    probing = Probing(workers, {"a": A, "b": B})
    while not {"a", "b"} <= {uid for report in probing.reports for uid in report}:
        probing.prober.turn()
    workers.silent.add(A)
    count = len(probing.reports)
    assert probing.until_reports(count + 1).lost
    assert probing.prober.misses >= MISSES_TO_LOSE
    workers.silent.clear()
    assert not probing.until_reports(count + 2).lost
    probing.prober.close()


def test_if_no_worker_answers_all_are_silent_and_none_is_lost(workers: Workers, probing: Probing) -> None:
    probing.until_reports(1)
    workers.closed.add(A)
    probing.probes(MISSES_TO_LOSE + 3)
    assert len(probing.reports) == 2
    assert (probing.until_reports(2).silent, probing.until_reports(2).lost) == (True, False)
    assert probing.prober.results.is_own_network_suspect


def test_workers_that_have_not_started_say_nothing_about_this_side(workers: Workers, probing: Probing) -> None:
    workers.closed.add(A)
    probing.probes(MISSES_TO_LOSE + 3)
    assert probing.reports == []
    assert not probing.prober.results.is_own_network_suspect


@pytest.mark.parametrize(
    "line",
    [
        b"SSH-2.0-OpenSSH\n",
        b"hvd-elastic 2 0 waiting 0 0\n",
        b"\xff\n",
        b"hvd-elastic 1 x\n",
        b"hvd-elastic 1 -5 waiting -1 -1\n",
        b"hvd-elastic 1 +5 waiting -1 -1\n",
        b"hvd-elastic 1 1_0 waiting -1 -1\n",
        b"hvd-elastic 1 1234567890 waiting -1 -1\n",
        b"hvd-elastic 1 0 waiting -2 -1\n",
        b"hvd-elastic 1 0 asleep -1 -1\n",
        b"hvd-elastic 1 0 waiting -1 -1",
        b"hvd-elastic 1 0 waiting -1 -1 \n",
        b"hvd-elastic 1 0 waiting -1 -1 a b\n",
    ],
)
def test_another_service_on_the_port_is_a_miss(workers: Workers, probing: Probing, line: bytes) -> None:
    with pytest.raises(ValueError):
        parse_ready_line(line)
    workers.lines[A] = line
    probing.probes(3)
    assert probing.reports == []
    assert probing.prober.misses >= 2


def test_the_pod_that_was_there_before_is_a_miss(workers: Workers, probing: Probing) -> None:
    """On a node's own address each pod follows another, and the last one may still answer."""
    workers.lines[A] = b"hvd-elastic 1 7 training 70 0 b\n"
    probing.probes(3)
    assert probing.reports == []
    workers.lines[A] = b"hvd-elastic 1 1 waiting -1 -1 a\n"
    assert probing.until_reports(1) == WorkerView(generation=1, state=WorkerState.WAITING)


def test_a_worker_that_is_gone_is_probed_no_longer(workers: Workers, probing: Probing) -> None:
    probing.until_reports(1)
    probing.prober.set_targets({"b": B})
    assert set(probing.reports[-1]) == {"a"}
    probing.until_reports(2)
    assert set(probing.prober.results.views) == {"b"}


def test_a_worker_that_has_just_answered_is_left_alone_for_the_interval(workers: Workers) -> None:
    now = [0.0]
    probing = Probing(workers, {"a": A}, clock=lambda: now[0])
    probing.until_reports(1)
    # Those due within a quarter of the interval are probed early.
    now[0] = 0.7 * INTERVAL_SECONDS
    for _ in range(3):
        probing.prober.turn()
    assert probing.prober.probes == 1
    now[0] = 0.8 * INTERVAL_SECONDS
    probing.prober.turn()
    assert probing.prober.probes == 2
    probing.prober.close()


def test_a_worker_that_has_never_answered_is_asked_again_soon(workers: Workers) -> None:
    now = [0.0]
    prober = Prober(lambda _views: None, port=workers.port, clock=lambda: now[0])

    def turns_until(count: int) -> None:
        while prober.probes < count or prober.results.probed < 1:
            prober.turn()

    workers.closed.add(A)
    prober.set_targets({"a": A})
    turns_until(1)
    now[0] = 0.7 * STARTING_SECONDS
    prober.turn()
    assert prober.probes == 1
    now[0] = STARTING_SECONDS
    workers.closed.clear()
    turns_until(2)
    while not prober.results.views:
        prober.turn()
    now[0] += 0.7 * INTERVAL
    prober.turn()
    assert prober.probes == 2
    prober.close()


def test_a_large_job_is_probed_at_most_a_hundred_times_a_second(workers: Workers) -> None:
    probing = Probing(workers, {str(i): f"127.0.4.{i + 1}" for i in range(200)})
    while probing.prober.results.probed < 200:
        probing.prober.turn()
    assert ProbeSchedule(INTERVAL).present_interval(200) == 2.0
    probing.prober.close()


@given(st.integers(0, 10**9 - 1), st.sampled_from(list(WorkerState)), st.integers(-1, 10**18 - 1), st.integers(-1, 9))
def test_reads_every_line_that_a_worker_writes(generation: int, state: WorkerState, step: int, age: int) -> None:
    line = f"hvd-elastic 1 {generation} {state} {step} {age}\n".encode()
    assert parse_ready_line(line) == WorkerView(generation=generation, state=state, step=step, age_seconds=age)


@given(st.lists(st.sampled_from(["answer", "miss", "other"]), max_size=30))
def test_lost_means_three_misses_in_a_row_while_another_answered(events: list[str]) -> None:
    record, last_answer, row, other_since = ProbeRecord(), -1.0, 0, False
    for now, event in enumerate(events):
        if event == "miss":
            record, row = record.missed(float(now)), row + 1
            other_since = other_since and row > 1
        elif event == "answer":
            record, row, last_answer = record.answered(WorkerView()), 0, float(now)
        else:
            last_answer, other_since = float(now), row > 0
        assert record.is_lost(last_answer) is (row >= MISSES_TO_LOSE and other_since)


def test_a_checkpoint_request_reaches_every_reachable_worker(workers: Workers) -> None:
    workers.silent.add(B)
    requests = WorkerRequests(port=workers.port)
    assert requests.request_checkpoint([A, B, "127.0.3.3"], "the job\nfalls short", timeout_seconds=3.0) == 2
    assert requests.request_checkpoint([], "nobody") == 0
    until(lambda: len(workers.received) == 2)
    assert set(workers.received) == {
        (A, "checkpoint - the job falls short"),
        ("127.0.3.3", "checkpoint - the job falls short"),
    }


def test_what_the_jobs_key_has_signed_is_for_one_connection_of_one_worker(workers: Workers) -> None:
    """An address may be a stranger's by now: what he learns is believed nowhere else, and of no other request."""
    workers.old.add(B)
    requests = WorkerRequests(key="the job's", port=workers.port)
    assert requests.request_checkpoint([A, B], "the job falls short", timeout_seconds=3.0) == 1
    until(lambda: bool(workers.received))
    request = "checkpoint the job falls short"
    signature = sign("the job's", NONCE, request)
    assert workers.received == [(A, f"checkpoint {signature} the job falls short")]
    others = [("another", NONCE, request), ("the job's", NONCE[::-1], request), ("the job's", NONCE, "leave ")]
    assert signature not in {sign(*other) for other in others}


@pytest.fixture
def few_descriptors() -> Iterator[int]:
    """This process may open 40 files more, and no other."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = max(int(entry.name) for entry in Path("/proc/self/fd").iterdir())
    few = 2 * taken + 40  # requests take half of them, and the workers' side of each connection needs some, too
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, before[1]))
    yield few
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_checkpoint_request_reaches_more_workers_than_there_are_descriptors(
    workers: Workers, few_descriptors: int
) -> None:
    everyone = [f"127.0.{5 + number // 200}.{1 + number % 200}" for number in range(2 * few_descriptors)]
    workers.closed.update(everyone)  # the workers' own descriptors are few here, too
    workers.closed.remove(everyone[-1])
    assert WorkerRequests(port=workers.port).request_checkpoint(everyone, "the job falls short", timeout_seconds=60.0)
    until(lambda: workers.received == [(everyone[-1], "checkpoint - the job falls short")])


def test_without_a_descriptor_no_worker_has_missed_a_probe(workers: Workers) -> None:
    probing = Probing(workers, {"a": A})
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        probing.prober.turn()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert probing.prober.misses == 0
    assert probing.until_reports(1) == WorkerView()
    probing.prober.close()


def test_workers_hear_of_their_launcher(workers: Workers) -> None:
    everyone = tuple(f"127.0.3.{number}" for number in range(1, 100))
    WorkerRequests(port=workers.port).announce_launcher(everyone, timeout_seconds=10.0)
    until(lambda: len(workers.received) == len(everyone))
    assert set(workers.received) == {(address, "launcher") for address in everyone}


def test_a_stop_after_the_end_is_no_error(workers: Workers) -> None:
    """The thread of `run` may have closed everything by the time that `stop` wakes it."""
    probing = Probing(workers, {"a": A})
    probing.prober.close()
    probing.prober.stop()
    probing.prober.set_targets({})
