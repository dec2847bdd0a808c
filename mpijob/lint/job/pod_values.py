"""Values that the API server refuses in a pod although their type is right: closed sets, bounds, names, what must be
there, and what excludes one another.

Kubernetes 1.34.4, pkg/apis/core/validation/validation.go. `tests/mpijob/lint/pod_cases.py` has what a real API server
says of each, and what is left to it.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from hvd_elastic.mpijob.description.object_names import dns_label, label_key, label_value, object_name
from hvd_elastic.mpijob.lint.document.manifest_view import ManifestView
from hvd_elastic.mpijob.lint.job.mpijob_fields import field_table

_REQUIRED_TERMS: Final = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_HOOKS: Final = ("lifecycle.preStop", "lifecycle.postStart")
_PROBES: Final = ("startupProbe", "readinessProbe", "livenessProbe")
_HANDLERS: Final = ("exec", "httpGet", "tcpSocket")
_PORT_NAME: Final = re.compile(r"(?=[0-9-]*[a-z])[a-z0-9]+(-[a-z0-9]+)*")
_LONGEST_PORT_NAME: Final = 15

_OF_CONTAINERS: Final[Mapping[str, tuple[str, ...]]] = {
    "imagePullPolicy": ("Always", "IfNotPresent", "Never"),
    "terminationMessagePolicy": ("File", "FallbackToLogsOnError"),
    "ports.protocol": ("TCP", "UDP", "SCTP"),
    "volumeMounts.mountPropagation": ("None", "HostToContainer", "Bidirectional"),
    "securityContext.seccompProfile.type": ("Localhost", "RuntimeDefault", "Unconfined"),
    **{f"{probe}.httpGet.scheme": ("HTTP", "HTTPS") for probe in (*_PROBES, *_HOOKS)},
}
_OF_PODS: Final[Mapping[str, tuple[str, ...]]] = {
    "dnsPolicy": ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"),
    "securityContext.fsGroupChangePolicy": ("OnRootMismatch", "Always"),
    "securityContext.seccompProfile.type": ("Localhost", "RuntimeDefault", "Unconfined"),
    "topologySpreadConstraints.whenUnsatisfiable": ("DoNotSchedule", "ScheduleAnyway"),
    "volumes.hostPath.type": (
        "DirectoryOrCreate",
        "Directory",
        "FileOrCreate",
        "File",
        "Socket",
        "CharDevice",
        "BlockDevice",
    ),
    f"{_REQUIRED_TERMS}.matchExpressions.operator": ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"),
}
_LARGEST_ID: Final = (1 << 31) - 1
_ALL_MODES: Final = 0o777
_BOUNDS: Final[Mapping[str, tuple[int, int]]] = {
    "activeDeadlineSeconds": (1, _LARGEST_ID),
    "containers.securityContext.runAsUser": (0, _LARGEST_ID),
    "containers.securityContext.runAsGroup": (0, _LARGEST_ID),
    "securityContext.runAsUser": (0, _LARGEST_ID),
    "securityContext.runAsGroup": (0, _LARGEST_ID),
    "securityContext.fsGroup": (0, _LARGEST_ID),
    "topologySpreadConstraints.maxSkew": (1, _LARGEST_ID),
    "volumes.configMap.defaultMode": (0, 0o777),
    "volumes.secret.defaultMode": (0, 0o777),
    "volumes.projected.defaultMode": (0, 0o777),
    "containers.livenessProbe.successThreshold": (0, 1),
    "containers.startupProbe.successThreshold": (0, 1),
    **{f"affinity.{kind}.{_PREFERRED}.weight": (1, 100) for kind in ("nodeAffinity", "podAffinity", "podAntiAffinity")},
    **{
        f"containers.{probe}.{field}": (0, _LARGEST_ID)
        for probe in _PROBES
        for field in ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "failureThreshold")
    },
}
"""Least and greatest number."""


def _port_name(value: str) -> str:
    if len(value) > _LONGEST_PORT_NAME or not _PORT_NAME.fullmatch(value):
        raise ValueError(
            "is not the name of a port: at most 15 lower-case letters, digits and single '-', with a letter"
        )
    return value


def _variable_name(value: str) -> str:
    if "=" in value:
        raise ValueError("is not the name of a variable: '=' ends it")
    return value


def _sub_path(value: str) -> str:
    if value.startswith("/") or ".." in value.split("/"):
        raise ValueError("is not a path below the volume: no '/' first, no '..'")
    return value


_NAMES: Final[Mapping[str, Callable[[str], str]]] = {
    "containers.name": dns_label,
    "volumes.name": dns_label,
    "serviceAccountName": object_name,
    "priorityClassName": object_name,
    "runtimeClassName": object_name,
    "containers.envFrom.secretRef.name": object_name,
    "containers.envFrom.configMapRef.name": object_name,
    "tolerations.key": label_key,
    "tolerations.value": label_value,
    f"{_REQUIRED_TERMS}.matchExpressions.key": label_key,
    "containers.ports.name": _port_name,
    **{f"containers.{probe}.{handler}.port": _port_name for probe in _PROBES for handler in ("httpGet", "tcpSocket")},
    "containers.env.name": _variable_name,
    "containers.volumeMounts.subPath": _sub_path,
}
_REQUIRED: Final = (
    ("containers", "name"),
    ("containers.volumeMounts", "mountPath"),
    ("containers.volumeMounts", "name"),
    *((f"containers.{probe}.httpGet", "port") for probe in _PROBES),
    *((f"containers.{probe}.tcpSocket", "port") for probe in _PROBES),
    ("containers.env.valueFrom.secretKeyRef", "key"),
    ("containers.env.valueFrom.secretKeyRef", "name"),
    ("containers.env.valueFrom.configMapKeyRef", "key"),
    ("containers.env.valueFrom.configMapKeyRef", "name"),
    ("containers.envFrom.secretRef", "name"),
    ("containers.envFrom.configMapRef", "name"),
    ("volumes", "name"),
    ("volumes.persistentVolumeClaim", "claimName"),
    ("volumes.configMap", "name"),
    ("volumes.secret", "secretName"),
    ("volumes.hostPath", "path"),
    ("volumes.nfs", "server"),
    ("volumes.nfs", "path"),
    ("volumes.csi", "driver"),
    ("topologySpreadConstraints", "topologyKey"),
    *(
        (f"affinity.{kind}.requiredDuringSchedulingIgnoredDuringExecution", "topologyKey")
        for kind in ("podAffinity", "podAntiAffinity")
    ),
)


@dataclass(frozen=True, slots=True)
class RefusedValue:
    """A value that the API server refuses, or the place of one that it misses."""

    view: ManifestView
    message: str
    meant: str = ""
    """The value that differs by its case alone; empty if none does."""


def refused_values(template: ManifestView) -> Iterator[RefusedValue]:
    """What the API server refuses in the pods of a template."""
    pod = template.get("spec")
    sets = {**_OF_PODS, **{f"containers.{path}": allowed for path, allowed in _OF_CONTAINERS.items()}}
    for path, allowed in sets.items():
        yield from (_outside(view, allowed) for view in _at(pod, path) if view.text and view.text not in allowed)
    for path, (least, most) in _BOUNDS.items():
        for view in _at(pod, path):
            if view.number is not None and not least <= view.number <= most:
                shown = "0777, in octal digits" if most == _ALL_MODES else most
                yield RefusedValue(view, f"is not from {least} to {shown}")
    for path, check in _NAMES.items():
        yield from _misnamed(_at(pod, path), check)
    for labels in (pod.get("nodeSelector"), template.get("metadata", "labels")):
        yield from _labels(labels)
    for path, field in _REQUIRED:
        for view in _at(pod, path):
            if isinstance(view.value, dict) and view.get(field).value in (None, ""):
                yield RefusedValue(
                    view.get(field), f"is missing: {view.path[-1] if field == 'name' else path} needs it"
                )
    yield from _sources(pod)
    yield from _exclusions(pod)


def _at(view: ManifestView, path: str) -> Iterator[ManifestView]:
    """The values at a path, of every item of the lists on the way; of containers, those of init containers too."""
    found = [view]
    for step in path.split("."):
        steps = (step, "initContainers") if step == "containers" else (step,)
        inner = [one.get(name) for one in found for name in steps]
        found = [item for one in inner for item in (one.items() if isinstance(one.value, list) else (one,))]
    yield from (one for one in found if one.exists)


def _outside(view: ManifestView, allowed: tuple[str, ...]) -> RefusedValue:
    same = [value for value in allowed if value.casefold() == str(view.text).casefold()]
    return RefusedValue(view, f"not one of {', '.join(allowed)}", same[0] if same else "")


def _misnamed(views: Iterator[ManifestView], check: Callable[[str], str]) -> Iterator[RefusedValue]:
    for view in views:
        if message := _fault(view.text, check):
            yield RefusedValue(view, message)


def _labels(labels: ManifestView) -> Iterator[RefusedValue]:
    for key, view in labels.pairs():
        if message := _fault(key, label_key) or _fault(view.text, label_value):
            yield RefusedValue(view, message)


def _fault(text: str | None, check: Callable[[str], str]) -> str:
    try:
        check(text or "x")
    except ValueError as error:
        return str(error)
    return ""


def _sources(pod: ManifestView) -> Iterator[RefusedValue]:
    """Where one thing must be named, and none or several are."""
    handlers = [(f"containers.{place}", _HANDLERS + more) for place, more in _PLACES_OF_HANDLERS]
    for path, names in (*handlers, ("containers.envFrom", ("configMapRef", "secretRef"))):
        for view in _at(pod, path):
            named = [name for name in names if view.get(name).exists]
            if isinstance(view.value, dict) and len(named) != 1:
                what = f"names {' and '.join(named)}" if named else f"names none of {', '.join(names)}"
                yield RefusedValue(view, what)
    for volume in _at(pod, "volumes"):
        named = [name for name, view in volume.pairs() if name in _SOURCES and view.exists]
        if len(named) > 1:
            yield RefusedValue(volume, f"is {' and '.join(named)}")


def _exclusions(pod: ManifestView) -> Iterator[RefusedValue]:
    """Fields that exclude or need one another."""
    for expression in _at(pod, f"{_REQUIRED_TERMS}.matchExpressions"):
        operator, values = expression.get("operator"), expression.get("values")
        if operator.text in ("In", "NotIn") and not values.value:
            yield RefusedValue(values, f"{operator.text} needs values")
        elif operator.text in ("Exists", "DoesNotExist") and values.value:
            yield RefusedValue(values, f"{operator.text} takes no values")
    if pod.get("dnsPolicy").value == "None" and not pod.get("dnsConfig").exists:
        yield RefusedValue(pod.get("dnsPolicy"), "needs a dnsConfig")
    for context in _at(pod, "containers.securityContext"):
        escalation = context.get("allowPrivilegeEscalation")
        if context.get("privileged").value is True and escalation.value is False:
            yield RefusedValue(escalation, "a privileged container cannot be without it")


_SOURCES: Final = field_table()["Volume"].keys() - {"name"}
_PLACES_OF_HANDLERS: Final = (
    *((probe, ("grpc",)) for probe in _PROBES),
    *((hook, ("sleep",)) for hook in _HOOKS),
)
