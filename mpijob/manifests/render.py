"""From a job description to manifests, in the order in which they are applied. Pure: the same in, the same out."""

from hvd_elastic.mpijob import checks
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.description.target import Target
from hvd_elastic.mpijob.manifests import mpijob_v1, mpijob_v2beta1, pytorchjob
from hvd_elastic.mpijob.manifests.manifest import Manifest
from hvd_elastic.mpijob.manifests.supporting import (
    disruption_budget,
    network_policies,
    pod_monitor,
    rbac,
    shared_storage,
)
from hvd_elastic.mpijob.problems import InvalidInputError


def render(spec: JobSpec, target: Target = Target.MPIJOB) -> list[Manifest]:
    """Everything that the job needs in the cluster, the job last.

    Raises InvalidInputError with every reason why the job cannot be written so: no image, a key that `target` cannot
    hold.
    """
    if problems := checks.unrenderable(spec, target):
        raise InvalidInputError(problems)
    around = [*network_policies.manifests(spec), *disruption_budget.manifests(spec), *pod_monitor.manifests(spec)]
    match target:
        case Target.MPIJOB:
            own = [*rbac.manifests(spec), *around, mpijob_v2beta1.manifest(spec)]
        case Target.MPIJOB_V1:
            own = [*mpijob_v1.access_manifests(spec), *around, *mpijob_v1.manifests(spec)]
        case Target.PYTORCHJOB:
            own = [*around, *pytorchjob.manifests(spec)]
    return [*shared_storage.manifests(spec), *own]
