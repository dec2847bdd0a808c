"""What programs of a cluster tell Prometheus of a job's pods, made here of the pods themselves.

- The Prometheus Operator: what it writes for a PodMonitor of the kind that jobs have (`generatePodMonitorConfig` of its
  `pkg/prometheus/promcfg.go`, v0.79.2, in this order).
- Prometheus' own discovery of pods, which Debian builds it without (`discovery/kubernetes/pod.go`, `buildPod`). Each
  port of a container, or of an init container, is a target.
- kube-state-metrics, which is not to be had from every Go module proxy: the two metrics that the dashboard asks for
  (`internal/store/pod.go`).
"""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from testbed.kube.kubectl import Kubectl, condition_of

LIST_SECONDS: Final = 2.0
"""Between two looks at the pods: each is a process, on a machine that has enough to do."""

_META: Final = "__meta_kubernetes_pod"


def scrape_configs(monitor: dict[str, Any], pods_url: str) -> list[dict[str, Any]]:
    """The scrape configurations of a PodMonitor, one for each endpoint; `pods_url` answers as `TellerOfPods` does.

    The monitor's `interval` is left out: 15 s would be long for a test.
    """
    spec, meta = monitor["spec"], monitor["metadata"]
    return [
        {
            "job_name": f"podMonitor/{meta['namespace']}/{meta['name']}/{number}",
            "http_sd_configs": [{"url": pods_url, "refresh_interval": "2s"}],
            "relabel_configs": [*_kept(spec, endpoint["port"]), *_labels(spec, meta, endpoint["port"])],
        }
        for number, endpoint in enumerate(spec["podMetricsEndpoints"])
    ]


def _kept(spec: dict[str, Any], port: str) -> Iterator[dict[str, Any]]:
    yield {"action": "drop", "source_labels": [f"{_META}_phase"], "regex": "(Failed|Succeeded)"}
    for label, value in sorted(spec["selector"]["matchLabels"].items()):
        names = [f"{_META}_label_{_sanitized(label)}", f"{_META}_labelpresent_{_sanitized(label)}"]
        yield {"action": "keep", "source_labels": names, "regex": f"({value});true"}
    yield {"action": "keep", "source_labels": [f"{_META}_container_port_name"], "regex": port}


def _labels(spec: dict[str, Any], meta: dict[str, Any], port: str) -> Iterator[dict[str, Any]]:
    yield {"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"}
    yield {"source_labels": [f"{_META}_container_name"], "target_label": "container"}
    yield {"source_labels": [f"{_META}_name"], "target_label": "pod"}
    yield {"target_label": "job", "replacement": f"{meta['namespace']}/{meta['name']}"}
    job_label = f"{_META}_label_{_sanitized(spec['jobLabel'])}"
    yield {"source_labels": [job_label], "target_label": "job", "regex": "(.+)", "replacement": "${1}"}
    yield {"target_label": "endpoint", "replacement": port}


def _sanitized(label: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_]", "_", label)


class TellerOfPods(Collector):
    """Tells of the pods of a namespace over HTTP: `/targets` and `/metrics`."""

    def __init__(self, kubectl: Kubectl) -> None:
        """Serve at once, on a free port."""
        self._kubectl = kubectl
        self._lock = threading.Lock()
        self._pods: list[dict[str, Any]] = []
        self._asked = -LIST_SECONDS
        registry = CollectorRegistry()
        registry.register(self)
        answers: dict[str, tuple[str, Callable[[], bytes]]] = {
            "/targets": ("application/json", lambda: json.dumps(self.targets()).encode()),
            "/metrics": ("text/plain; version=0.0.4; charset=utf-8", lambda: generate_latest(registry)),
        }

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                kind, answer = answers[self.path]
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.end_headers()
                self.wfile.write(answer())

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
                """Requests are not logged."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._server.server_close()

    def pods(self) -> list[dict[str, Any]]:
        """The pods, as they were a moment ago at most."""
        with self._lock:
            if time.monotonic() - self._asked >= LIST_SECONDS:
                self._pods, self._asked = self._kubectl.list("pods"), time.monotonic()
            return self._pods

    def targets(self) -> list[dict[str, Any]]:
        """What Prometheus discovers with the role `pod`, as http_sd_configs take it."""
        return [
            {
                "targets": [f"{pod['status']['podIP']}:{port['containerPort']}"],
                "labels": {
                    **_pod_labels(pod),
                    f"{_META}_container_name": container["name"],
                    f"{_META}_container_port_name": port.get("name", ""),
                },
            }
            for pod in self.pods()
            if pod["status"].get("podIP")
            for container in [*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])]
            for port in container.get("ports", [])
        ]

    def describe(self) -> list[GaugeMetricFamily]:
        """The pods are asked for at each scrape, and not before."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The two metrics of kube-state-metrics."""
        info = GaugeMetricFamily(
            "kube_pod_info", "Information about pod.", labels=["namespace", "pod", "uid", "node", "priority_class"]
        )
        unschedulable = GaugeMetricFamily(
            "kube_pod_status_unschedulable",
            "Describes the unschedulable status for the pod.",
            labels=["namespace", "pod", "uid"],
        )
        for pod in self.pods():
            meta, spec = pod["metadata"], pod["spec"]
            names = [meta["namespace"], meta["name"], meta["uid"]]
            info.add_metric([*names, spec.get("nodeName", ""), spec.get("priorityClassName", "")], 1)
            if condition_of(pod, "PodScheduled") == "False":
                unschedulable.add_metric(names, 1)
        yield from (info, unschedulable)


def _pod_labels(pod: dict[str, Any]) -> dict[str, str]:
    meta = pod["metadata"]
    labels = {_sanitized(label): value for label, value in meta.get("labels", {}).items()}
    return {
        "__meta_kubernetes_namespace": meta["namespace"],
        f"{_META}_name": meta["name"],
        f"{_META}_phase": pod["status"]["phase"],
        **{f"{_META}_label_{label}": value for label, value in labels.items()},
        **{f"{_META}_labelpresent_{label}": "true" for label in labels},
    }
