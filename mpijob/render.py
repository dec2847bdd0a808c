"""From a job description to manifests, in the order in which they are applied. Pure: the same in, the same out."""

from mpijob import access, checks, disruption, job, legacy_v1, monitoring, network, pytorchjob, storage
from mpijob.manifest import Manifest
from mpijob.problems import InvalidInputError
from mpijob.spec import JobSpec
from mpijob.target import Target


def render(spec: JobSpec, target: Target = Target.MPIJOB) -> list[Manifest]:
    """Everything that the job needs in the cluster, the job last.

    Raises InvalidInputError with every reason why the job cannot be written so: no image, a key that `target` cannot
    hold.
    """
    if problems := checks.unrenderable(spec, target):
        raise InvalidInputError(problems)
    around = [*network.manifests(spec), *disruption.manifests(spec), *monitoring.manifests(spec)]
    match target:
        case Target.MPIJOB:
            own = [*access.manifests(spec), *around, job.manifest(spec)]
        case Target.MPIJOB_V1:
            own = [*legacy_v1.access_manifests(spec), *around, *legacy_v1.manifests(spec)]
        case Target.PYTORCHJOB:
            own = [*around, *pytorchjob.manifests(spec)]
    return [*storage.manifests(spec), *own]
