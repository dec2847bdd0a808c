"""A job as users of the training-operator write it: an elastic PyTorchJob, torchrun with the c10d rendezvous."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hvd_elastic.mpijob.contract import LABEL_JOB_NAME, LABEL_JOB_ROLE, Role
from tests.cluster import jobs
from tests.cluster.jobs import Job
from tests.cluster.kube.kubectl import Kubectl, condition_of
from tests.cluster.pods import SAFE
from tests.cluster.site import RESULTS, Site

_COMMAND = ["torchrun", "/output/scripts/torchelastic.py"]
"""The operator says everything else to torchrun by environment variables."""
_OWN_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
"""Without it no world grows: agents that are there keep the address of their store, one that comes waits for it to be
written again, and all of them fail after a minute (torch 2.15, distributed/elastic/rendezvous/dynamic_rendezvous.py,
`next_rendezvous`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchElasticJob(Job):
    """A PyTorchJob that was applied."""

    def require_alive(self) -> None:
        """Raise if the job has failed."""
        job = self.kubectl.get("pytorchjob", self.name)
        assert condition_of(job, "Failed") != "True", f"{self.name} has failed:\n{self.describe()}"


def submit(
    site: Site,
    kubectl: Kubectl,
    name: str,
    *,
    sizes: tuple[int, int, int],
    node_labels: Mapping[str, str],
    options: Sequence[str] = (),
    shared: Path | None = None,
) -> Job:
    """Apply the manifest of a job of min, start and max workers. The training-operator must run.

    `options`: of its script. `shared`: what `share_results` has returned.
    """
    shared = shared or jobs.share_results(site, kubectl)
    applied = time.time()
    kubectl.apply([_pytorchjob(site, name, sizes, node_labels, options)])
    return TorchElasticJob(kubectl=kubectl, name=name, shared=shared, applied=applied)


def _pytorchjob(
    site: Site, name: str, sizes: tuple[int, int, int], node_labels: Mapping[str, str], options: Sequence[str]
) -> dict[str, Any]:
    # As in the operator's examples/pytorch/elastic/echo/echo.yaml, with more restarts: each change of the world is one.
    # Not `ExitCode`: agents end with 1 when they lose the store of the pod that has it, and the job would have failed.
    container = {
        "name": "pytorch",
        "image": site.image,
        "command": [*_COMMAND, *options],
        "env": [{"name": name, "value": "1"} for name in ("OMP_NUM_THREADS", _OWN_STORE)],
        "securityContext": SAFE,
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
        "volumeMounts": [{"name": "results", "mountPath": "/output"}],
    }
    pod = {
        "metadata": {"labels": {LABEL_JOB_NAME: name, LABEL_JOB_ROLE: Role.WORKER.value}},
        "spec": {
            "priorityClassName": "preemptible-pc",
            "nodeSelector": {**node_labels},
            "tolerations": [{"operator": "Exists"}],
            "securityContext": {"fsGroup": 1000},
            "containers": [container],
            "volumes": [{"name": "results", "persistentVolumeClaim": {"claimName": RESULTS}}],
        },
    }
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {
            "nprocPerNode": "1",
            "elasticPolicy": {
                "rdzvBackend": "c10d",
                "minReplicas": sizes[0],
                "maxReplicas": sizes[2],
                "maxRestarts": 1000,
            },
            "pytorchReplicaSpecs": {
                "Worker": {"replicas": sizes[2], "restartPolicy": "OnFailure", "template": pod},
            },
        },
    }
