import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from hvd_elastic.cli.inspection.discover import DiscoverTimeoutError, command
from hvd_elastic.discovery import read_snapshot
from hvd_elastic.discovery.discover_once import discover_once
from hvd_elastic.discovery.kube.api_server import Access, ApiUnreachableError
from hvd_elastic.discovery.kube.credentials import NoClusterError, in_cluster
from hvd_elastic.discovery.snapshot import SnapshotError
from testbed.kube_api import JOBS, NODES, PODS, KubeApi, Request, Status, mpijob, node, pod
from tests.discovery.conftest import until
from tests.discovery.workers import Workers


@pytest.fixture
def api() -> Iterator[KubeApi]:
    served = KubeApi()
    served.put(JOBS, mpijob())
    served.put(NODES, node("node-a"))
    served.put(PODS, pod(0))
    served.put(PODS, pod(1, disrupted="PreemptionByScheduler"))
    yield served
    served.stop()


def test_who_does_not_answer_is_named(api: KubeApi) -> None:
    api.stop()
    with pytest.raises(ApiUnreachableError, match=rf"the API server 127\.0\.0\.1:{api.port}: ConnectionRefused"):
        discover_once(api.access(), job="job", namespace="default")


@pytest.fixture
def kubeconfig(api: KubeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = api.kubeconfig(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


def test_a_table_names_the_reasons(api: KubeApi, kubeconfig: Path) -> None:
    done = CliRunner().invoke(command, ["--job", "job", "--min-workers", "2"], catch_exceptions=False)
    assert done.exit_code == 0
    assert "job-worker-0" in done.stdout
    assert "disrupted: PreemptionByScheduler" in done.stdout
    assert "short" in done.stderr
    assert api.requests[0].headers["Authorization"] == "Bearer secret"


ENDED = {
    "succeeded": ({"type": "Succeeded", "status": "True"},),
    "failed": ({"type": "Succeeded", "status": "False"}, {"type": "Failed", "status": "True"}),
}


@pytest.mark.parametrize("how", ENDED)
def test_says_that_the_job_has_ended(api: KubeApi, kubeconfig: Path, how: str) -> None:
    status = {"completionTime": "2026-01-01T00:00:00Z", "conditions": list(ENDED[how])}
    api.put(JOBS, {**mpijob(), "status": status})
    done = CliRunner().invoke(command, ["--job", "job"], catch_exceptions=False)
    assert done.stderr.startswith(f"the job has ended ({how})")
    shown = json.loads(CliRunner().invoke(command, ["--job", "job", "-o", "json"]).stdout)
    assert shown["ended"] == how.capitalize()


def test_an_evicted_worker_is_not_the_end(api: KubeApi, kubeconfig: Path) -> None:
    evicted = {"type": "Failed", "status": "True", "reason": "MPIJobEvicted"}
    api.put(JOBS, {**mpijob(), "status": {"conditions": [evicted]}})
    done = CliRunner().invoke(command, ["--job", "job"], catch_exceptions=False)
    assert "has ended" not in done.stderr
    assert json.loads(CliRunner().invoke(command, ["--job", "job", "-o", "json"]).stdout)["ended"] is None


def test_gives_up_when_the_time_is_over(api: KubeApi, kubeconfig: Path) -> None:
    over = threading.Event()

    def hang(_: Request) -> None:
        over.wait(60)

    api.fault = hang
    try:
        done = CliRunner().invoke(command, ["--job", "job", "--timeout", "0.3"])
    finally:
        over.set()
    assert isinstance(done.exception, DiscoverTimeoutError)
    assert "no answer in 0.3 s" in str(done.exception)
    assert "--timeout" in str(done.exception)


def test_json_and_names_are_for_programs(api: KubeApi, kubeconfig: Path) -> None:
    done = CliRunner().invoke(command, ["--job", "job", "-o", "json"], catch_exceptions=False)
    shown = json.loads(done.stdout)
    assert [host["pod"] for host in shown["hosts"]] == ["job-worker-0"]
    assert shown["leftOut"] == [{"pod": "job-worker-1", "reason": "disrupted", "detail": "PreemptionByScheduler"}]
    assert CliRunner().invoke(command, ["--job", "job", "-o", "name"]).stdout == "pod/job-worker-0\n"


def test_probes_the_workers_on_request(api: KubeApi, workers: Workers) -> None:
    workers.silent.add("127.0.1.1")
    found = discover_once(api.access(), job="job", namespace="default", reach=True, ready_port=workers.port)
    assert found.eligible.hosts == ()
    assert [out.reason for out in found.eligible.left_out] == ["not-asked", "disrupted"]


@pytest.fixture
def workers() -> Iterator[Workers]:
    served = Workers()
    yield served
    served.stop()


def test_says_where_nodes_may_not_be_read(api: KubeApi, kubeconfig: Path) -> None:
    def refuse(request: Request) -> None:
        if request.path == NODES:
            raise Status(403)

    api.fault = refuse
    done = CliRunner().invoke(command, ["--job", "job"], catch_exceptions=False)
    assert done.exit_code == 0
    assert "nodes may not be read" in done.stderr


@pytest.mark.core
@pytest.mark.process
def test_a_job_that_is_not_there_is_an_error(api: KubeApi, kubeconfig: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from hvd_elastic.cli import main; main()", "discover", "--job", "nobody"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "HTTP 404" in done.stderr


def test_outside_of_a_cluster_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(NoClusterError, match="KUBERNETES_SERVICE_HOST"):
        in_cluster({}, tmp_path)


def test_a_pod_is_let_in_by_its_service_account(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first\n")
    access = in_cluster({"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "6443"}, tmp_path)
    assert isinstance(access, Access)
    assert (access.host, access.port, access.token()) == ("10.96.0.1", 6443, "first")
    (tmp_path / "token").write_text("rotated")
    assert access.token() == "rotated"


@pytest.mark.core
@pytest.mark.process
def test_the_sidecar_serves_until_sigterm_and_ends_at_once(api: KubeApi, kubeconfig: Path, tmp_path: Path) -> None:
    environ = {**os.environ, "HVD_ELASTIC_JOB": "job", "HVD_ELASTIC_NAMESPACE": "default"}
    environ |= {"HVD_ELASTIC_MIN_WORKERS": "1", "HVD_ELASTIC_MAX_WORKERS": "2"}
    environ |= {"HVD_ELASTIC_RUN_DIR": str(tmp_path), "HVD_ELASTIC_LOG_FORMAT": "json"}
    arguments = ["discovery-sidecar", "--kubeconfig", "--metrics-port", "0", "--ready-port", "1"]
    process = subprocess.Popen(
        [sys.executable, "-c", "from hvd_elastic.cli import main; main()", *arguments],
        env=environ,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until(lambda: _is_there(tmp_path), 60)
        assert (tmp_path / "discover-hosts").stat().st_mode & 0o111
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=10)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    assert all(json.loads(line)["level"] for line in errors.splitlines())


def _is_there(folder: Path) -> bool:
    try:
        return read_snapshot(folder).hosts == ()
    except SnapshotError:
        return False


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--job"),
        (["--job", "j", "--min-workers", "3", "--max-workers", "2"], "above"),
        (["--job", "j", "--min-workers", "0", "--max-workers", "2"], "min-workers"),
    ],
)
def test_the_sidecar_refuses_what_cannot_be(arguments: list[str], message: str) -> None:
    from hvd_elastic.cli.pods.discovery_sidecar import command as sidecar

    done = CliRunner().invoke(sidecar, arguments, env={name: "" for name in os.environ if name.startswith("HVD_")})
    assert done.exit_code == 2
    assert message in done.output
