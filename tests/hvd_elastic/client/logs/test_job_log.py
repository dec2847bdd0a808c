"""Reading and following over real connections to a fake API server, whose kubelet cuts, rotates and starts again."""

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from hvd_elastic.client.connection.cluster_client import ClusterClient, ForbiddenError
from hvd_elastic.client.job_lookup import find_job
from hvd_elastic.client.logs.job_log import JobLog, NoLogError
from hvd_elastic.client.logs.log_line import LogSelection
from hvd_elastic.client.logs.log_reading import LogRequest
from testbed.kube_api import JOBS, PODS, KubeApi, Request, Status
from tests.discovery.conftest import until
from tests.hvd_elastic.client.logs.launchers import ContainerLog, ended, finished, job, launcher, running, serve_job


@pytest.fixture
def api() -> Iterator[KubeApi]:
    served = KubeApi()
    yield served
    served.stop()


@pytest.fixture
def cluster(api: KubeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterClient:
    path = api.kubeconfig(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(path))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(path))
    return ClusterClient.connect()


class Reader:
    """Reads in a thread, so that a test can change the job meanwhile."""

    def __init__(self, cluster: ClusterClient, request: LogRequest) -> None:
        self.lines: list[str] = []
        self.said: list[str] = []
        self.error: Exception | None = None
        log = JobLog(cluster, find_job(cluster, "job", "default").job, say=self.said.append, pause=lambda _: None)
        self._thread = threading.Thread(target=self._read, args=(log, request), daemon=True)
        self._thread.start()

    def _read(self, log: JobLog, request: LogRequest) -> None:
        try:
            for line in log.read(request):
                self.lines.append(str(line))
        except Exception as error:
            self.error = error

    def has_read(self, line: str) -> bool:
        return line in self.lines

    def finish(self) -> None:
        self._thread.join(30)
        assert not self._thread.is_alive()
        assert self.error is None


def read(cluster: ClusterClient, request: LogRequest) -> list[str]:
    log = JobLog(cluster, find_job(cluster, "job", "default").job)
    return [str(line) for line in log.read(request)]


@pytest.fixture
def log(api: KubeApi) -> ContainerLog:
    """Of a launcher that runs and has printed three lines."""
    serve_job(api, launcher(state=running()), job=job())
    written = ContainerLog(api, "job-launcher-a")
    written.write(0.1, "world of 2")
    written.write(0.2, "[0]<stdout>:loss 0.5")
    written.write(0.3, "[1]<stderr>:warning")
    return written


def test_what_is_there_is_printed_once(cluster: ClusterClient, log: ContainerLog) -> None:
    assert read(cluster, LogRequest()) == ["world of 2", "[0] loss 0.5", "[1] warning"]
    assert len(log.requests) == 1


def test_a_tail_counts_the_lines_that_are_asked_for(cluster: ClusterClient, log: ContainerLog) -> None:
    assert read(cluster, LogRequest(tail=1)) == ["[1] warning"]
    assert log.requests[-1].query["tailLines"] == "1"
    ours = LogSelection(ranks=frozenset({0}))
    assert read(cluster, LogRequest(tail=1, selection=ours)) == ["[0] loss 0.5"]
    assert read(cluster, LogRequest(tail=0)) == []


def test_since_is_the_kubelet_s_to_measure(cluster: ClusterClient, log: ContainerLog) -> None:
    read(cluster, LogRequest(since_seconds=600))
    assert log.requests[-1].query["sinceSeconds"] == "600"


def test_it_follows_over_cuts_to_the_end_of_the_job(api: KubeApi, cluster: ClusterClient, log: ContainerLog) -> None:
    reader = Reader(cluster, LogRequest(follow=True))
    for index in range(5):
        until(partial(log.is_followed, index + 1))
        log.write(0.5 + 0.3 * index, f"[0]<stdout>:step {index}")
        until(partial(reader.has_read, f"[0] step {index}"))
        log.cut()
    until(lambda: log.is_followed(6))
    log.write(3.0, "[0]<stdout>:last")
    api.put(PODS, launcher(state=ended(), phase="Succeeded"))
    api.put(JOBS, finished())
    log.close()
    reader.finish()
    assert reader.lines == [
        "world of 2",
        "[0] loss 0.5",
        "[1] warning",
        *(f"[0] step {i}" for i in range(5)),
        "[0] last",
    ]
    assert reader.said == ["job job has succeeded"]


