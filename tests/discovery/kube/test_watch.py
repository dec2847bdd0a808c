import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from hvd_elastic.discovery.kube.api_server import Access, ApiServer, ApiStatusError, ApiUnreachableError
from hvd_elastic.discovery.kube.mpijob_place import MPIJobPlace
from hvd_elastic.discovery.kube.watch import (
    BACKOFF,
    PAGE,
    Changed,
    Deleted,
    Listed,
    Message,
    UpToDate,
    Watch,
    WatchFault,
    one_job,
    workers_of,
)
from hvd_elastic.discovery.rules.cluster_views import PodView
from testbed.kube_api import JOBS, PODS, Cut, KubeApi, Request, Status, mpijob, pod
from tests.discovery.conftest import until

PLACE = MPIJobPlace(job="job", namespace="default", version="v2beta1")


class Followed:
    """A watch in a thread, and its messages."""

    def __init__(self, api: KubeApi, **options: object) -> None:
        self.watch: Watch[PodView] = Watch(
            server=ApiServer(api.access()),
            selection=workers_of(PLACE, PodView.from_json),
            **options,  # type: ignore[arg-type]
        )
        self.messages: list[Message[PodView]] = []
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        for messages in self.watch.forever():
            self.messages += messages

    def count(self, kind: type) -> int:
        return sum(isinstance(message, kind) for message in self.messages)

    def faults(self) -> list[WatchFault]:
        return [message for message in self.messages if isinstance(message, WatchFault)]


Follow = Callable[..., Followed]


@pytest.fixture
def follow(api: KubeApi) -> Iterator[Follow]:
    made: list[Followed] = []

    def begin(**options: object) -> Followed:
        made.append(Followed(api, **options))
        return made[-1]

    yield begin
    for followed in made:
        followed.watch.stopped.set()
    api.stop()
    for followed in made:
        followed.thread.join(10)


def test_lists_in_pages_and_follows_on(api: KubeApi, follow: Follow) -> None:
    for index in range(PAGE + 3):
        api.put(PODS, pod(index, ip=f"10.0.{index // 250}.{index % 250}"))
    followed = follow()
    until(lambda: followed.count(UpToDate) == 1)
    assert isinstance(followed.messages[0], Listed)
    assert len(followed.messages[0].objects) == PAGE + 3
    assert api.asked(watch=False) == 2
    api.put(PODS, pod(0, ready=False))
    api.remove(PODS, "job-worker-1")
    until(lambda: followed.count(Changed) == 1 and followed.count(Deleted) == 1)


def test_a_proper_end_is_followed_by_a_watch_and_no_list(api: KubeApi, follow: Follow) -> None:
    follow(server_seconds=1)
    until(lambda: api.asked(watch=True) >= 3)
    assert api.asked(watch=False) == 1
    assert api.most_watching[PODS] == 1


def test_silence_is_a_fault(api: KubeApi, follow: Follow) -> None:
    hung = threading.Event()

    def hang(request: Request) -> None:
        if request.is_watch:
            request.query["timeoutSeconds"] = "3600"
            hung.set()

    api.fault = hang
    followed = follow(server_seconds=0, silence_seconds=0.3)
    until(lambda: bool(followed.faults()))
    assert "timed out" in str(followed.faults()[0].error)
    assert hung.is_set()


def test_a_version_too_old_brings_a_new_list(api: KubeApi, follow: Follow) -> None:
    followed = follow(server_seconds=1)
    until(lambda: followed.count(UpToDate) > 0)
    api.put(PODS, pod(1))
    api.compact()
    api.cut()
    until(lambda: followed.count(Listed) == 2)


def test_too_many_requests_waits_as_asked_and_does_not_list_again(api: KubeApi, follow: Follow) -> None:
    refused: list[Request] = []
    waits: list[float | None] = []

    class Stopped(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout)
            return self.is_set()

    def refuse(request: Request) -> None:
        if request.is_watch and len(refused) < 2:
            refused.append(request)
            raise Status(429, {"Retry-After": "1"})

    api.fault = refuse
    followed = follow(stopped=Stopped())
    until(lambda: followed.count(UpToDate) > 0)
    assert [round(fault.retry_seconds) for fault in followed.faults()] == [1, 1]
    assert waits == [fault.retry_seconds for fault in followed.faults()]
    assert api.asked(watch=False) == 1


def test_backs_off_from_a_server_that_lists_and_then_refuses(api: KubeApi, follow: Follow) -> None:
    def refuse(request: Request) -> None:
        if request.is_watch:
            raise Cut

    api.fault = refuse
    followed = follow()
    until(lambda: len(followed.faults()) >= 5)
    waits = [fault.retry_seconds for fault in followed.faults()[:5]]
    assert waits[4] > 4 * waits[0]
    assert max(waits) <= BACKOFF.most_seconds


def test_a_watch_that_ends_at_once_is_not_requested_without_a_pause(api: KubeApi, follow: Follow) -> None:
    def end(request: Request) -> None:
        if request.is_watch:
            request.query["timeoutSeconds"] = "0"

    api.fault = end
    followed = follow()
    until(lambda: len(followed.faults()) >= 3)
    assert api.asked(watch=True) <= len(followed.faults()) + 1


def test_a_line_that_is_not_an_event_is_a_fault_and_not_a_crash(api: KubeApi, follow: Follow) -> None:
    api.chop = lambda line: [b"<html>gateway</html>\n"]
    followed = follow()
    until(lambda: followed.count(UpToDate) > 0)
    api.bookmark()
    until(lambda: bool(followed.faults()))
    assert "not a watch event" in str(followed.faults()[0].error)


