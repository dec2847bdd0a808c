"""The ConfigMap of the job's ledger, into which the sidecar writes.

It is made empty, without the key `data`: whoever applies the manifests again owns no part of the data, so neither
client-side apply (https://kubernetes.io/docs/tasks/manage-kubernetes-objects/declarative-config/, "How apply
calculates differences": it removes only what its last manifest had) nor server-side apply (it changes only fields that
it is given) empties a ledger. `kubectl replace` does.

The sidecar makes the MPIJob its owner, not the launcher's Job as for the other objects: the ledger must outlive a Job
whose time is over.
"""

from hvd_elastic.mpijob.contract import LEDGER_SUFFIX
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.manifests.manifest_parts import Manifest, metadata


def name(spec: JobSpec) -> str:
    """The ConfigMap's name."""
    return f"{spec.name}{LEDGER_SUFFIX}"


def manifests(spec: JobSpec) -> list[Manifest]:
    """The ConfigMap."""
    return [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(spec, name(spec))}]
