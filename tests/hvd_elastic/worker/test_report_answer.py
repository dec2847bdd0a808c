"""What a worker reports of its training, and to whom: to everybody, but nothing else of the pod and not much."""

import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from hvd_elastic.discovery.ledger.process_exit import ProcessExit
from hvd_elastic.discovery.ledger.training_figures import TrainingFigures
from hvd_elastic.discovery.sidecar.workers.worker_report import WorkerReport, read_report
from hvd_elastic.mpijob.contract import (
    FIGURES_FILE,
    FIGURES_MAX_BYTES,
    PACE_FILE,
    READY_PORT,
    REPORT_MAX_BYTES,
    WAIT_FILE,
)
from hvd_elastic.worker.answers import report_answer
from tests.hvd_elastic.worker.pods import Pod, Yard, eventually
from tests.hvd_elastic.worker.test_adoption import WAITER, first_line

FIGURES = b'{"unix":1700000000.0,"step":41,"size":2}\n'
LONGEST = b'{"unix":1,"loss":"' + b"x" * (FIGURES_MAX_BYTES - 21) + b'"}\n'
ENDED = ProcessExit(seconds=2.5, code=137, step=41)
PACE = b'{"rank":1,"size":2,"blocks":[[1700000000.0,9,0.5,0.3,null]]}\n'
WAIT = b'{"rank":1,"size":2,"seconds":31.0,"after":30.0}\n'
NOT_ONE_LINE_OF_JSON = [
    b"",
    b"\n",
    FIGURES[:-1],
    FIGURES * 2,
    b'{\n"unix": 1}\n',
    b"root:x:0:0\n",
    b"[1]\n",
    b"\xff{}\n",
    '{"unix":1}'.encode("utf-16-le") + b"\n",
    b"[" * 900 + b"\n",
    LONGEST.replace(b"xx", b"xxx", 1),
]


def line(run_dir: Path, slots: int = 1, last_exit: ProcessExit | None = None, *, step: float = 0.0) -> bytes:
    """What the worker reports when its clock has been set on by `step` seconds."""
    return report_answer("report", run_dir, slots, last_exit, clock=lambda: time.time() + step)


def report(run_dir: Path, slots: int = 1, *, step: float = 0.0) -> Any:
    """The same without the time of the answer."""
    known = json.loads(line(run_dir, slots, step=step))
    assert abs(known.pop("unix") - time.time() - step) < 60
    return known


def test_all_that_is_known_is_one_line(tmp_path: Path) -> None:
    assert report(tmp_path) == {"figures": None, "waits": [], "paces": [], "last_exit": None}
    (tmp_path / FIGURES_FILE).write_bytes(FIGURES)
    for slot in range(3):
        (tmp_path / f"{WAIT_FILE}.{slot}").write_bytes(WAIT)
        (tmp_path / f"{PACE_FILE}.{slot}").write_bytes(PACE)
    parts = FIGURES[:-1], WAIT[:-1], WAIT[:-1], PACE[:-1], PACE[:-1], ENDED.to_json()
    said = line(tmp_path, 2, ENDED)
    assert said.partition(b",")[2] == b'"figures":%b,"waits":[%b,%b],"paces":[%b,%b],"last_exit":%b}\n' % parts
    known = WorkerReport.from_json(said)
    assert known.figures == TrainingFigures(unix=1_700_000_000.0, step=41, size=2)
    assert known.figures.age == pytest.approx(time.time() - 1_700_000_000.0, abs=60)
    assert ([wait.rank for wait in known.waits], known.last_exit) == ([1, 1], ENDED)
    assert [pace.rank for pace in known.paces] == [1, 1]


@pytest.mark.parametrize("written", [FIGURES, b"{}\n", LONGEST])
def test_figures_are_passed_on_as_they_are(tmp_path: Path, written: bytes) -> None:
    (tmp_path / FIGURES_FILE).write_bytes(written)
    assert report(tmp_path)["figures"] == json.loads(written)


@pytest.mark.parametrize("written", NOT_ONE_LINE_OF_JSON)
def test_anything_else_is_not_known(tmp_path: Path, written: bytes) -> None:
    (tmp_path / FIGURES_FILE).write_bytes(written)
    (tmp_path / f"{WAIT_FILE}.0").write_bytes(written)
    (tmp_path / f"{PACE_FILE}.0").write_bytes(written)
    assert report(tmp_path) == {"figures": None, "waits": [], "paces": [], "last_exit": None}


