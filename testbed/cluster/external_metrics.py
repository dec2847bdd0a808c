"""A small external-metrics API, in place of prometheus-adapter or KEDA: it answers what an HPA asks of a metric.

The API server passes the questions on to this process, by the name of a Service that leads to this machine. Paths and
kinds are those of `k8s.io/metrics/pkg/apis/external_metrics/v1beta1`.
"""

import base64
import contextlib
import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from testbed.kube.certificates import Authority
from testbed.kube.cluster import Cluster

_GROUP: Final = "external.metrics.k8s.io"
_VERSION: Final = "v1beta1"
_ROOT: Final = f"/apis/{_GROUP}/{_VERSION}"
_NAME: Final = "external-metrics"
_NAMESPACE: Final = "kube-system"

Metrics = Mapping[str, Callable[[], int]]
"""By a metric's name, what it is now. Labels are not looked at."""


@contextlib.contextmanager
def served(machine: Cluster, metrics: Metrics) -> Iterator[None]:
    """Serve these metrics to the cluster meanwhile."""
    authority = Authority.load(machine.plane.keys)
    shown = authority.issue(_NAME, _NAME, answers_to=(f"{_NAME}.{_NAMESPACE}.svc",))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shown.certificate, shown.key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(metrics))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    service = f"{_VERSION}.{_GROUP}"
    try:
        machine.kubectl.apply(_manifests(server.server_port, authority.root.read_bytes()))
        machine.kubectl.wait("apiservice", service, condition="Available", within_seconds=60)
        yield
    finally:
        machine.kubectl("delete", "apiservice", service, "--ignore-not-found")
        machine.kubectl("delete", "service", _NAME, f"--namespace={_NAMESPACE}", "--ignore-not-found")
        server.shutdown()
        server.server_close()


def _manifests(port: int, root: bytes) -> Iterator[dict[str, Any]]:
    yield {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": _NAME, "namespace": _NAMESPACE},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    }
    yield {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"{_VERSION}.{_GROUP}"},
        "spec": {
            "group": _GROUP,
            "version": _VERSION,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "service": {"name": _NAME, "namespace": _NAMESPACE, "port": port},
            "caBundle": base64.b64encode(root).decode(),
        },
    }


def _handler(metrics: Metrics) -> type[BaseHTTPRequestHandler]:
    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            name = path.rpartition("/")[2]
            value = metrics.get(name)
            if path == _ROOT:
                self._answer(_resources(metrics))
            elif path.startswith(f"{_ROOT}/namespaces/") and value is not None:
                self._answer(_values(name, value()))
            else:
                self.send_error(404)

        def _answer(self, found: dict[str, Any]) -> None:
            body = json.dumps(found).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing for each question."""

    return Answers


def _resources(metrics: Metrics) -> dict[str, Any]:
    kind = {"singularName": "", "namespaced": True, "kind": "ExternalMetricValueList", "verbs": ["get"]}
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{_GROUP}/{_VERSION}",
        "resources": [{"name": name, **kind} for name in metrics],
    }


def _values(name: str, value: int) -> dict[str, Any]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "kind": "ExternalMetricValueList",
        "apiVersion": f"{_GROUP}/{_VERSION}",
        "metadata": {},
        "items": [{"metricName": name, "metricLabels": {}, "timestamp": now, "value": str(value)}],
    }
