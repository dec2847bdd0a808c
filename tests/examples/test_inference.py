"""The manifests of `examples/inference`, against the real schemas, the guard, and each other.

No GPU and no cluster has run them: that they serve is not shown here.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from hvd_elastic.priorityclasses import DEFAULTS, ClassUser, guard_manifests
from testbed import admission_policies
from tests.mpijob import admission
from tests.mpijob.modules import INFERENCE_SERVICE, INTERCEPTOR_ROUTE, SCALED_OBJECT

FOLDER: Final = Path(__file__).parents[2] / "examples" / "inference"
FILES: Final = sorted(path.name for path in FOLDER.glob("*.yaml"))
QUOTA: Final = 9
"""GPUs that the first lines of `vllm.yaml` give to the namespace."""

Manifest = Mapping[str, Any]


def documents(file: str) -> list[dict[str, Any]]:
    return list(yaml.load_all((FOLDER / file).read_text(encoding="utf-8"), Loader=yaml.CSafeLoader))


def of_kind(file: str, kind: str) -> dict[str, Any]:
    (found,) = (one for one in documents(file) if one["kind"] == kind)
    return found


def server(file: str) -> tuple[Manifest, Manifest]:
    """The pod's spec, and its one container. KServe's predictor is both a pod's spec and more."""
    if file == "kserve.yaml":
        predictor = of_kind(file, "InferenceService")["spec"]["predictor"]
        return predictor, predictor["model"]
    pod = of_kind(file, "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    return pod, container


each_server = pytest.mark.parametrize("file", ["vllm.yaml", "kserve.yaml"])


@pytest.mark.parametrize("file", FILES)
def test_the_api_server_would_admit_them(file: str) -> None:
    crds = (INFERENCE_SERVICE, INTERCEPTOR_ROUTE, SCALED_OBJECT)
    assert [error for one in documents(file) for error in admission.errors(one, *crds)] == []
    assert {one["metadata"]["namespace"] for one in documents(file)} == {"serving"}


def test_the_schemas_of_others_are_closed() -> None:
    service = of_kind("kserve.yaml", "InferenceService")
    service["spec"]["predictor"]["model"]["startupProb"] = {}
    assert "startupProb" in " ".join(admission.errors(service, INFERENCE_SERVICE))


@each_server
def test_the_guard_admits_them_where_they_are_and_nowhere_else(file: str) -> None:
    made = guard_manifests(DEFAULTS, [ClassUser(namespace="serving")], [])
    policy = next(one for one in made if one["metadata"]["name"].startswith("inference-pc."))
    pod = {"priorityClassName": server(file)[0]["priorityClassName"]}

    def refusal(namespace: str) -> str:
        return admission_policies.refusal(policy, object={"spec": pod}, request={"namespace": namespace})

    assert refusal("serving") == ""
    assert "may not use the PriorityClass inference-pc" in refusal("research")


@each_server
def test_a_server_takes_one_gpu_and_no_more_than_it_says(file: str) -> None:
    resources = server(file)[1]["resources"]
    assert resources["limits"]["nvidia.com/gpu"] == "1"
    assert resources["limits"]["memory"] == resources["requests"]["memory"]
    assert "cpu" not in resources["limits"]


@each_server
def test_a_server_is_used_a_second_after_it_is_ready_and_none_is_killed_as_it_loads(file: str) -> None:
    start = server(file)[1]["startupProbe"]
    assert start["periodSeconds"] == 1
    assert start["failureThreshold"] >= 300


def test_the_grace_holds_what_a_leaving_server_waits_for() -> None:
    pod, container = server("vllm.yaml")
    (drain,) = (int(one.partition("=")[2]) for one in container["args"] if one.startswith("--shutdown-timeout="))
    assert container["lifecycle"]["preStop"]["sleep"]["seconds"] + drain < pod["terminationGracePeriodSeconds"]


def test_requests_are_held_as_long_as_a_start_may_take() -> None:
    start = server("vllm.yaml")[1]["startupProbe"]
    readiness = of_kind("keda.yaml", "InterceptorRoute")["spec"]["timeouts"]["readiness"]
    assert int(readiness.removesuffix("s")) > start["periodSeconds"] * start["failureThreshold"]


def test_the_quota_has_room_for_all_replicas_and_a_new_version() -> None:
    surge = of_kind("vllm.yaml", "Deployment")["spec"]["strategy"]["rollingUpdate"]["maxSurge"]
    most = [
        of_kind("hpa.yaml", "HorizontalPodAutoscaler")["spec"]["maxReplicas"],
        of_kind("keda.yaml", "ScaledObject")["spec"]["maxReplicaCount"],
        of_kind("kserve.yaml", "InferenceService")["spec"]["predictor"]["maxReplicas"],
    ]
    assert [replicas + surge for replicas in most] == [QUOTA] * 3
    assert f"--quota serving={QUOTA}" in (FOLDER / "vllm.yaml").read_text(encoding="utf-8")


def test_scalers_scale_what_is_there() -> None:
    deployment = of_kind("vllm.yaml", "Deployment")
    assert "replicas" not in deployment["spec"]
    scaler = of_kind("hpa.yaml", "HorizontalPodAutoscaler")["spec"]
    scaled = of_kind("keda.yaml", "ScaledObject")["spec"]
    route = of_kind("keda.yaml", "InterceptorRoute")
    assert scaler["scaleTargetRef"]["name"] == scaled["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    assert scaled["triggers"][0]["metadata"]["interceptorRoute"] == route["metadata"]["name"]
    service = of_kind("vllm.yaml", "Service")
    assert route["spec"]["target"] == {
        "service": service["metadata"]["name"],
        "port": service["spec"]["ports"][0]["port"],
    }


def test_who_scales_to_zero_asks_what_is_there_without_a_pod() -> None:
    """Kubernetes demands a metric of an object or an external one (`ValidateHorizontalPodAutoscaler`)."""
    scaler = of_kind("hpa.yaml", "HorizontalPodAutoscaler")["spec"]
    assert scaler["minReplicas"] == 0
    assert {metric["type"] for metric in scaler["metrics"]} <= {"External", "Object"}
    assert of_kind("kserve.yaml", "InferenceService")["spec"]["predictor"]["minReplicas"] == 1  # its pods are asked
