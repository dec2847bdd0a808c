"""What this project's own accounts may change of an MPIJob: a ValidatingAdmissionPolicy for each of them.

RBAC knows objects and no fields. So an account that may patch an MPIJob, to set its number of workers, may also write
another pod template, of which the operator makes pods: whoever has its token may run anything in the namespace. A
policy knows fields. It looks at these accounts alone: people, pipelines and operators change jobs as before.

The description of the job is out of reach as well. It is an annotation, and the next `hvd-elastic restart` renders it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from hvd_elastic.client.sweep.sweep_record import SUFFIX as SWEEP_SUFFIX
from hvd_elastic.decide.autoscale import controller_manifests
from hvd_elastic.mpijob.contract import (
    ANNOTATION_AUTOSCALER,
    ANNOTATION_BEGUN,
    ANNOTATION_STATUS,
    ANNOTATION_TURN,
    ANNOTATION_WANTED_WORKERS,
)
from hvd_elastic.mpijob.manifests.supporting import rbac
from hvd_elastic.priorityclasses.admission_policy import AdmissionPolicy, cel_text
from hvd_elastic.setup.platform_kit.field_policy import Fields, field_policy

_ACCOUNT: Final = "'system:serviceaccount:'"
_IN_NAMESPACE: Final = f"{_ACCOUNT} + request.namespace + ':'"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWriter:
    """An account that changes MPIJobs, and what it changes of them."""

    name: str
    is_user: str
    """The expression by which its requests are known."""
    annotations: tuple[str, ...]
    spec: Fields


def _has_name(begins: str, ends: str) -> str:
    """In CEL, whether the user's name begins so (an expression) and ends so (a text)."""
    return f"request.userInfo.username.startsWith({begins}) && request.userInfo.username.endsWith({cel_text(ends)})"


WRITERS: Final = (
    JobWriter(
        name="sidecar",
        is_user=f"request.userInfo.username == {_IN_NAMESPACE} + request.name + {cel_text(rbac.SUFFIX)}",
        annotations=(ANNOTATION_BEGUN, ANNOTATION_STATUS),
        spec={"mpiReplicaSpecs": {"Worker": {"replicas": {}}}},
    ),
    JobWriter(
        name="sweep-runner",
        # Not by the job's own word for its sweep: a job without that label would be open to the runner.
        is_user=_has_name(_IN_NAMESPACE, SWEEP_SUFFIX),
        annotations=(ANNOTATION_TURN,),
        spec={"runPolicy": {"suspend": {}}},
    ),
    JobWriter(
        name="autoscaler",
        is_user=_has_name(_ACCOUNT, f":{controller_manifests.NAME}"),
        annotations=(ANNOTATION_WANTED_WORKERS, ANNOTATION_AUTOSCALER),
        spec={},
    ),
)


def mpijob_guard() -> list[dict[str, Any]]:
    """A policy and its binding for each writer."""
    return [manifest for writer in WRITERS for manifest in _policy(writer).manifests()]


def _policy(writer: JobWriter) -> AdmissionPolicy:
    may_change: Fields = {
        "metadata": {"annotations": {name: {} for name in writer.annotations}},
        **({"spec": writer.spec} if writer.spec else {}),
    }
    changes = ", ".join((*writer.annotations, *_paths("spec", writer.spec)))
    return field_policy(
        name=f"mpijob-{writer.name}.hvd-elastic.dev",
        resource=("kubeflow.org", "mpijobs"),
        condition=(f"is-the-{writer.name}", writer.is_user),
        may_change=may_change,
        refusal=f" may change nothing of an MPIJob but {changes}: hvd-elastic platform-kit",
    )


def _paths(path: str, fields: Fields) -> Iterator[str]:
    for key, below in fields.items():
        yield from _paths(f"{path}.{key}", below) if below else (f"{path}.{key}",)
