"""What a cluster autoscaler keeps ready, from what the API server writes."""

from collections.abc import Iterator
from typing import Any

import pytest

from hvd_elastic.client.connection.cluster_client import ClusterClient
from hvd_elastic.client.connection.login import Login
from hvd_elastic.client.connection.session import Session
from hvd_elastic.decide.autoscale.forecast.capacity_buffers import (
    MOST_CHUNKS,
    CapacityBuffer,
    CapacityBufferReader,
    buffered_gpus,
)
from hvd_elastic.mpijob.contract import GPU_RESOURCE
from testbed.kube_api import KubeApi
from tests.hvd_elastic.decide.autoscale.model_cluster import node

GROUP = "autoscaling.x-k8s.io"
BUFFERS = f"/apis/{GROUP}/v1beta1/capacitybuffers"


@pytest.fixture
def api() -> Iterator[KubeApi]:
    api = KubeApi()
    yield api
    api.stop()


def buffer(name: str = "spare", *, status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "serving"}, "spec": spec, "status": status or {}}


def serve(api: KubeApi, *buffers: dict[str, Any], version: str = "v1beta1") -> None:
    api.answers[f"/apis/{GROUP}"] = lambda _: {"versions": [{"groupVersion": f"{GROUP}/{version}"}]}
    api.answers[BUFFERS] = lambda _: {"metadata": {}, "items": list(buffers)}


def serve_template(api: KubeApi, name: str, gpus: str, **spec: Any) -> None:
    container = {"resources": {"limits": {GPU_RESOURCE: gpus, "cpu": "4"}}}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container], **spec}}
    found = {"metadata": {"name": name, "namespace": "serving"}, "template": template}
    api.answers[f"/api/v1/namespaces/serving/podtemplates/{name}"] = lambda _: found


def reader_of(api: KubeApi) -> CapacityBufferReader:
    session = Session(Login(server=f"http://127.0.0.1:{api.port}", namespace="default"))
    return CapacityBufferReader(ClusterClient(session))


def test_gpus_are_those_of_the_nodes_that_a_chunk_fits(api: KubeApi) -> None:
    serve_template(api, "small", "1")
    serve_template(api, "large", "4")
    serve_template(api, "elsewhere", "1", nodeSelector={"pool": "other"})
    chosen = {"replicas": 3, "podTemplateRef": {"name": "capacitybuffer-spare"}}
    serve_template(api, "capacitybuffer-spare", "1")
    serve(
        api,
        buffer("a", replicas=2, podTemplateRef={"name": "small"}),
        buffer("b", replicas=1, podTemplateRef={"name": "large"}),
        buffer("c", replicas=9, podTemplateRef={"name": "elsewhere"}),
        buffer("d", scalableRef={"kind": "Deployment", "name": "chat"}, percentage=20, status=chosen),
        buffer("e", replicas=2, podTemplateRef={"name": "is-not-there"}),
        buffer("f", scalableRef={"kind": "Deployment", "name": "new"}, percentage=20),
    )
    found = reader_of(api).read()
    assert [one.buffer.name for one in found] == ["serving/a", "serving/b", "serving/c", "serving/d"]
    assert buffered_gpus(found, [node("n1", 8)]) == 2 + 4 + 3
    assert buffered_gpus(found, [node("n1", 2)]) == 2 + 3, "no node has the four"
    assert buffered_gpus(found, [node("n1", 8, resource="amd.com/gpu")]) == 0


def test_what_was_made_counts_and_not_what_was_asked_for() -> None:
    made = CapacityBuffer.from_json(buffer(replicas=9, podTemplateRef={"name": "t"}, status={"replicas": 2}))
    assert (made.chunks, made.asked) == (2, 9)
    assert CapacityBuffer.from_json(buffer(replicas=10**12)).chunks == MOST_CHUNKS
    assert CapacityBuffer.from_json(buffer(replicas=-1)).chunks == 0


def test_a_cluster_without_the_api_is_nothing_to_speak_of(api: KubeApi, caplog: pytest.LogCaptureFixture) -> None:
    assert reader_of(api).read() == []
    assert caplog.messages == []


def test_another_version_and_nonsense_are_said_once(api: KubeApi, caplog: pytest.LogCaptureFixture) -> None:
    serve(api, version="v3")
    reader = reader_of(api)
    assert [reader.read() for _ in range(2)] == [[], []]
    assert len(caplog.messages) == 1
    assert "CapacityBuffers give no forecast: the API server serves autoscaling.x-k8s.io as v3" in caplog.text
    serve(api, buffer("../../x", replicas=1), buffer(replicas="many", podTemplateRef={"name": "t"}))
    assert [reader.read() for _ in range(2)] == [[], []]
    assert [message.split(" cannot")[0] for message in caplog.messages[1:]] == [
        "the CapacityBuffer serving/../../x",
        "the CapacityBuffer serving/spare",
    ]
