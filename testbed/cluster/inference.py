"""The load that training gives way to: a Deployment of inference pods with the higher PriorityClass."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hvd_elastic.mpijob.contract import GPU_RESOURCE
from testbed.cluster.pods import SAFE
from testbed.cluster.site import Site
from testbed.kube import store, waiting
from testbed.kube.kubectl import Kubectl, condition_of

_NAME: Final = "inference"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inference:
    """Inference pods of one GPU each."""

    kubectl: Kubectl

    def scale(self, count: int) -> None:
        """Ask for `count` pods; returns at once."""
        self.kubectl("scale", f"deployment/{_NAME}", f"--replicas={count}")

    def wait(self, count: int, *, within_seconds: float = 90) -> None:
        """Wait until exactly `count` pods are there, all of them Ready."""

        def there() -> bool:
            pods = self.kubectl.list("pods", selector=f"app={_NAME}")
            return len(pods) == count and all(condition_of(pod, "Ready") == "True" for pod in pods)

        waiting.until(
            f"{count} inference pods are Ready",
            there,
            within_seconds=within_seconds,
            seen=lambda: self.kubectl("get", "pods,events"),
        )


def deploy(
    site: Site,
    kubectl: Kubectl,
    *,
    node: str = "spot",
    nodes: Mapping[str, str] | None = None,
    gpus: int = 1,
    resource: str = GPU_RESOURCE,
    cpu: str = "0",
    queue: str = "",
    priority_class: str = "inference-pc",
) -> Inference:
    """Make the Deployment with no pods. It must run on the node under test, not on a GPU that is free elsewhere.

    Nodes of the labels `nodes` serve in place of the one node. With a `queue` of Kueue its pods wait for quota.
    """
    image = store.PAUSE_IMAGE if site.machine else site.image
    command = [] if site.machine else ["sleep", "infinity"]
    container = {
        "name": "server",
        "image": image,
        "command": command,
        "securityContext": SAFE,
        "resources": {"limits": {resource: str(gpus)}, "requests": {"cpu": cpu}},
    }
    pod = {
        "priorityClassName": priority_class,
        "terminationGracePeriodSeconds": 1,
        "nodeSelector": dict(nodes or {"kubernetes.io/hostname": node}),
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
    }
    labels = {"app": _NAME}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": _NAME, "labels": {"kueue.x-k8s.io/queue-name": queue} if queue else {}},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
    kubectl.apply([deployment])
    return Inference(kubectl=kubectl)
