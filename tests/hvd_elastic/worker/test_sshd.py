"""sshd beside the training process, as a shell script that can be made to die."""

import os
import signal

import pytest

from tests.hvd_elastic.worker.pods import DEADLINE_SECONDS, Yard, eventually
from tests.hvd_elastic.worker.test_adoption import WAITER, first_line

pytestmark = pytest.mark.process


def stand_in(yard: Yard, body: str) -> list[str]:
    path = yard.write(f"#!/bin/sh\necho started >> {yard.folder}/starts\n{body}\n", "sshd")
    path.chmod(0o755)
    return [str(path)]


def starts(yard: Yard) -> int:
    path = yard.folder / "starts"
    return path.read_text().count("started") if path.exists() else 0


@pytest.mark.core
def test_sshd_is_started_again_when_it_dies(yard: Yard) -> None:
    yard.write(WAITER)
    with yard.pod(options=(), sshd=stand_in(yard, "exec sleep 99")) as pod:
        pod.ready()
        for _ in range(2):
            (sshd,) = eventually(lambda: [p for p, line in pod.processes().items() if line == "sleep 99"], "sshd runs")
            os.kill(sshd, signal.SIGKILL)
            eventually(lambda: sshd not in pod.processes(), "it is dead")  # noqa: B023
        eventually(lambda: starts(yard) == 3, "and again")
        assert pod.ready().generation == 1
        assert pod.end() == 0


def test_a_pod_that_no_launcher_can_reach_fails(yard: Yard) -> None:
    yard.write(WAITER)
    with yard.pod(options=(), sshd=stand_in(yard, "echo no hostkeys available >&2; exit 255")) as pod:
        assert pod.process.wait(DEADLINE_SECONDS) == 1
        assert "no hostkeys available" in pod.log_text
        assert "sshd does not stay up" in pod.log_text


def test_training_outlives_an_sshd_that_does_not_come_back(yard: Yard) -> None:
    yard.write(WAITER)
    body = f"[ -e {yard.folder}/broken ] && exit 255; exec sleep 99"
    with yard.pod(options=(), sshd=stand_in(yard, body)) as pod:
        pod.ready()
        first_line(pod.adopt())
        (yard.folder / "broken").touch()
        (sshd,) = eventually(lambda: [p for p, line in pod.processes().items() if line == "sleep 99"], "sshd runs")
        os.kill(sshd, signal.SIGKILL)
        eventually(lambda: starts(yard) > 5, "it is tried more often than a pod without training would")
        assert pod.ready(state="training").generation == 1