def test_the_word_of_a_process_that_was_killed_is_soon_none(tmp_path: Path) -> None:
    path = tmp_path / f"{WAIT_FILE}.0"
    path.write_bytes(WAIT)
    assert report(tmp_path)["waits"]
    old = time.time() - 11.0
    os.utime(path, (old, old))
    assert report(tmp_path)["waits"] == []


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_a_word_from_before_a_step_of_the_clock_is_no_fresh_one(tmp_path: Path, step: float) -> None:
    """A process that lives replaces it within a second; one that was killed has left it for good."""
    (tmp_path / f"{WAIT_FILE}.0").write_bytes(WAIT)
    assert report(tmp_path)["waits"]
    assert report(tmp_path, step=step)["waits"] == []
    (tmp_path / FIGURES_FILE).write_text(json.dumps({"unix": time.time()}) + "\n")
    figures = WorkerReport.from_json(line(tmp_path, step=step)).figures
    assert figures is not None
    assert figures.age is not None
    assert figures.age >= 0


def test_the_line_is_never_too_long(tmp_path: Path) -> None:
    (tmp_path / FIGURES_FILE).write_bytes(LONGEST)
    for slot in range(64):
        (tmp_path / f"{WAIT_FILE}.{slot}").write_text(json.dumps({"rank": slot, "place": "x" * 900}) + "\n")
        (tmp_path / f"{PACE_FILE}.{slot}").write_text(json.dumps({"rank": slot, "x": "x" * 900}) + "\n")
    longest = ProcessExit(seconds=999_999_999.999, code=255, step=10**18 - 1)
    answer = line(tmp_path, 64, longest)
    assert len(answer) <= REPORT_MAX_BYTES
    document = json.loads(answer)
    assert document["figures"] is not None
    assert document["last_exit"] is not None
    assert [each["rank"] for each in document["waits"]] == list(range(17))
    assert len(document["paces"]) == 17


@pytest.mark.parametrize(
    ("request_", "part"),
    [("figures", FIGURES), ("waits", b"[%b]\n" % WAIT[:-1]), ("last-exit", ENDED.to_json() + b"\n")],
)
def test_an_older_sidecar_asks_for_one_part(tmp_path: Path, request_: str, part: bytes) -> None:
    (tmp_path / FIGURES_FILE).write_bytes(FIGURES)
    (tmp_path / f"{WAIT_FILE}.0").write_bytes(WAIT)
    assert report_answer(request_, tmp_path, 1, ENDED) == part


def figures(pod: Pod) -> TrainingFigures | None:
    return read_report(pod.address, timeout_seconds=20.0).figures


@pytest.mark.core
@pytest.mark.process
def test_discovery_reads_them_until_the_process_ends(yard: Yard) -> None:
    yard.write(WAITER)
    with yard.pod() as pod:
        pod.ready()
        assert figures(pod) is None
        client = pod.adopt()
        first_line(client)
        (pod.run_dir / FIGURES_FILE).write_bytes(FIGURES)
        assert figures(pod) == TrainingFigures(unix=1_700_000_000.0, step=41, size=2)
        (pod.run_dir / FIGURES_FILE).write_bytes(LONGEST)
        assert figures(pod) == TrainingFigures(unix=1.0)
        client.terminate()
        pod.ready(generation=2)
        assert figures(pod) is None
        assert not (pod.run_dir / FIGURES_FILE).exists()


@pytest.mark.process
def test_who_asks_and_does_not_read_keeps_nobody_else_waiting(yard: Yard) -> None:
    yard.write(WAITER)
    with yard.pod() as pod:
        pod.ready()
        (pod.run_dir / FIGURES_FILE).write_bytes(LONGEST)
        before = pod.descriptors()
        greedy = [socket.create_connection((pod.address, READY_PORT)) for _ in range(100)]
        for connection in greedy:
            connection.sendall(b"report\n" * 20)
        assert figures(pod) == TrainingFigures(unix=1.0)
        eventually(lambda: pod.descriptors() <= before, "no descriptor is left")
        for connection in greedy:
            connection.close()


@pytest.mark.process
def test_a_connection_gets_one_answer(yard: Yard) -> None:
    yard.write(WAITER)
    with yard.pod() as pod:
        pod.ready()
        (pod.run_dir / FIGURES_FILE).write_bytes(FIGURES)
        answers = {"figures": [FIGURES], "something else": [b"\n"], "": [b"\n"], "launcher": [], "checkpoint - now": []}
        for request, expected in answers.items():
            with socket.create_connection((pod.address, READY_PORT), timeout=20) as connection:
                connection.sendall(request.encode() + b"\n")
                own, *answer = connection.makefile("rb").read().splitlines(keepends=True)
            assert own.startswith(b"hvd-elastic 1 1 waiting")
            assert answer == expected