def test_a_tail_of_nothing_is_followed_by_what_is_new(api: KubeApi, cluster: ClusterClient, log: ContainerLog) -> None:
    reader = Reader(cluster, LogRequest(follow=True, tail=0))
    until(lambda: log.is_followed(1))
    log.write(9, "[0]<stdout>:new")
    api.put(PODS, launcher(state=ended(), phase="Succeeded"))
    api.put(JOBS, finished())
    log.close()
    reader.finish()
    assert reader.lines == ["[0] new"]


def test_it_goes_on_with_the_next_launcher_and_says_so(api: KubeApi, cluster: ClusterClient, log: ContainerLog) -> None:
    reader = Reader(cluster, LogRequest(follow=True))
    until(lambda: log.is_followed(1))
    log.write(0.9, "last words")
    api.put(PODS, launcher(state=ended(1), phase="Failed"))
    log.close()
    until(lambda: any("waiting for the next launcher" in sentence for sentence in reader.said))
    second = ContainerLog(api, "job-launcher-b")
    second.write(60.0, "[0]<stdout>:going on")
    api.put(PODS, launcher("job-launcher-b", minute=1, phase="Pending"))
    until(lambda: any("job-launcher-b waits" in sentence for sentence in reader.said))
    api.put(PODS, launcher("job-launcher-b", minute=1, state=ended(), phase="Succeeded"))
    second.close()
    api.put(JOBS, finished())
    reader.finish()
    assert reader.lines[-2:] == ["last words", "[0] going on"]
    assert "launcher job-launcher-a ended with exit code 1; going on with job-launcher-b" in reader.said


def test_a_launcher_that_was_deleted_is_gone_on_from(api: KubeApi, cluster: ClusterClient, log: ContainerLog) -> None:
    reader = Reader(cluster, LogRequest(follow=True))
    until(lambda: log.is_followed(1))
    second = ContainerLog(api, "job-launcher-b")
    second.write(60.0, "going on")
    second.close()
    api.put(PODS, launcher("job-launcher-b", minute=1, state=ended(), phase="Succeeded"))
    del api.streams[f"{PODS}/job-launcher-a/log"]
    api.remove(PODS, "job-launcher-a")
    api.put(JOBS, finished())
    log.cut()
    reader.finish()
    assert reader.lines[-1] == "going on"
    assert "launcher job-launcher-a is gone; going on with job-launcher-b" in reader.said


def test_it_waits_for_the_first_launcher(api: KubeApi, cluster: ClusterClient) -> None:
    api.put(JOBS, job(suspended=True))
    reader = Reader(cluster, LogRequest(follow=True))
    until(lambda: reader.said == ["the job is suspended: waiting for the next launcher"])
    log = ContainerLog(api, "job-launcher-a")
    log.write(1, "hello")
    log.close()
    api.put(PODS, launcher(state=ended(), phase="Succeeded"))
    api.put(JOBS, finished())
    reader.finish()
    assert reader.lines == ["hello"]


def test_a_rotation_while_nobody_reads_is_said(api: KubeApi, cluster: ClusterClient, log: ContainerLog) -> None:
    reader = Reader(cluster, LogRequest(follow=True))
    until(lambda: log.is_followed(1))
    log.rotate()
    log.write(5, "[0]<stdout>:after")
    api.put(PODS, launcher(state=ended(), phase="Succeeded"))
    api.put(JOBS, finished())
    log.close()
    log.cut()
    reader.finish()
    assert reader.lines[-1] == "[0] after"
    assert any("rotated" in sentence and "2026-01-01T00:00:05" in sentence for sentence in reader.said)


def _go_on_after_a_cut(api: KubeApi, log: ContainerLog, reader: Reader) -> None:
    """The stream is cut, followed again, has one more line, and ends with its job."""
    log.cut()
    until(lambda: log.is_followed(2))
    log.write(1.0, "[0]<stdout>:still")
    api.put(PODS, launcher(state=ended(), phase="Succeeded"))
    api.put(JOBS, finished())
    log.close()
    reader.finish()


