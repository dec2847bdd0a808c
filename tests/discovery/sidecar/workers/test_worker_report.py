"""Reports over real sockets: of a worker, of one of an older version, and of what is no worker."""

import time

import pytest

from hvd_elastic.discovery.ledger.process_exit import ProcessExit
from hvd_elastic.discovery.ledger.rank_wait import RankWait
from hvd_elastic.discovery.ledger.training_figures import TrainingFigures
from hvd_elastic.discovery.sidecar.workers.worker_report import WorkerReport, read_report
from hvd_elastic.mpijob.contract import REPORT_MAX_BYTES
from tests.discovery.workers import Workers

OWN = b"hvd-elastic 1 1 training 41 0\n"
REPORT = b'{"figures":{"unix":1},"waits":[],"last_exit":null}\n'
NOTHING = WorkerReport()
ADDRESS = "127.9.1.1"


def read(workers: Workers, *, timeout_seconds: float = 20.0) -> WorkerReport:
    return read_report(ADDRESS, port=workers.port, timeout_seconds=timeout_seconds)


def test_a_worker_is_asked_once_for_all(workers: Workers) -> None:
    workers.lines[ADDRESS] = OWN
    waiting = {"rank": 1, "size": 2, "seconds": 31.0, "after": 30.0, "operation": "allreduce w"}
    workers.report(
        ADDRESS,
        figures={"unix": 1_700_000_000, "step": 41, "size": 2, "loss": 0.5},
        waits=[waiting],
        last_exit={"seconds": 2.5, "code": 137, "hung": False, "told": False, "step": 41},
    )
    assert read(workers) == WorkerReport(
        figures=TrainingFigures(unix=1_700_000_000.0, step=41, size=2, loss=0.5),
        waits=(RankWait(rank=1, size=2, seconds=31.0, after=30.0, operation="allreduce w"),),
        last_exit=ProcessExit(seconds=2.5, code=137, step=41),
    )
    assert workers.received == [(ADDRESS, "report")]


def test_a_part_of_another_form_costs_only_itself(workers: Workers) -> None:
    workers.report(ADDRESS, figures=[1], waits={"rank": 0}, last_exit={"seconds": 1, "code": 3}, later="words")
    assert read(workers) == WorkerReport(last_exit=ProcessExit(seconds=1.0, code=3))
    workers.report(ADDRESS, figures=None, waits=None, last_exit=None)
    assert read(workers) == NOTHING


@pytest.mark.parametrize(
    ("own", "answer"),
    [
        pytest.param(OWN, b"", id="an older version"),
        pytest.param(OWN, b"\n", id="a later version that knows no report"),
        pytest.param(OWN, REPORT[:-1], id="torn"),
        pytest.param(OWN, b"[]\n", id="not an object"),
        pytest.param(OWN, b"\xff\xfe\n", id="not a text"),
        pytest.param(OWN, b"[" * 4000 + b"\n", id="deep"),
        pytest.param(OWN, b"x" * (2 * REPORT_MAX_BYTES) + b"\n", id="without an end"),
        pytest.param(b"HTTP/1.1 200 OK\r\n", REPORT, id="no worker"),
        pytest.param(b"\n", REPORT, id="nothing"),
        pytest.param(b"x" * 100_000, REPORT, id="a flood"),
    ],
)
def test_without_a_report_nothing_is_known(workers: Workers, own: bytes, answer: bytes) -> None:
    workers.lines[ADDRESS], workers.answers[ADDRESS] = own, REPORT
    assert (read(workers) == NOTHING) is (own != OWN)
    workers.answers[ADDRESS] = answer
    assert read(workers) == NOTHING


def test_a_worker_that_is_away_or_closes_is_nothing(workers: Workers) -> None:
    workers.closed.add(ADDRESS)
    assert read(workers) == NOTHING
    assert read_report(ADDRESS, port=1) == NOTHING


def test_one_that_says_nothing_is_given_up_in_time(workers: Workers) -> None:
    workers.silent.add(ADDRESS)
    began = time.monotonic()
    assert read(workers, timeout_seconds=0.05) == NOTHING
    assert time.monotonic() - began >= 0.05
