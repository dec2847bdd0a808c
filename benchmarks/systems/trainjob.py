"""A job as users of the Kubeflow Trainer write it: a TrainJob of fixed size, torchrun, restarted whole.

A TrainJob cannot be elastic: `numNodes` is immutable, and the torch plugin leaves it to a later JobSet
(kubeflow/trainer 2.3.0, pkg/runtime/framework/plugins/torch/torch.go).
"""

from functools import partial
from typing import Any, Final

from benchmarks.systems.plain_pod import plain_pod
from benchmarks.systems.system import OtherJob, System, WantedJob, applied, operated
from hvd_elastic.mpijob.contract import Role
from testbed.cluster.jobs import Job
from testbed.cluster.site import Site
from testbed.kube import kubeflow_trainer
from testbed.kube.kubectl import Kubectl

_NAME: Final = "trainjob"
_COMMAND: Final = ["torchrun", "/output/scripts/torchelastic.py"]
"""The Trainer says everything else to torchrun by environment variables."""
_API: Final = "trainer.kubeflow.org"
_VERSION: Final = f"{_API}/v1alpha1"


def _submit(site: Site, kubectl: Kubectl, wanted: WantedJob) -> Job:
    kubectl.apply([_runtime(site, wanted)])
    return applied(partial(OtherJob, resource=f"trainjobs.{_API}"), site, kubectl, wanted, _trainjob(wanted))


def _runtime(site: Site, wanted: WantedJob) -> dict[str, Any]:
    # As the Trainer's own runtime torch-distributed (manifests/base/runtimes), with restarts. A pod that fails must not
    # start again by itself: its peers wait in a world of another attempt, until they time out.
    pod = plain_pod(site, _NAME, Role.WORKER, priority="preemptible-pc", node_labels=wanted.node_labels, container={})
    pod["spec"]["restartPolicy"] = "Never"
    pod["spec"]["containers"][0]["name"] = "node"
    node = {
        "name": "node",
        "template": {
            "metadata": {"labels": {f"{_API}/trainjob-ancestor-step": "trainer"}},
            "spec": {"backoffLimit": 0, "template": pod},
        },
    }
    return {
        "apiVersion": _VERSION,
        "kind": "TrainingRuntime",
        "metadata": {"name": _NAME},
        "spec": {
            "mlPolicy": {"numNodes": wanted.size, "torch": {}},
            "template": {"spec": {"failurePolicy": {"maxRestarts": 1000}, "replicatedJobs": [node]}},
        },
    }


def _trainjob(wanted: WantedJob) -> dict[str, Any]:
    return {
        "apiVersion": _VERSION,
        "kind": "TrainJob",
        "metadata": {"name": _NAME},
        "spec": {
            "runtimeRef": {"apiGroup": _API, "kind": "TrainingRuntime", "name": _NAME},
            "trainer": {
                "numNodes": wanted.size,
                "numProcPerNode": 1,
                "command": [*_COMMAND, *wanted.options],
                "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
                "resourcesPerNode": {"limits": {"nvidia.com/gpu": "1"}},
            },
        },
    }


TRAINJOB: Final = System(
    name=_NAME,
    title="fixed size, a TrainJob restarted whole",
    program="scripts/torchelastic.py",
    submit=_submit,
    installed=partial(operated, kubeflow_trainer.start, kubeflow_trainer.stop),
)
