"""What a controller of ours is in a cluster: an account, a Deployment that Pod Security `restricted` admits, and a
NetworkPolicy. It reaches the API server, and nobody reaches it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from hvd_elastic.mpijob.contract import LABEL_MANAGED_BY, MANAGED_BY
from hvd_elastic.mpijob.manifests.pod_parts import container_security, pod_security

ALIVE: Final = "/run/alive/turn"
"""The file that a controller touches after each turn in which the API server answers."""
HUNG_SECONDS: Final = 300
"""Without a turn for so long in which the API server answers, it is begun again. An API server that is upgraded is away
for some minutes, and a kubelet takes one to bring a new authority."""
_API_PORTS: Final = (443, 6443)
"""Of the API server, as for jobs (`network.api_ports`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerPod:
    """One controller."""

    name: str
    namespace: str
    container: str
    image: str
    command: Sequence[str]
    replicas: int

    def meta(self, *, namespace: str | None = None, suffix: str = "") -> dict[str, Any]:
        """Name and labels of an object of its own; without a namespace: one of the whole cluster."""
        where = {"namespace": namespace} if namespace else {}
        return {"name": f"{self.name}{suffix}", **where, "labels": {LABEL_MANAGED_BY: MANAGED_BY}}

    def account(self) -> dict[str, Any]:
        """Its ServiceAccount."""
        return {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": self.meta(namespace=self.namespace),
            "automountServiceAccountToken": False,
        }

    def policy(self) -> dict[str, Any]:
        """Its NetworkPolicy: it listens nowhere."""
        return {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": self.meta(namespace=self.namespace),
            "spec": {
                "podSelector": {"matchLabels": self._labels},
                "policyTypes": ["Ingress", "Egress"],
                "egress": [{"ports": [{"protocol": "TCP", "port": port} for port in _API_PORTS]}],
            },
        }

    def deployment(self) -> dict[str, Any]:
        """Its Deployment."""
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": self.meta(namespace=self.namespace),
            "spec": {
                "replicas": self.replicas,
                "selector": {"matchLabels": self._labels},
                "template": {"metadata": {"labels": self._labels}, "spec": self._pod()},
            },
        }

    @property
    def _labels(self) -> dict[str, str]:
        """Of its pods."""
        return {"app.kubernetes.io/name": self.name}

    def _pod(self) -> dict[str, Any]:
        fresh = f"test $(( $(date +%s) - $(stat -c %Y {ALIVE}) )) -lt {HUNG_SECONDS}"
        return {
            "serviceAccountName": self.name,
            "automountServiceAccountToken": True,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 10,
            "securityContext": pod_security(shared_group=False),
            "containers": [
                {
                    "name": self.container,
                    "image": self.image,
                    "command": [*self.command],
                    "resources": {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"memory": "512Mi"}},
                    "securityContext": container_security(read_only_root=True),
                    "readinessProbe": {"exec": {"command": ["test", "-e", ALIVE]}, "periodSeconds": 2},
                    "livenessProbe": {
                        "exec": {"command": ["/bin/sh", "-c", fresh]},
                        "initialDelaySeconds": HUNG_SECONDS,
                        "periodSeconds": 30,
                    },
                    "volumeMounts": [{"name": "alive", "mountPath": "/run/alive"}],
                }
            ],
            "volumes": [{"name": "alive", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}],
        }
