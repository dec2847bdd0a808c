"""Which APIs are asked for scalers, and what is said of those that do not answer."""

from collections.abc import Iterator
from typing import Any

import pytest

from hvd_elastic.client.connection.cluster_client import ClusterClient
from hvd_elastic.client.connection.login import Login
from hvd_elastic.client.connection.session import Session
from hvd_elastic.decide.autoscale.forecast.optional_reading import MOST_TEMPLATES
from hvd_elastic.decide.autoscale.forecast.scaler_demand import ScalerDemand
from hvd_elastic.decide.autoscale.forecast.scaler_reader import ScalerReader
from testbed.kube_api import KubeApi, Request, Status

HPAS = "/apis/autoscaling/v2/horizontalpodautoscalers"
SCALED_OBJECTS = "/apis/keda.sh/v1alpha1/scaledobjects"
CHAT = "serving/Deployment/chat"
HPA = {
    "metadata": {"name": "keda-hpa-chat", "namespace": "serving"},
    "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "chat"}, "maxReplicas": 8},
    "status": {"conditions": [{"type": "ScalingActive", "status": "False", "reason": "ScalingDisabled"}]},
}
SCALED = {
    "metadata": {"name": "chat", "namespace": "serving"},
    "spec": {"scaleTargetRef": {"name": "chat"}},
    "status": {"conditions": [{"type": "Active", "status": "True"}]},
}


@pytest.fixture
def api() -> Iterator[KubeApi]:
    api = KubeApi()
    serve(api, "autoscaling", "v2")
    answer(api, HPAS, HPA)
    yield api
    api.stop()


def serve(api: KubeApi, group: str, *versions: str) -> None:
    api.answers[f"/apis/{group}"] = lambda _: {"versions": [{"groupVersion": f"{group}/{one}"} for one in versions]}


def answer(api: KubeApi, path: str, *items: dict[str, Any]) -> None:
    api.answers[path] = lambda _: {"metadata": {}, "items": list(items)}


def reader_of(api: KubeApi) -> ScalerReader:
    return ScalerReader(ClusterClient(Session(Login(server=f"http://127.0.0.1:{api.port}", namespace="default"))))


def test_a_cluster_without_keda_is_nothing_to_speak_of(api: KubeApi, caplog: pytest.LogCaptureFixture) -> None:
    assert reader_of(api).demands() == [ScalerDemand(workload=CHAT, replicas=0, from_zero=True)]
    assert caplog.messages == []


def test_keda_wakes_what_its_hpa_leaves_alone(api: KubeApi) -> None:
    serve(api, "keda.sh", "v1alpha1")
    answer(api, SCALED_OBJECTS, SCALED)
    asleep, called = reader_of(api).demands()
    assert (asleep.workload, asleep.replicas, asleep.from_zero) == (CHAT, 0, True)
    assert (called.workload, called.replicas) == (CHAT, 1)


def test_another_version_is_said_with_those_that_are_served(api: KubeApi, caplog: pytest.LogCaptureFixture) -> None:
    serve(api, "keda.sh", "v2")
    reader = reader_of(api)
    assert [len(reader.demands()) for _ in range(3)] == [1, 1, 1]
    (said,) = caplog.messages
    assert said.startswith("ScaledObjects give no forecast: the API server serves keda.sh as v2")


def test_an_api_that_does_not_answer_is_said_once_until_it_does(api: KubeApi, caplog: pytest.LogCaptureFixture) -> None:
    serve(api, "keda.sh", "v1alpha1")
    answer(api, SCALED_OBJECTS, SCALED)

    def refuse(request: Request) -> None:
        if request.path == SCALED_OBJECTS:
            raise Status(403)

    reader = reader_of(api)
    for fault, found in ((refuse, 1), (refuse, 1), (None, 2), (refuse, 1)):
        api.fault = fault or (lambda _request: None)
        assert len(reader.demands()) == found
    assert [message.split(" give ")[0] for message in caplog.messages] == ["ScaledObjects", "ScaledObjects"]


def workload(name: str, gpus: str) -> dict[str, Any]:
    container = {"resources": {"limits": {"nvidia.com/gpu": gpus, "cpu": "4"}}}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    return {"metadata": {"name": name, "namespace": "serving"}, "spec": {"template": template}}


def test_a_template_tells_what_a_pod_will_ask_for(api: KubeApi, caplog: pytest.LogCaptureFixture) -> None:
    api.answers["/apis/apps/v1/namespaces/serving/deployments/chat"] = lambda _: workload("chat", "2")
    api.answers["/apis/apps/v1/namespaces/serving/statefulsets/odd"] = lambda _: workload("odd", "many")
    found = reader_of(api).templates([CHAT, "serving/StatefulSet/odd", "serving/Deployment/gone"])
    assert [(one.workload, one.resource, one.gpus) for one in found] == [(CHAT, "nvidia.com/gpu", 2)]
    (said,) = caplog.messages
    assert said.startswith("the template of serving/odd cannot be read and is left out")


@pytest.mark.parametrize(
    "name",
    ["serving/Deployment/../secrets", "serving/Deployment/a?b", "a/b/Deployment/c", "serving/Rollout/chat", "", "chat"],
)
def test_a_name_that_leads_elsewhere_is_not_asked_for(api: KubeApi, name: str) -> None:
    assert reader_of(api).templates([name]) == []
    assert api.requests == []


def test_many_that_wake_at_once_do_not_hold_a_turn_up(api: KubeApi) -> None:
    reader_of(api).templates([f"serving/Deployment/d{number}" for number in range(3 * MOST_TEMPLATES)])
    assert len(api.requests) == MOST_TEMPLATES
