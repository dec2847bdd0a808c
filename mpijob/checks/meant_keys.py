"""What people write who know the thing by another name, Kubernetes' above all, and the key that means it here."""

import difflib
import re
from typing import Final

from hvd_elastic.mpijob.clouds.accelerators import AMD, GAUDI
from hvd_elastic.mpijob.description.keys import KEYS
from hvd_elastic.mpijob.description.pod_schema import pod_fields

_NONE: Final = "see `hvd-elastic schema` for every key"
_CLOSE: Final = 0.7
"""Of 1: how alike two names must be for one to be taken for a slip of the other."""

_MEANT: Final = {
    "nodeselector": "node_labels, for the launcher launcher_node_labels",
    "activedeadlineseconds": "deadline",
    "ttlsecondsafterfinished": "keep",
    "backofflimit": "restarts",
    "serviceaccountname": "workers.service_account",
    "serviceaccount": "workers.service_account",
    "priorityclassname": "priority.workers, for the launcher priority.launcher",
    "priorityclass": "priority.workers, for the launcher priority.launcher",
    "preemptionpolicy": "priority.workers, for the launcher priority.launcher",
    "nodename": "node_labels, for the launcher launcher_node_labels",
    "terminationgraceperiodseconds": "workers.grace",
    "workingdir": "workdir",
    "envfrom": "secrets",
    "args": "command, which has the arguments too",
    "replicas": "workers.max",
    "slotsperworker": "workers.slots",
    "scheduler": "queue, or workers.pod: {spec: {schedulerName: ...}}",
    "schedulername": "queue, or workers.pod: {spec: {schedulerName: ...}}",
    "schedulingpolicy": "queue",
    "hugepages": "workers.resources: {hugepages-2Mi: 4Gi}",
    "limits": "workers.cpu, workers.memory, workers.gpus, and workers.resources for others",
    "requests": "workers.cpu, workers.memory, workers.gpus, and workers.resources for others",
    "ephemeralstorage": "workers.disk",
    "podannotations": "workers.pod: {metadata: {annotations: ...}}",
    "podlabels": "workers.pod: {metadata: {labels: ...}}",
    "overrides": "patches, or workers.pod",
    "uid": "workers.pod: {spec: {securityContext: {runAsUser: ...}}}",
    "runasuser": "workers.pod: {spec: {securityContext: {runAsUser: ...}}}",
    "runtimeclass": "workers.pod: {spec: {runtimeClassName: ...}}",
    "volumemounts": "workers.pod: {spec: {containers: [{name: worker, volumeMounts: ...}]}}",
    "hostpath": "workers.pod: {spec: {volumes: [{name: data, hostPath: {path: ...}}], containers: [{name: worker, "
    "volumeMounts: [{name: data, mountPath: ...}]}]}}",
    "sidecars": "workers.pod: {spec: {initContainers: [{restartPolicy: Always, ...}]}}",
    "spread": "workers.pod: {spec: {topologySpreadConstraints: ...}}",
}
"""By name in lower case, without '-' and '_'."""
_REFUSED: Final = frozenset(
    {
        "automountserviceaccounttoken",
        "ephemeralcontainers",
        "hostpid",
        "hostname",
        "hostnameoverride",
        "lifecycle",
        "livenessprobe",
        "privileged",
        "readinessprobe",
        "restartpolicy",
        "sethostnameasfqdn",
        "shareprocessnamespace",
        "startupprobe",
        "subdomain",
    }
)
"""What no key says, and no pod of a job may say (`manifests/customization/promises.py`)."""


def meant_key(path: str) -> str:
    """The way out where `path` is not a key: the key that was probably meant.

    That is one that means what the name means elsewhere, one of the same name in another section, a field of a pod, or
    a key of similar spelling in the same section.
    """
    parent, _, leaf = path.rpartition(".")
    name = _plain(leaf)
    if name == "annotations" and parent in {"workers", "launcher"}:
        return f"did you mean {parent}.pod: {{metadata: {{annotations: ...}}}}?"
    if name in _MEANT:
        return f"did you mean {_MEANT[name]}?"
    if name in _REFUSED:
        return "no job may set it: that it gives GPUs back, or keeps its sidecar's token, depends on it"
    if elsewhere := [key for key in KEYS if _plain(key.rpartition(".")[2]) == name]:
        return f"did you mean {' or '.join(sorted(elsewhere)[:3])}?"
    if field := next((field for field in pod_fields() if field.lower() == name), None):
        return f"did you mean {parent or 'workers'}.pod: {{spec: {{{field}: ...}}}}?"
    siblings = [key for key in KEYS if key.rpartition(".")[0] == parent]
    close = difflib.get_close_matches(path, siblings, n=1, cutoff=_CLOSE)
    return f"did you mean {close[0]}?" if close else _NONE


def meant_accelerator(value: str) -> str | None:
    """The way out where a `gpu_type` is the name of an accelerator that its resource stands for; None: it is not."""
    name = value.lower()
    if part := re.search(r"mig-([0-9]g\.[0-9]+gb)", name):
        return f"did you mean workers.gpu_resource: nvidia.com/mig-{part[1]}?"
    for start, accelerator in (("mi", AMD), ("amd", AMD), ("gaudi", GAUDI)):
        if name.startswith(start):
            return f"did you mean workers.gpu_resource: {accelerator.resource}?"
    return None


def _plain(name: str) -> str:
    return re.sub(r"[-_]", "", name).lower()
