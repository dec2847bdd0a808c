"""What a job's own changes may not touch, and why: without it the job is not elastic, or a stranger gets its token.

It is judged by the result, so it does not matter by which way a change came. Pure.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from hvd_elastic.mpijob.checks.pod_checks import form_problems
from hvd_elastic.mpijob.clouds.accelerators import ONE_ONLY, find_accelerator
from hvd_elastic.priorityclasses.problem import Problem
from hvd_elastic.system import quantity

_POD_FIELDS: Final[Mapping[str, tuple[str, str]]] = {
    "activeDeadlineSeconds": ("would end pods one by one", "set deadline"),
    "automountServiceAccountToken": ("decides who gets the API server's token", "leave it out"),
    "hostNetwork": (
        "decides on which ports a worker listens, and the launcher has no need of it",
        "set it in workers.pod alone, which chooses ports that the node has free",
    ),
    "hostPID": ("shows a pod's processes to its neighbours", "leave it out"),
    "hostname": ("is how the operator names workers", "leave it out"),
    "hostnameOverride": ("is how the operator names workers", "leave it out"),
    "nodeName": ("takes a pod past the scheduler, which then preempts nothing", "set node_labels"),
    "preemptionPolicy": ("decides who gives way to whom", "set priority.workers or priority.launcher"),
    "priority": ("decides who gives way to whom", "set priority.workers or priority.launcher"),
    "priorityClassName": ("decides who gives way to whom", "set priority.workers or priority.launcher"),
    "resources": ("is what the scheduler, the autoscaler and `cost` reckon with", "set workers or launcher"),
    "restartPolicy": ("is the operator's", "leave it out"),
    "serviceAccount": ("is the account of a worker's storage, or discovery's", "set workers.service_account"),
    "serviceAccountName": ("is the account of a worker's storage, or discovery's", "set workers.service_account"),
    "setHostnameAsFQDN": ("is how the operator names workers", "leave it out"),
    "shareProcessNamespace": ("takes PID 1 from the container that ends training in time", "leave it out"),
    "subdomain": ("is how the operator finds workers", "leave it out"),
    "terminationGracePeriodSeconds": ("is how long a worker may take to leave", "set workers.grace"),
}
_JOB_FIELDS: Final[Mapping[str, tuple[str, str]]] = {
    "elasticPolicy": ("is how many workers there may be", "set workers"),
    "launcherCreationPolicy": ("is when the launcher starts: with fewer workers than `workers.max`", "leave it out"),
    "mainContainer": ("is the container that the operator looks at", "leave it out"),
    "nprocPerNode": ("is how many processes a worker has", "set workers.slots"),
    "slotsPerWorker": ("is how many processes a worker has", "set workers.slots"),
    "sshAuthMountPath": ("is where the image looks for its key", "leave it out"),
}
REPLICA_SPECS: Final = ("mpiReplicaSpecs", "pytorchReplicaSpecs")
_REPLICA_FIELDS: Final[Mapping[str, tuple[str, str]]] = {
    "replicas": ("is how many pods there may be", "set workers"),
    "restartPolicy": ("is how the operator replaces a pod", "leave it out"),
}
_CONTAINER_FIELDS: Final[Mapping[str, tuple[str, str]]] = {
    "args": ("is part of how the job starts", "set command"),
    "command": ("is part of how the job starts", "set command"),
    "image": ("must be the same in all of the job's containers", "set image"),
    "lifecycle": ("is how a pod leaves with its last step", "leave it out"),
    "livenessProbe": ("decides when a container is started again", "leave it out"),
    "readinessProbe": ("tells discovery that a worker can train", "leave it out"),
    "resources": ("is what the scheduler, the autoscaler and `cost` reckon with", "set workers or launcher"),
    "restartPolicy": ("is what makes discovery a sidecar", "leave it out"),
    "startupProbe": ("holds a worker back until it is warm", "leave it out"),
    "workingDir": ("is where the command starts", "set workdir"),
}
_FREE_VOLUMES: Final = frozenset({"tmp"})
"""Ours, and of no meaning to anybody else."""
_SECRET_VOLUMES: Final = ("discovery-token", "job-key")
_LOWEST_ID: Final = 500
"""The image's user database ignores users and groups below it (README of Debian's libnss-extrausers)."""
_OPERATORS_LABELS: Final = "training.kubeflow.org/"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pod:
    """A pod template as it was rendered and as it is now."""

    before: Mapping[str, Any]
    after: Mapping[str, Any]
    path: str
    """Where its template stands, for messages."""


def broken_job_promises(before: Mapping[str, Any], after: object, path: str) -> Iterator[Problem]:
    """Every change from `before` to `after`, both a job's spec, that is refused. Pod templates are not looked at."""
    if not isinstance(after, Mapping):
        yield Problem(path=path, value=..., what="is not a mapping", way_out="leave it in")
        return
    yield from _fields(before, after, _JOB_FIELDS, path)
    for field in REPLICA_SPECS:
        roles, now = before.get(field, {}), after.get(field, {})
        if not isinstance(now, Mapping) or set(now) != set(roles):
            what, way_out = f"has not the roles {', '.join(roles) or 'none'}", "leave them in"
            yield Problem(path=f"{path}.{field}", value=..., what=what, way_out=way_out)
            continue
        for role in roles:
            if isinstance(now[role], Mapping):
                yield from _fields(roles[role], now[role], _REPLICA_FIELDS, f"{path}.{field}.{role}")
            else:
                yield Problem(path=f"{path}.{field}.{role}", value=..., what="is not a mapping", way_out="leave it in")


