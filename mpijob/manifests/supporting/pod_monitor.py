"""PodMonitor: where the Prometheus Operator finds the job's metrics."""

from hvd_elastic.mpijob.description.job_spec import JobSpec, LauncherKind
from hvd_elastic.mpijob.manifests.manifest import Manifest, metadata, pods_of

_INTERVAL = "15s"


def manifests(spec: JobSpec) -> list[Manifest]:
    """The monitor, where one is asked for."""
    if not spec.monitor:
        return []
    launcher = ["metrics-launch"] if spec.launcher.kind is LauncherKind.LAUNCH else []
    ports = ["metrics", *launcher, *(f"metrics-{rank}" for rank in range(spec.workers.slots))]
    monitor = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": metadata(spec, spec.name),
        "spec": {
            "selector": {"matchLabels": pods_of(spec)},
            "podMetricsEndpoints": [{"port": port, "interval": _INTERVAL} for port in ports],
        },
    }
    return [monitor]
