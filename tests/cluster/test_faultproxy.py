"""The proxy that injects faults, before an API server that is not a real one."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from hvd_elastic.client.connection.cluster_client import ClusterClient
from hvd_elastic.client.connection.cluster_errors import UnreachableError
from hvd_elastic.discovery.kube.api_server import Access, ApiServer, ApiStatusError, ApiUnreachableError
from hvd_elastic.system.tls import client_context
from testbed.kube.certificates import Authority
from testbed.kube_api import JOBS, NODES, PODS, KubeApi, mpijob
from tests.cluster.faultproxy import Cut, FaultProxy, Refusal


@pytest.fixture
def api() -> Iterator[KubeApi]:
    served = KubeApi()
    served.put(JOBS, mpijob())
    yield served
    served.stop()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    Authority.create(tmp_path / "own")
    return Authority.load(tmp_path / "own")


@pytest.fixture
def proxy(api: KubeApi, authority: Authority) -> Iterator[FaultProxy]:
    shown = authority.issue("front", "front", answers_to=["127.0.0.1"])
    made = FaultProxy(replace(api.access(), token=lambda: "of the proxy"), certificate=shown)
    yield made
    made.stop()


def client(proxy: FaultProxy, authority: Authority, token: str | None = None) -> ApiServer:
    tls = partial(client_context, cafile=authority.root)
    return ApiServer(Access(host="127.0.0.1", port=proxy.port, tls=tls, token=lambda: token))


def test_a_client_has_the_rights_of_its_own_token(api: KubeApi, proxy: FaultProxy, authority: Authority) -> None:
    for token in ("of a pod", None):
        client(proxy, authority, token).get(NODES)
    assert [request.headers["Authorization"] for request in api.requests] == ["Bearer of a pod", "Bearer of the proxy"]


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
def test_a_write_is_refused_on_a_connection_that_goes_on(proxy: FaultProxy, authority: Authority, status: int) -> None:
    asking = client(proxy, authority)
    proxy.fail(Refusal(status, {"Retry-After": "2"}))
    for _ in range(2):
        with pytest.raises(ApiStatusError) as refused:
            asking.patch(f"{JOBS}/job", {"metadata": {"annotations": {"a": "b"}}})
        assert (refused.value.status, refused.value.retry_after_seconds) == (status, 2.0)
    proxy.heal()
    assert asking.patch(f"{JOBS}/job", {"metadata": {"annotations": {"a": "b"}}})["metadata"]["annotations"] == {
        "a": "b"
    }


def test_a_fault_ends_a_watch_that_is_open(proxy: FaultProxy, authority: Authority) -> None:
    lines = client(proxy, authority).lines(PODS, {"watch": "1", "resourceVersion": "1000"}, silence_seconds=30)
    assert next(lines) == []
    proxy.fail(Cut())
    with pytest.raises(ApiUnreachableError):
        next(lines)


def test_another_certificate_is_shown_to_who_has_a_connection(
    api: KubeApi, proxy: FaultProxy, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusted, kubeconfig = tmp_path / "trusted.crt", tmp_path / "kubeconfig"
    shutil.copyfile(authority.root, trusted)
    server = {"server": f"https://127.0.0.1:{proxy.port}", "certificate-authority": str(trusted)}
    config = json.loads(api.kubeconfig(tmp_path).read_text())
    kubeconfig.write_text(json.dumps({**config, "clusters": [{"name": "c", "cluster": server}]}))
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    cluster = ClusterClient.connect()
    assert cluster.get(NODES)["items"] == []
    proxy.show(authority.issue("next", "front", answers_to=["127.0.0.1"]))
    assert cluster.get(NODES)["items"] == []
    other = Authority.create(tmp_path / "other")
    shutil.copyfile(other.root, trusted)
    proxy.show(other.issue("next", "front", answers_to=["127.0.0.1"]))
    assert cluster.get(NODES)["items"] == [], "its file was read anew"
    proxy.show(authority.issue("last", "front", answers_to=["127.0.0.1"]))
    with pytest.raises(UnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
        cluster.get(NODES)
