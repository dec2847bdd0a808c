"""The same job as a PyTorchJob of the training-operator, and an autoscaler for it, which its scale subresource allows.

The script must train with `torch.distributed`. torchrun starts it instead of Horovod, and no part of ours runs in the
pods.
"""

from typing import Final

from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.manifests import worker_pod
from hvd_elastic.mpijob.manifests.job_parts import job_metadata, replicas, run_policy
from hvd_elastic.mpijob.manifests.manifest_parts import Manifest, metadata, without_empty
from hvd_elastic.mpijob.manifests.pod_parts import escape_command

_CONTAINER: Final = "pytorch"
"""The name by which the operator finds the training container."""
_CPU_PERCENT: Final = 80
_COOLDOWN_SECONDS: Final = 300
_OURS: Final = ("startupProbe", "readinessProbe", "ports")
"""Of a worker's container: what only our PID 1 answers. A pod that waited for it would never be Ready, and Kubernetes'
autoscaler leaves the CPU use of such pods out (Kubernetes 1.34, `pkg/controller/podautoscaler/replica_calculator.go`,
`groupPods`)."""
_GLOO_INTERFACE: Final = "GLOO_SOCKET_IFNAME"
"""torch.distributed's Gloo reads it as NCCL reads NCCL_SOCKET_IFNAME (https://docs.pytorch.org/docs/stable/
distributed.html, "Choosing the network interface to use"). A value in the user's `env` wins."""
_RESTARTS: Final = 1000
"""torchrun counts each resize as a restart, and an elastic job has many. The user's `reset_limit` replaces this."""


def manifests(spec: JobSpec) -> list[Manifest]:
    """The PyTorchJob, and its HorizontalPodAutoscaler if the description has `autoscale`."""
    return [_job(spec), *([_autoscaler(spec)] if spec.autoscale else [])]


def command(spec: JobSpec) -> list[str]:
    """The training command under torchrun, which reads everything else from the environment that the operator sets."""
    first, *rest = escape_command(spec.command)
    if first.rpartition("/")[2] in {"python", "python3"}:
        return ["torchrun", *rest]
    return ["torchrun", "--no-python", first, *rest]


def _job(spec: JobSpec) -> Manifest:
    workers = spec.workers
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": job_metadata(spec),
        "spec": {
            "nprocPerNode": str(workers.slots),
            "elasticPolicy": {
                "rdzvBackend": "c10d",
                "minReplicas": workers.min,
                "maxReplicas": workers.max,
                "maxRestarts": spec.reset_limit or _RESTARTS,
            },
            "runPolicy": run_policy(spec, has_launcher=False),
            "pytorchReplicaSpecs": {
                # An autoscaler adds workers one by one. Without it, the scheduler starts as many as fit.
                "Worker": replicas(
                    workers.start if spec.autoscale else workers.max, _template(spec), restart="ExitCode"
                )
            },
        },
    }


def _template(spec: JobSpec) -> Manifest:
    template = worker_pod.template(spec)
    pod = template["spec"]
    training = {**pod["containers"][0], "name": _CONTAINER, "command": command(spec)}
    if _GLOO_INTERFACE not in spec.env:
        training["env"] = [*training["env"], {"name": _GLOO_INTERFACE, "value": spec.network.interface}]
    for ours in _OURS:
        del training[ours]
    return {**template, "spec": {**pod, "containers": [training]}}


def _autoscaler(spec: JobSpec) -> Manifest:
    assert spec.autoscale is not None
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata(spec, spec.name),
        "spec": without_empty(
            scaleTargetRef={"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": spec.name},
            minReplicas=spec.workers.min,
            maxReplicas=spec.workers.max,
            metrics=[
                {
                    "type": "Resource",
                    "resource": {
                        "name": "cpu",
                        "target": {
                            "type": "Utilization",
                            "averageUtilization": spec.autoscale.cpu_percent or _CPU_PERCENT,
                        },
                    },
                }
            ],
            behavior={"scaleDown": {"stabilizationWindowSeconds": spec.autoscale.cooldown or _COOLDOWN_SECONDS}},
        ),
    }
