"""From a job description to manifests, in the order in which they are applied. Pure: equal input, equal output."""

from hvd_elastic.mpijob import checks
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.description.target import Target
from hvd_elastic.mpijob.manifests import mpijob_v1, mpijob_v2beta1, pytorchjob
from hvd_elastic.mpijob.manifests.customization.customized import Customized, customized
from hvd_elastic.mpijob.manifests.manifest_parts import Manifest
from hvd_elastic.mpijob.manifests.supporting import (
    disruption_budget,
    ledger,
    network_policies,
    ownership,
    pod_monitor,
    rbac,
    shared_storage,
    staging,
)
from hvd_elastic.mpijob.problems import InvalidInputError


def render(spec: JobSpec, target: Target = Target.MPIJOB) -> list[Manifest]:
    """Everything that the job needs in the cluster, and at the end the job itself.

    Raises InvalidInputError with every reason why the job cannot be written as `target`: no image, a key that this kind
    of job cannot express, or a change of its pods that would break it.
    """
    return render_customized(spec, target).manifests


def render_customized(spec: JobSpec, target: Target = Target.MPIJOB) -> Customized:
    """The same manifests, with what each of the job's `patches` changes in them. Raises as `render` does."""
    if problems := checks.target_problems(spec, target):
        raise InvalidInputError(problems)
    supporting = [
        *network_policies.manifests(spec),
        *disruption_budget.manifests(spec),
        *pod_monitor.manifests(spec),
        *staging.wanted(spec),
    ]
    match target:
        case Target.MPIJOB:
            beside = [*rbac.manifests(spec, beside=supporting), *supporting]
            own = [*beside, *ledger.manifests(spec), *mpijob_v2beta1.manifests(spec, owned=ownership.paths(beside))]
        case Target.MPIJOB_V1:
            beside = [*mpijob_v1.access(spec), *supporting]
            own = [*beside, *ledger.manifests(spec), *mpijob_v1.manifests(spec)]
        case Target.PYTORCHJOB:
            own = [*supporting, *pytorchjob.manifests(spec)]
    return customized(spec, [*shared_storage.manifests(spec), *staging.manifests(spec), *own])
