"""What a person is told when the cluster cannot be asked, over real connections."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from hvd_elastic.jobs.cluster_client import (
    ClusterClient,
    CredentialsError,
    ForbiddenError,
    NotConfiguredError,
    NotFoundError,
    RefusedError,
    UnreachableError,
)
from tests.discovery.kubeapi import NODES, KubeApi, Request, Status, node


@pytest.fixture
def api() -> Iterator[KubeApi]:
    served = KubeApi()
    yield served
    served.stop()


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "kubeconfig"
    monkeypatch.setenv("KUBECONFIG", str(path))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(path))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    return path


def configure(path: Path, port: int) -> None:
    config = {
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [
            {"name": "here", "context": {"cluster": "c", "user": "u"}},
            {"name": "team", "context": {"cluster": "c", "user": "u", "namespace": "team"}},
        ],
    }
    path.write_text(json.dumps(config))


def test_lists_come_page_by_page(api: KubeApi, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hvd_elastic.jobs.cluster_client.PAGE_SIZE", 2)
    for index in range(5):
        api.put(NODES, node(f"node-{index}"))
    configure(kubeconfig, api.port)
    found = ClusterClient.connect(context="team", impersonate="somebody")
    assert found.namespace == "team"
    assert [one["metadata"]["name"] for one in found.list(NODES)] == [f"node-{index}" for index in range(5)]
    assert len(api.requests) == 3
    assert all(request.headers["authorization"] == "Bearer secret" for request in api.requests)
    assert all(request.headers["Impersonate-User"] == "somebody" for request in api.requests)


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