def test_events_before_an_error_count_even_if_all_came_at_once(api: KubeApi, follow: Follow) -> None:
    error = b'{"type":"ERROR","object":{"kind":"Status","code":429,"message":"too fast"}}\n'
    api.chop = lambda line: [line + error]
    followed = follow()
    until(lambda: followed.count(UpToDate) > 0)
    api.put(PODS, pod(0))
    until(lambda: bool(followed.faults()))
    assert followed.count(Changed) == 1
    assert "HTTP 429" in str(followed.faults()[0].error)


def test_a_slow_consumer_receives_several_events_in_one_batch(api: KubeApi) -> None:
    sent: list[bytes] = []

    def send(line: bytes) -> Iterator[bytes]:
        yield line
        sent.append(line)

    api.chop = send
    watch = Watch(server=ApiServer(api.access()), selection=workers_of(PLACE, PodView.from_json))
    messages = watch.forever()
    assert [type(next(messages)[0]) for _ in range(2)] == [Listed, UpToDate]
    for index in range(5):
        api.put(PODS, pod(index))
    came: list[Message[PodView]] = []
    batches = 0
    until(lambda: len(sent) == 5)
    while len(came) < 5:
        came += next(messages)
        batches += 1
    assert batches < 5
    assert [message.object.index for message in came if isinstance(message, Changed)] == [0, 1, 2, 3, 4]
    api.stop()


def test_a_list_that_cannot_be_read_is_a_fault_and_not_a_crash(api: KubeApi, follow: Follow) -> None:
    broken = pod(0)
    broken["status"]["conditions"] = [{"kind": "Ready"}]
    api.put(PODS, broken)
    followed = follow()
    until(lambda: bool(followed.faults()))
    assert "not a list" in str(followed.faults()[0].error)
    api.put(PODS, pod(0))
    until(lambda: followed.count(Listed) == 1)


def test_one_object_is_read_without_the_right_to_list(api: KubeApi) -> None:
    api.put(JOBS, mpijob("other"))
    selection = one_job(PLACE, lambda job: str(job["metadata"]["name"]))
    watch = Watch(server=ApiServer(api.access()), selection=selection)
    assert watch.list_all() == ("job",)
    assert {request.path for request in api.requests} == {f"{JOBS}/job"}


def test_a_token_is_read_for_each_request(api: KubeApi) -> None:
    tokens = iter(("first", "second"))
    server = ApiServer(Access(host="127.0.0.1", port=api.port, token=lambda: next(tokens)))
    server.get(PODS)
    server.get(PODS)
    assert [request.headers["Authorization"] for request in api.requests] == ["Bearer first", "Bearer second"]


def test_an_idle_connection_that_was_closed_is_not_a_fault(api: KubeApi) -> None:
    server = ApiServer(api.access())
    for ask in (server.get, lambda path: server.delete(f"{path}/none", {}), server.get):
        api.stop()
        api.start()
        before = len(api.requests)
        with contextlib.suppress(ApiStatusError):  # there is no such pod
            ask(PODS)
        assert len(api.requests) == before + 1


def test_keep_alive_probes_find_a_server_that_lost_the_connection(api: KubeApi) -> None:
    server = ApiServer(api.access())
    server.get(PODS)
    assert server._connection is not None
    sock = server._connection.sock
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) == 1


def test_an_attempt_that_waited_for_a_connection_is_repeated_soon(api: KubeApi) -> None:
    watch = Watch(
        server=ApiServer(api.access()),
        selection=workers_of(PLACE, PodView.from_json),
        random=lambda: 1.0,
    )
    error = ApiUnreachableError("timed out")
    assert watch._retry_seconds(10, error, lasted=0.0) == BACKOFF.most_seconds
    assert 0 < watch._retry_seconds(10, error, lasted=1.5) < 0.1
    assert watch._retry_seconds(1, error, lasted=600.0) == BACKOFF.first_seconds


def test_a_write_is_never_sent_twice(api: KubeApi) -> None:
    server = ApiServer(api.access())
    server.get(PODS)

    def cut(request: Request) -> None:
        if request.method == "PATCH":
            raise Cut

    api.fault = cut
    with pytest.raises(ApiUnreachableError):
        server.patch(f"{JOBS}/job", {"spec": {}})
    assert [request.method for request in api.requests] == ["GET", "PATCH"]


def test_an_error_holds_the_servers_message(api: KubeApi) -> None:
    with pytest.raises(ApiStatusError, match="HTTP 404: injected"):
        ApiServer(api.access()).get(f"{PODS}/nobody")


def test_a_server_that_accepts_and_never_answers_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hvd_elastic.discovery.kube.api_server.ANSWER_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = ApiServer(Access(host="127.0.0.1", port=listener.getsockname()[1]))
        with pytest.raises(ApiUnreachableError, match="timed out"):
            server.get(PODS)


def test_an_answer_that_is_cut_is_a_fault() -> None:
    body = json.dumps({"items": []}).encode()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body) + 9, body))

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(ApiUnreachableError):
            ApiServer(Access(host="127.0.0.1", port=listener.getsockname()[1])).get(PODS)


def test_the_legacy_operator_has_other_labels_and_paths() -> None:
    place = MPIJobPlace(job="j", namespace="n", version="v1")
    pods = workers_of(place, PodView.from_json)
    assert pods.query["labelSelector"] == "training.kubeflow.org/job-name=j,training.kubeflow.org/replica-type=worker"
    assert one_job(place, PodView.from_json).path == "/apis/kubeflow.org/v1/namespaces/n/mpijobs"
