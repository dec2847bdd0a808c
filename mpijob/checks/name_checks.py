"""Names that are reserved, and values that must not be where everyone can read them."""

from collections.abc import Iterator
from typing import Final

from hvd_elastic.mpijob.checks.secret_names import is_secret_name
from hvd_elastic.mpijob.contract import ENV_EVENTS
from hvd_elastic.mpijob.description.job_spec import JobSpec, QueueSystem
from hvd_elastic.priorityclasses.problem import Problem

_OUR_PREFIX: Final = "HVD_ELASTIC_"
_FREE_TO_SET: Final = frozenset({ENV_EVENTS})
"""Our own variables that no key of a job description sets."""
_SET_BY_THE_LAUNCHER: Final = frozenset(
    f"HOROVOD_{name}"
    for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE", "HOSTNAME", "ELASTIC")
)
_RESERVED_LABELS: Final = ("app.kubernetes.io/", "training.kubeflow.org/", "kueue.x-k8s.io/", "kai.scheduler/")
_RESERVED_ANNOTATIONS: Final = "hvd-elastic.dev/"
_LABEL_LENGTH: Final = 63
"""Of a label's value (https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/)."""


def problems(spec: JobSpec) -> Iterator[Problem]:
    """Checks environment variables, labels and annotations, and names that become labels."""
    for name in spec.env:
        yield from _variable(name)
    for key in spec.labels:
        if key.startswith(_RESERVED_LABELS):
            what = "is set by hvd-elastic, whose parts find each other by it"
            yield Problem(path=f"labels.{key}", value=key, what=what, way_out="use another key")
    for key in spec.annotations:
        if key.startswith(_RESERVED_ANNOTATIONS):
            what = "is reserved for hvd-elastic"
            yield Problem(path=f"annotations.{key}", value=key, what=what, way_out="use another key")
    if spec.queue and spec.queue.system is QueueSystem.KAI and len(spec.priority.workers) > _LABEL_LENGTH:
        what = f"is longer than {_LABEL_LENGTH} characters, and KAI reads it off a label"
        yield Problem(path="priority.workers", value=spec.priority.workers, what=what, way_out="name a shorter class")


def _variable(name: str) -> Iterator[Problem]:
    if name.startswith(_OUR_PREFIX) and name not in _FREE_TO_SET:
        what = "is set from a key of the job description"
        yield Problem(path=f"env.{name}", value=name, what=what, way_out="set that key instead")
    elif name == "HOROVOD_AUTOTUNE":
        what = "crashes elastic jobs at their first resize (horovod issue 2835)"
        yield Problem(path=f"env.{name}", value=name, what=what, way_out="leave it out")
    elif name in _SET_BY_THE_LAUNCHER:
        what = "is set by the launcher for each process"
        yield Problem(path=f"env.{name}", value=name, what=what, way_out="leave it out")
    elif is_secret_name(name):
        # The message does not repeat the value, because messages end up in logs.
        what = "looks like a secret, and env is visible in manifests and on command lines"
        way_out = "put it into a Secret, and name that Secret in secrets"
        yield Problem(path=f"env.{name}", value=name, what=what, way_out=way_out)
