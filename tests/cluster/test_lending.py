"""A service that an HPA scales to zero and back: its requests are held, training gives way, and nothing is lost."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from benchmarks.lend.servers import PROGRAM, first_byte
from hvd_elastic.decide.autoscale.forecast.hpa_demand import hpa_demand
from hvd_elastic.mpijob.contract import GPU_RESOURCE
from testbed.cluster import external_metrics
from testbed.cluster.activator import activator
from testbed.cluster.pods import SAFE
from testbed.cluster.site import Site
from testbed.cluster.standing import SIZE, nothing_lost, start
from testbed.cluster.timeline import Timeline
from testbed.kube import waiting
from testbed.kube.kubectl import Kubectl, condition_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(480, func_only=True)]

EXAMPLES: Final = Path(__file__).parents[2] / "examples" / "inference"
SERVICE: Final = "chat"
METRIC: Final = "requests_in_flight"
REQUESTS: Final = 8
"""At once: half of what the HPA has one server answer."""
SCALED_WITHIN: Final = 120.0
"""Seconds. An HPA looks each 15 s, and goes down only when it has wanted to for as long as `calm` says."""


def calm(manifest: dict[str, Any]) -> dict[str, Any]:
    """The HPA of the examples, which waits for 15 s, not for five minutes, before it takes a server away."""
    manifest["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"] = 15
    return manifest


def served_by_a_small_model(manifest: dict[str, Any], image: str) -> dict[str, Any]:
    """vLLM's Deployment of the examples with a server that needs no GPU, on the node that training has."""
    pod = manifest["spec"]["template"]["spec"]
    pod["nodeSelector"], pod["tolerations"] = {"kubernetes.io/hostname": "spot"}, [{"operator": "Exists"}]
    (container,) = pod["containers"]
    container |= {
        "image": image,
        "command": ["python", "/scripts/model_server.py", "--host=0.0.0.0", "--port=8000", "--weights=/tmp/weights.pt"],
        "args": [],
        "env": [],
        "resources": {"requests": {"cpu": "100m"}, "limits": {GPU_RESOURCE: "1"}},
        "securityContext": SAFE,
        "volumeMounts": [{"name": "scripts", "mountPath": "/scripts"}],
    }
    pod["volumes"] = [{"name": "scripts", "configMap": {"name": "scripts"}}]
    return manifest


def manifests(image: str) -> Iterator[dict[str, Any]]:
    """The examples, where they are applied here."""
    yield {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "scripts"},
        "data": {PROGRAM.name: PROGRAM.read_text(encoding="utf-8")},
    }
    for file in ("vllm.yaml", "hpa.yaml"):
        for manifest in yaml.safe_load_all((EXAMPLES / file).read_text(encoding="utf-8")):
            del manifest["metadata"]["namespace"]
            match manifest["kind"]:
                case "Deployment":
                    yield served_by_a_small_model(manifest, image)
                case "HorizontalPodAutoscaler":
                    yield calm(manifest)
                case _:
                    yield manifest


def is_at_zero(hpa: dict[str, Any]) -> bool:
    """By its own condition, and as `autoscale` reads it."""
    demand = hpa_demand(hpa)
    return condition_of(hpa, "ScaledToZero") == "True" and (demand.from_zero, demand.replicas) == (True, 0)


def test_requests_bring_a_service_from_zero(cluster: Site, namespace: Kubectl, timeline: Timeline) -> None:
    machine = cluster.local()
    job = start(cluster, namespace, "launch")
    job.wait_size(SIZE)

    def wait_servers(count: int) -> None:
        """The HPA's own word, and no pod that it does not want."""

        def there() -> bool:
            pods = namespace.list("pods", selector=f"app={SERVICE}")
            ready = [pod for pod in pods if condition_of(pod, "Ready") == "True"]
            return len(pods) == len(ready) == count

        waiting.until(
            f"{SERVICE} has {count} servers",
            there,
            within_seconds=SCALED_WITHIN,
            seen=lambda: namespace("describe", "hpa,deployment,pods"),
        )

    with (
        activator(namespace, SERVICE) as requests,
        external_metrics.served(machine, {METRIC: lambda: requests.in_flight}),
    ):
        namespace.apply(manifests(cluster.image))
        waiting.until(
            "the HPA looks",
            lambda: condition_of(namespace.get("hpa", SERVICE), "ScalingActive") is not None,
            within_seconds=SCALED_WITHIN,
            seen=lambda: namespace("describe", "hpa"),
        )
        wait_servers(0)
        waiting.until(
            "the HPA says that it has scaled to zero, and the forecast reads so",
            lambda: is_at_zero(namespace.get("hpa", SERVICE)),
            within_seconds=SCALED_WITHIN,
            seen=lambda: namespace("describe", "hpa"),
        )
        idle = timeline.mark("no server")
        job.wait_size(SIZE, since=idle)

        asked = timeline.mark(f"{REQUESTS} requests")
        answers = [requests.ask(first_byte, within_seconds=SCALED_WITHIN) for _ in range(REQUESTS)]
        job.wait_smaller(SIZE, since=asked)
        waited = [answer.result() for answer in answers]
        timeline.mark(f"the last one was answered after {max(waited):.1f} s")

        wait_servers(0)
        job.wait_size(SIZE, since=timeline.mark("no server again"))
    job.finish()
    nothing_lost(job.account, ended=True)
