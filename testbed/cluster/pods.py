"""Single pods of a test: what runs beside a job, and programs run inside."""

import random
import subprocess
import time
from collections.abc import Sequence
from typing import Any, Final

from hvd_elastic.mpijob.contract import GPU_RESOURCE
from testbed.kube import waiting
from testbed.kube.kubectl import Kubectl, condition_of

SAFE: Final[dict[str, Any]] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""What Pod Security `restricted` asks of a container."""
OLD_SECONDS: Final = 5.0
"""Age of a pod that is to end at once. A kubelet that has only just started a pod takes seconds to end it."""
LOOK_SECONDS: Final = 1.0
"""How often a kubelet looks at its containers (Kubernetes 1.34, `pkg/kubelet/kubelet.go`, `genericPlegRelistPeriod`).
The end of a pod waits for the next look (`pod_workers.go`, `podWorkerLoop`), and so does the word that a pod runs."""


def wait_for_any_moment() -> None:
    """Wait for a random part of LOOK_SECONDS.

    Whatever follows something that a kubelet has told comes at the same time before the kubelet's next look: it would
    always just reach that look, or just miss it.
    """
    time.sleep(random.uniform(0.0, LOOK_SECONDS))


def pod(
    name: str,
    *,
    image: str,
    selector: dict[str, str],
    command: Sequence[str] = (),
    gpus: int = 0,
    priority: str = "",
    grace_seconds: int = 1,
) -> dict[str, Any]:
    """Describe a pod of one container on a node with the labels, whatever its taints. It is not started again."""
    container: dict[str, Any] = {"name": "main", "image": image, "command": [*command], "securityContext": SAFE}
    container["resources"] = {"limits": {GPU_RESOURCE: str(gpus)} if gpus else {}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "terminationGracePeriodSeconds": grace_seconds,
            "restartPolicy": "Never",
            "nodeSelector": selector,
            "tolerations": [{"operator": "Exists"}],
            "priorityClassName": priority,
            "containers": [container],
        },
    }


def delete(kubectl: Kubectl, name: str, *, by_force: bool = False) -> None:
    """Tell a pod to end; by force, take it away without its grace period. Does not wait until it is gone.

    A launcher's pod has a finalizer of the Job controller, which may look away for a minute after outages of the API
    server: client-go doubles the pause before its next try, up to 30 s and as much again at random (`reflector.go`).
    """
    kubectl("delete", "pod", name, "--wait=false", *(["--grace-period=0", "--force"] if by_force else []))


def wait_ready(kubectl: Kubectl, name: str, *, within_seconds: float = 120) -> str:
    """Wait until a pod is Ready; return its address."""

    def address() -> str | None:
        found = kubectl.find("pod", name)
        return found["status"].get("podIP") if found and condition_of(found, "Ready") == "True" else None

    return waiting.until(
        f"pod {name} is Ready", address, within_seconds=within_seconds, seen=lambda: kubectl("get", "events")
    )


def python(kubectl: Kubectl, name: str, program: str, *arguments: str, container: str = "") -> str:
    """Run a Python program in a pod; return what it prints."""
    which = [f"--container={container}"] if container else []
    argv = kubectl.argv("exec", name, *which, "--", "python3", "-c", program, *arguments)
    done = subprocess.run(argv, text=True, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
