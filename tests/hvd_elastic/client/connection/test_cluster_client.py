"""What a person is told when the cluster cannot be asked, over real connections."""

import base64
import contextlib
import gc
import json
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hvd_elastic.client.connection.cluster_client import (
    CUT_MARK,
    MAX_LINE_BYTES,
    ClusterClient,
    ConflictError,
    CredentialsError,
    ForbiddenError,
    NotConfiguredError,
    NotFoundError,
    Read,
    RefusedError,
    UnreachableError,
)
from hvd_elastic.client.connection.cluster_errors import error_of
from testbed.kube.certificates import Authority
from testbed.kube_api import NODES, KubeApi, Request, Status, node
from tests.discovery.conftest import until
from tests.failing_threads import fails_once


def configure(path: Path, port: int) -> None:
    write(path, {"server": f"http://127.0.0.1:{port}"}, {"token": "secret"})


def write(path: Path, cluster: dict[str, str], user: dict[str, str]) -> None:
    config = {
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [
            {"name": "here", "context": {"cluster": "c", "user": "u"}},
            {"name": "team", "context": {"cluster": "c", "user": "u", "namespace": "team"}},
        ],
    }
    path.write_text(json.dumps(config))


def data_of(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


@contextlib.contextmanager
def serve_once(answer: bytes) -> Iterator[int]:
    """A server that says this to whoever asks first, and closes the connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        thread.join(20)


def test_lists_come_page_by_page(api: KubeApi, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hvd_elastic.client.connection.cluster_client.PAGE_SIZE", 2)
    for index in range(5):
        api.put(NODES, node(f"node-{index}"))
    configure(kubeconfig, api.port)
    found = ClusterClient.connect(context="team", impersonate="somebody")
    assert found.namespace == "team"
    assert [one["metadata"]["name"] for one in found.list(NODES)] == [f"node-{index}" for index in range(5)]
    assert len(api.requests) == 3
    assert all(request.headers["Authorization"] == "Bearer secret" for request in api.requests)
    assert all(request.headers["Impersonate-User"] == "somebody" for request in api.requests)


def test_a_list_from_memory_is_one_answer(api: KubeApi, kubeconfig: Path) -> None:
    configure(kubeconfig, api.port)
    client = ClusterClient.connect(context="team")
    assert list(client.list_cached(NODES)) == []
    for index in range(5):
        api.put(NODES, {**node(f"node-{index}"), "said": '"items": [{}], \\"'})
    api.requests.clear()
    assert list(client.list_cached(NODES)) == list(client.list(NODES))
    assert [request.query.get("resourceVersion") for request in api.requests] == ["0", None]
    with pytest.raises(NotFoundError):
        list(client.list_cached("/api/v1/nothing"))


def test_a_list_of_a_server_of_another_kind(kubeconfig: Path) -> None:
    with serve_once(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>") as port:
        configure(kubeconfig, port)
        with pytest.raises(UnreachableError, match="is not a Kubernetes API server"):
            list(ClusterClient.connect().list_cached(NODES))


@pytest.mark.parametrize("items", ["null", "[]", "[ ]"])
def test_a_list_of_nothing(items: str, kubeconfig: Path) -> None:
    body = f'{{"kind": "List", "items": {items}}}'
    with serve_once(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()) as port:
        configure(kubeconfig, port)
        assert list(ClusterClient.connect().list_cached(NODES)) == []


@pytest.mark.parametrize(
    ("status", "error", "said"),
    [
        (401, CredentialsError, "log in again"),
        (403, ForbiddenError, ""),
        (404, NotFoundError, NODES),
        (409, RefusedError, "HTTP 409"),
        (500, RefusedError, "HTTP 500"),
    ],
)
def test_each_refusal_is_an_error_of_its_own(
    api: KubeApi, kubeconfig: Path, status: int, error: type[Exception], said: str
) -> None:
    def refuse(_request: Request) -> None:
        raise Status(status)

    api.fault = refuse
    configure(kubeconfig, api.port)
    with pytest.raises(error) as caught:
        ClusterClient.connect().get(NODES)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_nobody_answers(kubeconfig: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    configure(kubeconfig, port)
    with pytest.raises(UnreachableError, match=rf"127.0.0.1:{port} does not answer: .*refused"):
        ClusterClient.connect().get("/version")


@pytest.mark.parametrize("content", [None, "", "{", "[]", '{"contexts": []}'])
def test_no_usable_kubeconfig(kubeconfig: Path, content: str | None) -> None:
    if content is not None:
        kubeconfig.write_text(content)
    with pytest.raises(NotConfiguredError, match="set KUBECONFIG"):
        ClusterClient.connect()


def test_no_such_context(api: KubeApi, kubeconfig: Path) -> None:
    configure(kubeconfig, api.port)
    with pytest.raises(NotConfiguredError, match="elsewhere"):
        ClusterClient.connect(context="elsewhere")


def test_several_questions_take_one_round_trip(api: KubeApi, kubeconfig: Path) -> None:
    """The server answers nobody before all have asked."""
    api.put(NODES, node("node-0"))
    together = threading.Barrier(3, timeout=20)

    def wait_for_all(_request: Request) -> None:
        together.wait()

    api.fault = wait_for_all
    configure(kubeconfig, api.port)
    found, absent, nodes = ClusterClient.connect().gather(
        [Read(path=f"{NODES}/node-0"), Read(path=f"{NODES}/node-1"), Read(path=NODES, query={"limit": "7"})]
    )
    assert isinstance(found, dict)
    assert found["metadata"]["name"] == "node-0"
    assert isinstance(absent, NotFoundError)
    assert isinstance(nodes, dict)
    assert len(nodes["items"]) == 1
    assert "7" in {request.query.get("limit") for request in api.requests}


def test_several_questions_fail_together_if_nobody_answers(kubeconfig: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    configure(kubeconfig, port)
    with pytest.raises(UnreachableError):
        ClusterClient.connect().gather([Read(path=NODES), Read(path="/version")])


def test_what_was_not_read_for_an_unforeseen_error_does_not_pass_for_what_is_not_there(
    api: KubeApi, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(kubeconfig, api.port)
    fails_once(monkeypatch, ClusterClient, "get")
    with pytest.raises(RuntimeError, match="broken"):
        ClusterClient.connect().gather([Read(path=NODES), Read(path=NODES)])


def test_a_watch_comes_line_by_line_and_ends_with_the_server(api: KubeApi, kubeconfig: Path) -> None:
    configure(kubeconfig, api.port)
    api.chop = lambda data: [data[:7], data[7:]]
    lines = ClusterClient.connect().stream(NODES, {"watch": "1", "resourceVersion": "1000", "timeoutSeconds": "60"})
    for name in ("node-0", "node-1"):
        api.put(NODES, node(name))
        assert json.loads(next(lines))["object"]["metadata"]["name"] == name
    api.cut()
    with pytest.raises(UnreachableError):
        next(lines)


def test_a_connection_that_breaks_is_no_end(kubeconfig: Path) -> None:
    """A line that is not whole is left out."""
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\none\ntwo\nt\r\n5\r\nhr"
    with serve_once(answer) as port:
        configure(kubeconfig, port)
        lines = ClusterClient.connect().stream("/log", {})
        assert [next(lines), next(lines)] == [b"one", b"two"]
        with pytest.raises(UnreachableError):
            next(lines)


def test_the_last_line_of_a_log_needs_no_line_break(kubeconfig: Path) -> None:
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\none\ntwo\r\n0\r\n\r\n"
    with serve_once(answer) as port:
        configure(kubeconfig, port)
        assert list(ClusterClient.connect().stream("/log", {})) == [b"one", b"two"]


def test_a_line_without_an_end_is_cut_and_the_next_one_is_whole(kubeconfig: Path) -> None:
    body = b"x" * MAX_LINE_BYTES + b"\n" + b"y" * (2 * MAX_LINE_BYTES) + b"\nz"
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    with serve_once(answer) as port:
        configure(kubeconfig, port)
        lines = list(ClusterClient.connect().stream("/log", {}))
    assert lines == [b"x" * MAX_LINE_BYTES, b"y" * MAX_LINE_BYTES + CUT_MARK, b"z"]


def test_whoever_stops_reading_closes_the_connection(api: KubeApi, kubeconfig: Path) -> None:
    configure(kubeconfig, api.port)
    lines = ClusterClient.connect().stream(NODES, {"watch": "1", "resourceVersion": "1000", "timeoutSeconds": "60"})
    api.put(NODES, node("node-0"))
    next(lines)
    assert api.watching[NODES] == 1
    with pytest.raises(KeyboardInterrupt):
        lines.throw(KeyboardInterrupt())  # type: ignore[attr-defined]

    def is_noticed() -> bool:
        api.put(NODES, node("node-0"))  # the server notices when it writes
        return api.watching[NODES] == 0

    until(is_noticed)


def test_a_stream_that_is_refused_or_silent(api: KubeApi, kubeconfig: Path) -> None:
    configure(kubeconfig, api.port)
    with pytest.raises(NotFoundError):
        next(ClusterClient.connect().stream("/api/v1/nowhere", {}))
    watch = {"watch": "1", "resourceVersion": "1000", "timeoutSeconds": "60"}
    with pytest.raises(UnreachableError, match="timed out"):
        next(ClusterClient.connect().stream(NODES, watch, silence_seconds=0.05))


def test_how_objects_are_changed(api: KubeApi, kubeconfig: Path) -> None:
    thing = api.put(NODES, node("node-0"))
    configure(kubeconfig, api.port)
    client = ClusterClient.connect()
    assert client.patch(f"{NODES}/node-0", {"spec": {"unschedulable": True}})["spec"]["unschedulable"] is True
    client.apply(f"{NODES}/node-0", {"metadata": {"labels": {"a": "b"}}}, manager="me", force=True, dry_run=True)
    with pytest.raises(ConflictError):
        client.delete(f"{NODES}/node-0", uid="another")
    client.delete(f"{NODES}/node-0", uid=thing["metadata"]["uid"], propagation="Foreground")
    assert not api.objects[NODES]
    merged, applied, _, deleted = api.requests
    assert merged.headers["Content-Type"] == "application/merge-patch+json"
    assert applied.headers["Content-Type"] == "application/apply-patch+yaml"
    assert applied.query == {"fieldManager": "me", "force": "true", "fieldValidation": "Strict", "dryRun": "All"}
    assert deleted.body is not None
    assert deleted.body["propagationPolicy"] == "Foreground"


@pytest.mark.distribution
def test_over_tls_with_another_name_and_a_certificate_as_data(
    kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key is in a file only while OpenSSL reads it."""
    authority = Authority.create(tmp_path / "keys")
    server, user = authority.issue("server", "server", answers_to=["kubernetes"]), authority.issue("ann", "ann")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.root)
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.verify_flags &= ~ssl.VERIFY_X509_STRICT  # an API server is written in Go, which is not as strict
    tls.load_cert_chain(server.certificate, server.key)
    files = tmp_path / "temporary"
    files.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(files))
    api = KubeApi(tls=tls)
    try:
        cluster = {
            "server": f"https://127.0.0.1:{api.port}",
            "tls-server-name": "kubernetes",
            "certificate-authority-data": data_of(authority.root),
        }
        who = {"client-certificate-data": data_of(user.certificate), "client-key-data": data_of(user.key)}
        write(kubeconfig, cluster, who)
        assert ClusterClient.connect().get(NODES)["items"] == []
        assert list(files.iterdir()) == []
        write(kubeconfig, {**cluster, "tls-server-name": ""}, who)
        with pytest.raises(UnreachableError, match="certificate"):
            ClusterClient.connect().get(NODES)
    finally:
        api.stop()


