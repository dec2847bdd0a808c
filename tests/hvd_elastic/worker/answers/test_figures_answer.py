"""What a worker tells of its training, and to whom: to everybody, but nothing else and not much."""

import socket
from pathlib import Path

import pytest

from hvd_elastic.discovery.ledger.training_figures import TrainingFigures
from hvd_elastic.discovery.sidecar.workers.worker_questions import read_figures
from hvd_elastic.mpijob.contract import FIGURES_FILE, FIGURES_MAX_BYTES, READY_PORT
from hvd_elastic.worker.answers.figures_answer import NO_FIGURES, figures_line
from tests.hvd_elastic.worker.pods import Pod, Yard, eventually
from tests.hvd_elastic.worker.test_adoption import WAITER, first_line

FIGURES = b'{"unix":1700000000.0,"step":41,"size":2}\n'
LONGEST = b'{"unix":1,"loss":"' + b"x" * (FIGURES_MAX_BYTES - 21) + b'"}\n'


@pytest.mark.parametrize("written", [FIGURES, b"{}\n", LONGEST])
def test_one_line_of_json_is_passed_on(tmp_path: Path, written: bytes) -> None:
    (tmp_path / FIGURES_FILE).write_bytes(written)
    assert figures_line(tmp_path) == written


@pytest.mark.parametrize(
    "written",
    [
        b"",
        b"\n",
        FIGURES[:-1],
        FIGURES * 2,
        b'{\n"unix": 1}\n',
        b"root:x:0:0\n",
        b"[1]\n",
        b"\xff{}\n",
        b"[" * 4000 + b"\n",
        LONGEST.replace(b"xx", b"xxx", 1),
    ],
)
def test_anything_else_is_an_empty_line(tmp_path: Path, written: bytes) -> None:
    (tmp_path / FIGURES_FILE).write_bytes(written)
    assert figures_line(tmp_path) == NO_FIGURES


def test_without_the_file_there_is_an_empty_line(tmp_path: Path) -> None:
    assert figures_line(tmp_path) == NO_FIGURES


def ask(pod: Pod) -> TrainingFigures | None:
    return read_figures(pod.address, timeout_seconds=20.0)


@pytest.mark.core
@pytest.mark.process
def test_discovery_reads_them_until_the_process_ends(yard: Yard) -> None:
    yard.write(WAITER)
    with yard.pod() as pod:
        pod.ready()
        assert ask(pod) is None
        client = pod.adopt()
        first_line(client)
        (pod.run_dir / FIGURES_FILE).write_bytes(FIGURES)
        assert ask(pod) == TrainingFigures(unix=1_700_000_000.0, step=41, size=2)
        (pod.run_dir / FIGURES_FILE).write_bytes(LONGEST)
        assert ask(pod) == TrainingFigures(unix=1.0)
        client.terminate()
        pod.ready(generation=2)
        assert ask(pod) is None
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
            connection.sendall(b"figures\n" * 20)
        assert ask(pod) == TrainingFigures(unix=1.0)
        eventually(lambda: pod.descriptors() <= before, "no descriptor is left")
        for connection in greedy:
            connection.close()


@pytest.mark.process
def test_a_connection_gets_one_answer(yard: Yard) -> None:
    yard.write(WAITER)
    with yard.pod() as pod:
        pod.ready()
        (pod.run_dir / FIGURES_FILE).write_bytes(FIGURES)
        with socket.create_connection((pod.address, READY_PORT), timeout=20) as connection:
            connection.sendall(b"figures\n")
            own, figures = connection.makefile("rb").read().splitlines(keepends=True)
        assert own.startswith(b"hvd-elastic 1 1 waiting")
        assert figures == FIGURES
