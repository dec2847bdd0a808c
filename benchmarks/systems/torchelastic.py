"""A job as users of the training-operator write it: an elastic PyTorchJob, torchrun with the c10d rendezvous."""

from functools import partial
from typing import Any, Final

from benchmarks.systems.plain_pod import plain_pod
from benchmarks.systems.system import OtherJob, System, WantedJob, applied, operated
from hvd_elastic.mpijob.contract import Role
from testbed.cluster.jobs import Job
from testbed.cluster.site import Site
from testbed.kube import trainingoperator
from testbed.kube.kubectl import Kubectl

_NAME: Final = "torchelastic"
_COMMAND: Final = ["torchrun", "/output/scripts/torchelastic.py"]
"""The operator says everything else to torchrun by environment variables."""
_OWN_STORE: Final = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
"""Without it no world grows: agents that are there keep the address of their store, one that comes waits for it to be
written again, and all of them fail after a minute (torch 2.15, distributed/elastic/rendezvous/dynamic_rendezvous.py,
`next_rendezvous`)."""


def _submit(site: Site, kubectl: Kubectl, wanted: WantedJob) -> Job:
    return applied(partial(OtherJob, resource="pytorchjob"), site, kubectl, wanted, _pytorchjob(site, wanted))


def _pytorchjob(site: Site, wanted: WantedJob) -> dict[str, Any]:
    # As in the operator's examples/pytorch/elastic/echo/echo.yaml, with more restarts: each change of the world is one.
    # Not `ExitCode`: agents end with 1 when they lose the store of the pod that has it, and the job would have failed.
    container = {
        "name": "pytorch",
        "command": [*_COMMAND, *wanted.options],
        "env": [{"name": name, "value": "1"} for name in ("OMP_NUM_THREADS", _OWN_STORE)],
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    pod = plain_pod(
        site, _NAME, Role.WORKER, priority="preemptible-pc", node_labels=wanted.node_labels, container=container
    )
    elastic = {"rdzvBackend": "c10d", "minReplicas": 1, "maxReplicas": wanted.size, "maxRestarts": 1000}
    worker = {"replicas": wanted.size, "restartPolicy": "OnFailure", "template": pod}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": _NAME},
        "spec": {"nprocPerNode": "1", "elasticPolicy": elastic, "pytorchReplicaSpecs": {"Worker": worker}},
    }


TORCHELASTIC: Final = System(
    name=_NAME,
    title="TorchElastic, training-operator",
    program="scripts/torchelastic.py",
    submit=_submit,
    installed=partial(operated, trainingoperator.start, trainingoperator.stop),
)
