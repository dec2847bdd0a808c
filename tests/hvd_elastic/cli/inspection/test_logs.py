"""The verb `logs`, as a person calls it."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hvd_elastic.cli.inspection.logs import command
from testbed.kube_api import KubeApi
from tests.discovery.conftest import until
from tests.hvd_elastic.client.logs.launchers import ContainerLog, job, launcher, running, serve_job


@pytest.fixture
def api() -> Iterator[KubeApi]:
    served = KubeApi()
    yield served
    served.stop()


@pytest.fixture
def log(api: KubeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ContainerLog:
    """Of the running launcher of `job`, in a cluster that the kubeconfig names."""
    path = api.kubeconfig(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(path))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(path))
    serve_job(api, launcher(state=running()), job=job())
    written = ContainerLog(api, "job-launcher-a")
    written.write(0.1, "world of 2")
    written.write(0.2, "[0]<stdout>:loss 0.5")
    written.write(0.3, "[1]<stderr>:warning")
    return written


def logs(*words: str) -> Result:
    return CliRunner().invoke(command, list(words))


def test_lines_of_all_ranks_and_of_one(log: ContainerLog) -> None:
    assert logs("job").stdout == "world of 2\n[0] loss 0.5\n[1] warning\n"
    assert logs("job", "--rank", "1").stdout == "[1] warning\n"
    assert logs("job", "--rank", "1", "--rank", "0", "--tail", "1").stdout == "[1] warning\n"
    assert logs("job", "--launcher").stdout == "world of 2\n"


def test_times_and_json(log: ContainerLog) -> None:
    assert logs("job", "--timestamps", "--tail", "1").stdout == "2026-01-01T00:00:00.300000000Z [1] warning\n"
    shown = [json.loads(line) for line in logs("job", "-o", "json").stdout.splitlines()]
    assert shown[1] == {
        "time": "2026-01-01T00:00:00.200000000Z",
        "launcher": "job-launcher-a",
        "rank": 0,
        "stream": "stdout",
        "text": "loss 0.5",
    }


@pytest.mark.parametrize(("time", "seconds"), [("90s", 90), ("10m", 600), ("1h30m", 5400), ("2d", 172800)])
def test_times_are_written_as_kubectl_writes_them(log: ContainerLog, time: str, seconds: int) -> None:
    assert logs("job", "--since", time).exit_code == 0
    assert log.requests[-1].query["sinceSeconds"] == str(seconds)


@pytest.mark.parametrize(
    "words", [["--since", "10"], ["--since", "soon"], ["--since", "0s"], ["--rank", "-1"], ["-f", "--previous"]]
)
def test_bad_input_is_refused_before_the_cluster_is_asked(api: KubeApi, log: ContainerLog, words: list[str]) -> None:
    assert logs("job", *words).exit_code == 2
    assert api.requests == []


@pytest.mark.core
@pytest.mark.process
def test_ctrl_c_leaves_the_job_alone_and_says_so(log: ContainerLog) -> None:
    words = [sys.executable, "-m", "hvd_elastic.cli", "logs", "job", "-f"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: log.is_followed(1), 60)
        process.send_signal(signal.SIGINT)
        printed, said = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert printed == "world of 2\n[0] loss 0.5\n[1] warning\n"
    assert said == "job job goes on; nothing was changed\n"


@pytest.mark.core
@pytest.mark.process
def test_a_reader_that_goes_away_is_no_error(log: ContainerLog) -> None:
    for index in range(20000):
        log.write(1 + index / 10000, f"[0]<stdout>:line {index}")
    words = f"{sys.executable} -m hvd_elastic.cli logs job | head -1"
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("world of 2\n", "")
