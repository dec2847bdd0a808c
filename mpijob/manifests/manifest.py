"""What every manifest has in common. Manifests are plain dicts, keys in the order in which they are printed."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from hvd_elastic.mpijob.contract import LABEL_MANAGED_BY, LABEL_PART_OF, MANAGED_BY, Role
from hvd_elastic.mpijob.description.job_spec import JobSpec

Manifest: TypeAlias = dict[str, Any]

LABEL_COMPONENT = "app.kubernetes.io/component"
"""On pod templates: a value of `Role`. The operators' own role label differs between their versions."""


def pruned(**fields: Any) -> Manifest:
    """A mapping without what is None or empty: an absent field and an empty one are the same to Kubernetes."""
    return {key: value for key, value in fields.items() if value is not None and value not in ({}, [], ())}


def labels(spec: JobSpec) -> dict[str, str]:
    """Labels of everything that belongs to the job. The user's own never hide ours."""
    return {**spec.labels, LABEL_MANAGED_BY: MANAGED_BY, LABEL_PART_OF: spec.name}


def pod_labels(spec: JobSpec, role: Role) -> dict[str, str]:
    """Labels of a pod template."""
    return {**labels(spec), LABEL_COMPONENT: role}


def pods_of(spec: JobSpec, role: Role | None = None) -> dict[str, str]:
    """The labels by which the job's own pods are selected, whatever operator made them."""
    chosen = {LABEL_MANAGED_BY: MANAGED_BY, LABEL_PART_OF: spec.name}
    return {**chosen, LABEL_COMPONENT: role} if role else chosen


def metadata(spec: JobSpec, name: str, *, annotations: Mapping[str, str] | None = None) -> Manifest:
    """Metadata of an object in the job's namespace."""
    return pruned(name=name, namespace=spec.namespace, labels=labels(spec), annotations=dict(annotations or {}))


def cluster_metadata(spec: JobSpec, suffix: str) -> Manifest:
    """Metadata of an object without a namespace. Dots part its name: neither namespaces nor jobs have any in theirs."""
    return pruned(name=f"{spec.namespace}.{spec.name}.{suffix}", labels=labels(spec))


def literal(text: str) -> str:
    """`text` for a container's command or environment, where Kubernetes would expand `$(NAME)`.

    `$$` stands for one `$` there, and a `$` before anything but `(` and `$` for itself.
    """
    return text.replace("$", "$$") if "$(" in text or "$$" in text else text


def literals(words: Iterable[str]) -> list[str]:
    """A command, word for word."""
    return [literal(word) for word in words]


def environment(values: Mapping[str, str]) -> list[Manifest]:
    """`env` of a container."""
    return [{"name": name, "value": literal(value)} for name, value in values.items()]


def from_field(name: str, field: str) -> Manifest:
    """An environment variable out of the pod's own description."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": field}}}
