"""`watch` at a real terminal of 80 by 24, and without one."""

import re
import signal
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from hvd_elastic.cli import cli
from hvd_elastic.client.connection.cluster_client import ClusterClient
from hvd_elastic.client.report.job_status import job_status
from hvd_elastic.client.report.story import Happening, Teller, tell
from hvd_elastic.client.report.worker_status import WorkerStatus
from hvd_elastic.client.watch import plain_watch
from hvd_elastic.client.watch.plain_watch import job_lines
from hvd_elastic.client.watch.watched_job import WatchedJob, WatchedJobReader
from testbed.kube_api import EVENTS, JOBS, PODS, KubeApi
from testbed.terminal import HOSTILE, Terminal, steering
from tests.hvd_elastic.client.report.objects import (
    ALL_JOBS,
    CONFIG_MAPS,
    condition,
    facts,
    ledger_map,
    live,
    mpijob,
    preempted_event,
    unschedulable,
)

pytestmark = pytest.mark.usefixtures("cluster")

ALL_PODS = "/api/v1/pods"
OURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
"""How rich draws."""


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
        screen.sees("1 job, 1 in training with")
        screen.press("\r")
        screen.sees("preempted by")
        screen.sees("inference: 2 pods waiting, 1 served")
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
def test_what_strangers_wrote_does_not_steer_the_terminal(training: KubeApi) -> None:
    hostile = mpijob(status=live(unix=time.time(), since=time.time() - 600, samples=HOSTILE, save_error=HOSTILE))
    named = {**hostile, "metadata": {**hostile["metadata"], "name": HOSTILE}}
    for path, thing in ((JOBS, hostile), (ALL_JOBS, hostile), (ALL_JOBS, named)):
        training.put(path, thing)
    training.put(PODS, unschedulable("train-worker-2", HOSTILE))
    training.streams[f"{PODS}/train-worker-0/log"] = lambda _request: [f"{HOSTILE}\n".encode()]
    with terminal("watch", "-A") as screen:
        for words, key in (("2 jobs", "j"), ("2 jobs", "\r"), ("log  s sort", "\r"), ("log of train-worker-0", "q")):
            screen.sees(words)
            screen.sees("52;c")
            assert not steering(re.sub(OURS, "", screen.said))
            screen.press(key)
    logs = [request for request in training.requests if request.path.endswith("/log")]
    assert logs
    assert all("limitBytes" in request.query for request in logs)


@pytest.mark.process
def test_a_terminal_that_goes_takes_the_view_with_it(training: KubeApi) -> None:
    with terminal("watch", "train") as screen:
        screen.sees("q quit")
        screen.hang_up()
        assert screen.process.wait(timeout=60) in {1, 74}, "what it was about to do failed: to read a key, or to draw"


CAUSE = "1 node had untolerated taint {nvidia.com/gpu: present}"
LONG = f"0/12 nodes are available: 11 Insufficient nvidia.com/gpu, 2 nodes had volume node affinity conflict, {CAUSE}"


def drawn(width: int, height: int, *, waiting: int = 1, stories: int = 60, row: int = 0, why: str = LONG) -> list[str]:
    """The screen of a job of which some workers wait for a long reason."""
    from rich.console import Console

    from hvd_elastic.client.watch.job_screen import job_screen
    from hvd_elastic.client.watch.screen_state import Screen, ScreenState

    found = facts()
    status = job_status(found)
    waits = tuple(replace(status.workers[0], pod=f"waits-{number}", why=why) for number in range(waiting))
    story = tuple(replace(tell(found)[0], what=f"{number}: {why}") for number in range(stories))
    view = WatchedJob(
        status=replace(status, workers=(*status.workers, *waits), why=why), entries=found.ledger or (), story=story
    )
    console = Console(width=width, height=height, force_terminal=False)
    with console.capture() as capture:
        console.print(job_screen(view, ScreenState(screen=Screen.JOB, row=row), width=width, height=height))
    return capture.get().splitlines()


@pytest.mark.parametrize("why", [LONG, HOSTILE * 9])
@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 30), (160, 50), (300, 80)])
def test_the_screen_is_full_and_no_line_is_wider_than_the_terminal(width: int, height: int, why: str) -> None:
    lines = "\n".join(drawn(width, height, why=why)).split("\n")
    assert height - 1 <= len(lines) <= height
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("width", [80, 120, 160])
def test_a_reason_is_never_cut_at_its_end(width: int) -> None:
    """Of the job, of a worker, and in the story."""
    said = " ".join(" ".join(drawn(width, 50)).split())
    assert said.count("{nvidia.com/gpu: present}") >= 3
    assert said.count("0/12 nodes") == said.count("{nvidia.com/gpu: present}")
    assert ("..." in said) is (width == 80)


def test_the_chosen_worker_is_seen_with_its_reason() -> None:
    found = "\n".join(drawn(80, 24, waiting=40, row=20))  # three others come first
    assert re.search(r"> waits-1[6-8] .*\n    0/12 nodes", found)


def test_the_first_answer_does_not_wait_for_the_demand(training: KubeApi) -> None:
    reader = WatchedJobReader(ClusterClient.connect(), "train", "default")
    assert reader.read().demand is None
    assert not training.asked(watch=False, path=ALL_PODS)
    assert reader.read().demand is not None


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


def test_a_watch_of_weeks_keeps_no_more_in_mind_and_tells_each_thing_once(monkeypatch: pytest.MonkeyPatch) -> None:
    most_known, last = 2000, 40_000
    monkeypatch.setattr(plain_watch, "MOST_KNOWN", most_known)
    found = facts()
    shown = job_status(found)
    told = Teller.LEDGER

    def story(number: int) -> tuple[Happening, ...]:
        """The latest hundred of so many, as a ledger of bounded length has them."""
        return tuple(
            Happening(unix=float(each), about="train-worker-0", what=f"is bound {each}", teller=told)
            for each in range(max(0, number - 100), number)
        )

    lines = job_lines(
        (WatchedJob(status=shown, story=story(number)) for number in range(100, last, 50)),
        clock=lambda: 0.0,
    )
    assert "training with" in next(lines)
    fewest = [2**63, 2**63]
    for number, line in enumerate(lines, 100):
        assert line.endswith(f" is bound {number}")
        if number % 50 == 0:
            half = 2 * number // last
            fewest[half] = min(fewest[half], sys.getallocatedblocks())
    assert number == last - 51
    assert fewest[1] - fewest[0] < last // 10, "not an object for each fifth happening"


def test_a_column_tells_who_is_slow_while_somebody_is() -> None:
    from rich.console import Console

    from hvd_elastic.client.watch.job_screen import job_screen
    from hvd_elastic.client.watch.screen_state import Screen, ScreenState

    status = job_status(facts())
    first, *others = status.workers

    def lines(*workers: WorkerStatus) -> list[str]:
        console = Console(width=120, height=24, force_terminal=False)
        with console.capture() as capture:
            view = WatchedJob(status=replace(status, workers=workers))
            console.print(job_screen(view, ScreenState(screen=Screen.JOB), width=120, height=24))
        return capture.get().splitlines()

    assert not any("SLOW" in line for line in lines(first, *others))
    shown = lines(replace(first, slow=1.84), *others)
    (titles,) = (line for line in shown if "SLOW" in line)
    (row,) = (line for line in shown if "1.8x" in line)
    assert titles.index("SLOW") == row.index("1.8x")
    assert first.pod in row
