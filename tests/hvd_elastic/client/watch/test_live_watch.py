"""`watch` at a real terminal of 80 by 24, and without one."""

import signal
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from hvd_elastic.cli import cli
from hvd_elastic.client.report.job_status import job_status
from hvd_elastic.client.report.story import tell
from hvd_elastic.client.watch.plain_watch import job_lines
from hvd_elastic.client.watch.watched_job import WatchedJob
from testbed.kube_api import EVENTS, JOBS, PODS, KubeApi
from testbed.terminal import Terminal
from tests.hvd_elastic.client.report.objects import (
    ALL_JOBS,
    CONFIG_MAPS,
    condition,
    facts,
    ledger_map,
    live,
    mpijob,
    preempted_event,
)

pytestmark = pytest.mark.usefixtures("cluster")

ALL_PODS = "/api/v1/pods"


@pytest.fixture
def training(served: KubeApi) -> KubeApi:
    job = mpijob(status=live(unix=time.time(), since=time.time() - 600))
    for path, thing in ((JOBS, job), (ALL_JOBS, job), (CONFIG_MAPS, ledger_map()), (EVENTS, preempted_event())):
        served.put(path, thing)
    for pod in facts().pods:
        served.put(PODS, {**pod, "spec": {**pod["spec"], **claiming(priority=-100)}})
    served.objects[ALL_PODS] = {}
    rivals = {"waits-1": "Pending", "waits-2": "Pending", "served": "Running"}
    for name, phase in rivals.items():
        served.put(ALL_PODS, {"metadata": {"name": name}, "spec": claiming(100), "status": {"phase": phase}})
    beside = {"lower": claiming(-200), "no-gpu": {"priority": 100, "containers": [{}]}}
    for name, spec in beside.items():
        served.put(ALL_PODS, {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Pending"}})
    return served


def claiming(priority: int) -> dict[str, Any]:
    return {"priority": priority, "containers": [{"resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "2"}}}]}


@contextmanager
def terminal(*words: str) -> Iterator[Terminal]:
    made = Terminal(*words)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.core
@pytest.mark.process
def test_a_job_from_the_list_and_back(training: KubeApi) -> None:
    with terminal("watch", "-A") as screen:
        screen.sees("1 jobs, 1 train with")
        screen.press("\r")
        screen.sees("preempted by")
        screen.sees("inference: 2 pods wait, 1 are served")
        screen.sees("workers that train, the last")
        screen.press("\x1b")
        screen.sees("GPU-HOURS")
        screen.press("q")
        assert screen.process.wait(30) == 0
        assert termios.tcgetattr(screen.inner) == screen.before


@pytest.mark.core
@pytest.mark.process
def test_ctrl_c_leaves_the_job_alone_and_the_terminal_whole(training: KubeApi) -> None:
    with terminal("watch", "train") as screen:
        screen.sees("q quit")
        screen.process.send_signal(signal.SIGINT)
        screen.sees("the jobs go on")
        assert screen.process.wait(30) == 0
        assert termios.tcgetattr(screen.inner) == screen.before
    assert not [request for request in training.requests if request.method != "GET"]


@pytest.mark.process
def test_a_terminal_that_goes_takes_the_view_with_it(training: KubeApi) -> None:
    with terminal("watch", "train") as screen:
        screen.sees("q quit")
        screen.hang_up()
        assert screen.process.wait(timeout=60) == 1


def test_no_line_is_wider_than_the_terminal(training: KubeApi) -> None:
    from rich.console import Console

    from hvd_elastic.client.watch.job_screen import job_screen
    from hvd_elastic.client.watch.screen_state import Screen, ScreenState

    found = facts()
    view = WatchedJob(status=job_status(found), entries=found.ledger or (), story=tell(found))
    console = Console(width=80, height=24, force_terminal=False)
    with console.capture() as drawn:
        console.print(job_screen(view, ScreenState(screen=Screen.JOB), width=80, height=24))
    lines = drawn.get().splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80


def test_an_unknown_job_is_said_at_once(training: KubeApi) -> None:
    said = CliRunner().invoke(cli, ["watch", "trian"])
    assert said.exit_code != 0
    assert "train" in str(said.exception)


def test_without_a_terminal_there_is_a_line_for_each_change() -> None:
    found = facts()
    ended: dict[str, Any] = mpijob(conditions=[condition("Succeeded")], ended=found.now)
    views = [found, found, replace(found, job=ended)]
    lines = list(
        job_lines(
            (WatchedJob(status=job_status(one), entries=one.ledger or (), story=tell(one)) for one in views),
            clock=lambda: 0.0,
        )
    )
    assert "training with" in lines[0]
    assert "succeeded" in lines[-1]
    assert len(lines) == 2
