"""The runner beside a fake API server: the cap holds from the first job to the last, over faults and restarts."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from hvd_elastic.client.sweep.runner import SweepRunner
from hvd_elastic.mpijob.contract import ANNOTATION_TURN, LABEL_SWEEP
from testbed.kube_api import JOBS, Json, KubeApi, Request, Status, mpijob

DEADLINE_SECONDS = 20.0
Start = Callable[..., threading.Thread]


@pytest.fixture
def api() -> Iterator[KubeApi]:
    served = KubeApi()
    yield served
    served.stop()


def put(api: KubeApi, name: str, *, turn: int | None = None, suspend: bool = False, sweep: str = "s") -> None:
    job = mpijob(name, uid=f"uid-{name}", annotations={} if turn is None else {ANNOTATION_TURN: str(turn)})
    job["metadata"]["labels"] = {LABEL_SWEEP: sweep}
    job["spec"]["runPolicy"] = {"suspend": suspend or turn is not None}
    api.put(JOBS, job)


def end(api: KubeApi, name: str, kind: str = "Succeeded") -> None:
    condition = {"type": kind, "status": "True"}
    api.patch(JOBS, name, {"status": {"conditions": [condition], "completionTime": "2026-01-01T00:00:00Z"}})


def running(api: KubeApi) -> set[str]:
    return {name for name, job in api.objects[JOBS].items() if not job["spec"]["runPolicy"]["suspend"]
            and "status" not in job}  # fmt: skip


def until(api: KubeApi, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    with api.changed:
        while not condition():  # a watch that opens notifies nobody
            assert time.monotonic() < deadline
            api.changed.wait(0.02)


def start_process(api: KubeApi) -> subprocess.Popen[bytes]:
    """The verb as the pod runs it, with the fake API server in place of the pod's own account."""
    code = (
        "from hvd_elastic.cli import main\n"
        "from hvd_elastic.discovery.kube import api_server, credentials\n"
        f"credentials.in_cluster = lambda: api_server.Access(host='127.0.0.1', port={api.port})\n"
        "main()"
    )
    return subprocess.Popen([sys.executable, "-c", code, "sweep-runner", "--sweep", "s", "--at-once", "1"])


@pytest.fixture
def start(api: KubeApi) -> Iterator[Start]:
    """Starts a runner. It ends with the test, when its sweep has no jobs any more."""
    runners: list[threading.Thread] = []

    def begin(at_once: int = 2) -> threading.Thread:
        runner = SweepRunner(api.access(), sweep="s", namespace="default", at_once=at_once)
        runners.append(threading.Thread(target=runner.run, daemon=True))
        runners[-1].start()
        return runners[-1]

    yield begin
    for name in list(api.objects[JOBS]):
        api.remove(JOBS, name)
    for runner in runners:
        runner.join(DEADLINE_SECONDS)
        assert not runner.is_alive()


def test_the_next_starts_when_one_ends_and_the_runner_ends_with_the_last(api: KubeApi, start: Start) -> None:
    put(api, "a")
    put(api, "b")
    put(api, "d", turn=3)
    put(api, "c", turn=2)
    runner = start()
    until(api, lambda: api.watching[JOBS] == 1)
    assert running(api) == {"a", "b"}
    end(api, "a", "Failed")
    until(api, lambda: running(api) == {"b", "c"})
    assert ANNOTATION_TURN not in api.objects[JOBS]["c"]["metadata"]["annotations"]
    end(api, "b")
    until(api, lambda: running(api) == {"c", "d"})
    end(api, "c")
    api.remove(JOBS, "d")
    runner.join(DEADLINE_SECONDS)
    assert not runner.is_alive()


def test_other_jobs_and_those_that_somebody_suspended_are_left_alone(api: KubeApi, start: Start) -> None:
    put(api, "a", suspend=True)
    put(api, "other", turn=0, sweep="t")
    put(api, "b", turn=1)
    start(at_once=5)
    until(api, lambda: "b" in running(api))
    assert running(api) == {"b"}


def test_a_refused_patch_is_tried_again(api: KubeApi, start: Start) -> None:
    refused: list[Request] = []

    def fault(request: Request) -> None:
        if request.method == "PATCH" and not refused:
            refused.append(request)
            raise Status(500)

    api.fault = fault
    put(api, "a", turn=0)
    start()
    until(api, lambda: bool(refused))
    api.bookmark(JOBS)
    until(api, lambda: running(api) == {"a"})


def test_another_job_of_the_same_name_is_not_resumed(api: KubeApi, start: Start) -> None:
    def replace(request: Request) -> None:
        if request.method == "PATCH" and (request.body or {})["metadata"]["uid"] == "uid-a":
            job: Json = mpijob("a", uid="another")
            job["metadata"]["labels"] = {LABEL_SWEEP: "s"}
            job["spec"]["runPolicy"] = {"suspend": True}
            api.objects[JOBS]["a"] = job

    api.fault = replace
    put(api, "a", turn=0)
    put(api, "b", turn=1)
    start()
    until(api, lambda: "b" in running(api))
    assert api.objects[JOBS]["a"]["spec"]["runPolicy"]["suspend"] is True


def test_a_runner_outlives_the_api_server(api: KubeApi, start: Start) -> None:
    put(api, "a")
    put(api, "b", turn=1)
    start(at_once=1)
    until(api, lambda: api.watching[JOBS] == 1)
    api.stop()
    end(api, "a")
    api.start()
    until(api, lambda: running(api) == {"b"})


@pytest.mark.process
def test_a_pod_that_is_told_to_end_has_not_done_its_work(api: KubeApi) -> None:
    """Its Job would be complete with exit code 0, and the jobs that wait would wait for ever."""
    put(api, "a")
    with start_process(api) as process:
        until(api, lambda: api.watching[JOBS] == 1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_SECONDS) == 143


@pytest.mark.core
@pytest.mark.process
def test_a_pod_whose_jobs_have_ended_has(api: KubeApi) -> None:
    put(api, "a")
    put(api, "b", turn=1)
    with start_process(api) as process:
        until(api, lambda: api.watching[JOBS] == 1)
        end(api, "a")
        until(api, lambda: running(api) == {"b"})
        end(api, "b")
        assert process.wait(DEADLINE_SECONDS) == 0
