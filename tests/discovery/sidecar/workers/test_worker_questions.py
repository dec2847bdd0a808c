"""Questions over real sockets: to a worker, to one of an older version, and to what is no worker."""

import json
import time

import pytest

from hvd_elastic.discovery.ledger.process_exit import ProcessExit
from hvd_elastic.discovery.ledger.rank_wait import RankWait
from hvd_elastic.discovery.ledger.training_figures import TrainingFigures
from hvd_elastic.discovery.sidecar.workers.worker_questions import read_figures, read_last_exit, read_waits
from tests.discovery.workers import Workers

OWN = b"hvd-elastic 1 1 training 41 0\n"
FIGURES = json.dumps({"unix": 1_700_000_000, "step": 41, "size": 2, "loss": 0.5}).encode() + b"\n"
ADDRESS = "127.9.1.1"


def read(workers: Workers, *, timeout_seconds: float = 20.0) -> TrainingFigures | None:
    return read_figures(ADDRESS, port=workers.port, timeout_seconds=timeout_seconds)


def test_a_worker_is_asked_for_its_figures(workers: Workers) -> None:
    workers.lines[ADDRESS], workers.figures[ADDRESS] = OWN, FIGURES
    assert read(workers) == TrainingFigures(unix=1_700_000_000.0, step=41, size=2, loss=0.5)
    assert workers.received == [(ADDRESS, "figures")]


@pytest.mark.parametrize(
    ("own", "figures"),
    [
        pytest.param(OWN, b"\n", id="not rank 0"),
        pytest.param(OWN, b"", id="an older version"),
        pytest.param(OWN, FIGURES[:-1], id="torn"),
        pytest.param(OWN, b"[" * 4000 + b"\n", id="not an object"),
        pytest.param(OWN, b"x" * 100_000 + b"\n", id="without an end"),
        pytest.param(b"HTTP/1.1 200 OK\r\n", FIGURES, id="no worker"),
        pytest.param(b"\n", FIGURES, id="nothing"),
        pytest.param(b"x" * 100_000, FIGURES, id="a flood"),
    ],
)
def test_without_figures_there_is_nothing(workers: Workers, own: bytes, figures: bytes) -> None:
    workers.lines[ADDRESS], workers.figures[ADDRESS] = own, figures
    assert read(workers) is None


def test_a_worker_that_is_away_or_closes_is_nothing(workers: Workers) -> None:
    workers.closed.add(ADDRESS)
    assert read(workers) is None
    assert read_figures(ADDRESS, port=1) is None


def test_one_that_says_nothing_is_given_up_in_time(workers: Workers) -> None:
    workers.silent.add(ADDRESS)
    began = time.monotonic()
    assert read(workers, timeout_seconds=0.05) is None
    assert time.monotonic() - began >= 0.05


def test_a_worker_is_asked_how_its_process_ended(workers: Workers) -> None:
    ended = ProcessExit(seconds=2.5, code=137, step=41)
    workers.lines[ADDRESS], workers.exits[ADDRESS] = OWN, ended.to_line()
    assert read_last_exit(ADDRESS, port=workers.port, timeout_seconds=20.0) == ended
    assert workers.received == [(ADDRESS, "last-exit")]


@pytest.mark.parametrize("line", [b"", b"\n", b"{}\n", b"[" * 4000 + b"\n"])
def test_one_that_does_not_know_has_no_answer(workers: Workers, line: bytes) -> None:
    workers.lines[ADDRESS], workers.exits[ADDRESS] = OWN, line
    assert read_last_exit(ADDRESS, port=workers.port, timeout_seconds=20.0) is None


def test_a_worker_is_asked_which_ranks_wait(workers: Workers) -> None:
    waiting = {"rank": 1, "size": 2, "seconds": 31.0, "after": 30.0, "operation": "allreduce w"}
    workers.lines[ADDRESS], workers.waits[ADDRESS] = OWN, json.dumps([waiting]).encode() + b"\n"
    found = read_waits(ADDRESS, port=workers.port, timeout_seconds=20.0)
    assert found == (RankWait(rank=1, size=2, seconds=31.0, after=30.0, operation="allreduce w"),)
    workers.waits[ADDRESS] = b"[]\n"
    assert read_waits(ADDRESS, port=workers.port, timeout_seconds=20.0) == ()
    workers.waits[ADDRESS] = b""
    assert read_waits(ADDRESS, port=workers.port, timeout_seconds=20.0) is None, "an older version"