def broken_promises(before: Mapping[str, Any], after: Any, path: str) -> Iterator[Problem]:
    """Every change from `before` to `after`, both pod templates, that is refused. `path`: where `after` was written."""
    if problems := list(form_problems(after, path)):
        yield from problems
        return
    pod = _Pod(before=before, after={"spec": {}, **after}, path=path)
    yield from _metadata(pod)
    yield from _fields(pod.before["spec"], pod.after["spec"], _POD_FIELDS, f"{path}.spec")
    yield from _scheduler(pod)
    yield from _user(pod.after["spec"], f"{path}.spec")
    if _mapping(pod.after["spec"].get("securityContext")).get("runAsGroup") is None:
        what, way_out = "is left to the cluster, which may take group 0", "leave it out, or choose one from 500 on"
        yield Problem(path=f"{path}.spec.securityContext.runAsGroup", value=None, what=what, way_out=way_out)
    yield from _accelerators(pod)
    yield from _containers(pod)
    yield from _volumes(pod)


def _fields(
    before: Mapping[str, Any], after: Mapping[str, Any], fields: Mapping[str, tuple[str, str]], path: str
) -> Iterator[Problem]:
    for field, (what, way_out) in fields.items():
        if before.get(field) != after.get(field):
            yield Problem(path=f"{path}.{field}", value=after.get(field), what=what, way_out=way_out)


def _scheduler(pod: _Pod) -> Iterator[Problem]:
    ours, now = (each["spec"].get("schedulerName") for each in (pod.before, pod.after))
    if ours is not None and now != ours:
        what, way_out = "is that of the job's queue", "leave it out, or leave queue out"
        yield Problem(path=f"{pod.path}.spec.schedulerName", value=now, what=what, way_out=way_out)


def _user(holder: Mapping[str, Any], path: str) -> Iterator[Problem]:
    for field in ("runAsUser", "runAsGroup"):
        number = _mapping(holder.get("securityContext")).get(field)
        if isinstance(number, int) and number < _LOWEST_ID:
            what = "is one of the system's own, which the image enters for nobody, so ssh refuses it"
            way_out = f"leave it out, or choose one from {_LOWEST_ID} on"
            yield Problem(path=f"{path}.securityContext.{field}", value=number, what=what, way_out=way_out)


def _accelerators(pod: _Pod) -> Iterator[Problem]:
    """Nodes on which the workers' resource is a part of a GPU, of which a pod can use one only."""
    nodes = {
        key: value for key, value in _mapping(pod.after["spec"].get("nodeSelector")).items() if str(value) == value
    }
    for container in pod.before["spec"]["containers"]:
        for resource, amount in container["resources"]["limits"].items():
            portion = find_accelerator(resource, nodes).portion
            if (why := ONE_ONLY.get(portion)) and quantity.parse(amount) > 1:
                what = f"selects nodes on which {resource} is a {portion}, of which a worker can use one ({why})"
                way_out = "set workers.gpus: 1, and raise workers.max instead"
                yield Problem(path=f"{pod.path}.spec.nodeSelector", value=..., what=what, way_out=way_out)


def _metadata(pod: _Pod) -> Iterator[Problem]:
    path = f"{pod.path}.metadata"
    ours, now = pod.before["metadata"]["labels"], _mapping(_mapping(pod.after.get("metadata")).get("labels"))
    for label in sorted({*ours, *now}):
        is_operators = label.startswith(_OPERATORS_LABELS) and label in now
        if is_operators or (label in ours and ours[label] != now.get(label)):
            what = "is how the operator, discovery and the NetworkPolicies know the job's pods"
            yield Problem(path=f"{path}.labels[{label}]", value=now.get(label), what=what, way_out="leave it out")