def test_faults_that_pass_lose_nothing(api: KubeApi, cluster: ClusterClient, log: ContainerLog) -> None:
    reader = Reader(cluster, LogRequest(follow=True))
    until(lambda: log.is_followed(1))
    of_looks, of_logs = iter([500, 503, 401, 403, 429, 410]), iter([401, 403, 400, 500])

    def fault(request: Request) -> None:
        left = of_logs if request.path.endswith("/log") else of_looks
        if request.path.startswith((PODS, JOBS)) and (status := next(left, 0)):
            raise Status(status)

    api.fault = fault
    _go_on_after_a_cut(api, log, reader)
    assert reader.lines == ["world of 2", "[0] loss 0.5", "[1] warning", "[0] still"]
    assert any("trying again" in sentence for sentence in reader.said)
    assert (next(of_looks, 0), next(of_logs, 0)) == (0, 0)


def test_a_token_that_has_changed_is_followed_on_with(
    api: KubeApi, cluster: ClusterClient, log: ContainerLog, tmp_path: Path
) -> None:
    reader = Reader(cluster, LogRequest(follow=True))
    until(lambda: log.is_followed(1))
    path = tmp_path / "kubeconfig"
    path.write_text(path.read_text().replace("secret", "renewed"))

    def fault(request: Request) -> None:
        if request.headers["Authorization"] != "Bearer renewed":
            raise Status(401)

    api.fault = fault
    _go_on_after_a_cut(api, log, reader)
    assert reader.lines[-1] == "[0] still"
    assert reader.said == ["job job has succeeded"]


def test_a_job_that_is_deleted_is_read_until_its_launcher_is_gone(
    api: KubeApi, cluster: ClusterClient, log: ContainerLog
) -> None:
    reader = Reader(cluster, LogRequest(follow=True))
    until(lambda: log.is_followed(1))
    api.remove(JOBS, "job")
    log.write(1.0, "leaving")
    until(lambda: reader.lines[-1] == "leaving")
    del api.streams[f"{PODS}/job-launcher-a/log"]
    api.remove(PODS, "job-launcher-a")
    log.close()
    reader.finish()
    assert reader.said[-1] == "job job was deleted"


def test_the_launcher_before(api: KubeApi, cluster: ClusterClient, log: ContainerLog) -> None:
    with pytest.raises(NoLogError, match="has had one launcher whose log is left, job-launcher-a"):
        read(cluster, LogRequest(previous=True))
    second = ContainerLog(api, "job-launcher-b")
    second.write(60, "second")
    api.put(PODS, launcher("job-launcher-b", minute=1, state=running()))
    assert read(cluster, LogRequest(previous=True))[0] == "world of 2"
    assert read(cluster, LogRequest()) == ["second"]
    assert read(cluster, LogRequest(since_seconds=600))[-2:] == ["[1] warning", "second"]


def test_the_container_before(api: KubeApi, cluster: ClusterClient, log: ContainerLog) -> None:
    api.put(PODS, launcher(state=running(), last=ended(1), restarts=1))
    read(cluster, LogRequest(previous=True))
    assert log.requests[-1].query["previous"] == "true"
    read(cluster, LogRequest())
    assert "previous" not in log.requests[-1].query


def test_nothing_to_read_is_said_with_its_reason(api: KubeApi, cluster: ClusterClient) -> None:
    api.put(JOBS, job(suspended=True))
    with pytest.raises(NoLogError, match="job job has printed nothing yet: the job is suspended"):
        read(cluster, LogRequest())
    api.put(JOBS, finished())
    with pytest.raises(NoLogError, match="has succeeded, and the logs of its launchers went with their pods"):
        read(cluster, LogRequest(follow=True))


def test_missing_rights_end_it_with_the_server_s_words(api: KubeApi, cluster: ClusterClient, log: ContainerLog) -> None:
    def refuse(request: Request) -> None:
        if request.path.endswith("/log"):
            raise Status(403)

    api.fault = refuse
    with pytest.raises(ForbiddenError):
        read(cluster, LogRequest())