def test_through_a_proxy(api: KubeApi, kubeconfig: Path) -> None:
    """The fake API server stands for the proxy: it is asked for another host's page."""
    write(kubeconfig, {"server": "http://far.example:80", "proxy-url": f"http://ann:pass@127.0.0.1:{api.port}"}, {})
    ClusterClient.connect().get(NODES)
    (request,) = api.requests
    assert request.headers["Host"] == "far.example:80"
    assert request.headers["proxy-authorization"].startswith("Basic ")


def test_a_proxy_of_another_kind_is_refused(kubeconfig: Path) -> None:
    write(kubeconfig, {"server": "http://far.example:80", "proxy-url": "socks5://127.0.0.1:1"}, {})
    with pytest.raises(NotConfiguredError, match="not an http or https proxy"):
        ClusterClient.connect()


def test_what_is_not_an_api_server(kubeconfig: Path) -> None:
    with serve_once(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>") as port:
        configure(kubeconfig, port)
        with pytest.raises(UnreachableError, match="is not a Kubernetes API server"):
            ClusterClient.connect().get("/version")
    assert gc.isenabled(), "it is off only while an answer is parsed"


def test_no_right_is_told_with_the_role_that_grants_it() -> None:
    said = (
        'mpijobs.kubeflow.org "a" is forbidden: User "ann" cannot patch resource "mpijobs" in API group "kubeflow.org" '
        'in the namespace "team"'
    )
    error = error_of(403, json.dumps({"message": said}).encode(), method="PATCH", path="/", server="")
    assert 'a Role with the rule {"apiGroups": ["kubeflow.org"], "resources": ["mpijobs"], "verbs": ["patch"]}' in str(
        error
    )
    assert "so does hvd-elastic-edit of hvd-elastic platform-kit to all who have edit" in str(error)
    wide = error_of(403, json.dumps({"message": said[: said.index(" in the")]}).encode(), method="", path="", server="")
    assert "a ClusterRole with the rule" in str(wide)
    quota = error_of(403, b'{"message": "exceeded quota: gpus"}', method="", path="", server="")
    assert str(quota) == "exceeded quota: gpus"


@pytest.mark.core
@pytest.mark.process
def test_logging_in_by_a_kubeconfig_imports_no_kubernetes_package(api: KubeApi, kubeconfig: Path) -> None:
    configure(kubeconfig, api.port)
    code = (
        "import sys; from hvd_elastic.client.connection.cluster_client import ClusterClient\n"
        f"ClusterClient.connect().get({NODES!r}); print('kubernetes' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"
