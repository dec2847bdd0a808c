"""`workers.pod` and `launcher.pod`, merged into the job's pod templates."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.manifests.customization.pod_merge import merged_template
from hvd_elastic.mpijob.manifests.customization.promises import broken_promises
from hvd_elastic.mpijob.manifests.manifest_parts import Manifest
from hvd_elastic.mpijob.problems import InvalidInputError

_REPLICA_SPECS: Final = ("mpiReplicaSpecs", "pytorchReplicaSpecs")


def with_overlays(spec: JobSpec, manifests: list[Manifest]) -> list[Manifest]:
    """The manifests, with what the job says of its pods. Raises InvalidInputError with all that is refused."""
    overlays = {"Worker": ("workers.pod", spec.workers.pod), "Launcher": ("launcher.pod", spec.launcher.pod)}
    problems = []
    for replicas, role in _replicas(manifests):
        path, overlay = overlays[role]
        if overlay:
            before, after = replicas["template"], merged_template(replicas["template"], overlay)
            problems += broken_promises(before, after, path)
            replicas["template"] = after
    if problems:
        raise InvalidInputError(problems)
    return manifests


def _replicas(manifests: list[Manifest]) -> Iterator[tuple[dict[str, Any], str]]:
    """The replica specs of the job, each with the name of its role."""
    for manifest in manifests:
        for name in _REPLICA_SPECS:
            specs: Mapping[str, dict[str, Any]] = manifest.get("spec", {}).get(name, {})
            yield from ((replicas, role) for role, replicas in specs.items())