def _containers(pod: _Pod) -> Iterator[Problem]:
    for group in ("initContainers", "containers"):
        before, after = (_by(each["spec"], group, "name") for each in (pod.before, pod.after))
        for name in before.keys() - after.keys():
            yield Problem(path=f"{pod.path}.spec.{group}", value=name, what="is missing", way_out="leave it in")
        for name, container in after.items():
            path = f"{pod.path}.spec.{group}[{name}]"
            yield from _security(container, path, is_ours=name in before)
            yield from _secrets(before.get(name, {}), container, path)
            if name in before:
                yield from _user(container, path)
                yield from _own_container(before[name], container, path)
            else:
                yield from _other_container(container, path, group=group, known=sorted(before))
    if pod.after["spec"].get("ephemeralContainers"):
        what, way_out = "cannot be part of a template", "use kubectl debug"
        yield Problem(path=f"{pod.path}.spec.ephemeralContainers", value=None, what=what, way_out=way_out)


def _own_container(before: Mapping[str, Any], after: Mapping[str, Any], path: str) -> Iterator[Problem]:
    yield from _fields(before, after, _CONTAINER_FIELDS, path)
    for field, key, what, way_out in (
        ("env", "name", "is how the job is set up", "set env for the script's own"),
        ("volumeMounts", "mountPath", "is where the job has its own files", "choose another folder"),
        ("ports", "containerPort", "is one of the job's own ports", "choose another port"),
    ):
        now = _by(after, field, key)
        for name, item in _by(before, field, key).items():
            if now.get(name) != item:
                yield Problem(path=f"{path}.{field}[{name}]", value=None, what=what, way_out=way_out)


def _other_container(container: Mapping[str, Any], path: str, *, group: str, known: list[str]) -> Iterator[Problem]:
    if not container.get("image"):
        what = f"has no image, and is none of the job's own: {', '.join(known) or 'none'}"
        yield Problem(path=f"{path}.name", value=container.get("name"), what=what, way_out="name one of these")
    if group == "containers":
        what = "keeps the pod from ending when training has left it, and so its GPUs"
        way_out = "write it under initContainers with `restartPolicy: Always`, which makes it a sidecar"
        yield Problem(path=path, value=container.get("image"), what=what, way_out=way_out)


def _secrets(before: Mapping[str, Any], after: Mapping[str, Any], path: str) -> Iterator[Problem]:
    for mount in _items(after.get("volumeMounts")):
        if mount.get("name") in _SECRET_VOLUMES and mount not in _items(before.get("volumeMounts")):
            what, way_out = "holds what only discovery may have", "leave it out"
            yield Problem(path=f"{path}.volumeMounts", value=mount["name"], what=what, way_out=way_out)


def _security(container: Mapping[str, Any], path: str, *, is_ours: bool) -> Iterator[Problem]:
    security = _mapping(container.get("securityContext"))
    path = f"{path}.securityContext"
    if security.get("privileged"):
        what = "may read every pod's secrets on its node"
        yield Problem(path=f"{path}.privileged", value=True, what=what, way_out="ask for the device or capability")
    added = _mapping(security.get("capabilities")).get("add")
    for capability in added if isinstance(added, list) else ():
        if capability in ("SYS_PTRACE", "SYS_ADMIN", "ALL"):
            what = "may read the secrets of the job's other processes"
        elif is_ours:
            what = "has no effect: the image's user is not root, and gets no added capability (kubernetes#56374)"
        else:
            continue
        way_out = "leave it out; for locked memory, raise LimitMEMLOCK of the nodes' container runtime"
        yield Problem(path=f"{path}.capabilities.add", value=capability, what=what, way_out=way_out)


def _volumes(pod: _Pod) -> Iterator[Problem]:
    before, after = (_by(each["spec"], "volumes", "name") for each in (pod.before, pod.after))
    path = f"{pod.path}.spec.volumes"
    for name, volume in before.items():
        if name not in _FREE_VOLUMES and after.get(name) != volume:
            what, way_out = "is one of the job's own", "choose another name"
            yield Problem(path=f"{path}[{name}]", value=None, what=what, way_out=way_out)
    for name in sorted(after.keys() - before.keys()):
        sources = _items(_mapping(after[name].get("projected")).get("sources"))
        if any("serviceAccountToken" in source for source in sources):
            what, way_out = "holds a token of the pod's account, which only discovery may have", "leave it out"
            yield Problem(path=f"{path}[{name}]", value=None, what=what, way_out=way_out)


# What only its author has seen may have any form, and Kubernetes is the one that refuses a wrong one.


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _items(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _by(holder: Mapping[str, Any], field: str, key: str) -> dict[str, Mapping[str, Any]]:
    """The items of a list by their merge key (`checks/pod_checks.py`)."""
    return {item[key]: item for item in _items(holder.get(field))}
