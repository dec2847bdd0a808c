"""PodMonitor: it tells the Prometheus Operator where the job's metrics are."""

from hvd_elastic.mpijob.contract import LABEL_PART_OF
from hvd_elastic.mpijob.description.job_spec import JobSpec, LauncherKind
from hvd_elastic.mpijob.manifests.manifest_parts import Manifest, metadata, pod_selector

_INTERVAL = "15s"


def manifests(spec: JobSpec) -> list[Manifest]:
    """The monitor, if the description has `monitor`."""
    if not spec.monitor:
        return []
    launcher = ["metrics-launch"] if spec.launcher.kind is LauncherKind.LAUNCH else []
    ports = ["metrics", *launcher, *(f"metrics-{rank}" for rank in range(spec.workers.slots))]
    monitor = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": metadata(spec, spec.name),
        "spec": {
            # The label `job` of every series is then the job's name, not `NAMESPACE/NAME` of this monitor.
            "jobLabel": LABEL_PART_OF,
            "selector": {"matchLabels": pod_selector(spec)},
            "podMetricsEndpoints": [{"port": port, "interval": _INTERVAL} for port in ports],
        },
    }
    return [monitor]
